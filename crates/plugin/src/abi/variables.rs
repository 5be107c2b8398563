//! System variables.
//!
//! `bpe_enabled` does its work while the server checks the value, so that the client gets the reason of a failure. The
//! assignment is a single store. The other variables have their values checked. The controller notices changes of variables
//! that determine the layout, and rebuilds the extension.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use coherence::switch::Bypass;
use interface::untrusted::refuse_controls;
use interface::variables::{self, Change, Kind, Variable};

use super::privilege::ReadsReport;
use super::{ServerTable, messages, report_variable};
use crate::control::{self, CONTROLLER};
use crate::platform::CORE;
use crate::platform::server::{Flavour, server};
use crate::settings::{self, BYPASS, Settings, VALUES};
use crate::tables::TABLES;

const BOOL: c_int = 1;
const LONGLONG: c_int = 4;
const STR: c_int = 5;
const ENUM: c_int = 6;
const UNSIGNED: c_int = 0x80;
const READ_ONLY: c_int = 0x200;
/// Not in option files or on the command line.
const NO_OPTION: c_int = 0x800;
/// MySQL only: `SET PERSIST` is refused.
const NOT_PERSISTED: c_int = 0x1_0000;
/// Each session has its own value.
const OF_A_SESSION: c_int = 0x100;
/// The server keeps a copy of the text.
const COPIED: c_int = 0x8000;
const OPTIONAL_ARGUMENT: c_int = 0x2000;
const REQUIRED_ARGUMENT: c_int = 0;
const NUMBER: c_int = LONGLONG | UNSIGNED | REQUIRED_ARGUMENT;

/// `st_mysql_value`: the value that a client gave.
#[repr(C)]
struct Value {
    value_type: Option<unsafe extern "C" fn(*mut Value) -> c_int>,
    val_str: Option<unsafe extern "C" fn(*mut Value, *mut c_char, *mut c_int) -> *const c_char>,
    val_real: Option<unsafe extern "C" fn(*mut Value, *mut f64) -> c_int>,
    val_int: Option<unsafe extern "C" fn(*mut Value, *mut i64) -> c_int>,
    is_unsigned: Option<unsafe extern "C" fn(*mut Value) -> c_int>,
}

const VALUE_IS_STRING: c_int = 0;

type Check =
    unsafe extern "C" fn(*mut c_void, *mut SystemVariable, *mut c_void, *mut Value) -> c_int;
type Update = unsafe extern "C" fn(*mut c_void, *mut SystemVariable, *mut c_void, *const c_void);

/// `st_mysql_sys_var` of a global variable. The fields after the value pointer depend on the type, so they are laid out as
/// words.
#[repr(C)]
pub struct SystemVariable {
    flags: c_int,
    name: *const c_char,
    comment: *const c_char,
    check: Option<Check>,
    update: Option<Update>,
    value: *mut c_void,
    words: [u64; 4],
}

/// A pointer in the table of variables.
#[repr(transparent)]
pub struct VariablePointer(*mut SystemVariable);

/// `TYPELIB` as MySQL (count as a 64-bit number) and MariaDB (32-bit number, and a fifth pointer from 11.8 on) read it.
#[repr(C)]
struct NameList {
    count: u64,
    name: *const c_char,
    names: *const *const c_char,
    lengths: *const c_uint,
    hidden: *const c_void,
}

const VARIABLES_COUNT: usize = variables::ALL.len();

/// Builds one row from the description in `interface` and the callbacks. `value` is where the server keeps the value.
const fn row(
    of: &Variable,
    check: Option<Check>,
    update: Option<Update>,
    value: *mut c_void,
) -> SystemVariable {
    let (kind, words) = match of.kind {
        Kind::Switch => (BOOL | OPTIONAL_ARGUMENT, [0; 4]),
        Kind::Choice(_) => (ENUM | REQUIRED_ARGUMENT, [0; 4]),
        Kind::Number { default, most } => (NUMBER, [default, 0, most, 0]),
        Kind::Bytes => (NUMBER, [0, 0, u64::MAX, 0]),
        Kind::Text(_) => (STR | REQUIRED_ARGUMENT, [0; 4]),
    };
    let change = match of.change {
        Change::AtOnce | Change::Rebuilds => 0,
        Change::AtStart => READ_ONLY,
        Change::OfSession => OF_A_SESSION | COPIED | NO_OPTION,
    };
    SystemVariable {
        flags: kind | change,
        name: of.c_name.as_ptr(),
        comment: of.comment.as_ptr(),
        check,
        update,
        value,
        words,
    }
}

/// Texts are in memory of the plugin, so that the server does not free one while it is read. The words of a session variable
/// begin with the default and with the fields by which the server finds the value. The server fills in those fields, and
/// also the offset of the value, which takes the place of the value pointer of other variables.
static ROWS: ServerTable<[SystemVariable; VARIABLES_COUNT]> = ServerTable::new([
    row(
        &variables::ENABLED,
        Some(check_enabled),
        Some(update_enabled),
        VALUES.enabled.as_ptr().cast(),
    ),
    row(
        &variables::BYPASS,
        None,
        Some(update_bypass),
        BYPASS.bypass.as_ptr().cast(),
    ),
    row(
        &variables::BYPASS_TIMEOUT,
        None,
        Some(update_bypass_timeout),
        BYPASS.timeout.as_ptr().cast(),
    ),
    row(
        &variables::PATH,
        Some(check_path),
        Some(update_path),
        VALUES.path.as_ptr().cast(),
    ),
    row(
        &variables::SIZE,
        Some(check_size),
        Some(update_size),
        VALUES.size.as_ptr().cast(),
    ),
    row(
        &variables::INSTANCES,
        None,
        Some(update_number),
        VALUES.instances.as_ptr().cast(),
    ),
    row(
        &variables::IO_CAPACITY,
        None,
        Some(update_capacity),
        VALUES.io_capacity.as_ptr().cast(),
    ),
    row(
        &variables::MEMORY_LIMIT,
        None,
        Some(update_number),
        VALUES.memory_limit.as_ptr().cast(),
    ),
    row(
        &variables::COMPRESSION,
        None,
        Some(update_number),
        VALUES.compression.as_ptr().cast(),
    ),
    row(
        &variables::DAILY_WRITE_LIMIT,
        None,
        Some(update_daily_limit),
        VALUES.daily_write_limit.as_ptr().cast(),
    ),
    row(
        &variables::TABLES,
        Some(check_tables),
        Some(update_tables),
        TABLES.text.as_ptr().cast(),
    ),
    row(
        &variables::PERSIST_PATH,
        None,
        None,
        VALUES.persist_path.as_ptr().cast(),
    ),
    row(
        &variables::WARM_IO_CAPACITY,
        None,
        Some(update_number),
        VALUES.warm_io_capacity.as_ptr().cast(),
    ),
    row(
        &variables::REPORT,
        Some(check_report),
        None,
        std::ptr::null_mut(),
    ),
]);

/// The table that the descriptors point to; ends with null.
pub static VARIABLES: ServerTable<[VariablePointer; VARIABLES_COUNT + 1]> = ServerTable::new({
    let mut all = [const { VariablePointer(std::ptr::null_mut()) }; VARIABLES_COUNT + 1];
    let mut at = 0;
    while at < VARIABLES_COUNT {
        all[at] = VariablePointer(ROWS.get().cast::<SystemVariable>().wrapping_add(at));
        at += 1;
    }
    all
});

/// Fills in the pointers among the words, which no constant can express. The constructor calls it.
pub fn complete() {
    let is_mysql = server().0 == Flavour::MySql;
    // SAFETY: before the server knows the tables, see the constructor.
    let rows = unsafe { &mut *ROWS.get() };
    for (row, of) in rows.iter_mut().zip(variables::ALL) {
        match of.kind {
            Kind::Text(default) => row.words[0] = default.as_ptr() as u64,
            Kind::Choice(names) => row.words[1] = std::ptr::from_ref(name_list(names)) as u64,
            _ => {}
        }
        if is_mysql && of.change == Change::OfSession {
            row.flags |= NOT_PERSISTED;
        }
    }
}

/// Returns the names in the servers' format. They live as long as the process.
fn name_list(names: &'static [&'static CStr]) -> &'static NameList {
    let pointers = names.iter().map(|name| name.as_ptr());
    let pointers: Vec<_> = pointers.chain([std::ptr::null()]).collect();
    let lengths = names.iter().map(|name| name.count_bytes() as c_uint);
    let lengths: Vec<_> = lengths.chain([0]).collect();
    Box::leak(Box::new(NameList {
        count: names.len() as u64,
        name: c"".as_ptr(),
        names: pointers.leak().as_ptr(),
        lengths: lengths.leak().as_ptr(),
        hidden: std::ptr::null(),
    }))
}

const OK: c_int = 0;
const REFUSED: c_int = 1;

/// Runs a callback. A panic must not reach the server.
fn callback(body: impl FnOnce() -> Result<(), String>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Err(reason)) => {
            messages::error(&reason);
            REFUSED
        }
        Err(_) => {
            messages::error("an internal error occurred");
            REFUSED
        }
    }
}

/// Returns the text for this variable; `None` for NULL.
///
/// # Errors
/// The text is not UTF-8, or contains control characters.
///
/// # Safety
/// `value` must be what the server handed to a check callback.
unsafe fn text_of(value: *mut Value, of: &Variable) -> Result<Option<CString>, String> {
    let mut buffer = [0 as c_char; 4096];
    let mut length = buffer.len() as c_int;
    // SAFETY: the caller's promise; the buffer is valid for the length given.
    let bytes = unsafe {
        let get = (*value).val_str.ok_or("the server gives no text")?;
        let text = get(value, buffer.as_mut_ptr(), &mut length);
        if text.is_null() {
            return Ok(None);
        }
        std::slice::from_raw_parts(text.cast::<u8>(), usize::try_from(length).unwrap_or(0))
    };
    checked_text(bytes, of).map(Some)
}

fn checked_text(bytes: &[u8], of: &Variable) -> Result<CString, String> {
    let name = of.name;
    let text = std::str::from_utf8(bytes).map_err(|_| format!("{name} is not valid UTF-8"))?;
    refuse_controls(name, text)?;
    CString::new(text).map_err(|_| format!("{name} has a character with the code 0"))
}

/// # Safety
/// `value` must be what the server handed to a check callback.
unsafe fn integer_of(value: *mut Value) -> Option<i64> {
    let mut number = 0i64;
    // SAFETY: the caller's promise.
    let null = unsafe { (*value).val_int?(value, &mut number) };
    (null == 0).then_some(number)
}

/// # Safety
/// `value` must be what the server handed to a check callback.
unsafe fn boolean_of(value: *mut Value) -> Option<bool> {
    // SAFETY: the caller's promise.
    unsafe {
        if (*value)
            .value_type
            .is_some_and(|kind| kind(value) == VALUE_IS_STRING)
        {
            let text = text_of(value, &variables::ENABLED).ok()??;
            let text = text.to_string_lossy().to_ascii_lowercase();
            return match text.as_str() {
                "on" | "true" | "1" | "yes" => Some(true),
                "off" | "false" | "0" | "no" => Some(false),
                _ => None,
            };
        }
        match integer_of(value)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

fn warn_all(thd: *mut c_void, warnings: &[String]) {
    for warning in warnings {
        // SAFETY: only callbacks of variables call this, with the session they were given.
        unsafe { messages::warning(thd, warning) };
    }
}

unsafe extern "C" fn check_enabled(
    thd: *mut c_void,
    _variable: *mut SystemVariable,
    save: *mut c_void,
    value: *mut Value,
) -> c_int {
    callback(|| {
        // SAFETY: the server passes a value, and one byte to store it.
        let on = unsafe { boolean_of(value) }.ok_or("bpe_enabled takes ON or OFF")?;
        if on {
            warn_all(thd, &control::prepare()?);
        }
        // SAFETY: as above.
        unsafe { *save.cast::<u8>() = u8::from(on) };
        Ok(())
    })
}

unsafe extern "C" fn update_enabled(
    _thd: *mut c_void,
    _variable: *mut SystemVariable,
    _target: *mut c_void,
    save: *const c_void,
) {
    callback(|| {
        // SAFETY: what the check callback stored.
        let on = unsafe { *save.cast::<u8>() } != 0;
        VALUES.enabled.store(u8::from(on), Ordering::SeqCst);
        if on {
            CONTROLLER.commit();
        } else {
            CONTROLLER.disable();
        }
        Ok(())
    });
}

unsafe extern "C" fn update_bypass(
    _thd: *mut c_void,
    _variable: *mut SystemVariable,
    _target: *mut c_void,
    save: *const c_void,
) {
    callback(|| {
        // SAFETY: the server's default check stores the index as a long.
        let index = unsafe { *save.cast::<u64>() };
        let bypass = usize::try_from(index)
            .ok()
            .and_then(|index| Bypass::ALL.get(index));
        BYPASS.set(&CORE, bypass.copied().unwrap_or_default());
        Ok(())
    });
}

unsafe extern "C" fn update_bypass_timeout(
    _thd: *mut c_void,
    _variable: *mut SystemVariable,
    _target: *mut c_void,
    save: *const c_void,
) {
    callback(|| {
        // SAFETY: a checked 64-bit number.
        BYPASS.set_timeout(&CORE, unsafe { *save.cast::<u64>() });
        Ok(())
    });
}

unsafe extern "C" fn check_path(
    thd: *mut c_void,
    _variable: *mut SystemVariable,
    save: *mut c_void,
    value: *mut Value,
) -> c_int {
    callback(|| {
        // SAFETY: the server passes a value.
        let text = unsafe { text_of(value, &variables::PATH) }?.unwrap_or_default();
        let path = text.to_str().unwrap_or_default();
        let is_wanted = CONTROLLER.with(|machine| machine.is_wanted());
        if path.is_empty() {
            if is_wanted {
                return Err("bpe_path cannot be emptied while bpe_enabled is ON; SET GLOBAL bpe_enabled=OFF first".into());
            }
        } else {
            let mut new = Settings {
                path: path.to_owned(),
                ..Settings::current()
            };
            if !is_wanted || new.size == 0 {
                new.size = new.smallest_size(); // switching on checks whether it fits
            }
            warn_all(thd, &control::check(new)?);
        }
        // SAFETY: `save` holds a pointer. The string stays for the life of the process.
        unsafe { *save.cast::<*const c_char>() = settings::intern(&text) };
        Ok(())
    })
}

unsafe extern "C" fn check_tables(
    thd: *mut c_void,
    _variable: *mut SystemVariable,
    save: *mut c_void,
    value: *mut Value,
) -> c_int {
    callback(|| {
        // SAFETY: the server passes a value.
        let text = unsafe { text_of(value, &variables::TABLES) }?.unwrap_or_default();
        let rules = text.to_str().unwrap_or_default();
        warn_all(thd, &TABLES.check(&CORE, rules)?);
        // SAFETY: `save` holds a pointer. The string stays for the life of the process.
        unsafe { *save.cast::<*const c_char>() = settings::intern(&text) };
        Ok(())
    })
}

/// Assigns the checked text, or the default.
unsafe extern "C" fn update_tables(
    _thd: *mut c_void,
    _variable: *mut SystemVariable,
    _target: *mut c_void,
    save: *const c_void,
) {
    callback(|| {
        // SAFETY: `save` holds a pointer to a string, or null.
        unsafe { settings::set_text(&TABLES.text, *save.cast::<*const c_char>()) };
        TABLES.apply(&CORE);
        Ok(())
    });
}

unsafe extern "C" fn check_report(
    thd: *mut c_void,
    _variable: *mut SystemVariable,
    save: *mut c_void,
    value: *mut Value,
) -> c_int {
    let mut has_error = false;
    let answer = callback(|| {
        // SAFETY: the server passes a value, its session in that session's thread, and room for a pointer.
        unsafe {
            let name = text_of(value, &variables::REPORT)?;
            let text = name
                .as_deref()
                .map_or("", |name| name.to_str().unwrap_or_default());
            let Some(granted) = ReadsReport::of(thd, text) else {
                has_error = true;
                return Ok(());
            };
            *save.cast::<*const c_char>() =
                report_variable::value_of(&granted, thd, name.as_deref())?;
        }
        Ok(())
    });
    if has_error { REFUSED } else { answer }
}

/// Puts [`update_report`] before the function that the server entered into the row of `bpe_report`. The third word of the row,
/// which a session variable does not use, keeps that function.
///
/// # Safety
/// Only the plugin's initialisation may call this: the server has registered the row, and the variable cannot be set yet.
pub unsafe fn guard_report() {
    let row = ROWS.get().cast::<SystemVariable>();
    // SAFETY: the last row is that of `bpe_report`. The caller promises that no other thread uses it.
    unsafe {
        let row = &mut *row.add(VARIABLES_COUNT - 1);
        match row.update {
            Some(own) if own as usize != update_report as *const () as usize => {
                row.words[2] = own as usize as u64;
                row.update = Some(update_report);
            }
            _ => {}
        }
    }
}

/// Assigns the report to the session. The global value stays empty: every account can read it, and new sessions copy it.
unsafe extern "C" fn update_report(
    thd: *mut c_void,
    variable: *mut SystemVariable,
    target: *mut c_void,
    save: *const c_void,
) {
    type Resolve = unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void;
    callback(|| {
        // SAFETY: the server passes its row with the fields of a session variable: after the callbacks the offset of the
        // value, the default, and the function that finds the value, the global one for no session. `save` holds a pointer
        // to a text in memory of the server that only this assignment uses, or to the default, which is null.
        unsafe {
            let offset = (&raw const (*variable).value).cast::<c_int>().read();
            let resolve = std::mem::transmute::<u64, Option<Resolve>>((*variable).words[1]);
            let text = *save.cast::<*mut c_char>();
            let is_global = resolve.is_none_or(|of| of(std::ptr::null_mut(), offset) == target);
            if is_global && !text.is_null() && *text != 0 {
                *text = 0;
                messages::warning(
                    thd,
                    "bpe_report keeps reports in SESSION only: the global value stays empty",
                );
            }
            if let Some(assign) = std::mem::transmute::<u64, Option<Update>>((*variable).words[2]) {
                assign(thd, variable, target, save);
            }
        }
        Ok(())
    });
}

/// Whether a variable keeps its value: neither server checks `= DEFAULT`, and without path or size the cache would be dropped.
fn keeps(thd: *mut c_void, of: &Variable, is_default: bool) -> bool {
    // The server holds its lock of all global variables here, so the controller's lock, which a switch may hold for long, is not taken.
    let keeps = is_default && VALUES.enabled.load(Ordering::SeqCst) != 0;
    if keeps {
        let warning = format!(
            "{} cannot be emptied while bpe_enabled is ON; it keeps its value",
            of.name
        );
        warn_all(thd, &[warning]);
    }
    keeps
}

/// Assigns the checked text, or the default.
unsafe extern "C" fn update_path(
    thd: *mut c_void,
    _variable: *mut SystemVariable,
    _target: *mut c_void,
    save: *const c_void,
) {
    callback(|| {
        // SAFETY: `save` holds a pointer to a string, or null.
        unsafe {
            let text = *save.cast::<*const c_char>();
            if !keeps(thd, &variables::PATH, text.is_null() || *text == 0) {
                settings::set_path(text);
            }
        }
        Ok(())
    });
}

/// Assigns the checked size, or the default.
unsafe extern "C" fn update_size(
    thd: *mut c_void,
    _variable: *mut SystemVariable,
    _target: *mut c_void,
    save: *const c_void,
) {
    callback(|| {
        // SAFETY: `save` holds a 64-bit number.
        let new = unsafe { *save.cast::<u64>() };
        if !keeps(thd, &variables::SIZE, new == 0) {
            VALUES.size.store(new, Ordering::SeqCst);
        }
        Ok(())
    });
}

unsafe extern "C" fn check_size(
    thd: *mut c_void,
    _variable: *mut SystemVariable,
    save: *mut c_void,
    value: *mut Value,
) -> c_int {
    callback(|| {
        // SAFETY: the server passes a value.
        let (number, unsigned) = unsafe {
            let number = integer_of(value).ok_or("bpe_size takes a number of bytes")?;
            (
                number,
                (*value)
                    .is_unsigned
                    .is_some_and(|is_unsigned| is_unsigned(value) != 0),
            )
        };
        if number < 0 && !unsigned {
            return Err(
                "bpe_size cannot be negative; give the bytes that the cache may take on disk"
                    .into(),
            );
        }
        let size = number as u64;
        let new = Settings {
            size,
            ..Settings::current()
        };
        let smallest = new.smallest_size();
        if size != 0 && size < smallest && new.percent().is_none() {
            return Err(format!(
                "bpe_size of {size} bytes is too small; the least for these paths is {smallest}, and 10 to 100 is a \
                 percentage of the room that there is"
            ));
        }
        // Nothing can be checked without a path, and clients may set the size first.
        if CONTROLLER.with(|machine| machine.is_wanted()) && !new.path.is_empty() {
            warn_all(thd, &control::check(new)?);
        }
        // SAFETY: `save` holds a 64-bit number.
        unsafe { *save.cast::<u64>() = size };
        Ok(())
    })
}

/// Assigns a 64-bit number, or an index into a list of names. The controller notices the change and rebuilds the extension.
unsafe extern "C" fn update_number(
    _thd: *mut c_void,
    _variable: *mut SystemVariable,
    target: *mut c_void,
    save: *const c_void,
) {
    callback(|| {
        // SAFETY: the target is one of the plugin's atomics, and the source is the checked value.
        let (target, new) = unsafe {
            (
                &*target.cast::<std::sync::atomic::AtomicU64>(),
                *save.cast::<u64>(),
            )
        };
        target.store(new, Ordering::SeqCst);
        Ok(())
    });
}

unsafe extern "C" fn update_capacity(
    _thd: *mut c_void,
    _variable: *mut SystemVariable,
    _target: *mut c_void,
    save: *const c_void,
) {
    callback(|| {
        // SAFETY: a checked 64-bit number.
        VALUES
            .io_capacity
            .store(unsafe { *save.cast::<u64>() }, Ordering::SeqCst);
        CONTROLLER.settings_changed();
        Ok(())
    });
}

unsafe extern "C" fn update_daily_limit(
    _thd: *mut c_void,
    _variable: *mut SystemVariable,
    _target: *mut c_void,
    save: *const c_void,
) {
    callback(|| {
        // SAFETY: a checked 64-bit number.
        VALUES
            .daily_write_limit
            .store(unsafe { *save.cast::<u64>() }, Ordering::SeqCst);
        settings::write_budget();
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::bypass;

    #[test]
    fn variables_have_the_servers_layout() {
        assert_eq!(std::mem::offset_of!(SystemVariable, name), 8);
        assert_eq!(std::mem::offset_of!(SystemVariable, update), 32);
        assert_eq!(std::mem::offset_of!(SystemVariable, value), 40);
        assert_eq!(std::mem::offset_of!(SystemVariable, words), 48);
        assert_eq!(size_of::<NameList>(), 40);
    }

    #[test]
    fn texts_have_no_control_characters() {
        for of in [&variables::PATH, &variables::TABLES, &variables::REPORT] {
            for bad in ["a\0b", "a\nb", "\u{1b}", "\u{7f}", "\u{9b}", "\u{2028}"] {
                let why = checked_text(bad.as_bytes(), of).unwrap_err();
                assert!(why.contains("control characters"), "{why}");
            }
            let why = checked_text(b"\xff", of).unwrap_err();
            assert!(why.contains(of.name) && why.contains("UTF-8"), "{why}");
            assert_eq!(
                checked_text("/é b\\".as_bytes(), of).as_deref(),
                Ok(c"/é b\\")
            );
        }
    }

    #[test]
    fn the_table_is_the_list() {
        for (index, one) in variables::ALL.iter().enumerate() {
            // SAFETY: static tables of this module.
            let (name, comment) = unsafe {
                let entry = &*(*VARIABLES.get())[index].0;
                (CStr::from_ptr(entry.name), CStr::from_ptr(entry.comment))
            };
            assert_eq!((name, comment), (one.c_name, one.comment));
        }
    }

    #[test]
    fn names_of_choices_have_the_servers_layout() {
        for names in [&[c"off"][..], &[c"OFF", c"ON", c"REFILL"]] {
            let list = name_list(names);
            assert_eq!(list.count as usize, names.len());
            for (index, name) in names.iter().enumerate() {
                // SAFETY: as many texts and lengths as the list counts.
                unsafe {
                    assert_eq!(CStr::from_ptr(*list.names.add(index)), *name);
                    assert_eq!(*list.lengths.add(index) as usize, name.count_bytes());
                }
            }
            // SAFETY: both arrays end with nothing.
            assert!(unsafe { (*list.names.add(names.len())).is_null() });
        }
    }

    /// The extension and the switch support as many choices and instances as the servers allow.
    #[test]
    fn limits_match_the_values_behind() {
        let Kind::Choice(names) = variables::BYPASS.kind else {
            panic!("bypass is a choice");
        };
        let known = Bypass::ALL.map(|bypass| bypass.name().to_uppercase());
        let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
        assert_eq!(names, known);
        let of = |variable: Variable| match variable.kind {
            Kind::Number { most, .. } => most,
            _ => 0,
        };
        assert_eq!(of(variables::INSTANCES), u64::from(cache::MAX_INSTANCES));
        assert_eq!(of(variables::BYPASS_TIMEOUT), bypass::MAX_TIMEOUT);
        assert_eq!(
            variables::PERSIST_PATH.kind,
            Kind::Text(settings::DEFAULT_PERSIST_PATH)
        );
    }
}
