//! The mode: its bits, their layout in the switch's word, and the bypass setting.

/// Data files and writes to them are tracked.
pub const TRACK: u8 = 1;
/// Reads are looked up in the cache, and admitted after a miss.
pub const SERVE: u8 = 2;
/// Completions of asynchronous requests must be processed.
pub const HARVEST: u8 = 4;
/// Page reads and writes are recorded. For that, data files and writes to them are tracked.
pub const RECORD: u8 = 8;
/// An extension is active: asynchronous requests may be tracked and redirected.
pub const ACTIVE: u8 = 16;
/// Pages are admitted.
pub const FILL: u8 = 32;
/// Reads are timed, and the reads of the control group go to the data files.
pub const CONTROL: u8 = 64;

/// The reasons to track files and writes.
pub(super) const TRACKING: u8 = TRACK | RECORD;

/// The use of an active extension.
pub(super) const USE: u8 = SERVE | FILL | CONTROL;
/// Shift of the wanted use, which has the bits of `USE`, above the mode bits.
pub(super) const WANTED: u32 = 8;

/// One period of `HARVEST`; periods are counted above the wanted use.
pub(super) const HARVESTS: u32 = 1 << 16;

/// Whether the server's reads bypass an active extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    /// Reads are served from the cache.
    #[default]
    Off,
    /// Reads go to the data files, and nothing is admitted. A cached page stays until it is written.
    On,
    /// Reads go to the data files. Written pages are admitted.
    Refill,
}

impl Bypass {
    pub const ALL: [Bypass; 3] = [Bypass::Off, Bypass::On, Bypass::Refill];

    /// The machine-readable name.
    pub fn name(self) -> &'static str {
        match self {
            Bypass::Off => "off",
            Bypass::On => "on",
            Bypass::Refill => "refill",
        }
    }

    pub(super) fn bits(self) -> u8 {
        match self {
            Bypass::Off => SERVE | FILL,
            Bypass::On => 0,
            Bypass::Refill => FILL,
        }
    }
}

/// The mode at the start of a hook. It is passed on, so that one call sees one mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub(super) u8);

impl Mode {
    /// Whether the hooks do nothing at all.
    #[inline(always)]
    pub fn is_off(self) -> bool {
        self.0 == 0
    }

    /// Whether an extension is active, bypassed or not.
    #[inline(always)]
    pub fn is_active(self) -> bool {
        self.0 & ACTIVE != 0
    }

    /// Whether reads are looked up in the cache, and admitted after a miss.
    #[inline(always)]
    pub fn serves(self) -> bool {
        self.0 & SERVE != 0
    }

    /// Whether pages are admitted.
    #[inline(always)]
    pub fn fills(self) -> bool {
        self.0 & FILL != 0
    }

    /// Whether reads are timed, and the reads of the control group go to the data files.
    #[inline(always)]
    pub fn compares(self) -> bool {
        self.0 & CONTROL != 0
    }

    /// Whether reads are served or timed. Recording does not count.
    #[inline(always)]
    pub fn handles_reads(self) -> bool {
        self.0 & (SERVE | CONTROL) != 0
    }

    /// How reads bypass an active extension.
    pub fn bypass(self) -> Bypass {
        let is_it = |bypass: &Bypass| self.0 & (SERVE | FILL) == bypass.bits();
        let known = Bypass::ALL.into_iter().find(is_it);
        known.filter(|_| self.is_active()).unwrap_or_default()
    }

    /// Whether data files and writes to them are tracked.
    #[inline(always)]
    pub fn tracks(self) -> bool {
        self.0 & TRACKING != 0
    }

    /// Whether page reads and writes are recorded.
    #[inline(always)]
    pub fn records(self) -> bool {
        self.0 & RECORD != 0
    }

    /// The bits, for diagnosis.
    pub fn bits(self) -> u8 {
        self.0
    }
}

#[inline(always)]
pub(super) fn bits(word: u32) -> u8 {
    word as u8
}

/// Replaces the mode in the word.
pub(super) fn with_mode(word: u32, mode: u8) -> u32 {
    debug_assert!(mode & ACTIVE == 0 || mode & TRACK != 0);
    debug_assert!(mode & USE == 0 || mode & ACTIVE != 0);
    let harvests = if mode & HARVEST == 0 { 0 } else { HARVESTS };
    (word & !u32::from(u8::MAX)).wrapping_add(harvests) | u32::from(mode)
}

/// Sets `ACTIVE` and the wanted use in the mode of the word.
pub(super) fn in_use(word: u32) -> u32 {
    let wanted = (word >> WANTED) as u8 & USE;
    word & !u32::from(USE) | u32::from(ACTIVE | wanted)
}
