//! Servers with an altered executable, as another build would have.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use private_server::Installation;

use crate::place::Place;

/// A server that calls an import under another name, and the preloaded library that defines that name.
pub struct Renamed {
    pub installation: Installation,
    pub shim: PathBuf,
}

/// The place's server with an import renamed: `begin` replaces its first letter. The C code `source` defines the new name.
pub fn renamed(place: &Place, import: &str, begin: u8, source: &str) -> anyhow::Result<Renamed> {
    let shim = place.root().join("libshim.so");
    let file = place.root().join("shim.c");
    std::fs::write(&file, source)?;
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-D_FILE_OFFSET_BITS=64", "-o"])
        .args([&shim, &file])
        .output()
        .context("cc")?;
    ensure!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let name = [b"\0", import.as_bytes(), b"\0"].concat();
    let installation = altered(place, |bytes| {
        let all: Vec<usize> = bytes
            .windows(name.len())
            .enumerate()
            .filter(|(_, window)| *window == name)
            .map(|(at, _)| at)
            .collect();
        ensure!(!all.is_empty(), "the server has no import {import}");
        for at in all {
            bytes[at + 1] = begin;
        }
        Ok(())
    })?;
    Ok(Renamed { installation, shim })
}

/// The place's server with its executable changed.
pub fn altered(
    place: &Place,
    change: impl FnOnce(&mut [u8]) -> anyhow::Result<()>,
) -> anyhow::Result<Installation> {
    let original = place.installation.server_program();
    let name = original.file_name().context("a program")?;
    let folder = place.root().join("altered");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join(name);
    let mut bytes = std::fs::read(original)?;
    change(&mut bytes)?;
    std::fs::write(&program, bytes)?;
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
    Ok(place.installation.with_server_program(&program))
}

/// The place's server with the number of another release in its plugin declarations: 10.2.11 is 100211.
pub fn of_release(place: &Place, number: u32) -> anyhow::Result<Installation> {
    let own = place
        .installation
        .version
        .split(|letter: char| !letter.is_ascii_digit())
        .take(3)
        .try_fold(0, |sum, part| {
            part.parse::<u32>().map(|part| sum * 100 + part)
        })
        .context("the server's version")?;
    let (old, new) = ((own << 8).to_le_bytes(), (number << 8).to_le_bytes());
    altered(place, |bytes| {
        let declared = bytes
            .chunks_exact_mut(size_of::<u32>())
            .filter(|word| **word == old)
            .map(|word| word.copy_from_slice(&new))
            .count();
        ensure!(declared > 0, "no plugin declares {own}");
        Ok(())
    })
}

/// Source for a server that submits through libaio without a hook.
pub const SUBMITS_UNSEEN: &str = "#define _GNU_SOURCE\n#include <dlfcn.h>\n\
    int jo_submit(void *c, long n, void **l) {\n\
    static int (*real)(void *, long, void **);\n\
    if (!real) real = dlsym(RTLD_DEFAULT, \"io_submit\");\n\
    return real(c, n, l); }\n";

/// The same through io_uring.
pub const RINGS_UNSEEN: &str = "#define _GNU_SOURCE\n#include <dlfcn.h>\n\
    int jo_uring_submit(void *ring) {\n\
    static int (*real)(void *);\n\
    if (!real) real = dlsym(RTLD_DEFAULT, \"io_uring_submit\");\n\
    return real(ring); }\n";
