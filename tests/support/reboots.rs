//! A machine whose starts are told apart, for the servers of one place.

use std::cell::Cell;
use std::fs;

use crate::harness::skip;
use crate::place::Place;
use private_server::Options;

/// Each server has a namespace of mounts of its own, in which the kernel's number of its start is a file.
pub struct Machine<'a> {
    place: &'a Place,
    starts: Cell<u32>,
}

impl Machine<'_> {
    /// It was started once.
    pub fn new(place: &Place) -> anyhow::Result<Machine<'_>> {
        if !rustix::process::geteuid().is_root() {
            return Err(skip("a namespace of mounts needs root"));
        }
        Ok(Machine {
            place,
            starts: Cell::new(1),
        })
    }

    /// Starts it anew, while no server runs: what the place has in memory is gone.
    pub fn start_anew(&self) -> anyhow::Result<()> {
        self.starts.set(self.starts.get() + 1);
        for path in self.place.kept() {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Of a server on it.
    pub fn options(&self, options: Options) -> anyhow::Result<Options> {
        let file = self.place.root().join("boot_id");
        let digits = format!("{:012}", self.starts.get());
        fs::write(&file, format!("01234567-89ab-4cde-8123-{digits}\n"))?;
        let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let file = file.display().to_string();
        Ok(options.wrapper(&["unshare", "--mount", "sh", "-c", script, &file]))
    }
}
