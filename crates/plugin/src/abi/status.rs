//! Status variables.
//!
//! The server knows one variable, `Bpe`: a function that returns an array. Both servers show its members as `Bpe_<member>`.
//! [`interface::Status`] lists the members in order; this module computes their values. Counters of the extension with the
//! same name need no line here. Array and values are thread-local, until the thread's next query.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cache::HistogramSnapshot;
use interface::{Status, Untrusted};
use serde_json::{Value, json};

use super::ServerTable;
use crate::control::{self, CONTROLLER};
use crate::platform::{CORE, SUSPENSIONS};
use crate::reports::diagnostics::DIAGNOSTICS;
use crate::reports::report;
use crate::restart::{RESTART, persist};
use crate::settings::{self, BYPASS};

const UNSIGNED_LONGLONG: c_int = 4;
/// `SHOW_CHAR`: the value is the text itself (as against a pointer to a pointer).
const TEXT: c_int = 5;
const ARRAY: c_int = 7;
const FUNCTION: c_int = 8;
const DOUBLE: c_int = 9;
const GLOBAL: c_int = 1;

/// `st_mysql_show_var`.
#[repr(C)]
pub struct StatusVariable {
    name: *const c_char,
    value: *const c_void,
    kind: c_int,
    scope: c_int,
}

/// Maximum length of a text, characters.
const MAX_TEXT: usize = 900;

const END: StatusVariable = StatusVariable {
    name: std::ptr::null(),
    value: std::ptr::null(),
    kind: 0,
    scope: 0,
};

/// The table that the descriptors point to.
pub static STATUS: ServerTable<[StatusVariable; 2]> = ServerTable::new([
    StatusVariable {
        name: c"Bpe".as_ptr(),
        value: show as *const c_void,
        kind: FUNCTION,
        scope: GLOBAL,
    },
    END,
]);

enum Figure {
    Number(u64),
    Real(f64),
    Text(CString),
}

#[derive(Default)]
struct Shown {
    figures: Vec<(Status, Figure)>,
    array: Vec<StatusVariable>,
}

thread_local! {
    static SHOWN: RefCell<Box<Shown>> = RefCell::default();
}

/// MySQL passes three arguments, MariaDB five; the first three are the same.
unsafe extern "C" fn show(
    _thd: *mut c_void,
    variable: *mut StatusVariable,
    _buffer: *mut c_char,
) -> c_int {
    let array = catch_unwind(AssertUnwindSafe(|| {
        SHOWN.with_borrow_mut(|shown| {
            shown.figures = figures();
            let array = shown
                .figures
                .iter()
                .map(|(name, figure)| {
                    let (value, kind): (*const c_void, c_int) = match figure {
                        Figure::Number(number) => {
                            (std::ptr::from_ref(number).cast(), UNSIGNED_LONGLONG)
                        }
                        Figure::Real(number) => (std::ptr::from_ref(number).cast(), DOUBLE),
                        Figure::Text(text) => (text.as_ptr().cast(), TEXT),
                    };
                    StatusVariable {
                        name: name.c_name().as_ptr(),
                        value,
                        kind,
                        scope: GLOBAL,
                    }
                })
                .chain(std::iter::once(END))
                .collect();
            shown.array = array;
            shown.array.as_ptr()
        })
    }));
    // SAFETY: the server's own entry, which the callback is to fill.
    unsafe {
        static EMPTY: ServerTable<[StatusVariable; 1]> = ServerTable::new([END]);
        (*variable).kind = ARRAY;
        (*variable).value = array.unwrap_or(EMPTY.get().cast_const().cast()).cast();
    }
    0
}

fn figures() -> Vec<(Status, Figure)> {
    let totals = report::totals();
    let cache = &totals.cache;
    CONTROLLER.ensure_needed_thread();
    RESTART.tripwire.check(&CORE);
    let bypass = BYPASS.status(&CORE);
    let (state, reason) = control::state();
    let recovered = persist::recovered();
    let warm = DIAGNOSTICS.warming.figures();
    let text = |text: &str| {
        let text = Untrusted::new(text).cut_at(MAX_TEXT).to_string();
        Figure::Text(CString::new(text).unwrap_or_default())
    };
    use Figure::{Number, Real};
    let counted = serde_json::to_value(cache).unwrap_or_default();
    let value = |one: Status| {
        Some(match one {
            Status::Version => text(env!("CARGO_PKG_VERSION")),
            Status::State => text(state.name()),
            Status::StateNumber => Number(state as u64),
            Status::StateReason => text(&report::state_reason(state, &reason)),
            Status::Bypass => text(bypass.bypass.name()),
            Status::LoadMode => text(if control::loaded_early() {
                "early"
            } else {
                "runtime"
            }),
            Status::AsyncMode => text(control::async_mode()),
            Status::PagesInherited => Number(recovered.pages),
            Status::PagesTrusted => Number(recovered.trusted.1),
            Status::BytesSaved => Number(cache.hit_bytes),
            Status::HitRatio => Real(report::hit_ratio(cache.hits, cache.misses)),
            Status::CapacityBytes => Number(cache.bytes_capacity),
            Status::MemoryBytes => Number(totals.memory_bytes),
            Status::WriteLimitRejected => Number(cache.rejected_write_limit),
            Status::BytesWritten => Number(cache.bytes_written_total),
            Status::BytesWritten24h => Number(settings::write_budget().written_in_a_day()),
            Status::DataReads => Number(totals.data_reads),
            Status::CacheReadUsSum => microseconds(&cache.read_latency),
            Status::CacheReadUsCount => Number(cache.read_latency.count),
            Status::DataReadUsSum => microseconds(&totals.data_latency),
            Status::DataReadUsCount => Number(totals.data_latency.count),
            Status::DevicesFailed => Number(totals.devices_failed),
            Status::AuditSuspicions => Number(SUSPENSIONS.suspicions()),
            Status::SuspendedFiles => Number(SUSPENSIONS.count()),
            Status::DamagedPages => Number(CORE.damaged_pages()),
            Status::WarmState => text(warm.state),
            Status::WarmPercent => Real(warm.percent),
            Status::WarmAgeSeconds => Number(warm.age_seconds),
            Status::WarmPagesLoaded => Number(warm.loaded),
            Status::InstanceLockAccesses => Number(cache.lock_accesses),
            Status::InstanceLockWaits => Number(cache.lock_waits),
            // A counter of the extension with the same name.
            _ => match &counted[one.name()] {
                Value::Number(number) if number.is_f64() => Real(number.as_f64().unwrap_or(0.0)),
                number => Number(number.as_u64()?),
            },
        })
    };
    let valued = |one: &Status| Some((*one, value(*one)?));
    Status::ALL.iter().filter_map(valued).collect()
}

/// Total time of all reads.
fn microseconds(latency: &HistogramSnapshot) -> Figure {
    Figure::Number(latency.sum_nanos / 1000)
}

/// All variables as `[{"name": ..., "value": ...}, ...]`, for `bpe_report('status')`.
pub fn report() -> Value {
    let rows = figures().into_iter().map(|(name, figure)| {
        let value = match figure {
            Figure::Number(number) => json!(number),
            Figure::Real(number) => json!(number),
            Figure::Text(text) => json!(text.to_string_lossy()),
        };
        json!({ "name": name.name(), "value": value })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use interface::status::Kind;
    use std::ffi::CStr;

    #[test]
    fn the_server_gets_an_array_that_ends() {
        let mut variable = StatusVariable {
            name: c"Bpe".as_ptr(),
            value: std::ptr::null(),
            kind: FUNCTION,
            scope: 0,
        };
        // SAFETY: a valid entry of ours.
        let names: Vec<String> = unsafe {
            show(std::ptr::null_mut(), &mut variable, std::ptr::null_mut());
            let mut member = variable.value.cast::<StatusVariable>();
            let mut names = Vec::new();
            while !(*member).name.is_null() {
                names.push(
                    CStr::from_ptr((*member).name)
                        .to_string_lossy()
                        .into_owned(),
                );
                member = member.add(1);
            }
            names
        };
        assert_eq!(variable.kind, ARRAY);
        assert!(
            names.iter().any(|name| name == "hit_ratio")
                && names.iter().any(|name| name == "state")
        );
        assert_eq!(size_of::<StatusVariable>(), 24);
    }

    #[test]
    fn every_variable_has_a_value() {
        let named: Vec<Status> = figures().iter().map(|(one, _)| *one).collect();
        for one in Status::ALL {
            assert!(
                named.contains(one),
                "neither here nor in the extension's statistics: {}",
                one.name()
            );
        }
    }

    #[test]
    fn values_have_declared_kinds() {
        for (one, figure) in figures() {
            let matches = match figure {
                Figure::Text(_) => one.kind() == Kind::Text,
                Figure::Real(_) => one.kind() == Kind::Gauge,
                Figure::Number(_) => one.kind() != Kind::Text,
            };
            assert!(matches, "{}", one.name());
        }
    }

    #[test]
    fn the_report_has_all_variables() {
        let report = report();
        let rows = report.as_array().unwrap();
        assert_eq!(rows.len(), figures().len());
        assert!(rows.contains(&json!({ "name": "state_number", "value": 0 })));
        assert!(rows.contains(&json!({ "name": "state", "value": "disabled" })));
    }
}
