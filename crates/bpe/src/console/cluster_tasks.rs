//! Tasks of clusters: one running or finished change for each. Locks are leaves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::task::{StepState, Task, TaskState, TaskStep};
use crate::support::failure::Failure;

/// The task of each cluster, by name.
#[derive(Default)]
pub struct ClusterChanges(Mutex<BTreeMap<String, Arc<ClusterChange>>>);

impl ClusterChanges {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ClusterChange>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The running or last change of this cluster.
    pub fn task(&self, cluster: &str) -> Option<Task> {
        let work = self.all().get(cluster).cloned()?;
        Some(work.task().clone())
    }

    /// Whether a change of any cluster is running.
    pub fn is_busy(&self) -> bool {
        let running = |work: &Arc<ClusterChange>| work.task().state == TaskState::Running;
        self.all().values().any(running)
    }

    /// Stops all changes after their current server.
    pub fn stop_all(&self) {
        for work in self.all().values() {
            work.stop.store(true, Ordering::SeqCst);
        }
    }

    /// Stops the change after its current server.
    pub fn stop(&self, cluster: &str) {
        if let Some(work) = self.all().get(cluster) {
            work.stop.store(true, Ordering::SeqCst);
        }
    }

    /// Returns `None` while another change of the cluster is running.
    pub fn begin(&self, cluster: &str, task: Task) -> Option<Arc<ClusterChange>> {
        let mut all = self.all();
        let busy = all
            .get(cluster)
            .is_some_and(|work| work.task().state == TaskState::Running);
        if busy {
            return None;
        }
        let work = Arc::new(ClusterChange {
            task: Mutex::new(task),
            stop: AtomicBool::new(false),
        });
        all.insert(cluster.to_owned(), Arc::clone(&work));
        Some(work)
    }
}

/// The change of a cluster.
pub struct ClusterChange {
    task: Mutex<Task>,
    stop: AtomicBool,
}

impl ClusterChange {
    fn task(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Updates a step.
    pub fn show(&self, step: usize, state: StepState, text: String) {
        if let Some(step) = self.task().steps.get_mut(step) {
            *step = TaskStep { text, state };
        }
    }

    /// Records the end of the change.
    pub fn end(&self, result: Result<(), Failure>) {
        self.task().end(result);
    }
}
