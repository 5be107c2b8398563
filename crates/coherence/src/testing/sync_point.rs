//! Failpoints at which a test can delay a thread, so that others run in between. Compiled into test builds only.

#[cfg(test)]
use std::cell::Cell;
use std::sync::OnceLock;

/// Called at each failpoint with its name.
pub static AT: OnceLock<fn(&'static str)> = OnceLock::new();

/// Marks a failpoint.
pub fn at(moment: &'static str) {
    if let Some(delay) = AT.get() {
        delay(moment);
    }
}

/// An action, and the failpoint at which it runs.
#[cfg(test)]
type Action = Option<(&'static str, Box<dyn FnOnce()>)>;

#[cfg(test)]
thread_local! {
    static ACTION: Cell<Action> = const { Cell::new(None) };
}

/// Runs an action at a failpoint of this thread, once.
#[cfg(test)]
pub fn run_at(moment: &'static str, act: impl FnOnce() + 'static) {
    AT.get_or_init(|| {
        |now| {
            let action = ACTION.take();
            match action {
                Some((moment, act)) if moment == now => act(),
                other => ACTION.set(other),
            }
        }
    });
    ACTION.set(Some((moment, Box::new(act))));
}
