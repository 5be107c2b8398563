//! The servers of a cluster. Each has its data directory on a separate volume, and its cache on the fast disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use private_server::{Load, Options, Server, free_ports, ownership};

use super::account;
use super::name::NODES;
use super::plan::{ClusterPlan, IOPS, Standby};
use super::topology::wiring::{Ports, Wiring};
use crate::demo::bench::Bench;
use crate::demo::dataset::Dataset;
use crate::demo::observer::{Observer, Snapshot};
use crate::demo::rig::Rig;
use crate::demo::volume::Volume;
use crate::demo::{extension, settings};

/// Timeout of a start.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// Directories of a node.
struct Folders(PathBuf);

impl Folders {
    fn of(bench: &Bench, node: usize) -> Folders {
        Folders(bench.workspace.node(node))
    }

    fn backing(&self) -> PathBuf {
        self.0.join("backing")
    }

    fn mountpoint(&self) -> PathBuf {
        self.0.join("volume")
    }

    fn fast(&self) -> PathBuf {
        self.0.join("fast")
    }

    fn run(&self) -> PathBuf {
        self.0.join("run")
    }
}

/// A running cluster. The first node is the primary, the second its standby.
pub struct Nodes {
    pub wiring: Wiring,
    rigs: [Rig; NODES],
}

/// Connections between the nodes of a cluster.
///
/// # Errors
/// There are no free ports.
pub fn wiring(bench: &Bench) -> Result<Wiring> {
    Ok(Wiring {
        flavour: bench.installation.flavour,
        ports: free_ports::<3, NODES>().context("no free ports")?.map(
            |[clients, group, missed]| Ports {
                clients,
                group,
                missed,
            },
        ),
    })
}

fn options(
    bench: &Bench,
    plan: &ClusterPlan,
    wiring: &Wiring,
    node: usize,
    datadir: &Path,
) -> Result<Options> {
    let library = bench.tools.library.as_ref().context("no bpe.so")?;
    let mut options = Options::new(datadir, Folders::of(bench, node).run())
        .buffer_pool(plan.size.pool)
        .port(wiring.ports[node].clients)
        .start_timeout(START_TIMEOUT)
        .plugin(library, "bpe", Load::Early)
        // State for a node's next start is irrelevant here.
        .option("--loose-bpe-persist-path=");
    for setting in settings::settings(bench.installation.flavour, false) {
        options = options.option(setting.option);
    }
    if let Some(programs) = plan.name.programs() {
        let path = std::env::var("PATH").unwrap_or_default();
        options = options.environment("PATH", &format!("{path}:{}", programs.display()));
    }
    for option in plan.name.options(wiring, node) {
        options = options.option(option);
    }
    Ok(options)
}

/// The tables with the accounts of a cluster: a data directory after a clean shutdown, from which every node starts.
///
/// # Errors
/// The server does not start or stop, or a statement fails.
pub fn prepare(bench: &Bench, plan: &ClusterPlan, dataset: &Dataset) -> Result<Dataset> {
    let stage = bench.progress.stage(
        "Preparing the nodes' files",
        plan.copying() / NODES as u64 + 10,
    );
    let folder = bench.workspace.prepared_nodes();
    let datadir = folder.join("data");
    bench.workspace.empty(&folder)?;
    dataset.copy_to(&datadir)?;
    stage.message("starting the server");
    let wiring = wiring(bench)?;
    let mut options = options(bench, plan, &wiring, 0, &datadir)?;
    for option in plan.name.first_start() {
        options = options.option(*option);
    }
    let server = bench.installation.start(options)?;
    server.sql("CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'")?;
    account::prepare(&server)?;
    plan.name.prepare(&server)?;
    server.stop()?;
    // Each node creates a new identity.
    match fs::remove_file(datadir.join("auto.cnf")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    stage.finish("The nodes' files are ready: physical copies of one data directory");
    Ok(Dataset {
        datadir,
        data: dataset.data,
        load_seconds: None,
    })
}

impl Nodes {
    /// Starts all nodes on copies of `image`, and forms the cluster.
    ///
    /// # Errors
    /// A copy, a volume, a server or the cluster fails.
    pub fn set_up(
        bench: &Bench,
        plan: &ClusterPlan,
        image: &Dataset,
        standby: Standby,
    ) -> Result<Nodes> {
        let title = standby.title();
        let stage = bench
            .progress
            .stage(&format!("{title}: copying the tables"), plan.copying() + 15);
        let mut nodes = Nodes {
            wiring: wiring(bench)?,
            rigs: Default::default(),
        };
        for node in 0..NODES {
            stage.message(&format!("node {} of {NODES}", node + 1));
            let folders = Folders::of(bench, node);
            for folder in [&folders.backing(), &folders.fast(), &folders.mountpoint()] {
                bench.workspace.empty(folder)?;
            }
            image.copy_to(&folders.backing().join("data"))?;
        }
        for node in 0..NODES {
            stage.message(&format!("starting node {}", node + 1));
            nodes
                .start(bench, plan, standby, node)
                .with_context(|| format!("node {}", node + 1))?;
        }
        for rig in &nodes.rigs {
            let volume = rig.volume.as_ref().context("no volume")?;
            volume.set_profile(&format!("default iops={IOPS}"))?;
        }
        stage.finish(&format!("{title}: {} on three volumes", plan.name.title()));
        Ok(nodes)
    }

    fn start(
        &mut self,
        bench: &Bench,
        plan: &ClusterPlan,
        standby: Standby,
        node: usize,
    ) -> Result<()> {
        let folders = Folders::of(bench, node);
        let (run, mountpoint) = (folders.run(), folders.mountpoint());
        ownership::make_private(&run).with_context(|| format!("cannot make {}", run.display()))?;
        let name = bench.log_name(&format!(
            "{}-node-{}",
            standby.title().replace(' ', "-"),
            node + 1
        ));
        let log = |what: &str| bench.workspace.logs().join(format!("{name}-{what}.log"));
        let rig = &mut self.rigs[node];
        let volume = rig.volume.insert(Volume::mount(
            &folders.backing(),
            &mountpoint,
            &run,
            &log("volume"),
        )?);
        // Starting is not measured.
        volume.set_unlimited()?;
        rig.log = Some((run.join("error.log"), log("server")));
        let mut options = options(bench, plan, &self.wiring, node, &mountpoint.join("data"))?
            .option(format!("--bpe-path={}", folders.fast().display()))
            .option(format!("--bpe-size={}", plan.size.cache));
        for variable in &plan.size.variables {
            options = options.option(format!("--bpe-{}={}", variable.name, variable.value));
        }
        if standby != Standby::Off {
            options = options.option("--bpe-enabled=ON");
        }
        rig.options = Some(options);
        let more = match node {
            0 => plan.name.first_start(),
            _ => &[],
        };
        let server = rig.start(bench.installation, more)?;
        plan.name.join(&self.wiring, node, server)?;
        if standby != Standby::Off {
            extension::require_active(server)?;
        }
        Ok(())
    }

    /// A node's server.
    ///
    /// # Errors
    /// It was killed.
    pub fn server(&self, node: usize) -> Result<&Server> {
        self.rigs[node].server()
    }

    /// A node's volume.
    ///
    /// # Errors
    /// It has none.
    pub fn volume(&self, node: usize) -> Result<&Volume> {
        self.rigs[node].volume.as_ref().context("no volume")
    }

    /// Reads all counters of a node.
    ///
    /// # Errors
    /// The server or the volume does not answer.
    pub fn snapshot(&self, node: usize) -> Result<Snapshot> {
        Observer::new(self.server(node)?)?.snapshot(self.rigs[node].volume.as_ref())
    }

    /// Kills a node's server.
    pub fn kill(&mut self, node: usize) {
        if let Some(server) = self.rigs[node].server.take() {
            server.kill();
        }
    }

    /// Ends everything. Kills the servers, since their data are not needed again.
    ///
    /// # Errors
    /// A volume cannot be unmounted.
    pub fn end(mut self) -> Result<()> {
        for node in 0..NODES {
            self.kill(node);
        }
        for rig in &mut self.rigs {
            if let Some(volume) = rig.volume.take() {
                volume.unmount()?;
            }
        }
        Ok(())
    }
}
