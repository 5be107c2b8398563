//! A table whose file is replaced by an older copy: pages of the former file would be valid in every respect.

use std::path::Path;

use anyhow::{Context, ensure};
use private_server::Server;
use private_server::mysql::{Conn, prelude::Queryable};

use crate::place::{self, Place};
use crate::sql;

const ROWS: u32 = 12_000;
const WIDTH: u32 = 1500;

/// The files that can be copied after FLUSH TABLES d.t FOR EXPORT.
const EXPORTED: [&str; 2] = ["t.ibd", "t.cfg"];

/// Copies the table `d.t` of a running server, whose files are in `folder`, into the directory `aside`.
pub fn set_aside(connection: &mut Conn, folder: &Path, aside: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(aside)?;
    connection.query_drop("FLUSH TABLES d.t FOR EXPORT")?;
    for name in EXPORTED {
        place::copy_folder(&folder.join(name), &aside.join(name))?;
    }
    Ok(connection.query_drop("UNLOCK TABLES")?)
}

/// Puts such a copy in place of `d.t`.
pub fn put_back(connection: &mut Conn, folder: &Path, aside: &Path) -> anyhow::Result<()> {
    connection.query_drop("ALTER TABLE d.t DISCARD TABLESPACE")?;
    for name in EXPORTED {
        place::copy_folder(&aside.join(name), &folder.join(name))?;
    }
    connection
        .query_drop("ALTER TABLE d.t IMPORT TABLESPACE")
        .context("IMPORT")
}

/// Copies a table's file, changes every row, and reads everything so that it is cached. Then puts the old file in place by
/// DISCARD and IMPORT, and expects the old rows.
pub fn older_copy(place: &Place, server: &Server) -> anyhow::Result<()> {
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, WIDTH, "")?;
    let folder = place.data().join("d");
    let aside = place.root().join("aside");
    set_aside(&mut connection, &folder, &aside)?;

    for time in 1..=2 {
        for from in (0..ROWS).step_by(1000) {
            connection.query_drop(format!(
                "UPDATE d.t SET v = v + 1, pad = REVERSE(pad) WHERE id > {from} AND id <= {}",
                from + 1000
            ))?;
        }
        for _ in 0..2 {
            let (_, versions) = sql::read_all(&mut connection, "d.t", ROWS)?;
            ensure!(versions == u64::from(time * ROWS), "before: {versions}");
        }
    }
    put_back(&mut connection, &folder, &aside)?;
    for _ in 0..2 {
        let (_, versions) = sql::read_all(&mut connection, "d.t", ROWS)?;
        ensure!(
            versions == 0,
            "after the import rows of the time before are read: sum of versions {versions}"
        );
    }
    ensure!(sql::verify_pads(&mut connection, "d.t", WIDTH)? == ROWS);
    Ok(())
}
