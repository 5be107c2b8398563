//! The library in the server's `plugin_dir`, which its next start or `bpe enable` would load.

use std::path::Path;

use super::finding::Finding;
use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::installation::library;
use crate::support::elf::{Glibc, is_c_library};

const TOPIC: &str = "library";
const REMEDY: &str = "install the innodb-bpe package for this machine again, or put a whole bpe.so there with install(1)";

/// Returns `None` without a library: `bpe enable` installs one.
pub fn check(server: &mut Server, process: &Process) -> Option<Finding> {
    let folder = server.variable("plugin_dir").ok()??;
    let place = Path::new(&folder).join(library::FILE_NAME);
    let file = process.seen(&place);
    if !file.is_file() {
        return None;
    }
    let fail = |why| Some(Finding::fail(TOPIC, why).advise(REMEDY));
    if let Err(why) = library::check(&file, server.flavour, process.architecture()) {
        return fail(why);
    }
    let there = process
        .mapped(is_c_library)
        .and_then(|path| Glibc::of(&process.seen(&path)));
    match (Glibc::wanted_by(&file), there) {
        (Some(wanted), Some(there)) if wanted > there => fail(format!(
            "{} needs glibc {wanted}, and this server has {there}",
            place.display()
        )),
        (_, Some(_)) => Some(Finding::ok(
            TOPIC,
            format!("{} can be loaded", place.display()),
        )),
        (_, None) => Some(Finding::ok(
            TOPIC,
            format!(
                "{} is whole and for this processor; the server's C library was not seen",
                place.display()
            ),
        )),
    }
}
