//! `bpe verify` against real servers: reports damaged pages of data files and saves their cached copies.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use integration_tests::harness::Outcome;
use integration_tests::trace::CREATE_FUNCTION;
use integration_tests::{Place, Server, Suite, note, sql};

use super::record::{finish, start_as};

const ROWS: u32 = 8000;
const WIDTH: u32 = 2000;
const PAGE: usize = 16384;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("verify_command").in_turn("a_damaged_sector_is_told_and_saved", damaged_sector)
}

fn verify(
    server: &Server,
    arguments: &[&str],
    code: i32,
    parts: &[&str],
) -> anyhow::Result<String> {
    finish(start_as(server, "root", "verify", arguments)?, code, parts)
}

/// Damages one sector in the middle of a cached page, and nothing else of the file. Returns the page number and the page
/// before.
fn damage(server: &Server, file: &File) -> anyhow::Result<(u64, Vec<u8>)> {
    for number in [300, 400, 500, 600, 700] {
        let mut page = vec![0; PAGE];
        let offset = number * PAGE as u64;
        file.read_exact_at(&mut page, offset)?;
        let modified = file.metadata()?.modified()?;
        file.write_all_at(&[0xa5; 512], offset + PAGE as u64 / 2)?;
        file.sync_all()?;
        file.set_modified(modified)?;
        let told = start_as(server, "root", "verify", &["--json"])?.wait_with_output()?;
        let told: serde_json::Value = serde_json::from_slice(&told.stdout)?;
        if told["damaged"] == 1 {
            return Ok((number, page));
        }
        file.write_all_at(&page, offset)?;
    }
    bail!("none of the pages is cached")
}

fn saved_page(folder: &Path, number: u64) -> anyhow::Result<Vec<u8>> {
    let list: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("pages.json"))?)?;
    let one = &list[0];
    note(list.to_string());
    ensure!(list[1].is_null() && one["page"] == number);
    ensure!(one["offset"] == number * PAGE as u64 && one["bytes"] == PAGE);
    ensure!(
        one["file"]
            .as_str()
            .is_some_and(|file| file.ends_with("d/t.ibd"))
    );
    let name = one["saved_as"].as_str().context("a name")?;
    Ok(fs::read(folder.join(name))?)
}

fn damaged_sector(place: &Place) -> Outcome {
    let server = place.start(place.early(64 << 20)?)?;
    server.sql(CREATE_FUNCTION)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, WIDTH, "")?;
    sql::write_dirty_pages(&server)?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    verify(
        &server,
        &[],
        0,
        &["Compared ", "Not open ", "Different   none"],
    )?;
    let path = place.data().join("d/t.ibd");
    let file = File::options().read(true).write(true).open(path)?;
    let (number, whole) = damage(&server, &file)?;
    let named = format!("page {number} of ./d/t.ibd");
    verify(
        &server,
        &[],
        1,
        &["Damaged     1 ", &named, "--save-pages", "Different   none"],
    )?;
    ensure!(sql::figure(&server, "damaged_pages")? == 1);
    let status = start_as(&server, "root", "status", &["--explain"])?;
    finish(status, 0, &["1 pages are damaged", "--save-pages"])?;
    let folder = place.root().join("saved");
    let to = folder.to_string_lossy().into_owned();
    verify(
        &server,
        &["--save-pages", &to],
        1,
        &["Saved       1 ", &named],
    )?;
    ensure!(folder.metadata()?.permissions().mode() & 0o777 == 0o700);
    ensure!(saved_page(&folder, number)? == whole, "the good copy");
    verify(&server, &["--save-pages", &to], 2, &["exists"])?;
    // Every row can be read; the pool does not hold its pages.
    ensure!(sql::verify_pads(&mut connection, "d.t", WIDTH)? == ROWS);
    ensure!(fs::read_to_string(server.log())?.contains("is damaged"));
    // Written back as documented, the page is correct.
    file.write_all_at(&saved_page(&folder, number)?, number * PAGE as u64)?;
    file.sync_all()?;
    verify(&server, &[], 0, &["Different   none"])?;
    ensure!(sql::figure(&server, "damaged_pages")? == 0);
    server.stop()?;
    Ok(())
}
