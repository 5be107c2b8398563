//! A server of a side on its disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use private_server::{Installation, Load, Options, Server};

use super::args::SideName;
use super::bench::Bench;
use super::dataset::Dataset;
use super::sysbench::{Interval, Sysbench};
use super::volume::Volume;
use super::{extension, settings};

/// How long the start of a server that was killed may take.
const RECOVERY: Duration = Duration::from_secs(600);

/// A server on its disk. Dropped in this order whatever happens: the server, the copy of its log,
/// the volume.
#[derive(Default)]
pub struct Rig {
    pub server: Option<Server>,
    /// What it is started with.
    pub options: Option<Options>,
    /// The server's log, and where a copy of it stays.
    pub log: Option<(PathBuf, PathBuf)>,
    pub volume: Option<Volume>,
}

impl Rig {
    /// Starts the server with its options and `more`, which come last and count for this start alone.
    ///
    /// # Errors
    /// When it does not start; when it never had options.
    pub fn start(&mut self, installation: &Installation, more: &[&str]) -> Result<&Server> {
        let mut options = self.options.clone().context("a server without options")?;
        for option in more {
            options = options.option(*option);
        }
        Ok(self.server.insert(installation.start(options)?))
    }

    /// The server that runs.
    ///
    /// # Errors
    /// When none does.
    pub fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("no server")
    }

    /// Stops the server cleanly and unmounts the volume.
    ///
    /// # Errors
    /// When either does not go.
    pub fn end(mut self) -> Result<()> {
        // A volume without limits, so that the last pages do not take their time.
        if let Some(volume) = &self.volume {
            volume.set_unlimited()?;
        }
        if let Some(server) = self.server.take() {
            server.stop()?;
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
            // Without a log there is nothing to keep.
            let _ = std::fs::copy(from, to);
        }
    }
}

impl Bench<'_> {
    /// Starts the server of a side on a copy of the tables.
    ///
    /// # Errors
    /// When the copy, the volume or the server fails.
    pub fn set_up(&self, name: SideName, dataset: &Dataset) -> Result<Rig> {
        let backing = self.workspace.backing();
        let title = name.title();
        let stage = self.progress.stage(
            &format!("{title}: copying the tables"),
            (dataset.data >> 30) * 5 + 6,
        );
        self.workspace.empty(&backing)?;
        self.workspace.empty(&self.workspace.fast())?;
        dataset.copy_to(&backing.join("data"))?;
        stage.message("starting the server");

        // The order of the fields is the order in which they go: the server before its volume.
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
            mountpoint.join("data")
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
            SideName::On => "data on the volume, extension loaded",
        };
        stage.finish(&format!("{title}: server is up ({where_})"));
        Ok(rig)
    }

    /// The load on the reference's tables on the server of a side, which has this socket.
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

/// A second of a test in words.
pub fn live(interval: &Interval) -> String {
    format!("{:.0} QPS, p95 {:.0} ms", interval.qps, interval.p95_ms)
}
