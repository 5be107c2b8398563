//! What has become of the files that another process has left. Its lock is a leaf.

use crate::manifest::{Doubt, Left};
use crate::sync::{AtomicBool, Mutex, Ordering};

/// Of so many files it is said why what was cached of them is doubtful or lost.
const REASONS: usize = 16;

/// What has become of files that another process has left.
pub struct Inheritance {
    became: Mutex<Became>,
    /// Nothing may be served yet.
    withheld: AtomicBool,
}

/// Names of files, and what is doubted.
pub type Reasons = Vec<(String, Doubt)>;

/// Pages are counted more or less.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Became {
    /// Files that may be opened, and their pages.
    pub left: (u64, u64),
    /// Files whose pages are served, and those.
    pub trusted: (u64, u64),
    /// Files whose pages are compared before they are served, and those.
    pub doubtful: (u64, u64),
    /// Files whose pages are lost, and those.
    pub lost: (u64, u64),
    /// Why, of the first of both: the file's name, and the reason.
    pub reasons: Reasons,
    pub lost_reasons: Reasons,
    /// Mounts of devices that were asked for.
    mounts: Vec<(u64, Option<u64>)>,
}

impl Default for Inheritance {
    fn default() -> Inheritance {
        Inheritance::new()
    }
}

impl Inheritance {
    /// Nothing was left.
    pub const fn new() -> Inheritance {
        Inheritance {
            became: Mutex::new(Became {
                left: (0, 0),
                trusted: (0, 0),
                doubtful: (0, 0),
                lost: (0, 0),
                reasons: Vec::new(),
                lost_reasons: Vec::new(),
                mounts: Vec::new(),
            }),
            withheld: AtomicBool::new(false),
        }
    }

    /// What was left may turn out to be of no use, whatever is known of each file. Nothing is to be served before that is known.
    pub fn withhold(&self) {
        self.withheld.store(true, Ordering::SeqCst);
    }

    /// It is known.
    pub fn release(&self) {
        self.withheld.store(false, Ordering::SeqCst);
    }

    /// Whether it is not known yet.
    #[inline]
    pub fn is_withheld(&self) -> bool {
        self.withheld.load(Ordering::SeqCst)
    }

    /// So many files, and pages of them, were left.
    pub fn found(&self, left: (u64, u64)) {
        self.became.lock().left = left;
    }

    /// None is believed any more.
    pub fn disbelieve(&self) {
        let mut became = self.became.lock();
        let (trusted, left) = (became.trusted, became.left);
        became.lost.0 += trusted.0 + left.0;
        became.lost.1 += trusted.1 + left.1;
        (became.trusted, became.left) = ((0, 0), (0, 0));
    }

    /// The mount of a device. It is asked for once: as long as a file of it is open it stays.
    pub fn mount(&self, device: u64, ask: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let known = |mounts: &[(u64, Option<u64>)]| {
            let mut mounts = mounts.iter();
            mounts.find(|mount| mount.0 == device).map(|mount| mount.1)
        };
        if let Some(mount) = known(&self.became.lock().mounts) {
            return mount;
        }
        let mount = ask();
        self.became.lock().mounts.push((device, mount));
        mount
    }

    /// As it is now.
    pub fn became(&self) -> Became {
        self.became.lock().clone()
    }

    /// One is opened. If there is a doubt, what is cached of it is doubtful, or lost.
    pub fn opened(&self, left: &Left, name: &str, doubt: Option<Doubt>, is_lost: bool) {
        let mut became = self.became.lock();
        became.left.0 = became.left.0.saturating_sub(1);
        became.left.1 = became.left.1.saturating_sub(left.pages);
        let became = &mut *became;
        let (figures, reasons) = match (doubt, is_lost) {
            (_, true) => (&mut became.lost, &mut became.lost_reasons),
            (Some(_), false) => (&mut became.doubtful, &mut became.reasons),
            (None, false) => (&mut became.trusted, &mut became.reasons),
        };
        figures.0 += 1;
        figures.1 += left.pages;
        if let Some(doubt) = doubt.filter(|_| reasons.len() < REASONS) {
            reasons.push((name.into(), doubt));
        }
    }
}
