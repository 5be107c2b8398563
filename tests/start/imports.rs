//! Servers with differently linked asynchronous I/O: visible calls are served, and invisible ones are refused.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::{Flavour, Outcome, Place, Server, Suite, altered, skip_allowed, sql};

const CACHE: u64 = 64 << 20;
/// The reason for a server whose libaio calls cannot be hooked.
const LIBAIO: &str = "the server does not import io_submit, so pages that it writes with native asynchronous I/O (libaio) \
                      go unseen. Set innodb_use_native_aio=OFF in the server's option file, and restart the server.";
const LINKED_IN: &str = "the server has libaio linked in and does not import io_submit, so pages that it writes with native \
                         asynchronous I/O (libaio) go unseen. Set innodb_use_native_aio=OFF in the server's option file, \
                         and restart the server.";
const IO_URING: &str = "the server does not import io_uring_submit, so pages that it writes with native asynchronous I/O \
                        (io_uring) go unseen. Set innodb_use_native_aio=OFF in the server's option file, and restart the \
                        server.";

/// The tests of this subject.
pub fn suite() -> Suite {
    use Flavour::{MariaDb114Upstream, MariaDb1011, MySql97};
    Suite::new("imports")
        .with(MariaDb1011, "libaio_unseen", libaio_unseen)
        .with(MariaDb1011, "io_uring_unseen", io_uring_unseen)
        .with(MariaDb1011, "too_old", too_old)
        .with(MySql97, "too_old", too_old)
        .with(MariaDb114Upstream, "libaio_linked_in", libaio_linked_in)
        .with(
            MariaDb114Upstream,
            "libaio_linked_in_at_run_time",
            libaio_linked_in_at_run_time,
        )
        .with(
            MariaDb114Upstream,
            "older_libaio_linked_in",
            older_libaio_linked_in,
        )
}

/// The extension is active and right, and serves pages.
fn is_served(server: &Server) -> Outcome {
    sql::expect_state(server, "active")?;
    let ledger = Ledger::create(server, 1, 8000, 3000, 4)?;
    ledger.run_until_above(server, Duration::from_secs(2), "hits", 0)?;
    ledger.verify(server)?;
    ensure!(sql::figure(server, "failed_proofs")? == 0, "failed proofs");
    sql::expect_state(server, "active")
}

/// The extension is passive for this reason and reports it everywhere; the server works.
fn is_refused(place: &Place, server: &Server, reason: &str) -> Outcome {
    sql::wait_until("passive", Duration::from_secs(20), || {
        Ok(sql::status(server, "state")? == "passive")
    })?;
    let said = sql::status(server, "state_reason")?;
    ensure!(said == reason, "the reason is: {said}");
    for setting in [
        format!("SET GLOBAL bpe_path = '{}'", place.cache().display()),
        format!("SET GLOBAL bpe_size = {CACHE}"),
    ] {
        server.sql(&setting)?;
    }
    let said = sql::refusal(server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(said.contains(reason), "refused with: {said}");
    let log = std::fs::read_to_string(server.log())?;
    ensure!(log.contains(reason), "not in the error log");
    let ledger = Ledger::create(server, 1, 2000, 3000, 4)?;
    ledger.run(server, Duration::from_secs(1))?;
    ledger.verify(server)?;
    ensure!(sql::figure(server, "hits")? == 0, "served");
    ensure!(place.cache_files().is_empty());
    sql::expect_state(server, "passive")
}

fn fresh(place: &Place, name: &str) -> Outcome {
    integration_tests::place::copy_folder(&place.data(), &place.root().join(name))
}

fn libaio_unseen(place: &Place) -> Outcome {
    fresh(place, "pristine")?;
    let other = altered::renamed(place, "io_submit", b'j', altered::SUBMITS_UNSEEN)?;
    let start = |options: integration_tests::Options| -> anyhow::Result<Server> {
        std::fs::remove_dir_all(place.data())?;
        integration_tests::place::copy_folder(&place.root().join("pristine"), &place.data())?;
        // Each start begins without persisted state.
        let options = options
            .preload(&other.shim)
            .option("--loose-bpe-persist-path=")
            .option("--innodb-linux-aio=aio");
        Ok(other.installation.start(options)?)
    };
    // On a running server that uses libaio.
    let server = start(place.installable()?)?;
    server.sql(place.install_statement())?;
    is_refused(place, &server, LIBAIO)?;
    server.stop()?;
    // Unused, so that no import is missing.
    let server = start(place.installable()?.option("--innodb-use-native-aio=OFF"))?;
    server.sql(place.install_statement())?;
    server.sql(&format!(
        "SET GLOBAL bpe_path = '{}', bpe_size = {CACHE}",
        place.cache().display()
    ))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    is_served(&server)?;
    server.stop()?;
    // Loaded before InnoDB, the extension itself switches native asynchronous I/O off.
    let server = start(place.early(CACHE)?)?;
    sql::wait_until("active", Duration::from_secs(20), || {
        Ok(sql::status(&server, "state")? == "active")
    })?;
    ensure!(server.value("SELECT @@innodb_use_native_aio")?.as_deref() == Some("0"));
    is_served(&server)?;
    server.stop()?;
    Ok(())
}

/// The I/O of such a server has not been examined.
fn too_old(place: &Place) -> Outcome {
    let (number, name, oldest) = match place.is_mysql() {
        true => (50_744, "MySQL 5.7.44", "8.0"),
        false => (100_434, "MariaDB 10.4.34", "10.5"),
    };
    let reason = format!(
        "{name} is older than {oldest}, the oldest release that the extension can follow. Use MariaDB 10.5 or MySQL 8.0, or a \
         newer release."
    );
    let server = altered::of_release(place, number)?.start(place.early(CACHE)?)?;
    is_refused(place, &server, &reason)?;
    server.stop()?;
    Ok(())
}

fn io_uring_unseen(place: &Place) -> Outcome {
    let other = altered::renamed(place, "io_uring_submit", b'j', altered::RINGS_UNSEEN)?;
    let start = |options: integration_tests::Options| -> anyhow::Result<Server> {
        Ok(other.installation.start(options.preload(&other.shim))?)
    };
    // libaio is imported, but the running server uses io_uring.
    let server = start(place.installable()?)?;
    let log = std::fs::read_to_string(server.log())?;
    if !log.contains("io_uring") && !log.contains("liburing") {
        return Err(skip_allowed("the kernel lets no server use io_uring"));
    }
    server.sql(place.install_statement())?;
    is_refused(place, &server, IO_URING)?;
    server.sql("DROP DATABASE IF EXISTS ledger")?;
    server.stop()?;
    std::fs::remove_dir_all(place.data())?;
    let place = Place::new(Flavour::MariaDb1011)?;
    let server = other
        .installation
        .start(place.early(CACHE)?.preload(&other.shim))?;
    is_served(&server)?;
    ensure!(sql::status(&server, "async_mode")? == "libaio");
    server.stop()?;
    Ok(())
}

/// The executable contains libaio, which makes its calls through the imported `syscall`.
fn libaio_linked_in(place: &Place) -> Outcome {
    fresh(place, "pristine")?;
    let server = place.start(place.early(CACHE)?)?;
    ensure!(server.value("SELECT @@innodb_use_native_aio")?.as_deref() == Some("1"));
    is_served(&server)?;
    ensure!(sql::status(&server, "async_mode")? == "libaio");
    server.stop()?;
    std::fs::remove_dir_all(place.data())?;
    std::fs::rename(place.root().join("pristine"), place.data())?;
    let server = place.start(place.early(CACHE)?.option("--innodb-use-native-aio=OFF"))?;
    is_served(&server)?;
    ensure!(sql::status(&server, "async_mode")? == "none seen");
    server.stop()?;
    Ok(())
}

fn libaio_linked_in_at_run_time(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    place.install(&server, CACHE)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    is_served(&server)?;
    ensure!(sql::status(&server, "async_mode")? == "libaio");
    server.stop()?;
    Ok(())
}

/// libaio up to 0.3.111 enters the kernel directly.
fn older_libaio_linked_in(place: &Place) -> Outcome {
    // mov $number,%eax; syscall; ret
    let own = |number: u8| [0xb8, number, 0, 0, 0, 0x0f, 0x05, 0xc3];
    let (submit, setup) = (libc::SYS_io_submit as u8, libc::SYS_io_setup as u8);
    let symbols: Vec<(usize, u8)> = [("io_submit", submit), ("io_setup", setup)]
        .into_iter()
        .map(|(name, number)| Ok((function(place, name)?, number)))
        .collect::<anyhow::Result<_>>()?;
    let other = altered::altered(place, |bytes| {
        for &(at, number) in &symbols {
            bytes[at..at + 8].copy_from_slice(&own(number));
        }
        Ok(())
    })?;
    let server = other.start(place.early(CACHE)?)?;
    is_refused(place, &server, LINKED_IN)?;
    server.stop()?;
    let fresh = Place::new(Flavour::MariaDb114Upstream)?;
    let server = other.start(fresh.early(CACHE)?.option("--innodb-use-native-aio=OFF"))?;
    sql::wait_until("active", Duration::from_secs(20), || {
        Ok(sql::status(&server, "state")? == "active")
    })?;
    is_served(&server)?;
    server.stop()?;
    Ok(())
}

/// Offset of a function in the server's executable. In its first segment, addresses are offsets.
fn function(place: &Place, name: &str) -> anyhow::Result<usize> {
    let output = std::process::Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(place.installation.server_program())
        .output()
        .context("nm")?;
    let text = String::from_utf8(output.stdout)?;
    let line = text
        .lines()
        .find(|line| line.split_whitespace().nth(2) == Some(name))
        .with_context(|| format!("no function {name}"))?;
    let address = line.split_whitespace().next().context("an address")?;
    Ok(usize::from_str_radix(address, 16)?)
}
