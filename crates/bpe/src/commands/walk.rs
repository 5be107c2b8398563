//! A walk over a server's files in several answers, each of which names the place of the next. A hostile server could
//! continue it without end.

/// Answers that may name no later place than an earlier one did: a file was truncated, or the server was too slow for a page.
const MAX_STALLED: u32 = 100;

/// Progress of a walk.
pub struct Walk {
    /// Number of a file, and a page in it.
    place: Option<(u32, u32)>,
    /// Answers that may still come.
    left: u32,
    stalled: u32,
}

impl Walk {
    pub fn new(max_answers: u32) -> Self {
        Self {
            place: None,
            left: max_answers,
            stalled: 0,
        }
    }

    /// Whether the walk may continue at this place, which the server names.
    pub fn goes_on(&mut self, file: &str, page: &str) -> bool {
        let number = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        };
        let place = number(file).zip(number(page));
        self.stalled += u32::from(place <= self.place);
        self.place = self.place.max(place);
        self.left = self.left.saturating_sub(1);
        place.is_some() && self.left > 0 && self.stalled <= MAX_STALLED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_ends_without_progress_or_after_all_answers() {
        let mut walk = Walk::new(200);
        assert!(walk.goes_on("0", "0") && walk.goes_on("0", "7") && walk.goes_on("1", "0"));
        let stalled = (0..).take_while(|_| walk.goes_on("1", "0")).count();
        assert_eq!(stalled, MAX_STALLED as usize);
        let mut walk = Walk::new(200);
        let answers = (0..).take_while(|page| walk.goes_on("0", &format!("{page}")));
        assert_eq!(answers.count(), 199);
        for wrong in [
            ("", "0"),
            ("0", "x"),
            ("-1", "0"),
            ("+1", "0"),
            ("0", "4294967296"),
        ] {
            assert!(!Walk::new(200).goes_on(wrong.0, wrong.1), "{wrong:?}");
        }
    }
}
