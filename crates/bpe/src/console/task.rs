//! A change of a server by the console: steps and result.

use serde::Serialize;

use crate::support::failure::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    Running,
    Done,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    Waiting,
    Running,
    Done,
    Failed,
    /// Done, and put back after a later step failed.
    Undone,
    /// Done, and could not be put back after a later step failed.
    Remains,
}

#[derive(Clone, Debug, Serialize)]
pub struct TaskStep {
    pub text: String,
    pub state: StepState,
}

#[derive(Clone, Debug, Serialize)]
pub struct Task {
    pub id: String,
    /// The server's id.
    pub server: String,
    pub title: String,
    pub state: TaskState,
    pub steps: Vec<TaskStep>,
    pub error: Option<String>,
    pub advice: Option<String>,
}

impl Task {
    /// A running task without steps. `server` is empty for a task of a cluster.
    pub fn new(id: String, server: String, title: String) -> Self {
        Self {
            id,
            server,
            title,
            state: TaskState::Running,
            steps: Vec::new(),
            error: None,
            advice: None,
        }
    }

    pub fn end(&mut self, result: Result<(), Failure>) {
        self.state = match result {
            Ok(()) => TaskState::Done,
            Err(failure) => {
                self.error = Some(failure.what);
                self.advice = failure.advice;
                TaskState::Failed
            }
        };
    }
}
