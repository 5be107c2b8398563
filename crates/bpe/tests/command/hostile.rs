//! Obstacles that other users of the host, and accounts of the server, can put in the way of root's command.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use anyhow::ensure;
use integration_tests::harness::Outcome;
use integration_tests::{Flavour, Place, Suite};

use super::command::Host;

const NOBODY: u32 = 65534;
const SIZE: &str = "64M";

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("hostile")
        .with(
            Flavour::MariaDb1011,
            "servers_of_strangers_are_refused",
            servers_of_strangers_are_refused,
        )
        .with(
            Flavour::MariaDb1011,
            "links_of_others_are_refused",
            links_of_others_are_refused,
        )
        .in_turn(
            "option_file_of_another_hand_stays",
            option_file_of_another_hand_stays,
        )
        .in_turn("values_hold_no_line", values_hold_no_line)
        .in_turn(
            "wrong_answers_end_in_words",
            super::rogue::wrong_answers_end_in_words,
        )
}

fn needs_root() -> Outcome {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(integration_tests::skip("needs root to act as another user")),
    }
}

/// A genuine server of another user, in that user's directory. `--server-user` accepts it.
fn servers_of_strangers_are_refused(_: &Place) -> Outcome {
    needs_root()?;
    let place = Place::readable_by("nobody", Flavour::MariaDb1011)?;
    let state = tempfile::tempdir()?;
    let server = place.start(place.options().user("nobody"))?;
    let host = Host::of(&place, state.path().join("state"), server);
    fs::create_dir(host.conf())?;
    let before = host.snapshot()?;
    let socket = host.server().socket().display().to_string();
    let cache = place.cache().display().to_string();
    let stranger = ["--no-defaults", "-uroot", "-S", &socket];
    let enable = ["enable", "--yes", "--path", &cache, "--size", SIZE];
    for command in [
        &enable[..],
        &["disable", "--yes"],
        &["status"],
        &["doctor", "--path", &cache, "--size", SIZE],
    ] {
        let run = host.bpe_bare(&[command, &stranger].concat())?;
        ensure!(run.code != 0, "{command:?}: {}", run.text);
        run.contains("of user nobody listens there")?;
    }
    host.bpe_bare(&[&["status"], &stranger[..], &["--server-user=daemon"]].concat())?
        .expect(3, &["not the user that --server-user names"])?;
    host.bpe_bare(&[&["status"], &stranger[..], &["--server-user=nobody"]].concat())?
        .expect(1, &["not installed"])?;
    host.unchanged_since(&before)
}

fn links_of_others_are_refused(place: &Place) -> Outcome {
    needs_root()?;
    let host = Host::new(place)?;
    let before = host.snapshot()?;
    let (theirs, roots) = (place.root().join("theirs"), place.root().join("roots"));
    fs::create_dir(&theirs)?;
    fs::create_dir(&roots)?;
    symlink(&roots, theirs.join("link"))?;
    chown(&theirs, Some(NOBODY), None)?;
    host.enable(&theirs.join("link/cache"), SIZE, &[])?
        .expect(1, &["belongs to user 65534", "nothing was changed"])?;
    // The directory of option files belongs to another user.
    let conf = fs::metadata(host.conf())?;
    chown(host.conf(), Some(NOBODY), None)?;
    host.enable(&place.cache(), SIZE, &["--keep-pool"])?
        .expect(0, &["belongs to user 65534", "write this into"])?;
    ensure!(!host.snippet().exists());
    host.disable()?;
    chown(
        host.conf(),
        Some(std::os::unix::fs::MetadataExt::uid(&conf)),
        None,
    )?;
    ensure!(fs::read_dir(&roots)?.next().is_none(), "something was made");
    host.unchanged_since(&before)
}

fn option_file_of_another_hand_stays(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    let text = "[client]\npassword=precious\n";
    fs::write(host.snippet(), text)?;
    fs::set_permissions(host.snippet(), fs::Permissions::from_mode(0o600))?;
    let before = host.snapshot()?;
    host.enable(&place.cache(), SIZE, &["--keep-pool"])?
        .expect(0, &["has not written it", "write this into"])?;
    host.disable()?;
    host.unchanged_since(&before)?;
    ensure!(fs::read_to_string(host.snippet())? == text);
    let mode = fs::metadata(host.snippet())?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "mode {mode:o}");
    Ok(())
}

/// An account that may set the variables could otherwise add a line to the option file that root writes, or a statement to
/// root's session.
fn values_hold_no_line(place: &Place) -> Outcome {
    let host = Host::new(place)?;
    host.enable(&place.cache(), SIZE, &[])?.expect(0, &[])?;
    for (variable, value) in [
        ("bpe_tables", "exclude `a\ninit_file=/evil`.b"),
        ("bpe_tables", "exclude `a\u{2028}`.b"),
        ("bpe_path", "/a\ninit_file=/evil"),
        ("bpe_path", "/a\\'; DROP DATABASE d; -- "),
        ("bpe_path", "/a\u{1b}[2J"),
    ] {
        let hexadecimal: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        let set = format!("SET GLOBAL {variable} = _utf8mb4 x'{hexadecimal}'");
        ensure!(host.server().sql(&set).is_err(), "{variable}: {value:?}");
    }
    let text = fs::read_to_string(host.snippet())?;
    ensure!(!text.contains("evil"), "{text}");
    let odd = Path::new("/a\nb");
    host.enable(odd, SIZE, &[])?
        .expect(2, &["control character"])?;
    host.disable()?;
    Ok(())
}
