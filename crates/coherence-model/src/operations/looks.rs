//! Compares the kernel's metadata of a file with the changes that the plugin observed: the rule of its audit.
//!
//! The product waits until a file was idle for long, because it cannot know which requests are in flight. The model knows.
//! Without requests in flight, it records the file's metadata; every later difference must come with an observed change.

use std::time::Duration;

use bpe_plugin::platform::CORE;
use coherence::audit::watch::{Seen, Watch};
use coherence::os::Os as _;

use super::{errno, ranges};
use crate::calls;
use crate::coverage::{Reached, reached};
use crate::random::below;
use crate::world::{Slot, Watched, world};

/// Sets the times of a file, as after a copy.
pub fn set_times() {
    set_times_of(world().slot());
}

fn set_times_of(slot: &Slot) {
    let (Some(_ddl), Some(user)) = (slot.ddl(), slot.file().enter()) else {
        return;
    };
    let file = &user.0;
    let seconds = 1_700_000_000 + below(1 << 24) as i64;
    let (path, here) = (slot.path(), libc::AT_FDCWD);
    let times = [libc::timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    }; 2];
    let in_microseconds = [libc::timeval {
        tv_sec: seconds,
        tv_usec: 0,
    }; 2];
    let in_seconds = libc::utimbuf {
        actime: seconds,
        modtime: seconds,
    };
    // SAFETY: our own descriptor, path and memory.
    let result = unsafe {
        match below(5) {
            0 => calls::futimens(file.fd(), times.as_ptr()),
            1 => calls::utimensat(here, path.as_ptr(), times.as_ptr(), 0),
            2 => calls::utimensat(file.fd(), std::ptr::null(), times.as_ptr(), 0),
            3 => calls::utimes(path.as_ptr(), in_microseconds.as_ptr()),
            _ => calls::utime(path.as_ptr(), &raw const in_seconds),
        }
    };
    // The kernel accepts `utimensat` without a path, but not every C library passes it on.
    if result != 0 && errno() != libc::EINVAL {
        let text = format!("setting times failed with errno {}", errno());
        return world().violated(Some(file), &text);
    }
    reached(Reached::TimesSet);
    world().note(file, format_args!("times set to {seconds}"));
}

/// Compares a file's metadata, often again after an operation that changes only metadata.
pub fn look() {
    let slot = world().slot();
    look_at(slot);
    match below(6) {
        0 => set_times_of(slot),
        1 | 2 => ranges::extend_one(slot),
        _ => return,
    }
    look_at(slot);
}

fn look_at(slot: &Slot) {
    let file = slot.file();
    let Some(mut watched) = file.watched.try_lock() else {
        return;
    };
    let epoch = CORE.switch().active().as_ref().map(|active| active.epoch);
    let Some(epoch) = epoch.filter(|epoch| CORE.switch().still_serves(*epoch)) else {
        *watched = None;
        return;
    };
    // Call this before `idle_changes`: the plugin counts every later change before that change takes effect.
    let calm = file.is_calm();
    let Some(known) = CORE.files.of_descriptor(file.fd()) else {
        return;
    };
    let idle_changes = known.idle_changes();
    if let Some(before) = watched
        .as_mut()
        .filter(|before| before.epoch == epoch && before.owner == known.owner)
    {
        if idle_changes == Some(before.idle_changes) {
            match before.watch.look_at(&CORE.files, known, Duration::ZERO) {
                Seen::Otherwise(how) => {
                    // A change that began in between explains the difference, and so does switching off.
                    if known.idle_changes() == idle_changes && CORE.switch().still_serves(epoch) {
                        let text = format!("changed ({how}), and no change was seen");
                        world().violated(Some(&file), &text);
                    }
                }
                Seen::Quiet { .. } => reached(Reached::Looks),
                Seen::Busy => {}
            }
        }
        if known.idle_changes() == Some(before.idle_changes) {
            return;
        }
        reached(Reached::LooksAfterChanges);
        *watched = None;
    }
    let Some(idle_changes) = idle_changes.filter(|_| calm) else {
        return;
    };
    let mut watch = Watch::new(CORE.os().running());
    if watch.look_at(&CORE.files, known, Duration::ZERO) != Seen::Busy
        && known.idle_changes() == Some(idle_changes)
    {
        *watched = Some(Watched {
            epoch,
            owner: known.owner,
            idle_changes,
            watch,
        });
    }
}
