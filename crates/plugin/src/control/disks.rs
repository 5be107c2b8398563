//! Logs when a cache disk stops serving, and when it serves again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::Instant;

use cache::DeviceStatistics;

/// Inactive disks, with the time of the first look and whether the log names them. The log names a disk at the second look,
/// since a paused process measures long reads and writes when it resumes.
#[derive(Default)]
pub struct Disks(BTreeMap<PathBuf, (Instant, bool)>);

impl Disks {
    /// Compares the devices of the active extension with the previous look. Returns lines for the log.
    pub fn update(&mut self, devices: Option<Vec<DeviceStatistics>>, now: Instant) -> Vec<String> {
        let Some(devices) = devices else {
            self.0.clear();
            return Vec::new();
        };
        let mut news = Vec::new();
        for device in devices {
            let path = device.path.display().to_string();
            match (device.active, self.0.entry(device.path)) {
                (true, Entry::Occupied(known)) => {
                    let (since, is_logged) = known.remove();
                    let seconds = now.saturating_duration_since(since).as_secs();
                    if is_logged {
                        news.push(format!(
                            "cache disk '{path}' is used again, after {seconds} s"
                        ));
                    }
                }
                (false, Entry::Occupied(mut known)) => {
                    if !std::mem::replace(&mut known.get_mut().1, true) {
                        news.push(format!("cache disk '{path}' {}", device.state));
                    }
                }
                (false, Entry::Vacant(unknown)) => {
                    unknown.insert((now, false));
                }
                (true, Entry::Vacant(_)) => {}
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn begin_and_end_are_logged_once() {
        let device = |active| {
            Some(vec![DeviceStatistics {
                path: "/fast".into(),
                active,
                state: "failed: EIO".into(),
                ..DeviceStatistics::default()
            }])
        };
        let (mut disks, begin) = (Disks::default(), Instant::now());
        let mut update =
            |devices, seconds| disks.update(devices, begin + Duration::from_secs(seconds));
        assert_eq!(update(device(true), 0).len(), 0);
        assert_eq!(update(device(false), 1).len(), 0);
        assert_eq!(update(device(false), 3), ["cache disk '/fast' failed: EIO"]);
        assert_eq!(update(device(false), 5).len(), 0);
        let lines = update(device(true), 44);
        assert_eq!(lines, ["cache disk '/fast' is used again, after 43 s"]);
        // Not longer than the interval between two looks.
        assert_eq!(
            (
                update(device(false), 46).len(),
                update(device(true), 48).len()
            ),
            (0, 0)
        );
        update(device(false), 50);
        assert_eq!(update(device(false), 52).len(), 1);
        // Switched off in between.
        assert_eq!(
            (update(None, 54).len(), update(device(true), 56).len()),
            (0, 0)
        );
    }
}
