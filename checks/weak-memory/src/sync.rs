//! Atomics and locks for the tested parts: those of loom, which explores every order that the memory model permits.
//!
//! [`weaken`] makes all orderings of one kind of operation relaxed, as if each were specified too weakly.

use std::cell::Cell;

pub(crate) use loom::sync::MutexGuard;
use loom::sync::atomic as checked;
pub(crate) use std::sync::atomic::Ordering;

/// Kinds of orderings that can be weakened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Loads,
    Stores,
    /// Read-modify-write operations.
    Exchanges,
    Fences,
}

thread_local! {
    /// All threads of a model run in its test's thread.
    static WEAKENED: Cell<Option<Kind>> = const { Cell::new(None) };
}

/// Weakens a kind of ordering in this thread from now on.
pub fn weaken(kind: Option<Kind>) {
    WEAKENED.set(kind);
}

fn order(kind: Kind, order: Ordering) -> Ordering {
    if WEAKENED.get() == Some(kind) {
        Ordering::Relaxed
    } else {
        order
    }
}

pub(crate) fn fence(order: Ordering) {
    // Omits the fence: a relaxed one would have no effect.
    if WEAKENED.get() != Some(Kind::Fences) {
        checked::fence(order);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[derive(Default)]
        pub(crate) struct $name(checked::$name);

        impl $name {
            pub fn new(value: $value) -> $name {
                $name(checked::$name::new(value))
            }

            pub fn load(&self, of: Ordering) -> $value {
                self.0.load(order(Kind::Loads, of))
            }

            pub fn store(&self, value: $value, of: Ordering) {
                self.0.store(value, order(Kind::Stores, of));
            }

            pub fn swap(&self, value: $value, of: Ordering) -> $value {
                self.0.swap(value, order(Kind::Exchanges, of))
            }

            pub fn fetch_add(&self, value: $value, of: Ordering) -> $value {
                self.0.fetch_add(value, order(Kind::Exchanges, of))
            }

            pub fn fetch_sub(&self, value: $value, of: Ordering) -> $value {
                self.0.fetch_sub(value, order(Kind::Exchanges, of))
            }

            pub fn fetch_or(&self, value: $value, of: Ordering) -> $value {
                self.0.fetch_or(value, order(Kind::Exchanges, of))
            }

            pub fn fetch_max(&self, value: $value, of: Ordering) -> $value {
                self.0.fetch_max(value, order(Kind::Exchanges, of))
            }

            pub fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                well: Ordering,
                not: Ordering,
            ) -> Result<$value, $value> {
                let kind = Kind::Exchanges;
                self.0
                    .compare_exchange_weak(from, to, order(kind, well), order(kind, not))
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

/// The checker's lock with the interface of `parking_lot`'s.
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no thread panics with the lock held")
    }
}

/// As in `crates/coherence/src/platform/sync.rs`.
#[derive(Default)]
pub struct CachePadded<T>(pub T);
