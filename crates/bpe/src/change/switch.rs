//! Switches an installed extension by global variables, and resizes the buffer pool. Switching on lowers the pool by
//! the memory that the extension takes, and switching off restores it. The record of `bpe enable` holds the original
//! pool size, so `bpe disable` finds it.

use interface::variables;

use super::digest::Topic;
use super::setting::{Setting, set_all};
use super::{Kind, Plan, Row, Step, pool, title};

use crate::change::enable::{self, Locations};
use crate::connect::maintenance::check_may_set;
use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::connect::state::wait_until_active;
use crate::installation::disk;
use crate::installation::install_state::{InstallState, StateFile};
use crate::installation::pool::{Pool, expected_memory};
use crate::support::failure::Failure;
use crate::support::quote::{shell, shell_path};
use crate::support::size::human;

const UNTIL_RESTART: &str =
    "this holds until the server's next start, which follows its option files";

/// Plans the switch of a server that has the plugin, without changing anything. `path` and `size` (bytes) default to
/// the server's settings.
///
/// # Errors
/// Why the switch is impossible.
pub fn plan(
    server: &mut Server,
    on: bool,
    path: Option<&str>,
    size: Option<u64>,
    locations: &Locations,
) -> Result<Plan, Failure> {
    check_may_set(server)?;
    let values = server.variables("bpe\\_%")?;
    let now = |name: &str| values.get(name).cloned().unwrap_or_default();
    let was_on = now("bpe_enabled") == "ON";
    let process = Process::find(server).ok();
    let place = StateFile::of(server, process.as_ref(), locations.state_dir.as_deref())?;
    let record = place.read()?;
    let pool = Pool::of(server)?;
    let name = title(server, process.as_ref());
    let mut plan = Plan::new(Kind::Set, name).with_record(place.clone(), record.clone());
    plan.digest.add(Topic::Server, &place);
    let seen: Vec<_> = variables::rebuilding()
        .chain(["bpe_enabled"])
        .map(now)
        .collect();
    plan.digest.add(Topic::Pool, &pool);
    plan.digest
        .add(Topic::Record, &record.clone().map(InstallState::nameless));
    let pool_stays = |why: &str| {
        format!(
            "innodb_buffer_pool_size stays at {}: {why}",
            human(pool.size)
        )
    };
    let switched = |value| Row::setting("bpe_enabled", Some(&now("bpe_enabled")), value);
    if !on {
        plan.digest.add(Topic::Settings, &seen);
        let rows = was_on.then(|| switched("OFF"));
        plan.add(Step::new("switch off", rows.into_iter().collect(), |run| {
            run.sql("SET GLOBAL bpe_enabled = OFF")?;
            run.tell("bpe_enabled = OFF");
            Ok(())
        }));
        match pool::original(record.as_ref(), pool.size) {
            // The extension is already off as requested. A pool that stays lowered only wastes memory, so this step may fail.
            Ok(Some(before)) => plan.add(pool::restore(pool.size, before).dispensable()),
            Ok(None) => {}
            Err(why) => plan.notes.push(pool_stays(&why)),
        }
        if was_on {
            plan.notes
                .push("the cache is dropped: switching on again starts empty".to_owned());
            plan.notes.push(UNTIL_RESTART.to_owned());
        }
        return Ok(plan);
    }

    let path = path.map_or_else(|| now("bpe_path"), str::to_owned);
    let size = size.unwrap_or_else(|| now("bpe_size").parse().unwrap_or(0));
    if path.is_empty() || size == 0 {
        let what = if path.is_empty() { "path" } else { "size" };
        return Err(
            Failure::usage(format!("the server has no {what} for the cache yet")).advise(
                "name a folder on a fast local disk, and how much of it the cache may take",
            ),
        );
    }
    if let Some(process) = &process {
        check_path(server, process, &path, size, &mut plan.notes)?;
    }
    let setting = |name, value, before| Setting {
        name,
        value,
        before: Some(before),
    };
    let wanted = [("bpe_path", path), ("bpe_size", size.to_string())];
    let wanted = wanted.map(|(name, value)| setting(name, value, now(name)));
    let mut settings: Vec<_> = wanted.into_iter().filter(Setting::differs).collect();
    plan.digest.add(Topic::Settings, &(seen, &settings));
    let changes = !was_on || !settings.is_empty();
    if was_on && changes {
        plan.notes
            .push("the cache is rebuilt and starts empty".to_owned());
    }
    let rows = settings.iter().map(Setting::row);
    let rows = rows.chain((!was_on).then(|| switched("ON"))).collect();
    if changes {
        settings.push(setting("bpe_enabled", "ON".to_owned(), "OFF".to_owned()));
    }
    plan.add(Step::new("set and switch on", rows, move |run| {
        // Switch off first: only switching on validates the new settings at once.
        if was_on && changes {
            run.set("bpe_enabled", "OFF", "ON")?;
        }
        set_all(run, &settings)
    }));
    plan.add(Step::new("see that it is active", Vec::new(), |run| {
        wait_until_active(run.server)
    }));
    if changes {
        plan.notes.push(UNTIL_RESTART.to_owned());
        let page_size = server.number("innodb_page_size")?.unwrap_or(16 << 10);
        let expected = expected_memory(size, page_size);
        let step = match &record {
            // Without a record, nothing would restore the pool.
            None => Err(pool_stays(pool::NO_RECORD)),
            // The pool was lowered before and not resized since: start from its original size.
            Some(record) => {
                let size = record.original(pool.size).unwrap_or(pool.size);
                pool::lower(Pool { size, ..pool }, expected)
            }
        };
        match step {
            Ok(step) => plan.add(step.dispensable()),
            Err(why) => plan.notes.push(why),
        }
    }
    Ok(plan)
}

/// On the server's own host, refuses a bad path before anything changes.
fn check_path(
    server: &mut Server,
    process: &Process,
    path: &str,
    size: u64,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let paths = disk::split(path).map_err(|why| Failure::usage(format!("the path: {why}")))?;
    let missing = enable::check_paths(server, process, &paths, size, notes)?;
    let Some(folder) = missing.first() else {
        return Ok(());
    };
    let refused = Failure::refused(format!("{} does not exist", folder.display()));
    Err(refused.advise(format!(
        "make it for the server's user: sudo install -d -m 700 -o {} {}",
        shell(&process.user_name()),
        shell_path(folder)
    )))
}
