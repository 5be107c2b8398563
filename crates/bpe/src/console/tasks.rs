//! What the console is doing to a server, step by step, and how it ended.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::Serialize;

use super::watched::Watched;
use crate::failure::Failure;
use crate::told::Told;

/// Tasks kept.
const KEPT: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Waiting,
    Running,
    Done,
    Failed,
}

#[derive(Clone, Debug, Serialize)]
pub struct Step {
    pub text: String,
    pub state: State,
}

#[derive(Clone, Debug, Serialize)]
pub struct Task {
    pub id: String,
    /// The server's id.
    pub server: String,
    pub title: String,
    pub state: State,
    pub steps: Vec<Step>,
    pub error: Option<String>,
    pub advice: Option<String>,
}

/// Newest last. Its lock is a leaf.
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
                if kept.len() == KEPT {
                    kept.pop_front();
                }
                kept.push_back(task.clone());
            }
        }
    }
}

/// A task at work: every step is shown on the pages at once.
pub struct Work {
    tasks: Arc<Tasks>,
    server: Arc<Watched>,
    task: Task,
}

impl Work {
    pub fn begin(tasks: &Arc<Tasks>, server: &Arc<Watched>, title: String) -> Self {
        let id = tasks.last.fetch_add(1, Ordering::Relaxed) + 1;
        let work = Self {
            tasks: Arc::clone(tasks),
            server: Arc::clone(server),
            task: Task {
                id: id.to_string(),
                server: server.id.clone(),
                title,
                state: State::Running,
                steps: Vec::new(),
                error: None,
                advice: None,
            },
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

    /// The end of it. Steps that were not reached stay waiting after a failure.
    pub fn end(mut self, result: Result<(), Failure>) {
        self.finish(result);
    }

    fn finish(&mut self, result: Result<(), Failure>) {
        let failed = result.is_err();
        for step in &mut self.task.steps {
            step.state = match (step.state, failed) {
                (State::Running, true) => State::Failed,
                (State::Running, false) | (State::Waiting, false) => State::Done,
                (state, _) => state,
            };
        }
        self.task.state = if failed { State::Failed } else { State::Done };
        if let Err(failure) = result {
            self.task.error = Some(failure.what);
            self.task.advice = failure.advice;
        }
        self.show();
    }
}

impl Drop for Work {
    /// A thread that ends without [`Work::end`] has panicked.
    fn drop(&mut self) {
        if self.task.state == State::Running {
            self.finish(Err(Failure::step(
                "the console failed at this; its terminal says where",
            )
            .advise("look at the server's state before you try again")));
        }
    }
}

impl Told for Work {
    fn steps(&mut self, titles: &[&str]) {
        self.task.steps = titles
            .iter()
            .map(|&title| Step {
                text: title.to_owned(),
                state: State::Waiting,
            })
            .collect();
        self.show();
    }

    fn begin(&mut self, step: usize) {
        for (index, known) in self.task.steps.iter_mut().enumerate() {
            if index < step {
                known.state = State::Done;
            } else if index == step {
                known.state = State::Running;
            }
        }
        self.show();
    }

    /// Added to the running step; before the first and after the last one it is a step of its own.
    fn line(&mut self, text: &str) {
        let text = text.trim();
        match self
            .task
            .steps
            .iter_mut()
            .find(|step| step.state == State::Running)
        {
            Some(step) => {
                step.text
                    .push_str(if step.text.contains(": ") { "; " } else { ": " });
                step.text.push_str(text);
            }
            None => self.task.steps.push(Step {
                text: text.to_owned(),
                state: State::Done,
            }),
        }
        self.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Args;

    #[test]
    fn a_task_ends_though_its_thread_panics() {
        let args = Args {
            socket: Some("/none".into()),
            no_defaults: true,
            ..Args::default()
        };
        let target = args.target().unwrap();
        let server = Arc::new(Watched::new("a".into(), "a".into(), target, Arc::default()));
        let tasks = Arc::new(Tasks::default());
        let mut work = Work::begin(&tasks, &server, "Switching".into());
        work.steps(&["one", "two"]);
        Told::begin(&mut work, 0);
        let id = work.task().id.clone();
        let ended = std::thread::spawn(move || {
            let _work = work;
            panic!("on purpose");
        });
        assert!(ended.join().is_err());
        let task = tasks.get(&id).unwrap();
        assert_eq!(task.state, State::Failed);
        assert_eq!(
            (task.steps[0].state, task.steps[1].state),
            (State::Failed, State::Waiting)
        );
        assert!(task.error.is_some());

        let work = Work::begin(&tasks, &server, "Switching".into());
        let id = work.task().id.clone();
        work.end(Ok(()));
        assert_eq!(tasks.get(&id).unwrap().state, State::Done);
    }
}
