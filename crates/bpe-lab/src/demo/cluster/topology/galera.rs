//! Galera with writes to one node only. The remaining nodes detect its death.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use private_server::{Server, root};

use super::wiring::{Wiring, run, wait_until};
use crate::sysbench::in_path;

const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// # Errors
/// Galera, or a program that its nodes call, is not installed.
pub fn require() -> Result<()> {
    const COPYING: &str = "wsrep_sst_mariabackup";
    let is_there = Path::new(PROVIDER).is_file()
        && (in_path(COPYING).is_some()
            || programs().is_some_and(|folder| folder.join(COPYING).is_file()));
    ensure!(
        is_there,
        "Galera needs {PROVIDER} and {COPYING}: scripts/install-dependencies galera"
    );
    Ok(())
}

pub fn options(wiring: &Wiring, node: usize) -> Vec<String> {
    let ports = &wiring.ports;
    let all: Vec<String> = ports
        .iter()
        .map(|of| format!("127.0.0.1:{}", of.group))
        .collect();
    let own = &ports[node];
    vec![
        "--innodb-autoinc-lock-mode=2".into(),
        "--wsrep-on=ON".into(),
        format!("--wsrep-provider={PROVIDER}"),
        "--wsrep-cluster-name=innodb-bpe-demo".into(),
        format!("--wsrep-cluster-address=gcomm://{}", all.join(",")),
        format!("--wsrep-node-name=node-{node}"),
        format!("--wsrep-node-address=127.0.0.1:{}", own.group),
        format!("--wsrep-node-incoming-address=127.0.0.1:{}", own.clients),
        "--wsrep-slave-threads=4".into(),
        // All nodes start with the same data, so nothing is copied. A node needs a copy method anyway.
        "--wsrep-sst-method=mariabackup".into(),
        "--wsrep-sst-auth=copies:x".into(),
        format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{};ist.recv_addr=127.0.0.1:{};gcache.size=64M;\
             socket.ssl=no",
            own.group, own.missed
        ),
    ]
}

/// Directory of programs that Debian has in the server package and not in its core package. `scripts/install-dependencies
/// galera` unpacks them there.
pub fn programs() -> Option<PathBuf> {
    root::tools().ok()
}

pub fn prepare(server: &Server) -> Result<()> {
    wait_until_synced(server)?;
    let account = [
        "CREATE USER copies@localhost IDENTIFIED BY 'x'",
        "GRANT RELOAD, PROCESS, LOCK TABLES, REPLICATION CLIENT, BINLOG MONITOR, REPLICATION SLAVE ADMIN ON *.* TO copies@localhost",
    ];
    run(server, &account)
}

pub fn wait_until_synced(server: &Server) -> Result<()> {
    wait_until("the node is synced", || {
        let state = server.status("wsrep_local_state_comment")?;
        Ok(state.values().any(|state| state == "Synced"))
    })
}

/// Waits until the cluster has expelled the dead node, and continues without it.
pub fn wait_for_the_others(standby: &Server) -> Result<()> {
    wait_until("a cluster without the dead node", || {
        let status = standby.status("wsrep\\_%")?;
        let is = |name: &str, value: &str| status.get(name).is_some_and(|found| found == value);
        Ok(is("wsrep_cluster_size", "2")
            && is("wsrep_cluster_status", "Primary")
            && is("wsrep_ready", "ON"))
    })
}
