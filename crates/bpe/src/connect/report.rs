//! Requests reports from the plugin, and explains missing answers.

use std::borrow::Cow;

use interface::reports::is_privileged;
use interface::untrusted::without_controls;
use serde_json::Value;

use crate::connect::maintenance::account;
use crate::connect::plain;
use crate::connect::server::{Flavour, Server, is_denied, is_no_function};
use crate::support::failure::{Exit, Failure};

const CREATE_FUNCTION: &str =
    "run as an administrator: CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'";

/// Fails with advice unless the plugin is installed and active.
pub fn require_plugin(server: &mut Server) -> Result<(), Failure> {
    let what = match server.plugin_state() {
        Ok(Some(state)) if state == "ACTIVE" => return Ok(()),
        Ok(Some(state)) => format!("the plugin is on this server, but {state}"),
        Ok(None) => "the plugin is not installed on this server".into(),
        Err(error) => return Err(Failure::step(plain(&error))),
    };
    Err(Failure::refused(what).advise(how_to_install(server.flavour)))
}

/// Fails with advice unless the function exists, because views cannot use the variable.
pub fn require_function(server: &mut Server) -> Result<(), Failure> {
    match server.value("SELECT bpe_report('status')") {
        Ok(_) => Ok(()),
        Err(error) => Err(no_report(server, "status", &error)),
    }
}

/// The report of this name. `what` describes the effect of its absence, for example "cannot record".
pub fn ask(server: &mut Server, name: &str, what: &str) -> Result<Value, Failure> {
    match server.report(name) {
        Ok(Some(text)) => parse(&text).map_err(|error| {
            Failure::step(format!(
                "the server's answer cannot be understood ({error})"
            ))
        }),
        Ok(None) => {
            let verb = name.split([' ', ':']).next().unwrap_or(name);
            let unknown = format!("the plugin on this server does not know {verb}, so it {what}");
            Err(Failure::refused(unknown)
                .advise("install the bpe.so that belongs to this command, and restart the server"))
        }
        Err(error) => Err(no_report(server, name, &error)),
    }
}

/// Maximum number of arrays and objects in a report. Parsed, the smallest takes some 600 bytes.
const MAX_ROWS: usize = 1 << 20;

/// Parses a report's JSON. Removes control characters from its texts, so that they can be printed.
///
/// # Errors
/// It is no JSON, or has too many rows.
pub fn parse(text: &str) -> serde_json::Result<Value> {
    let opens = |byte: &u8| matches!(byte, b'{' | b'[');
    if text.bytes().filter(opens).count() > MAX_ROWS {
        return Err(serde::de::Error::custom("it has too many rows"));
    }
    let mut report = serde_json::from_str(text)?;
    clean(&mut report);
    Ok(report)
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = without_controls(text) {
                *text = clean;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(clean),
        Value::Object(members) => members.values_mut().for_each(clean),
        _ => {}
    }
}

/// The account, if the server refused the last report because a privilege is missing.
pub fn denied_account(server: &mut Server) -> Option<String> {
    server.denies_reports().then(|| account(server))
}

/// The statement that an administrator must run for this account.
pub fn grant(account: &str) -> String {
    format!("GRANT PROCESS ON *.* TO {account}")
}

fn no_report(server: &mut Server, name: &str, error: &mysql::Error) -> Failure {
    if is_denied(error) && is_privileged(name) {
        let account = account(server);
        let right = server.flavour.right_to_set_global();
        Failure::refused(format!(
            "this takes PROCESS and the right to SET GLOBAL, which the account {account} lacks: {}",
            plain(error)
        ))
        .advise(format!(
            "log in as an administrator (--user), or let one run: GRANT {right} ON *.* TO {account}"
        ))
    } else if is_denied(error) {
        let account = account(server);
        Failure::refused(format!(
            "the account {account} lacks the PROCESS privilege, which reports need"
        ))
        .advise(format!("run as an administrator: {}", grant(&account)))
    } else if is_no_function(error) {
        Failure::refused("the server does not have the function bpe_report").advise(CREATE_FUNCTION)
    } else {
        Failure::step(plain(error))
    }
}

/// The report of this name; `None` if the server reports that it does not exist.
///
/// # Errors
/// The connection fails or the answer times out. Do not use the connection afterwards, because the answer may still arrive.
pub fn ask_if_any(server: &mut Server, name: &str) -> Result<Option<String>, Failure> {
    match server.report(name) {
        Ok(text) => Ok(text),
        Err(mysql::Error::MySqlError(_)) => Ok(None),
        Err(error) => Err(Failure::new(
            Exit::Connect,
            format!("the server does not answer: {}", plain(&error)),
        )),
    }
}

fn how_to_install(flavour: Flavour) -> String {
    let install = match flavour {
        Flavour::MariaDb => "INSTALL SONAME 'bpe'",
        Flavour::MySql => "INSTALL PLUGIN bpe SONAME 'bpe.so'",
    };
    format!(
        "put bpe.so into the server's plugin_dir and run as an administrator: {install}; \
         CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'\n\
         (to record, neither a fast disk nor bpe_enabled is needed); or let `bpe enable` set everything up"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_too_many_rows_is_refused() {
        let rows = |count: usize| format!("[{}{{}}]", "{\"\":0},".repeat(count));
        assert!(parse(&rows(1000)).is_ok());
        assert!(parse(&rows(MAX_ROWS)).is_err());
    }

    #[test]
    fn texts_of_reports_have_no_control_characters() {
        let report =
            parse(r#"[{"file": "a\n\u001b[2Kb", "pages": 7, "why": ["\u2028"]}]"#).unwrap();
        assert_eq!(report[0]["file"], "a\\u{a}\\u{1b}[2Kb");
        assert_eq!(
            (&report[0]["pages"], &report[0]["why"][0]),
            (&7.into(), &"\\u{2028}".into())
        );
    }
}
