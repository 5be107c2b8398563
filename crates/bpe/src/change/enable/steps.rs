//! The steps of `enable`: displayed rows, actions, and their undo.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interface::untrusted::one_line;

use super::checks::{LibraryCopy, Permanence};
use super::facts::{Facts, by_hand, persisted};
use crate::change::setting::{self, Setting};
use crate::change::{OPTION_LINE, Row, Run, Step, views};
use crate::connect::plain;
use crate::connect::server::{Flavour, Server};
use crate::connect::state::wait_until_active;
use crate::installation::{interception, library};
use crate::support::failure::Failure;
use crate::support::quote::{sql_text, sql_value};

/// Time limit for statements that still use an uninstalled plugin.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The row about a new record with this path.
pub fn record_row(path: &Path) -> Row {
    Row::new("record", "", shown(path), "for `bpe disable`")
}

/// `record`: the path of a record that does not exist yet.
pub fn note_record(record: Option<PathBuf>, lift_read_only: bool) -> Step {
    let why = "it forbids changes of plugins";
    let row = || Row::new("super_read_only", "ON", "OFF for a moment", why);
    let record = record.as_deref().map(record_row);
    let rows = record.into_iter().chain(lift_read_only.then(row)).collect();
    Step::new("note what is there now", rows, |run| {
        run.maintain()?;
        run.record(|_| ())
    })
}

pub fn folder(facts: &Arc<Facts>, folder: PathBuf) -> Step {
    let row = Row::new(
        "folder",
        "",
        shown(&folder),
        "for the cache; only the server's user may enter it",
    );
    let facts = Arc::clone(facts);
    Step::new("make folders", vec![row], move |run| {
        let Some(process) = facts.process.clone() else {
            return Ok(());
        };
        process
            .make_directory(&folder)
            .map_err(|why| Failure::step(format!("cannot make {}: {why}", folder.display())))?;
        let made = folder.clone();
        run.add_needed_undo(format!("folder {} removed", folder.display()), move |_| {
            process.remove_directory(&made)
        });
        run.tell(format!("made {}", folder.display()));
        run.record(|record| record.folders.push(folder))
    })
}

pub fn library(facts: &Arc<Facts>, copy: LibraryCopy) -> Step {
    let row = Row::new(
        "library",
        if copy.replaces { "another version" } else { "" },
        shown(&copy.place),
        "the plugin, where the server looks for it",
    );
    let facts = Arc::clone(facts);
    Step::new("write the library", vec![row], move |run| {
        let Some(process) = &facts.process else {
            return Ok(());
        };
        let library = library::read(&copy.from).map_err(|error| {
            Failure::step(format!("cannot write {}: {error}", copy.place.display()))
        })?;
        let undone = match copy.replaces {
            true => "previous library put back",
            false => "library removed",
        };
        run.replace(process, &copy.place, &library, undone, !copy.replaces)?;
        run.tell(format!("wrote {}", copy.place.display()));
        match copy.replaces {
            true => Ok(()),
            false => run.record(|record| record.library = Some(copy.place)),
        }
    })
}

pub fn install(facts: &Arc<Facts>) -> Step {
    let rows = vec![Row::new(
        "plugin bpe",
        "not installed",
        "installed",
        "on the running server, without a restart",
    )];
    let (flavour, stale_row) = (facts.flavour, facts.stale_plugin_row);
    Step::new("install the plugin", rows, move |run| {
        if stale_row {
            // A start without the library left this row, and INSTALL would fail because of it.
            run.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
        }
        wait_until_gone(run.server)?;
        let result = run.sql(match flavour {
            Flavour::MariaDb => "INSTALL SONAME 'bpe'",
            Flavour::MySql => "INSTALL PLUGIN bpe SONAME 'bpe.so'",
        });
        if result.is_ok() || run.server.is_outcome_unknown() {
            run.add_undo("plugin uninstalled", |server: &mut Server| {
                let state = server.plugin_state();
                let undone = state.and_then(|state| match state {
                    Some(_) => server.execute("UNINSTALL PLUGIN bpe"),
                    None => server.execute("DELETE FROM mysql.plugin WHERE name = 'bpe'"),
                });
                undone.map_err(|error| plain(&error))
            });
        }
        result.map_err(|failure| {
            failure.advise(
                "the server's error log says more; on another host, copy bpe.so into its plugin_dir first",
            )
        })?;
        run.tell("plugin installed");
        Ok(())
    })
}

/// Waits until an uninstalled plugin is gone: it stays until the last statement that uses it has ended. MariaDB may
/// crash if the plugin is installed again before that (docs/evidence/reliability.md).
fn wait_until_gone(server: &mut Server) -> Result<(), Failure> {
    const REMOVED_ROWS: &str = "SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'bpe' \
                         AND PLUGIN_STATUS NOT IN ('ACTIVE', 'DISABLED', 'INACTIVE')";
    let begin = Instant::now();
    loop {
        let left = server.value(REMOVED_ROWS);
        let left = left.map_err(|error| Failure::step(plain(&error)))?;
        if left.as_deref() == Some("0") {
            return Ok(());
        }
        if begin.elapsed() > REMOVAL_TIMEOUT {
            return Err(
                Failure::step("the plugin was uninstalled, and a statement still uses it")
                    .advise("run this again when that has ended; SHOW PROCESSLIST shows it"),
            );
        }
        // Poll rarely, because the query itself also holds the plugin.
        std::thread::sleep(Duration::from_secs(2));
    }
}

pub fn function() -> Step {
    let row = Row::new(
        "function bpe_report",
        "",
        "created",
        "tells about disks, instances and files",
    );
    Step::new("create the function bpe_report", vec![row], |run| {
        run.sql("DROP FUNCTION IF EXISTS bpe_report")?;
        // After a start without the library, MySQL does not know the function, but its row exists.
        run.sql("DELETE FROM mysql.func WHERE name = 'bpe_report'")?;
        run.sql_and_undo(
            "CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'",
            "function bpe_report dropped",
            "DROP FUNCTION IF EXISTS bpe_report".to_owned(),
        )?;
        run.tell("function bpe_report created");
        Ok(())
    })
}

pub fn settings(facts: &Arc<Facts>) -> Step {
    let mut rows: Vec<_> = facts.changes().map(Setting::row).collect();
    if facts.tries_again() {
        let why = "it could not be switched on before";
        rows.push(Row::new("bpe_enabled", "ON", "OFF and ON again", why));
    }
    let facts = Arc::clone(facts);
    Step::new("set and switch on", rows, move |run| set(&facts, run))
}

fn set(facts: &Facts, run: &mut Run<'_>) -> Result<(), Failure> {
    let mut changes: Vec<_> = facts.changes().cloned().collect();
    if facts.tries_again() {
        // No undo is needed, because it was not on.
        run.sql("SET GLOBAL bpe_enabled = OFF")?;
    } else if facts.rebuilds() {
        // Switch off first: only switching on validates the new settings at once.
        run.set("bpe_enabled", "OFF", "ON")?;
    }
    if facts.tries_again() || facts.rebuilds() {
        changes.retain(|setting| setting.name != "bpe_enabled");
        changes.extend(facts.settings.last().cloned());
    }
    setting::set_all(run, &changes).map_err(|failure| {
        failure.advise(
            "fix what the message says; `bpe doctor` with the same --path and --size checks everything",
        )
    })
}

pub fn see_active() -> Step {
    Step::new("see that it is active", Vec::new(), |run| {
        wait_until_active(run.server).map_err(|failure| {
            failure.advise("`bpe doctor` with the same --path and --size checks everything")
        })
    })
}

/// Makes the change permanent by an option file, and on MySQL by persisted variables. `option_file`: its text with the
/// expected pool size.
pub fn permanent(facts: &Arc<Facts>, option_file: &str, kept: Option<String>) -> Step {
    let row = |what: &str, to: String, why: &str| Row::new(what, "", to, why);
    let mut rows = Vec::new();
    if let Permanence::Snippet { path, .. } = &facts.permanence {
        rows.push(row(
            "option file",
            shown(path),
            "so that a restart keeps it",
        ));
        let lines = option_file.lines().map(one_line);
        rows.extend(lines.map(|line| row(OPTION_LINE, line.to_string(), "")));
        rows.extend(kept.map(|kept| {
            row(
                "memory that outlives the server",
                kept,
                "so that what is cached is there again after a restart",
            )
        }));
    }
    let facts = Arc::clone(facts);
    Step::new("make it permanent", rows, move |run| {
        if facts.flavour == Flavour::MySql {
            persist(&facts, run)?;
        }
        let (Permanence::Snippet { path, .. }, Some(process)) = (&facts.permanence, &facts.process)
        else {
            return Ok(());
        };
        let record = run.recorded();
        let text = facts.snippet(&record, record.pool_after);
        let (text, is_proven) = text.proven_text(facts.flavour).map_err(Failure::step)?;
        let undone = "option file put back";
        run.replace(process, path, text.as_bytes(), undone, false)?;
        run.record(|record| record.snippet = Some(path.clone()))?;
        run.tell(format!(
            "wrote {}{}",
            path.display(),
            if is_proven {
                ""
            } else {
                " (my_print_defaults, which shows what the server reads in it, is not on this host)"
            }
        ));
        forget_plugin_row(run)
    })
}

/// The snippet loads the plugin now. With an additional row in mysql.plugin, every start would log a duplicate.
fn forget_plugin_row(run: &mut Run<'_>) -> Result<(), Failure> {
    let library = run
        .server
        .value("SELECT dl FROM mysql.plugin WHERE name = 'bpe'")
        .map_err(|error| Failure::step(plain(&error)))?;
    let Some(library) = library else {
        return Ok(());
    };
    run.sql_and_undo(
        "DELETE FROM mysql.plugin WHERE name = 'bpe'",
        "row in mysql.plugin put back",
        format!(
            "REPLACE INTO mysql.plugin (name, dl) VALUES ('bpe', {})",
            sql_text(&library)
        ),
    )
}

fn persist(facts: &Facts, run: &mut Run<'_>) -> Result<(), Failure> {
    let before = persisted(run.server)?;
    let previous = |name: &str| {
        let known = before.iter().find(|(known, _)| known == name);
        known.map(|(_, value)| value.clone())
    };
    let settings = facts.settings.iter();
    let mut wanted: Vec<_> = settings
        .map(|setting| (setting.name, setting.value.clone()))
        .collect();
    if let Some(size) = run.recorded().pool_after {
        let name = "innodb_buffer_pool_size";
        run.record(|record| {
            // An earlier run persisted this value: keep the original value in the record.
            let ours = record.has_persisted()
                && previous(name)
                    .and_then(|value| value.parse().ok())
                    .is_some_and(|value| record.original(value).is_some());
            if !ours {
                record.pool_persisted_before = previous(name);
            }
            record.pool_persisted = Some(true);
        })?;
        wanted.push((name, size.to_string()));
    }
    for (name, value) in wanted {
        let (undone, undo) = match previous(name) {
            Some(previous) if previous == value => continue,
            Some(previous) => (
                format!("persisted {name} is {previous} again"),
                format!("SET PERSIST {name} = {}", sql_value(&previous)),
            ),
            None => (
                format!("{name} no longer persisted"),
                format!("RESET PERSIST IF EXISTS {name}"),
            ),
        };
        let sql = format!("SET PERSIST {name} = {}", sql_value(&value));
        run.sql_and_undo(&sql, undone, undo)?;
    }
    run.tell("settings persisted");
    Ok(())
}

/// The extension works without the views, so a failure is only reported.
pub fn views() -> Step {
    let row = Row::new("views", "", views::list(), "show the extension in SQL");
    Step::new("make the views", vec![row], |run| {
        let with_schema = !run.recorded().schema_was_there;
        match views::create(run.server) {
            Ok(()) => {
                run.tell(format!(
                    "views made: {}; an account that reads them needs SELECT on bpe.* and PROCESS on *.*",
                    views::list()
                ));
                run.add_undo("views dropped", move |server: &mut Server| {
                    views::remove(server, with_schema).map(drop)
                });
            }
            Err(why) => run.tell(format!(
                "warning: the views of schema bpe could not be created: {why}\n  the extension works without them; `bpe \
                 views create` tries again"
            )),
        }
        Ok(())
    })
}

pub fn conclude(facts: &Facts, run: &mut Run<'_>) -> Result<(), Failure> {
    if let Permanence::ByHand { why, place, .. } = &facts.permanence {
        run.tell(format!("note: {why}"));
        let record = run.recorded();
        let snippet = facts.snippet(&record, record.pool_after);
        run.tell(format!(
            "to keep it over a restart, {}",
            by_hand(facts.flavour, &snippet, place)
        ));
    }
    let status = run.server.status("bpe%").unwrap_or_default();
    let mode = status.get("bpe_load_mode").map_or("", String::as_str);
    run.say("Enabled. `bpe status` shows its figures.");
    if mode == "runtime" && run.server.is_mariadb() {
        let process = facts.process.as_ref();
        let opening = match process.and_then(interception::uses_io_uring) {
            Some(true) => "The server uses io_uring:",
            Some(false) => return Ok(()),
            None => "If the server uses io_uring,",
        };
        run.say(format!("{opening} {}.", interception::UNTRACKED));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_lists_only_a_new_record() {
        let rows = |record| note_record(record, false).rows;
        assert_eq!(
            rows(Some("/var/lib/innodb-bpe/1.json".into()))[0].to_string(),
            "record: /var/lib/innodb-bpe/1.json (for `bpe disable`)"
        );
        assert!(rows(None).is_empty());
    }
}
