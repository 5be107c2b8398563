//! The server of a side, and its disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use private_server::{Installation, Load, Options, Server};

use super::args::SideName;
use super::bench::Bench;
use super::dataset::Dataset;
use super::disk::Disk;
use super::volume::Volume;
use super::{extension, settings};
use crate::sysbench::{Interval, Sysbench};

/// File of the volume with the file system of the data directory.
const IMAGE: &str = "disk.image";
/// Room of that file system beside the tables: logs, undo and temporary files.
const SPARE: u64 = 4 << 30;

/// Timeout of a start after a kill.
const RECOVERY: Duration = Duration::from_secs(600);

/// A server and its disk. In every case they are dropped in this order: the server, the copy of its log, the disk, the volume.
#[derive(Default)]
pub struct Rig {
    pub server: Option<Server>,
    /// Its start options.
    pub options: Option<Options>,
    /// The server's log, and the destination of its copy.
    pub log: Option<(PathBuf, PathBuf)>,
    /// The file system of the data directory, in a file of the volume (restarts).
    pub disk: Option<Disk>,
    pub volume: Option<Volume>,
}

impl Rig {
    /// Starts the server with its options and `more`. The latter come last, and apply to this start only.
    ///
    /// # Errors
    /// The server does not start, or has no options.
    pub fn start(&mut self, installation: &Installation, more: &[&str]) -> Result<&Server> {
        let mut options = self.options.clone().context("a server without options")?;
        for option in more {
            options = options.option(*option);
        }
        Ok(self.server.insert(installation.start(options)?))
    }

    /// The running server.
    ///
    /// # Errors
    /// None is running.
    pub fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("no server")
    }

    /// Stops the server cleanly and unmounts the volume.
    ///
    /// # Errors
    /// The server or the volume does not end.
    pub fn end(mut self) -> Result<()> {
        // Without limits, so that the last pages are written quickly.
        if let Some(volume) = &self.volume {
            volume.set_unlimited()?;
        }
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        if let Some(disk) = self.disk.take() {
            disk.unmount()?;
        }
        if let Some(volume) = self.volume.take() {
            volume.unmount()?;
        }
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.server.take());
        if let Some((from, to)) = self.log.take() {
            // Without a log there is nothing to copy.
            let _ = std::fs::copy(from, to);
        }
    }
}

impl Bench<'_> {
    /// Starts the server of a side on a copy of the tables.
    ///
    /// # Errors
    /// The copy, the volume or the server fails.
    pub fn set_up(&self, name: SideName, dataset: &Dataset) -> Result<Rig> {
        let backing = self.workspace.backing();
        let title = name.title();
        let stage = self.progress.stage(
            &format!("{title}: copying the tables"),
            (dataset.data >> 30) * 5 + 6,
        );
        self.workspace.empty(&backing)?;
        self.workspace.empty(&self.workspace.fast())?;
        let has_disk = self.plan.restart && name != SideName::Ceiling && Disk::is_possible();
        if has_disk {
            let image = backing.join(IMAGE);
            Disk::format(&image, dataset.data * 3 / 2 + SPARE)?;
            let disk = Disk::mount(&image, &self.workspace.disk())?;
            dataset.copy_to(&self.workspace.disk().join("data"))?;
            disk.unmount()?;
        } else {
            dataset.copy_to(&backing.join("data"))?;
        }
        stage.message("starting the server");

        // Fields are dropped in order: the server before its volume.
        let mut rig = Rig::default();
        let datadir = if name == SideName::Ceiling {
            backing.join("data")
        } else {
            let mountpoint = self.workspace.mountpoint();
            let log = self
                .workspace
                .logs()
                .join(format!("{}.log", self.log_name(&format!("{title}-volume"))));
            rig.volume = Some(Volume::mount(
                &backing,
                &mountpoint,
                &self.workspace.run(),
                &log,
            )?);
            if has_disk {
                let disk = self.workspace.disk();
                rig.disk = Some(Disk::mount(&mountpoint.join(IMAGE), &disk)?);
                disk.join("data")
            } else {
                mountpoint.join("data")
            }
        };
        let run_folder = self.workspace.run().join(self.log_name(title));
        rig.log = Some((
            run_folder.join("error.log"),
            self.workspace
                .logs()
                .join(format!("{}.log", self.log_name(&format!("{title}-server")))),
        ));
        let mut options = Options::new(&datadir, &run_folder).buffer_pool(self.plan.pool);
        for setting in settings::settings(self.installation.flavour, self.plan.restart) {
            options = options.option(setting.option);
        }
        if name == SideName::On {
            let library = self.tools.library.as_ref().context("no bpe.so")?;
            options = options.plugin(library, "bpe", Load::Early);
            for option in self.workspace.keeping() {
                options = options.option(option);
            }
            if self.plan.restart {
                options = options.start_timeout(RECOVERY);
                for option in extension::options(self) {
                    options = options.option(option);
                }
            }
        }
        rig.options = Some(options);
        rig.start(self.installation, &[])?;
        let where_ = match name {
            SideName::Ceiling => "all data on the fast disk",
            SideName::Off => "data on the volume, no extension",
            SideName::On if has_disk => "data on ext4 on the volume, extension loaded",
            SideName::On => "data on the volume, extension loaded",
        };
        stage.finish(&format!("{title}: server is up ({where_})"));
        Ok(rig)
    }

    /// The sysbench load on the reference's tables, for the server with this socket.
    pub fn sysbench<'a>(&'a self, socket: &'a Path) -> Sysbench<'a> {
        Sysbench {
            program: &self.tools.sysbench,
            socket,
            user: "root",
            tables: self.plan.tables(),
            prepares: !self.plan.restart,
            logs: self.workspace.logs(),
        }
    }
}

/// Describes one second of a test.
pub fn live(interval: &Interval) -> String {
    format!("{:.0} QPS, p95 {:.0} ms", interval.qps, interval.p95_ms)
}
