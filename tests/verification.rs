//! The servers' own checks of their files and tables.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use private_server::mysql::prelude::Queryable;
use private_server::{Installation, Server};

/// Runs innochecksum on every tablespace file in a data directory of a stopped server; returns how many there were.
pub fn innochecksum(installation: &Installation, data: &Path) -> anyhow::Result<usize> {
    let mut files = Vec::new();
    tablespace_files(data, &mut files)?;
    ensure!(
        !files.is_empty(),
        "no tablespace files in {}",
        data.display()
    );
    for file in &files {
        let holds_doublewrite_buffer = !installation.flavour.is_mysql()
            && file.file_name().is_some_and(|name| name == "ibdata1");
        let parts: &[&[&str]] = if holds_doublewrite_buffer {
            // MariaDB's doublewrite buffer, pages 64 to 191, holds copies of other pages; innochecksum complains of it
            // without the plugin as well.
            &[&["--end-page=63"], &["--start-page=192"]]
        } else {
            &[&[]]
        };
        for options in parts {
            check_file(installation, file, options)?;
        }
    }
    Ok(files.len())
}

fn check_file(installation: &Installation, file: &Path, options: &[&str]) -> anyhow::Result<()> {
    let output = installation
        .tool("innochecksum")
        .context("the installation has no innochecksum")?
        .args(options)
        .arg(file)
        .stdin(Stdio::null())
        .output()?;
    ensure!(
        output.status.success(),
        "innochecksum {}: {} {}{}",
        file.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn tablespace_files(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            tablespace_files(&path, files)?;
        } else if name.ends_with(".ibd") || name.starts_with("undo") || name.starts_with("ibdata") {
            files.push(path);
        }
    }
    Ok(())
}

/// CHECK TABLE on every InnoDB table but the server's own; returns how many there were.
pub fn check_tables(server: &Server) -> anyhow::Result<usize> {
    let mut connection = server.connect()?;
    let tables: Vec<(String, String)> = connection.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE ENGINE = 'InnoDB' \
         AND TABLE_SCHEMA NOT IN ('mysql', 'sys')",
    )?;
    for (database, table) in &tables {
        let rows: Vec<(String, String, String, String)> =
            connection.query(format!("CHECK TABLE `{database}`.`{table}` EXTENDED"))?;
        let last = rows.last().context("CHECK TABLE gave no row")?;
        ensure!(
            last.2 == "status" && last.3 == "OK",
            "CHECK TABLE {database}.{table}: {rows:?}"
        );
    }
    Ok(tables.len())
}
