//! The servers' own checks of their files and tables.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use private_server::mysql::prelude::Queryable;
use private_server::{Installation, Options, Server};

use crate::ledger::Ledger;
use crate::place::{Place, ROOMY};
use crate::trace;

/// Files and tables of a stopped server that passed the checks.
pub struct Clean {
    /// Tablespace files that innochecksum has read.
    pub files: usize,
    pub tables: usize,
}

/// Checks every table and every row through the extension. After a clean stop, which persists the cache, innochecksum reads
/// every file. Then every table and every row are checked without the plugin, on a server with these options.
pub fn stop_and_verify(
    place: &Place,
    server: Server,
    ledger: &Ledger,
    without: Options,
) -> anyhow::Result<Clean> {
    ledger.verify(&server)?;
    check_tables(&server)?;
    server.stop()?;
    place.expect_left()?;
    let files = innochecksum(&place.installation, &place.data())?;
    let server = place.start(without.buffer_pool(ROOMY))?;
    ledger.verify(&server)?;
    let tables = check_tables(&server)?;
    server.stop()?;
    Ok(Clean { files, tables })
}

/// Runs innochecksum on every tablespace file in a data directory of a stopped server; returns the number of files.
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
        // MariaDB's doublewrite buffer, the second and third extent of the system tablespace, holds copies of other pages.
        // innochecksum reports them as errors without the plugin as well.
        let parts = if holds_doublewrite_buffer {
            let extent = pages_of_an_extent(file)?;
            vec![
                format!("--end-page={}", extent - 1),
                format!("--start-page={}", extent * 3),
            ]
        } else {
            vec!["--start-page=0".into()]
        };
        for part in parts {
            check_file(installation, file, &part)?;
        }
    }
    Ok(files.len())
}

fn check_file(installation: &Installation, file: &Path, part: &str) -> anyhow::Result<()> {
    let output = installation
        .tool("innochecksum")
        .context("the installation has no innochecksum")?
        .arg(part)
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

/// Pages of one extent of a MariaDB system tablespace in the format `full_crc32`.
fn pages_of_an_extent(file: &Path) -> anyhow::Result<u32> {
    use std::io::Read;
    let mut header = [0u8; 58];
    std::fs::File::open(file)?.read_exact(&mut header)?;
    let flags = u32::from_be_bytes([header[54], header[55], header[56], header[57]]);
    ensure!(flags & 0x10 != 0, "{} is not full_crc32", file.display());
    let page = 512u32 << (flags & 0xf);
    Ok(((1 << 20) / page).max(64))
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

/// CHECK TABLE on every InnoDB table except the server's own; returns the number of tables.
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

/// Results of a comparison of a running server's cached pages with its data files.
#[derive(Default, Debug)]
pub struct Compared {
    pub compared: u64,
    /// Being written, or not readable.
    pub skipped: u64,
    /// Cached, but would not have been served.
    pub unproven: u64,
    pub wrong: u64,
}

/// Compares all files once. The function `bpe_report` must exist.
pub fn compare_cached(server: &Server, sums: &mut Compared) -> anyhow::Result<()> {
    /// A verification ends after ten seconds without a request of its client, which can happen on a very busy machine.
    const TRIES: usize = 5;
    let mut connection = server.connect()?;
    for _ in 0..TRIES {
        let begun = trace::ask(&mut connection, "verify-start")?;
        let mut next = begun["next"].as_str().map(String::from);
        ensure!(next.is_some(), "{begun}");
        let mut ended = false;
        while let Some(name) = next {
            let answer = trace::ask(&mut connection, &name)?;
            if let Some(error) = answer["error"].as_str() {
                ensure!(error.contains("no such verification"), "{error}");
                ended = true;
                break;
            }
            let number = |name: &str| answer[name].as_u64().context("a number");
            sums.compared += number("compared")?;
            sums.skipped += number("skipped")?;
            sums.unproven += number("unproven")?;
            sums.wrong += number("wrong")?;
            next = answer["next"].as_str().map(String::from);
        }
        if !ended {
            return Ok(());
        }
    }
    bail!("no verification came to its end")
}
