//! Why what is cached of a file is not believed.

/// Why what is cached of a file is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    Changed,
    OtherFile,
    OtherMount,
    UnknownMount,
    ClockSetBack,
    WholeSeconds,
    NotFollowed,
    NotCompared,
    Off,
    Late,
    WasOpen,
    Unflushed,
    Unfollowed,
    Unsettled,
}

impl Doubt {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Doubt::Changed => "it was changed while the server was down",
            Doubt::OtherFile => "it is another file of the same number",
            Doubt::OtherMount => "its file system was mounted anew",
            Doubt::UnknownMount => {
                "it cannot be told whether its file system was mounted anew meanwhile"
            }
            Doubt::ClockSetBack => "the clock was set back",
            Doubt::WholeSeconds => "its file system keeps no fractions of a second",
            Doubt::NotFollowed => "the server before did not follow it to its end",
            Doubt::NotCompared => {
                "it was doubtful at the start before, and not all of it was compared"
            }
            Doubt::Off => "the extension was off meanwhile",
            Doubt::Late => "InnoDB had started before the extension was on",
            Doubt::WasOpen => "it was open when the machine restarted",
            Doubt::Unflushed => "it was not seen to be flushed before the machine restarted",
            Doubt::Unfollowed => "it was not followed to the end before the machine restarted",
            Doubt::Unsettled => "it was closed right after a change before the machine restarted",
        }
    }
}

/// Those that stand in records.
const NUMBERED: [Doubt; 6] = [
    Doubt::WasOpen,
    Doubt::Unflushed,
    Doubt::Unfollowed,
    Doubt::ClockSetBack,
    Doubt::Unsettled,
    Doubt::WholeSeconds,
];

impl Doubt {
    /// Its number in a record, if it has one.
    pub(super) fn number(self) -> Option<u64> {
        let at = NUMBERED.iter().position(|doubt| *doubt == self)?;
        Some(at as u64)
    }

    /// The doubt of this number.
    pub(super) fn of(number: u64) -> Option<Doubt> {
        NUMBERED.get(usize::try_from(number).ok()?).copied()
    }
}
