//! Tasks of all servers, and the progress of their steps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::task::{StepState, Task, TaskState, TaskStep};
use super::watched::Watched;
use crate::support::failure::Failure;
use crate::support::notifier::Notifier;

/// Maximum number of tasks kept.
const MAX_TASKS: usize = 100;

/// Newest last. The lock is a leaf.
#[derive(Default)]
pub struct Tasks {
    kept: Mutex<VecDeque<Task>>,
    last: AtomicU64,
}

impl Tasks {
    pub fn get(&self, id: &str) -> Option<Task> {
        let kept = self.kept.lock().unwrap_or_else(|e| e.into_inner());
        kept.iter().find(|task| task.id == id).cloned()
    }

    fn put(&self, task: &Task) {
        let mut kept = self.kept.lock().unwrap_or_else(|e| e.into_inner());
        match kept.iter_mut().find(|known| known.id == task.id) {
            Some(known) => known.clone_from(task),
            None => {
                if kept.len() == MAX_TASKS {
                    kept.pop_front();
                }
                kept.push_back(task.clone());
            }
        }
    }
}

/// A running task. Pages see every step at once.
pub struct RunningTask {
    tasks: Arc<Tasks>,
    server: Arc<Watched>,
    task: Task,
}

impl RunningTask {
    pub fn begin(tasks: &Arc<Tasks>, server: &Arc<Watched>, title: String) -> Self {
        let id = tasks.last.fetch_add(1, Ordering::Relaxed) + 1;
        let work = Self {
            tasks: Arc::clone(tasks),
            server: Arc::clone(server),
            task: Task::new(id.to_string(), server.id.clone(), title),
        };
        work.show();
        work
    }

    pub fn task(&self) -> &Task {
        &self.task
    }

    fn show(&self) {
        self.tasks.put(&self.task);
        self.server.show_task(&self.task);
    }

    /// Marks all steps as undone: the server on which they took effect is gone.
    pub fn all_undone(&mut self) {
        for step in 0..self.task.steps.len() {
            self.undone(step, true);
        }
    }

    /// Ends the task. After a failure, unreached steps stay waiting.
    pub fn end(mut self, result: Result<(), Failure>) {
        self.finish(result);
    }

    fn finish(&mut self, result: Result<(), Failure>) {
        let failed = result.is_err();
        for step in &mut self.task.steps {
            step.state = match (step.state, failed) {
                (StepState::Running, true) => StepState::Failed,
                (StepState::Running | StepState::Waiting, false) => StepState::Done,
                (state, _) => state,
            };
        }
        self.task.end(result);
        self.show();
    }
}

impl Drop for RunningTask {
    /// Without [`RunningTask::end`], the thread has panicked.
    fn drop(&mut self) {
        if self.task.state == TaskState::Running {
            self.finish(Err(Failure::step(
                "the console failed at this; its terminal shows where",
            )
            .advise("check the server's state before you try again")));
        }
    }
}

impl Notifier for RunningTask {
    fn steps(&mut self, titles: &[&str]) {
        self.task.steps = titles
            .iter()
            .map(|&title| TaskStep {
                text: title.to_owned(),
                state: StepState::Waiting,
            })
            .collect();
        self.show();
    }

    fn begin(&mut self, step: usize) {
        for (index, known) in self.task.steps.iter_mut().enumerate() {
            if index < step && known.state != StepState::Failed {
                known.state = StepState::Done;
            } else if index == step {
                known.state = StepState::Running;
            }
        }
        self.show();
    }

    fn failed(&mut self, step: usize) {
        if let Some(known) = self.task.steps.get_mut(step) {
            known.state = StepState::Failed;
        }
        self.show();
    }

    fn undone(&mut self, step: usize, wholly: bool) {
        // The failed step stays marked as failed.
        if let Some(known) = self.task.steps.get_mut(step) {
            if matches!(known.state, StepState::Done | StepState::Remains) {
                known.state = if wholly {
                    StepState::Undone
                } else {
                    StepState::Remains
                };
            }
        }
        self.show();
    }

    /// Adds the line to the running step. Before the first and after the last step, it becomes a separate step.
    fn line(&mut self, text: &str) {
        let text = text.trim();
        match self
            .task
            .steps
            .iter_mut()
            .find(|step| step.state == StepState::Running)
        {
            Some(step) => {
                step.text
                    .push_str(if step.text.contains(": ") { "; " } else { ": " });
                step.text.push_str(text);
            }
            None => self.task.steps.push(TaskStep {
                text: text.to_owned(),
                state: StepState::Done,
            }),
        }
        self.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::Args;

    fn server() -> Arc<Watched> {
        let args = Args {
            socket: Some("/none".into()),
            no_defaults: true,
            ..Args::default()
        };
        let target = args.target().unwrap();
        Arc::new(Watched::new("a".into(), "a".into(), target, Arc::default()))
    }

    #[test]
    fn what_was_put_back_is_not_shown_as_done() {
        let tasks = Arc::new(Tasks::default());
        let mut work = RunningTask::begin(&tasks, &server(), "Switching".into());
        work.steps(&["one", "two", "three", "four"]);
        Notifier::begin(&mut work, 2);
        // As reported by a rollback, which includes the failed step.
        for (step, wholly) in [(2, true), (1, false), (0, true)] {
            work.undone(step, wholly);
        }
        let id = work.task().id.clone();
        work.end(Err(Failure::step("no")));
        let states: Vec<_> = tasks
            .get(&id)
            .unwrap()
            .steps
            .iter()
            .map(|step| step.state)
            .collect();
        let wanted = [
            StepState::Undone,
            StepState::Remains,
            StepState::Failed,
            StepState::Waiting,
        ];
        assert_eq!(states, wanted);
        assert_eq!(serde_json::to_value(wanted[0]).unwrap(), "undone");
    }

    #[test]
    fn a_task_ends_though_its_thread_panics() {
        let server = server();
        let tasks = Arc::new(Tasks::default());
        let mut work = RunningTask::begin(&tasks, &server, "Switching".into());
        work.steps(&["one", "two"]);
        Notifier::begin(&mut work, 0);
        let id = work.task().id.clone();
        let ended = std::thread::spawn(move || {
            let _work = work;
            panic!("on purpose");
        });
        assert!(ended.join().is_err());
        let task = tasks.get(&id).unwrap();
        assert_eq!(task.state, TaskState::Failed);
        assert_eq!(
            (task.steps[0].state, task.steps[1].state),
            (StepState::Failed, StepState::Waiting)
        );
        assert!(task.error.is_some());

        let work = RunningTask::begin(&tasks, &server, "Switching".into());
        let id = work.task().id.clone();
        work.end(Ok(()));
        assert_eq!(tasks.get(&id).unwrap().state, TaskState::Done);
    }
}
