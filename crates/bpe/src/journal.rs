//! What has been done so far and how to put it back, newest first.

use crate::server::Server;

type Undo = Box<dyn FnOnce(&mut Server) -> Result<(), String>>;

#[derive(Default)]
pub struct Journal {
    steps: Vec<(String, Undo)>,
}

impl Journal {
    /// Notes a step that has been done. `undone` names the result of undoing it.
    pub fn note(
        &mut self,
        undone: impl Into<String>,
        undo: impl FnOnce(&mut Server) -> Result<(), String> + 'static,
    ) {
        self.steps.push((undone.into(), Box::new(undo)));
    }

    /// Undoes every step, going on after failures. Returns a line for each.
    pub fn roll_back(self, server: &mut Server) -> Vec<Result<String, String>> {
        self.steps
            .into_iter()
            .rev()
            .map(|(undone, undo)| match undo(server) {
                Ok(()) => Ok(undone),
                Err(error) => Err(format!("NOT {undone}: {error}")),
            })
            .collect()
    }
}
