//! Galera: one node is written to. Those that are left notice by themselves that it is gone.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use private_server::{Server, root};

use super::wiring::{Wiring, run, wait_until};
use crate::demo::tools::in_path;

const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// # Errors
/// When Galera, or what its nodes call, is not installed.
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
        // All nodes begin with the same data, so nothing is copied; but a node asks for a copy in case.
        "--wsrep-sst-method=mariabackup".into(),
        "--wsrep-sst-auth=copies:x".into(),
        format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{};ist.recv_addr=127.0.0.1:{};gcache.size=64M;\
             socket.ssl=no",
            own.group, own.missed
        ),
    ]
}

/// Programs that Debian's package of the server has and that of its core does not: `scripts/install-dependencies galera` unpacks
/// them there.
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

/// Until the cluster has found that a node is missing, and goes on without it.
pub fn wait_for_the_others(standby: &Server) -> Result<()> {
    wait_until("a cluster without the dead node", || {
        let status = standby.status("wsrep\\_%")?;
        let is = |name: &str, value: &str| status.get(name).is_some_and(|found| found == value);
        Ok(is("wsrep_cluster_size", "2")
            && is("wsrep_cluster_status", "Primary")
            && is("wsrep_ready", "ON"))
    })
}
