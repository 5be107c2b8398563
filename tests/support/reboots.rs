//! A host with numbered boots, for the servers of one place.

use std::cell::Cell;
use std::fs;

use crate::harness::skip;
use crate::place::Place;
use private_server::Options;

/// Each server has a separate mount namespace, in which a file replaces the kernel's boot id.
pub struct Machine<'a> {
    place: &'a Place,
    starts: Cell<u32>,
}

impl Machine<'_> {
    /// A host after its first boot.
    pub fn new(place: &Place) -> anyhow::Result<Machine<'_>> {
        if !rustix::process::geteuid().is_root() {
            return Err(skip("a namespace of mounts needs root"));
        }
        Ok(Machine {
            place,
            starts: Cell::new(1),
        })
    }

    /// Reboots the host while no server runs: the place's in-memory files are gone.
    pub fn start_anew(&self) -> anyhow::Result<()> {
        self.starts.set(self.starts.get() + 1);
        for path in self.place.kept() {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Options of a server on the host.
    pub fn options(&self, options: Options) -> anyhow::Result<Options> {
        let file = self.place.root().join("boot_id");
        let digits = format!("{:012}", self.starts.get());
        fs::write(&file, format!("01234567-89ab-4cde-8123-{digits}\n"))?;
        let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let file = file.display().to_string();
        Ok(options.wrapper(&["unshare", "--mount", "sh", "-c", script, &file]))
    }
}
