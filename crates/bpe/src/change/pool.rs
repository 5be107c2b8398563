//! Steps that lower InnoDB's buffer pool by the extension's memory, and restore it.

use super::{Row, Run, Step};
use crate::installation::install_state::InstallState;
use crate::installation::pool::{self, Pool};
use crate::support::failure::Failure;
use crate::support::size::human;

/// Why the original pool size is unknown.
pub const NO_RECORD: &str = "there is no record here of its size without the extension, which may have been switched on \
                             from another host or by another user";

/// Lowers the pool by the extension's actual memory. `pool` is the pool without the extension, `expected` the expected
/// memory in bytes. The record keeps the previous size for `bpe disable`. The error is the reason why the pool stays.
pub fn lower(pool: Pool, expected: u64) -> Result<Step, String> {
    let Some(lowered) = pool.lowered_for(expected) else {
        return Err(stays(pool, expected));
    };
    let less = human(pool.size - lowered);
    let row = Row::new(
        "innodb_buffer_pool_size",
        human(pool.size),
        format!("about {}", human(lowered)),
        format!(
            "lowered by at most about {less}: by the memory that the extension takes once it is on"
        ),
    );
    Ok(Step::new("lower the buffer pool", vec![row], move |run| {
        carry_out(run, pool, expected)
    }))
}

/// Why the pool is not lowered.
fn stays(pool: Pool, expected: u64) -> String {
    format!(
        "innodb_buffer_pool_size stays at {}: the server changes it in steps of {}, more than 4 % of it; the extension \
         takes about {} besides",
        human(pool.size),
        human(pool.step),
        human(expected)
    )
}

fn carry_out(run: &mut Run<'_>, pool: Pool, expected: u64) -> Result<(), Failure> {
    let used = run.server.number_of_status("bpe_memory_bytes")?;
    let used = used.unwrap_or(expected);
    let now = run.server.number("innodb_buffer_pool_size")?.unwrap_or(0);
    let Some(wanted) = pool.lowered_for(used) else {
        run.tell(stays(pool, used));
        return Ok(());
    };
    if wanted == pool.size {
        return Ok(());
    }
    // Record it before the change, so that it can always be undone.
    run.record(|record| record.lower(pool.size, wanted))?;
    if wanted == now {
        return Ok(());
    }
    let reached = match pool::resize(run.server, wanted) {
        Ok(reached) => reached,
        Err(why) => {
            if run.server.lost().is_some() || run.server.is_outcome_unknown() {
                undo(run, now);
                return Err(Failure::step(format!(
                    "innodb_buffer_pool_size could not be lowered: {why}"
                )));
            }
            // The extension works anyway; a pool that is not lowered only uses more memory.
            run.tell(format!(
                "innodb_buffer_pool_size could not be lowered: {why}"
            ));
            run.server.number("innodb_buffer_pool_size")?.unwrap_or(now)
        }
    };
    if reached == pool.size {
        return run.record(|record| (record.pool_before, record.pool_after) = (None, None));
    }
    run.tell(format!(
        "innodb_buffer_pool_size lowered from {} to {}: the extension takes {} now",
        human(pool.size),
        human(reached),
        human(used)
    ));
    undo(run, now);
    run.record(|record| record.lower(pool.size, reached))
}

fn undo(run: &mut Run<'_>, before: u64) {
    run.add_undo(
        format!("innodb_buffer_pool_size is {} again", human(before)),
        move |server| pool::resize(server, before).map(drop),
    );
}

/// The pool size to restore when the extension is removed; `None` if the pool has that size. The error is the reason why the pool stays.
pub fn original(record: Option<&InstallState>, now: u64) -> Result<Option<u64>, String> {
    let Some(record) = record else {
        return Err(NO_RECORD.to_owned());
    };
    match (record.original(now), record.pool_before) {
        (Some(original), _) => Ok(Some(original).filter(|&original| original != now)),
        (None, Some(before)) if before != now && record.pool_after.is_some() => Err(format!(
            "it has been changed since it was lowered from {}",
            human(before)
        )),
        _ => Ok(None),
    }
}

/// Restores the pool from `now` to `before`, both in bytes.
pub fn restore(now: u64, before: u64) -> Step {
    let row = Row::new(
        "innodb_buffer_pool_size",
        human(now),
        human(before),
        "the extension no longer takes the memory",
    );
    Step::new("put the buffer pool back", vec![row], move |run| {
        let size = run.server.number("innodb_buffer_pool_size")?;
        if size == Some(before) {
            return Ok(());
        }
        if size != Some(now) {
            run.tell("innodb_buffer_pool_size stays as it is: it has been changed meanwhile");
            return Ok(());
        }
        let result = pool::resize(run.server, before).map(drop);
        run.done(
            format!("innodb_buffer_pool_size is {} again", human(before)),
            result,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lowered_size_restores_the_original() {
        let mut record = InstallState::default();
        assert_eq!(original(Some(&record), 1024), Ok(None));
        record.lower(1024, 1020);
        record.lower(1024, 1000);
        // A server may start with 1020 from an option file.
        for now in [1020, 1000] {
            assert_eq!(original(Some(&record), now), Ok(Some(1024)));
        }
        assert_eq!(original(Some(&record), 1024), Ok(None));
        assert!(original(Some(&record), 2048).is_err());
        assert!(original(None, 1020).is_err());
    }

    #[test]
    fn pool_is_lowered_by_a_step_of_the_server() {
        let pool = |step| Pool {
            size: 100 << 20,
            step,
            max: None,
        };
        let step = lower(pool(1 << 20), 2 << 20)
            .map_err(|why| panic!("{why}"))
            .unwrap();
        let row = &step.rows[0];
        assert!(
            row.why.contains("2 MiB") && row.to.contains("98 MiB"),
            "{row:?}"
        );
        assert!(lower(pool(50 << 20), 2 << 20).is_err_and(|why| why.contains("steps of 50 MiB")));
    }
}
