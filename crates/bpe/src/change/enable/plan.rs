//! Plans the changes of `enable` on a server before any of them.

use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::checks::{self, Permanence};
use super::facts::Facts;
use super::options::{DesiredOptions, Locations};
use super::steps;
use crate::change::digest::{Digest, Topic};
use crate::change::setting::Setting;
use crate::change::{Kind, Plan, pool, title, views};
use crate::connect::maintenance::will_lift_read_only;
use crate::connect::process::Process;
use crate::connect::server::{Server, Support, is_denied, support};
use crate::connect::{plain, state};
use crate::installation::install_state::{InstallState, StateFile};
use crate::installation::pool::{Pool, expected_memory};
use crate::installation::snippet;
use crate::support::failure::Failure;
use crate::support::size::human;

/// Plans the changes without executing any.
///
/// # Errors
/// Why they are impossible.
pub fn make(
    server: &mut Server,
    desired: &DesiredOptions,
    locations: &Locations,
) -> Result<Plan, Failure> {
    let mut notes = Vec::new();
    match support(server.flavour, server.version) {
        Support::Tested => {}
        Support::Expected => notes.push(format!(
            "{} {} is expected to work, but this project does not test its series regularly",
            server.flavour, server.version
        )),
        Support::No => {
            return Err(Failure::refused(format!(
                "{} {} is not supported; nothing was changed",
                server.flavour, server.version
            ))
            .advise("MariaDB 10.5 or MySQL 8.0, or newer, is required"));
        }
    }
    let process = Process::find(server);
    let known = process.as_ref().ok();
    let place = StateFile::of(server, known, locations.state_dir.as_deref())?;
    let recorded = place.read()?;
    let new_record = recorded.is_none().then(|| place.path());
    let mut record = recorded.unwrap_or_default();
    let seen = record.clone();
    let desired = desired.with_bytes(server, known, &record, &mut notes)?;
    let desired = &desired.with_tables(server)?;
    record.server = title(server, known);

    let failed = |error: mysql::Error| Failure::refused(plain(&error));
    let loaded = match server.plugin_state().map_err(failed)?.as_deref() {
        None => false,
        Some("ACTIVE") => true,
        Some(other) => {
            return Err(Failure::refused(format!(
                "plugin bpe is on the server already, but {other}; nothing was changed"
            ))
            .advise("restart the server, then run `bpe enable` again"));
        }
    };
    if let Some(process) = known {
        checks::can_be_followed(server, process, &mut notes)?;
    }
    let copy = checks::library(server, &process, locations, loaded, &mut notes)?;
    let data = server.variable("datadir")?.unwrap_or_default();
    let folders = match known {
        Some(process) => {
            checks::check_paths(server, process, &desired.paths, desired.size, &mut notes)?
        }
        None => Vec::new(),
    };
    let row = server
        .value("SELECT dl FROM mysql.plugin WHERE name = 'bpe'")
        .map_err(failed)?;
    let create_function = server
        .value("SELECT bpe_report('summary')")
        // Without the privilege, the function still exists.
        .is_err_and(|error| !is_denied(&error));
    let make_views = desired.views && wants_views(server, &mut record, &mut notes)?;
    let now = server.variables("bpe\\_%")?;
    let settings = desired
        .settings
        .iter()
        .map(|(name, value)| (*name, value.clone()))
        .chain([("bpe_enabled", "ON".to_owned())]);
    let settings = settings.map(|(name, value)| Setting {
        name,
        value,
        before: now.get(name).cloned(),
    });

    let mut pool = Pool::of(server)?;
    let pool_now = pool.size;
    // The pool was lowered before and not resized since: start from its original size.
    if let Some(original) = record.original(pool.size) {
        pool.size = original;
    }
    let page_size = server.number("innodb_page_size")?.unwrap_or(16 << 10);
    let expected = expected_memory(desired.size, page_size);
    if desired.size < pool.size {
        notes.push(format!(
            "a cache of {} is smaller than the buffer pool of {} and will help little",
            human(desired.size),
            human(pool.size)
        ));
    }
    let permanence = checks::permanence(server, &process, locations, &mut notes);
    let kept = known.and_then(|process| {
        checks::kept(process, desired.size, Path::new(&data), &now, &mut notes)
    });
    let lift_read_only = will_lift_read_only(server)?;
    let facts = Facts {
        flavour: server.flavour,
        settings: settings.collect(),
        pool,
        permanence,
        stale_plugin_row: !loaded && row.is_some(),
        has_failed: loaded && state::state(server)?.0 == "failed",
        process: process.ok(),
    };
    let lowered = pool.lowered_for(expected).filter(|_| !desired.keep_pool);
    let option_file = facts.snippet(&record, record.pool_after.or(lowered));
    let option_file = option_file
        .proven_text(server.flavour)
        .map_err(|why| Failure::refused(format!("{why}; nothing was changed")))?
        .0;
    let permanent_differs = facts.differs_permanently(server, &record)?;

    let mut plan =
        Plan::new(Kind::Install, record.server.clone()).with_record(place.clone(), Some(record));
    plan.notes = notes;
    if facts.rebuilds() && !facts.tries_again() {
        plan.notes
            .push("the cache is rebuilt and starts empty".to_owned());
    }
    if let Permanence::ByHand { why, .. } = &facts.permanence {
        plan.notes.push(format!(
            "no option file can be written ({why}), so a restart keeps this only after you have written one; the last \
             step says what to write"
        ));
    }
    let digest = &mut plan.digest;
    digest.add(Topic::Server, &(&place, facts.process.is_some()));
    let library = copy.as_ref();
    let library = library.map(|copy| (copy, stamp(&copy.from), stamp(&copy.place)));
    let rows = (!loaded, facts.stale_plugin_row, create_function);
    digest.add(Topic::Plugin, &(library, rows, make_views, lift_read_only));
    digest.add(Topic::Settings, &facts.settings);
    digest.add(Topic::Pool, &(pool, pool_now, desired.keep_pool, expected));
    see_files(digest, &facts, &(&folders, permanent_differs));
    digest.add(Topic::Record, &seen.nameless());

    let is_nothing = copy.is_none()
        && loaded
        && !create_function
        && !make_views
        && !permanent_differs
        && facts.changes().next().is_none()
        && !facts.tries_again();
    if is_nothing {
        return Ok(plan);
    }
    let facts = Arc::new(facts);
    plan.add(steps::note_record(new_record, lift_read_only));
    for folder in folders {
        plan.add(steps::folder(&facts, folder));
    }
    if let Some(copy) = copy {
        plan.add(steps::library(&facts, copy));
    }
    if !loaded {
        plan.add(steps::install(&facts));
    }
    if create_function {
        plan.add(steps::function());
    }
    plan.add(steps::settings(&facts));
    plan.add(steps::see_active());
    if !desired.keep_pool {
        match pool::lower(pool, expected) {
            Ok(step) => plan.add(step),
            Err(why) => plan.notes.push(why),
        }
    }
    plan.add(steps::permanent(&facts, &option_file, kept));
    if make_views {
        plan.add(steps::views());
    }
    plan.at_end(move |run| steps::conclude(&facts, run));
    Ok(plan)
}

/// Length and modification time of a file.
fn stamp(path: &Path) -> impl Debug {
    let meta = fs::metadata(path).ok()?;
    Some((meta.len(), meta.modified().ok()))
}

fn see_files(digest: &mut Digest, facts: &Facts, more: &impl Debug) {
    let there = match (&facts.permanence, &facts.process) {
        (Permanence::Snippet { path, .. }, Some(process)) => snippet::there(process, path),
        _ => None,
    };
    digest.add(Topic::Files, &(more, &facts.permanence, there));
}

/// Whether to create the views; an obstacle to them is no failure.
fn wants_views(
    server: &mut Server,
    record: &mut InstallState,
    notes: &mut Vec<String>,
) -> Result<bool, Failure> {
    let present = views::Present::read(server).map_err(|error| Failure::refused(plain(&error)))?;
    if let Some(obstacle) = present.obstacle() {
        notes.push(format!("no views are made: {obstacle}"));
        return Ok(false);
    }
    if present.ours.is_empty() {
        record.schema_was_there = present.schema;
    }
    Ok(!present.is_complete())
}
