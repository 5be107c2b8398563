//! What is being done to clusters, or was done last: a task of each, whose lock is a leaf.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::task::{State, Step, StepState, Task};
use crate::failure::Failure;

/// What is being done to clusters, by name.
#[derive(Default)]
pub struct All(Mutex<BTreeMap<String, Arc<Work>>>);

impl All {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Work>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What is being done to this cluster, or was done last.
    pub fn task(&self, cluster: &str) -> Option<Task> {
        let work = self.all().get(cluster).cloned()?;
        Some(work.task().clone())
    }

    /// Whether a cluster is being changed.
    pub fn is_busy(&self) -> bool {
        let running = |work: &Arc<Work>| work.task().state == State::Running;
        self.all().values().any(running)
    }

    /// Has all of them end after the server that is being changed.
    pub fn stop_all(&self) {
        for work in self.all().values() {
            work.stop.store(true, Ordering::SeqCst);
        }
    }

    /// Has it end after the server that is being changed.
    pub fn stop(&self, cluster: &str) {
        if let Some(work) = self.all().get(cluster) {
            work.stop.store(true, Ordering::SeqCst);
        }
    }

    /// `None` while it is being changed.
    pub fn begin(&self, cluster: &str, task: Task) -> Option<Arc<Work>> {
        let mut all = self.all();
        let busy = all
            .get(cluster)
            .is_some_and(|work| work.task().state == State::Running);
        if busy {
            return None;
        }
        let work = Arc::new(Work {
            task: Mutex::new(task),
            stop: AtomicBool::new(false),
        });
        all.insert(cluster.to_owned(), Arc::clone(&work));
        Some(work)
    }
}

/// A change of a cluster at work.
pub struct Work {
    task: Mutex<Task>,
    stop: AtomicBool,
}

impl Work {
    fn task(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Says how far a step is.
    pub fn show(&self, step: usize, state: StepState, text: String) {
        if let Some(step) = self.task().steps.get_mut(step) {
            *step = Step { text, state };
        }
    }

    /// The end of it.
    pub fn end(&self, result: Result<(), Failure>) {
        let mut task = self.task();
        task.state = match result {
            Ok(()) => State::Done,
            Err(failure) => {
                task.error = Some(failure.what);
                task.advice = failure.advice;
                State::Failed
            }
        };
    }
}
