//! Group Replication with a single primary: the remaining members elect the next one, by weight.

use anyhow::Result;
use mysql::prelude::Queryable;
use private_server::Server;

use super::wiring::{Wiring, run, wait_until};

const GROUP: &str = "0b6f2c1e-91d7-4a53-8a3f-6a4c8e2f7b10";
/// Election weights of the members. The second one is the standby.
const WEIGHTS: [u32; 3] = [50, 90, 10];

pub fn options(wiring: &Wiring, node: usize) -> Vec<String> {
    let ports = &wiring.ports;
    let all: Vec<String> = ports
        .iter()
        .map(|of| format!("127.0.0.1:{}", of.group))
        .collect();
    vec![
        "--gtid-mode=ON".into(),
        "--enforce-gtid-consistency=ON".into(),
        "--report-host=127.0.0.1".into(),
        format!("--report-port={}", ports[node].clients),
        "--plugin-load-add=group_replication=group_replication.so".into(),
        format!("--loose-group-replication-group-name={GROUP}"),
        "--loose-group-replication-start-on-boot=OFF".into(),
        "--loose-group-replication-ip-allowlist=127.0.0.1/8".into(),
        "--loose-group-replication-single-primary-mode=ON".into(),
        "--loose-group-replication-recovery-get-public-key=ON".into(),
        format!("--loose-group-replication-member-weight={}", WEIGHTS[node]),
        format!(
            "--loose-group-replication-local-address=127.0.0.1:{}",
            ports[node].group
        ),
        format!("--loose-group-replication-group-seeds={}", all.join(",")),
    ]
}

pub fn prepare(server: &Server) -> Result<()> {
    let statements = [
        "CREATE USER members@'%' IDENTIFIED BY 'x'",
        "GRANT REPLICATION SLAVE, BACKUP_ADMIN, CONNECTION_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO members@'%'",
        // Every copy contains the changes so far.
        "RESET BINARY LOGS AND GTIDS",
    ];
    run(server, &statements)
}

pub fn join(node: usize, server: &Server) -> Result<()> {
    server.sql(
        "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'members', SOURCE_PASSWORD = 'x' FOR CHANNEL 'group_replication_recovery'",
    )?;
    let mut connection = server.connect()?;
    let bootstrap = |value: &str| format!("SET GLOBAL group_replication_bootstrap_group = {value}");
    if node == 0 {
        connection.query_drop(bootstrap("ON"))?;
    }
    connection.query_drop("START GROUP_REPLICATION")?;
    if node == 0 {
        connection.query_drop(bootstrap("OFF"))?;
        return wait_for_the_election(server);
    }
    wait_until("the member is online", || {
        let state = server.value(
            "SELECT MEMBER_STATE FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@GLOBAL.server_uuid",
        )?;
        Ok(state.as_deref() == Some("ONLINE"))
    })
}

/// Waits until this server is the primary and accepts writes.
pub fn wait_for_the_election(server: &Server) -> Result<()> {
    wait_until("the member is the primary", || {
        let primary = server.value(
            "SELECT MEMBER_ID = @@GLOBAL.server_uuid AND @@GLOBAL.super_read_only = 0 \
             FROM performance_schema.replication_group_members WHERE MEMBER_ROLE = 'PRIMARY' AND MEMBER_STATE = 'ONLINE'",
        )?;
        Ok(primary.as_deref() == Some("1"))
    })
}
