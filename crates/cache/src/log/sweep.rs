//! Sweep: removes a device's entries by a walk over all directories, for pages that are not known one by one.

use crate::device::Device;
use crate::index::directory::Kind;
use crate::instance::Instance;
use crate::instance::shared::Shared;

/// Buckets swept at a time under the lock of their instance.
const SWEEP: usize = 4096;

/// Removes the entries that refer to the device and satisfy `condemned`. `left` returns how many there are. Returns the
/// number of removed entries. No such entry may be created during the sweep.
///
/// The first round releases the lock between two pieces of a directory. An insertion may then move an entry from a later
/// piece to a finished one. If entries remain, a second round holds the lock of each instance throughout. No entry escapes
/// that, since entries do not leave their instance.
pub(crate) fn sweep(
    shared: &Shared,
    device: &Device,
    condemned: impl Fn(u32) -> bool,
    left: impl Fn() -> u64,
) -> u64 {
    sweep_in_pieces(shared, device, condemned, left, SWEEP, || {})
}

/// A sweep whose first round takes `piece` buckets at a time. It calls `between` after each piece, without a lock.
pub(crate) fn sweep_in_pieces(
    shared: &Shared,
    device: &Device,
    condemned: impl Fn(u32) -> bool,
    left: impl Fn() -> u64,
    piece: usize,
    between: impl Fn(),
) -> u64 {
    let mut removed = 0;
    for piece in [piece, usize::MAX] {
        if left() == 0 {
            break;
        }
        for instance in &shared.instances {
            removed += sweep_instance(shared, device, &instance.0, &condemned, piece, &between);
        }
    }
    assert_eq!(left(), 0, "entries of a device were left");
    removed
}

fn sweep_instance(
    shared: &Shared,
    device: &Device,
    instance: &Instance,
    condemned: &impl Fn(u32) -> bool,
    piece: usize,
    between: &impl Fn(),
) -> u64 {
    let mut removed = 0;
    let buckets = instance.lock().directory.buckets();
    for first in (0..buckets).step_by(piece) {
        let mut state = instance.lock();
        let before = state.directory.used();
        state.directory.sweep(first, piece, |entry| {
            let hit = entry.kind != Kind::STAGED
                && device.geometry.holds(entry.location)
                && condemned(entry.location);
            if hit {
                shared.store.entry_removed(entry);
            }
            hit
        });
        let now = state.directory.used();
        if now < before {
            removed += before - now;
            state.scale_files(before);
        }
        drop(state);
        between();
    }
    removed
}
