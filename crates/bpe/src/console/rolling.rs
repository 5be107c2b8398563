//! The switch for all servers of a cluster: all at once, or one after the other.
//!
//! Each server is switched by its own switch ([`switching`]), with the plan that the page showed. In rolling order,
//! replicas come first and the primary last, and each server is watched before and after its change. The first server
//! that fails, leaves or has worse figures ([`crate::cluster::regression`]) stops the change. Servers changed before stay as
//! they are.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::Answer;
use super::cluster_tasks::ClusterChange;
use super::clusters::View;
use super::error::Refusal;
use super::events::Level;
use super::state::Console;
use super::switching::{self, Action};
use super::task::{StepState, Task, TaskState, TaskStep};
use super::watched::Watched;
use crate::cluster::node_change::NodeChange;
use crate::cluster::probe::ANSWER_TIMEOUT;
use crate::cluster::topology_check;
use crate::support::failure::Failure;

/// Polling interval while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time limit for a server to get in step again.
const IN_STEP_TIMEOUT: Duration = Duration::from_secs(600);
/// Default seconds of watching each server before and after its change.
const WATCH_SECONDS: u64 = 10;
/// Maximum lag in seconds before the next server is changed.
const MAX_LAG_SECONDS: f64 = 10.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    #[default]
    Rolling,
    All,
}

/// Request of a page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    action: Action,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    size: Option<Value>,
    #[serde(default)]
    uninstall: bool,
    #[serde(default)]
    way: Way,
    #[serde(default)]
    watch_s: Option<u64>,
    #[serde(default)]
    max_lag_s: Option<f64>,
    /// Digests of the plans that the page showed, by server id.
    #[serde(default)]
    digests: BTreeMap<String, Option<String>>,
}

impl Request {
    /// The request for one server. Settings of the servers file take precedence.
    fn of(&self, server: &Watched) -> switching::Request {
        let wish = server.cache_defaults();
        let on = self.action == Action::On;
        switching::Request {
            action: self.action,
            path: wish.path.or_else(|| self.path.clone()).filter(|_| on),
            size: wish.size.or_else(|| self.size.clone()).filter(|_| on),
            uninstall: self.uninstall,
            digest: self.digests.get(&server.id).cloned().flatten(),
        }
    }
}

/// Plans of all servers, in the order of the change.
///
/// # Errors
/// The cluster does not exist.
pub fn preview(console: &Console, cluster: &str, request: &Request) -> Answer<Value> {
    let view = View::of(console);
    let group = view.group(cluster)?;
    let order = match view.order(&group) {
        Ok(order) => order,
        Err(failure) => {
            return Ok(json!({ "nodes": [], "refused": failure.to_string() }));
        }
    };
    let plans = std::thread::scope(|scope| {
        let asked: Vec<_> = order
            .iter()
            .map(|server| {
                scope.spawn(|| switching::preview(server, &request.of(server), &console.locations))
            })
            .collect();
        asked
            .into_iter()
            .map(|asked| asked.join().ok())
            .collect::<Vec<_>>()
    });
    let mut nodes = Vec::new();
    for (server, plan) in order.iter().zip(plans) {
        let plan = match plan {
            Some(Ok(plan)) => serde_json::to_value(plan).unwrap_or_default(),
            Some(Err(refusal)) => json!({
                "changes": [], "warnings": [], "refused": refusal.what(), "digest": null,
            }),
            None => json!({
                "changes": [], "warnings": [], "refused": "the console failed at this plan", "digest": null,
            }),
        };
        nodes.push(json!({ "id": server.id, "name": server.name, "plan": plan }));
    }
    Ok(json!({ "nodes": nodes, "refused": null }))
}

/// Starts the change in another thread.
///
/// # Errors
/// The cluster does not exist, another change of it is running, or the last server cannot be determined.
pub fn begin(console: &Arc<Console>, cluster: &str, request: Request) -> Answer<Task> {
    let view = View::of(console);
    let group = view.group(cluster)?;
    let order = view.order(&group)?;
    let watch = request.watch_s.unwrap_or(WATCH_SECONDS);
    let lag = request.max_lag_s.unwrap_or(MAX_LAG_SECONDS);
    if !(2..=3600).contains(&watch) || !(0.0..=1e9).contains(&lag) {
        return Err(Refusal::bad(
            "watch_s must be 2 to 3600, and max_lag_s a number of seconds",
        ));
    }
    let title = request.action.title(request.uninstall);
    let mut task = Task::new(
        format!("cluster {cluster}"),
        String::new(),
        format!("{title}: {cluster}"),
    );
    let steps = order.iter().map(|server| TaskStep {
        text: server.name.clone(),
        state: StepState::Waiting,
    });
    task.steps = steps.collect();
    let work = console
        .rolling
        .begin(cluster, task.clone())
        .ok_or_else(|| {
            Refusal::conflict("this cluster is already being changed")
                .advise("wait until that is done")
        })?;
    let console = Arc::clone(console);
    let locations: Vec<_> = order.iter().map(|server| server.place()).collect();
    let seen = locations.iter().enumerate();
    let run = RollingChange {
        primaries: topology_check::primaries(
            seen.filter_map(|(i, place)| Some((i, &place.as_ref()?.membership))),
        ),
        order,
        request,
        watch: Duration::from_secs(watch),
        max_lag_s: lag,
        title,
        console,
        work: Arc::clone(&work),
    };
    let started = std::thread::Builder::new()
        .name("rolling".into())
        .spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| match run.request.way {
                Way::Rolling => run.one_after_the_other(),
                Way::All => run.at_once(),
            }));
            run.work.end(result.unwrap_or_else(|_| {
                Err(Failure::step(
                    "the console failed at this; its terminal shows where",
                ))
            }));
        });
    if let Err(error) = started {
        let failure = Failure::step(format!("cannot start a thread: {error}"));
        work.end(Err(Failure::step("it could not be begun")));
        return Err(failure.into());
    }
    Ok(task)
}

struct RollingChange {
    console: Arc<Console>,
    order: Vec<Arc<Watched>>,
    /// Indexes of the primaries at the start.
    primaries: Vec<usize>,
    request: Request,
    watch: Duration,
    max_lag_s: f64,
    title: &'static str,
    work: Arc<ClusterChange>,
}

impl RollingChange {
    fn one_after_the_other(&self) -> Result<(), Failure> {
        for (step, server) in self.order.iter().enumerate() {
            if self.work.is_to_stop() {
                return Err(self.stopped_at(step, "it was told to stop".to_owned(), false));
            }
            match self.one(step, server) {
                Ok(how) => self
                    .work
                    .show(step, StepState::Done, format!("{}: {how}", server.name)),
                Err(failure) => {
                    let text = format!("{}: {}", server.name, failure.what);
                    self.work.show(step, StepState::Failed, text.clone());
                    server.note(
                        Level::Error,
                        format!(
                            "{} of the cluster stopped here: {}",
                            self.title, failure.what
                        ),
                    );
                    return Err(self.stopped_at(step, text, true));
                }
            }
        }
        Ok(())
    }

    fn stopped_at(&self, step: usize, why: String, failed: bool) -> Failure {
        let names = |servers: &[Arc<Watched>]| {
            let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
            match names.is_empty() {
                true => "none".to_owned(),
                false => names.join(", "),
            }
        };
        let later = &self.order[(step + usize::from(failed)).min(self.order.len())..];
        Failure::step(format!(
            "stopped: {why}. Done: {}. Not reached: {}.",
            names(&self.order[..step]),
            names(later)
        ))
        .advise(
            "mend that and switch the cluster again to go on: servers that are as wished are left as they are; or switch \
             back those that are done",
        )
    }

    fn one(&self, step: usize, server: &Arc<Watched>) -> Result<String, Failure> {
        let say = |what: &str| {
            self.work
                .show(step, StepState::Running, format!("{}: {what}", server.name))
        };
        let seen = self.order.iter().map(|other| {
            let place = other.present();
            (
                other.name.as_str(),
                place.map(|place| place.membership.clone()),
            )
        });
        topology_check::still(seen.collect(), self.max_lag_s, &self.primaries)?;
        let node_change = NodeChange {
            is_on: self.request.action == Action::On,
            watch: self.watch,
            wait: IN_STEP_TIMEOUT,
            max_lag_s: self.max_lag_s,
            interrupted: &|| self.work.is_to_stop(),
            // A started change completes; a stop request is checked after it.
            to_the_end: true,
        };
        let after = node_change.run(server.target().clone(), ANSWER_TIMEOUT, &say, || {
            say(self.title);
            self.change(server)
        })?;
        Ok(after.seen.membership.describe())
    }

    /// Switches one server by its own switch, and waits for the end.
    fn change(&self, server: &Arc<Watched>) -> Result<(), Failure> {
        let request = self.request.of(server);
        let task = self.begin(server, &request)?;
        self.wait_for(&task)
    }

    fn begin(&self, server: &Arc<Watched>, request: &switching::Request) -> Result<Task, Failure> {
        switching::begin(&self.console, server, request)
            .map_err(|refusal| Failure::refused(refusal.what().to_owned()))
    }

    fn wait_for(&self, task: &Task) -> Result<(), Failure> {
        loop {
            let now = self.console.tasks.get(&task.id);
            match now.as_ref().map(|task| task.state) {
                Some(TaskState::Running) => std::thread::sleep(POLL_INTERVAL),
                Some(TaskState::Done) => return Ok(()),
                _ => {
                    let why = now.and_then(|task| task.error);
                    return Err(Failure::step(why.unwrap_or_else(|| "it failed".to_owned())));
                }
            }
        }
    }

    /// Starts all changes at the same time, without watching the figures.
    fn at_once(&self) -> Result<(), Failure> {
        let begun: Vec<_> = self
            .order
            .iter()
            .enumerate()
            .map(|(step, server)| {
                self.work.show(
                    step,
                    StepState::Running,
                    format!("{}: {}", server.name, self.title),
                );
                self.begin(server, &self.request.of(server))
            })
            .collect();
        let mut failed = Vec::new();
        for (step, (server, task)) in self.order.iter().zip(begun).enumerate() {
            match task.and_then(|task| self.wait_for(&task)) {
                Ok(()) => self.work.show(step, StepState::Done, server.name.clone()),
                Err(failure) => {
                    let text = format!("{}: {}", server.name, failure.what);
                    self.work.show(step, StepState::Failed, text.clone());
                    failed.push(text);
                }
            }
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(Failure::step(failed.join("; "))
                .advise("mend that, and switch the cluster again: servers that are as wished are left as they are")),
        }
    }
}
