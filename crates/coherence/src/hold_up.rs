//! Moments at which a test can hold a thread up, to let others get in between. Compiled into builds for tests only.

#[cfg(test)]
use std::cell::Cell;
use std::sync::OnceLock;

/// Called at each of the moments, with its name.
pub static AT: OnceLock<fn(&'static str)> = OnceLock::new();

/// The moment has come.
pub fn at(moment: &'static str) {
    if let Some(hold_up) = AT.get() {
        hold_up(moment);
    }
}

/// What is to be done at which moment.
#[cfg(test)]
type Meanwhile = Option<(&'static str, Box<dyn FnOnce()>)>;

#[cfg(test)]
thread_local! {
    static MEANWHILE: Cell<Meanwhile> = const { Cell::new(None) };
}

/// Does something at a moment of this thread, once.
#[cfg(test)]
pub fn meanwhile(moment: &'static str, act: impl FnOnce() + 'static) {
    AT.get_or_init(|| {
        |now| {
            let meanwhile = MEANWHILE.take();
            match meanwhile {
                Some((moment, act)) if moment == now => act(),
                other => MEANWHILE.set(other),
            }
        }
    });
    MEANWHILE.set(Some((moment, Box::new(act))));
}
