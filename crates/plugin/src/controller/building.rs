//! Builds an extension, step by step, and says what came of it as events. Whoever begins it does it: a client's session, or the
//! controller's thread.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use coherence::controller::{Built, Refused, Work};
use extension::Extension;

use super::machine::{Event, Later, is_released, lock, post, tell, wait_until};
use super::retiring::{RETIRE_WAIT, close_all};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::plan::Plan;
use crate::process::CORE;
use crate::settings::Settings;
use crate::switch::Active;
use crate::unseen;

/// The page size for which the extension can always be laid out.
const DEFAULT_PAGE: u32 = 16384;
/// Smaller pages than this do not make the directory larger: some tables of tiny pages must not multiply its memory.
const LEAST_NOMINAL_PAGE: u32 = 4096;

/// Does what an event has left to do, and what comes of that. Returns the client's answer.
pub fn perform(later: Vec<Later>) -> Result<Vec<String>, Refused> {
    let mut answer = Ok(Vec::new());
    let mut queue = VecDeque::from(later);
    while let Some(later) = queue.pop_front() {
        match later {
            Later::Tell(told) => tell(told),
            Later::Answer(result) => answer = result,
            Later::Prepare { number, own } => {
                queue.extend(work(Work::Build(number), || prepare(number, own)));
            }
            Later::Open {
                number,
                settings,
                page,
            } => queue.extend(work(Work::Build(number), || open(number, &settings, page))),
            Later::Scan(of) => queue.extend(work(of, || {
                CORE.register_open_files();
                Event::Scanned(of)
            })),
            // Those who ask for it do it themselves.
            Later::Close(_) | Later::Wait => {}
        }
    }
    answer
}

/// A panic ends the work as well.
fn work(work: Work, body: impl FnOnce() -> Event) -> Vec<Later> {
    post(
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Event::Failed {
            work,
            why: "an internal error occurred".into(),
        }),
    )
}

fn prepare(number: u64, own: bool) -> Event {
    if let Some(refusal) = unseen::refusal() {
        let why = refusal.to_string();
        return Event::NotSeen { number, why };
    }
    if own {
        // Nobody but this thread would close them. A session that switches off may still come with one.
        close_all();
        while wait_until(RETIRE_WAIT, |machine| {
            machine.has_to_close() || is_released(machine)
        }) && lock().machine.has_to_close()
        {
            close_all();
        }
    }
    // Somebody else may be at it: a thread of the installation before, or a session that was overtaken.
    if let Err(why) = wait_for_retired() {
        let work = Work::Build(number);
        return Event::Failed { work, why };
    }
    Event::Released(number)
}

/// Waits until extensions before this one have let go of their files.
///
/// # Errors
/// They have not, for [`RETIRE_WAIT`].
pub fn wait_for_retired() -> Result<(), String> {
    if wait_until(RETIRE_WAIT, is_released) {
        return Ok(());
    }
    Err(
        "the cache files of the time before are still being closed; try again in some seconds"
            .into(),
    )
}

fn open(number: u64, settings: &Settings, known_page: u32) -> Event {
    match lay_out(settings, usual_page(known_page)) {
        Ok(built) => Event::Opened { number, built },
        Err(why) => Event::Failed {
            work: Work::Build(number),
            why,
        },
    }
}

/// The page size in which most bytes were read, but not below [`LEAST_NOMINAL_PAGE`]; `known` if none were.
pub fn usual_page(known: u32) -> u32 {
    let mut bytes = std::collections::BTreeMap::<u32, u64>::new();
    for file in CORE.files.all() {
        let page = file.page_size();
        if page != 0 {
            let reads = file.hits.load(Ordering::Relaxed) + file.misses.load(Ordering::Relaxed);
            *bytes.entry(page.max(LEAST_NOMINAL_PAGE)).or_default() += reads * u64::from(page);
        }
    }
    bytes
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .max_by_key(|(_, bytes)| *bytes)
        .map_or(known, |(page, _)| page)
}

/// Builds the extension for this page size, or for the usual one where memory does not allow it.
fn lay_out(settings: &Settings, page: u32) -> Result<Built<Arc<Active>>, String> {
    let mut plan = Plan::new(settings)?;
    plan.wait_for_room();
    let mut warnings = plan.check_any()?;
    let mut opened = |engine: Arc<Active>, page| {
        warnings.extend(engine.device_failures());
        Built {
            epoch: engine.epoch,
            engine,
            page,
            warnings: std::mem::take(&mut warnings),
        }
    };
    match build(&plan, page) {
        Ok(engine) => Ok(opened(engine, page)),
        Err(reason) if page < DEFAULT_PAGE => {
            let _ = post(Event::PageRefused(page));
            Linux.warning(&format!(
                "the cache cannot be laid out for pages of {page} bytes: {reason}. It is laid out for pages of \
                 {DEFAULT_PAGE} bytes, and can keep fewer of the smaller ones."
            ));
            Ok(opened(build(&plan, DEFAULT_PAGE)?, DEFAULT_PAGE))
        }
        Err(reason) => Err(reason),
    }
}

fn build(plan: &Plan, nominal_page: u32) -> Result<Arc<Active>, String> {
    let config = plan.config(nominal_page);
    let generations = Arc::clone(CORE.switch().generations());
    match catch_unwind(AssertUnwindSafe(|| Extension::open(config, generations))) {
        Ok(Ok(extension)) => Ok(Arc::new(Active::new(extension, CORE.switch().next_epoch()))),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("an internal error occurred while the extension was opened".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_plan_is_made_for_a_switching_on() {
        let _turn = crate::process::UNDER_TEST.lock();
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            path: folder.path().display().to_string(),
            size: 64 << 20,
            ..Settings::current()
        };
        let before = crate::plan::LOOKS.get();
        let built = lay_out(&settings, DEFAULT_PAGE).unwrap();
        assert_eq!(
            crate::plan::LOOKS.get() - before,
            1,
            "what was checked may not be what is opened"
        );
        let devices = built.engine.extension.device_statistics();
        assert_eq!((devices.len(), built.page), (1, DEFAULT_PAGE));
        assert!(devices[0].path.starts_with(folder.path()));
    }
}
