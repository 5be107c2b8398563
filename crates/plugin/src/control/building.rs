//! Opens an extension according to the settings.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cache::Extension;
use coherence::controller::{Built, Engine};
use coherence::manifest::Manifest;
use coherence::os::Os as _;
use coherence::switch::Active;

use super::messages;
use crate::control::plan::Plan;
use crate::platform::{CORE, Linux, owned_files};
use crate::restart::persist;
use crate::settings::{self, Settings};

/// A page size for which the extension always has a layout.
const DEFAULT_PAGE: u32 = 16384;
/// Smaller pages do not enlarge the directory: a few tables with tiny pages must not multiply its memory.
const MIN_NOMINAL_PAGE: u32 = 4096;

/// Returns the page size with the most bytes read, at least [`MIN_NOMINAL_PAGE`]; `known` if nothing was read.
pub fn usual_page(known: u32) -> u32 {
    let mut bytes = std::collections::BTreeMap::<u32, u64>::new();
    for file in CORE.files.all() {
        let page = file.page_size();
        if page != 0 {
            let reads = file.hits.load(Ordering::Relaxed) + file.misses.load(Ordering::Relaxed);
            *bytes.entry(page.max(MIN_NOMINAL_PAGE)).or_default() += reads * u64::from(page);
        }
    }
    bytes
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .max_by_key(|(_, bytes)| *bytes)
        .map_or(known, |(page, _)| page)
}

/// Builds the extension for this page size. If memory does not allow it, calls `refused` and uses the default page size.
///
/// # Errors
/// The reason, for the client or the log.
pub fn lay_out(
    settings: &Settings,
    page: u32,
    refused: impl FnOnce(u32),
) -> Result<Built<Engine>, String> {
    let session = persist::take_session();
    let manifest = CORE.switch().manifest().filter(|_| session.is_some());
    let page = manifest.and_then(Manifest::page).unwrap_or(page);
    let former = manifest.and_then(|manifest| manifest.remembered(settings.layout_digest()));
    let mut plan = Plan::with_layout(settings, former)?;
    let persistence = persist::ensure_records(plan.owner());
    if session.is_none() {
        plan.wait_for_space();
    }
    if let Some(chosen) = plan.chosen_size() {
        Linux.note(&chosen);
    }
    let mut warnings = plan.check_any()?;
    warnings.extend(persistence.err().map(|why| messages::not_persisted(&why)));
    let mut opened = |engine: Engine, page| {
        warnings.extend(engine.device_failures());
        let devices = engine.extension.device_statistics();
        let files = devices.into_iter().map(|device| device.path);
        let files = files.chain(settings::persist_path());
        owned_files::update(plan.owner(), plan.data(), files.collect());
        let refused = engine.extension.recovered().refused.as_ref();
        warnings.extend(refused.map(|why| messages::not_persisted(why)));
        let sizes: Vec<u64> = plan.devices().iter().map(|device| device.bytes).collect();
        let layout = (plan.memory_limit(), &sizes[..]);
        persist::extension_opened(&engine.extension, settings, layout, page);
        if session.is_some() {
            Linux.note(&messages::recovered(
                engine.extension.recovered(),
                persist::is_from_snapshot(),
            ));
        }
        Built {
            epoch: engine.epoch,
            engine,
            page,
            warnings: std::mem::take(&mut warnings),
        }
    };
    match build(&plan, page, session) {
        Ok(engine) => Ok(opened(engine, page)),
        Err(reason) if page < DEFAULT_PAGE => {
            refused(page);
            Linux.warning(&format!(
                "the cache cannot be laid out for pages of {page} bytes: {reason}. It is laid out for pages of \
                 {DEFAULT_PAGE} bytes, and can keep fewer of the smaller ones."
            ));
            Ok(opened(build(&plan, DEFAULT_PAGE, None)?, DEFAULT_PAGE))
        }
        Err(reason) => Err(reason),
    }
}

fn build(plan: &Plan, nominal_page: u32, session: Option<u64>) -> Result<Engine, String> {
    let config = plan.config(nominal_page, session);
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
    fn switch_on_makes_one_plan() {
        let _turn = crate::platform::process::UNDER_TEST.lock();
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            path: folder.path().display().to_string(),
            size: 64 << 20,
            ..Settings::current()
        };
        let before = crate::platform::identity::LOOKUPS.get();
        let built = lay_out(&settings, DEFAULT_PAGE, |_| ()).unwrap();
        assert_eq!(
            crate::platform::identity::LOOKUPS.get() - before,
            1,
            "what was checked may not be what is opened"
        );
        let devices = built.engine.extension.device_statistics();
        assert_eq!((devices.len(), built.page), (1, DEFAULT_PAGE));
        assert!(devices[0].path.starts_with(folder.path()));
    }
}
