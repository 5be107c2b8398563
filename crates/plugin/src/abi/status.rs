//! Status variables.
//!
//! The server knows one variable, `Bpe`, which is a function that gives an array; both servers show its members as
//! `Bpe_<member>`. The array and the values live in the asking thread until it asks again.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use extension::HistogramSnapshot;
use serde_json::{Value, json};

use super::ServerTable;
use crate::audit;
use crate::controller;
use crate::report;
use crate::settings;

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
    figures: Vec<(CString, Figure)>,
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
                        name: name.as_ptr(),
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
    // SAFETY: the server's own entry, to be filled by us.
    unsafe {
        static EMPTY: ServerTable<[StatusVariable; 1]> = ServerTable::new([END]);
        (*variable).kind = ARRAY;
        (*variable).value = array.unwrap_or(EMPTY.get().cast_const().cast()).cast();
    }
    0
}

fn figures() -> Vec<(CString, Figure)> {
    let totals = report::totals();
    let cache = &totals.cache;
    let (state, reason) = controller::state();
    let text = |text: &str| {
        Figure::Text(CString::new(text.chars().take(900).collect::<String>()).unwrap_or_default())
    };
    let [cache_p50, cache_p95, cache_p99] = totals.cache_read_us;
    let [data_p50, data_p95, data_p99] = totals.data_read_us;
    use Figure::{Number, Real};
    let all: Vec<(&str, Figure)> = vec![
        ("version", text(env!("CARGO_PKG_VERSION"))),
        ("state", text(state.name())),
        ("state_number", Number(state as u64)),
        (
            "state_reason",
            text(&if reason.is_empty() {
                report::failed_devices()
            } else {
                reason
            }),
        ),
        (
            "load_mode",
            text(if controller::loaded_early() {
                "early"
            } else {
                "runtime"
            }),
        ),
        ("async_mode", text(controller::async_mode())),
        ("instances_active", Number(totals.instances)),
        ("hits", Number(cache.hits)),
        ("bytes_saved", Number(cache.hit_bytes)),
        ("misses", Number(cache.misses)),
        ("misses_returned", Number(cache.misses_returned)),
        (
            "hit_ratio",
            Real(report::hit_ratio(cache.hits, cache.misses)),
        ),
        ("pages_cached", Number(cache.pages_cached)),
        ("bytes_cached", Number(cache.bytes_cached)),
        ("capacity_bytes", Number(cache.bytes_capacity)),
        ("compression_ratio", Real(cache.compression_ratio)),
        ("memory_bytes", Number(totals.memory_bytes)),
        ("admitted", Number(cache.admitted)),
        ("rejected", Number(cache.rejected)),
        ("dropped_staging_full", Number(cache.dropped_staging_full)),
        ("write_limit_rejected", Number(cache.rejected_write_limit)),
        ("evicted", Number(cache.evicted)),
        ("reinserted", Number(cache.reinserted)),
        ("invalidated", Number(cache.invalidated)),
        ("bytes_written", Number(cache.bytes_written_total)),
        (
            "bytes_written_24h",
            Number(settings::write_budget().written_in_a_day()),
        ),
        ("write_amplification", Real(cache.write_amplification)),
        ("data_reads", Number(totals.data_reads)),
        ("cache_read_p50_us", Real(cache_p50)),
        ("cache_read_p95_us", Real(cache_p95)),
        ("cache_read_p99_us", Real(cache_p99)),
        ("data_read_p50_us", Real(data_p50)),
        ("data_read_p95_us", Real(data_p95)),
        ("data_read_p99_us", Real(data_p99)),
        ("cache_read_us_sum", microseconds(&cache.read_latency)),
        ("cache_read_us_count", Number(cache.read_latency.count)),
        ("data_read_us_sum", microseconds(&totals.data_latency)),
        ("data_read_us_count", Number(totals.data_latency.count)),
        ("devices", Number(totals.devices)),
        ("devices_failed", Number(totals.devices_failed)),
        ("device_errors", Number(cache.device_errors)),
        ("reads_given_up", Number(cache.reads_given_up)),
        ("reads_busy", Number(cache.reads_busy)),
        ("failed_proofs", Number(cache.failed_proofs)),
        ("audit_suspicions", Number(audit::suspicions())),
        ("suspended_files", Number(audit::suspended_files())),
        ("instance_lock_accesses", Number(cache.lock_accesses)),
        ("instance_lock_waits", Number(cache.lock_waits)),
    ];
    all.into_iter()
        .map(|(name, figure)| (CString::new(name).unwrap_or_default(), figure))
        .collect()
}

/// The time of all reads together.
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
        json!({ "name": name.to_string_lossy(), "value": value })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn the_report_has_all_variables() {
        let report = report();
        let rows = report.as_array().unwrap();
        assert_eq!(rows.len(), figures().len());
        assert!(rows.contains(&json!({ "name": "state_number", "value": 0 })));
        assert!(rows.contains(&json!({ "name": "state", "value": "disabled" })));
    }
}
