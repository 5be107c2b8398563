//! Heat lists: the pages that a server has cached and how hot they are, as bytes. The report `heat` returns them, and
//! `warm-put` accepts them.
//!
//! A list is a sequence of pages in ascending order. Each is one LEB128 number: the pages skipped since the last one (or
//! since the start of the list), shifted left by [`HEAT_BITS`], and its heat in the low bits. Most pages take one byte.

/// Bits of a page's heat: how often it was accessed recently, 0 to 15.
const HEAT_BITS: u32 = 4;
/// Levels of heat.
pub const LEVELS: usize = 1 << HEAT_BITS;
/// Number of page classes, by which pages are loaded: 0 is the hottest.
pub const CLASSES: usize = 4;
/// Maximum list bytes in one answer of a server.
pub const MAX_BYTES: usize = 48 << 10;
/// Size after which [`pieces`] begins a new piece: in base64 it fits into a statement of 64 KiB.
const PIECE_BYTES: usize = 32 << 10;
/// The maximum share of pages that is hotter than the pages of a class.
const HOTTER: [f64; CLASSES] = [0.05, 0.20, 0.50, 1.0];
/// Maximum length of a number, bytes.
const MAX_NUMBER_BYTES: usize = 6;

/// Encodes a list.
#[derive(Clone, Debug)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// The smallest page that may follow.
    next: u64,
    pages: usize,
}

impl Encoder {
    /// Creates an empty list of pages from `from` on.
    pub fn new(from: u32) -> Encoder {
        Encoder {
            bytes: Vec::new(),
            next: from.into(),
            pages: 0,
        }
    }

    /// Adds a page whose number is higher than the previous one's. For any other page, returns false and adds nothing.
    pub fn push(&mut self, page: u32, heat: u8) -> bool {
        let Some(passed) = u64::from(page).checked_sub(self.next) else {
            return false;
        };
        let heat = u64::from(heat).min(LEVELS as u64 - 1);
        let mut number = passed << HEAT_BITS | heat;
        while number > 0x7f {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
        self.next = u64::from(page) + 1;
        self.pages += 1;
        true
    }

    /// Bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Pages so far.
    pub fn pages(&self) -> usize {
        self.pages
    }
}

/// A list that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Decodes a list that begins at `from`: pages and their heat.
pub struct Decoder<'a> {
    bytes: &'a [u8],
    next: u64,
}

impl<'a> Decoder<'a> {
    /// Decodes these bytes.
    pub fn new(bytes: &'a [u8], from: u32) -> Decoder<'a> {
        Decoder {
            bytes,
            next: from.into(),
        }
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for (n, &byte) in self.bytes.iter().take(MAX_NUMBER_BYTES).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * n);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[n + 1..];
                return Some(number);
            }
        }
        None
    }
}

impl Iterator for Decoder<'_> {
    type Item = Result<(u32, u8), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let page = self.number().and_then(|number| {
            let heat = (number % LEVELS as u64) as u8;
            let page = u32::try_from(self.next + (number >> HEAT_BITS)).ok()?;
            Some((page, heat))
        });
        let Some((page, heat)) = page else {
            self.bytes = &[];
            return Some(Err(Malformed));
        };
        self.next = u64::from(page) + 1;
        Some(Ok((page, heat)))
    }
}

/// Encodes pages, which must ascend, as lists of limited length. Each has its first page.
pub fn pieces(pages: impl IntoIterator<Item = (u32, u8)>) -> Vec<(u32, Vec<u8>)> {
    let mut pieces: Vec<(u32, Encoder)> = Vec::new();
    for (page, heat) in pages {
        if pieces
            .last()
            .is_none_or(|(_, piece)| piece.bytes.len() >= PIECE_BYTES)
        {
            pieces.push((page, Encoder::new(page)));
        }
        if let Some((_, piece)) = pieces.last_mut() {
            piece.push(page, heat);
        }
    }
    let encoded = pieces.into_iter();
    encoded.map(|(from, piece)| (from, piece.bytes)).collect()
}

/// The class of each heat level, by the share of all pages that is hotter. `pages`: the number of pages of each level.
pub fn classes(pages: [u64; LEVELS]) -> [u8; LEVELS] {
    let all = pages.iter().sum::<u64>().max(1) as f64;
    let mut hotter = 0;
    let mut classes = [0; LEVELS];
    for level in (0..LEVELS).rev() {
        let share = hotter as f64 / all;
        let class = HOTTER.iter().position(|limit| share < *limit);
        classes[level] = class.unwrap_or(CLASSES - 1) as u8;
        hotter += pages[level];
    }
    classes
}

/// Whether a list may contain this name: a file-per-table tablespace below the data directory, without `..`. System, undo
/// and temporary tablespaces are never listed, nor are tables of the schema `mysql`.
pub fn is_listed(name: &str) -> bool {
    let mut steps = name.split('/');
    let is_sound = steps.all(|step| !matches!(step, "" | "." | "..")) && name.len() <= 512;
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let is_the_servers = matches!(folder, "mysql" | "sys" | "#innodb_temp")
        || folder.is_empty() && file == "mysql.ibd"
        || file.starts_with("#sql");
    // The name becomes part of a statement.
    let is_quotable = |byte: u8| !byte.is_ascii_control() && !b"\\'\"".contains(&byte);
    is_sound && !is_the_servers && file.ends_with(".ibd") && name.bytes().all(is_quotable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoder_returns_what_was_encoded() {
        let pages = [(7, 3), (8, 0), (9, 15), (500, 1), (501, 2), (u32::MAX, 15)];
        let mut encoder = Encoder::new(7);
        assert!(pages.iter().all(|&(page, heat)| encoder.push(page, heat)));
        assert!(!encoder.push(9, 1), "backwards");
        assert_eq!(encoder.pages(), pages.len());
        assert!(encoder.bytes().len() <= 3 + 2 + 1 + 6);
        let back: Result<Vec<_>, _> = Decoder::new(encoder.bytes(), 7).collect();
        assert_eq!(back.unwrap(), pages);
    }

    #[test]
    fn pieces_are_short_and_complete() {
        let pages: Vec<(u32, u8)> = (0..100_000).map(|n| (n * 9 + 3, (n % 16) as u8)).collect();
        let pieces = pieces(pages.iter().copied());
        assert!(pieces.len() > 1);
        let short = |(_, bytes): &(u32, Vec<u8>)| bytes.len() < PIECE_BYTES + MAX_NUMBER_BYTES;
        assert!(pieces.iter().all(short) && PIECE_BYTES + MAX_NUMBER_BYTES <= MAX_BYTES);
        let back = pieces
            .iter()
            .flat_map(|(from, bytes)| Decoder::new(bytes, *from));
        assert_eq!(back.collect::<Result<Vec<_>, _>>().unwrap(), pages);
        assert_eq!(super::pieces([]), []);
    }

    #[test]
    fn dense_lists_take_one_byte_a_page() {
        let mut encoder = Encoder::new(0);
        (0..10_000).for_each(|page| assert!(encoder.push(page, 3)));
        assert_eq!(encoder.bytes().len(), 10_000);
        let mut sparse = Encoder::new(0);
        let every = (0..10_000).step_by(33);
        every.for_each(|page| assert!(sparse.push(page, 99)));
        assert!(sparse.bytes().len() <= 2 * sparse.pages());
    }

    #[test]
    fn malformed_list_is_an_error() {
        let pages = |bytes: &[u8], from| Decoder::new(bytes, from).collect::<Result<Vec<_>, _>>();
        assert_eq!(pages(&[], 0), Ok(vec![]));
        assert_eq!(pages(&[0x80], 0), Err(Malformed), "cut");
        assert_eq!(pages(&[0xff; 20], 0), Err(Malformed), "no end");
        // Beyond the last page number.
        assert_eq!(pages(&[0, 0], u32::MAX), Err(Malformed));
        let far = [0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(pages(&far, 0), Err(Malformed));
    }

    #[test]
    fn classes_follow_shares_of_hotter_pages() {
        let of = |heats: &dyn Fn(usize) -> usize| {
            let mut levels = [0; LEVELS];
            (0..100).for_each(|n| levels[heats(n)] += 1);
            classes(levels)
        };
        let few = of(&|n| if n < 4 { 15 } else { 1 });
        assert_eq!((few[15], few[1]), (0, 0));
        assert_eq!(of(&|n| n / 25)[..4], [3, 3, 2, 0]);
        assert_eq!(of(&|_| 2)[2], 0, "all alike: all are hot");
    }

    #[test]
    fn names_of_tables_only() {
        for good in ["d/t.ibd", "d/t#p#p0.ibd", "space.ibd", "sh@002d1/t.ibd"] {
            assert!(is_listed(good), "{good}");
        }
        for bad in [
            "../d/t.ibd",
            "d/../t.ibd",
            "/d/t.ibd",
            "d//t.ibd",
            "./d/t.ibd",
            "ibdata1",
            "undo_001",
            "undo001",
            "mysql.ibd",
            "mysql/user.ibd",
            "ibtmp1",
            "#innodb_temp/temp_1.ibt",
            "d/#sql-ib5.ibd",
            "d/t.ibd\n",
            "",
        ] {
            assert!(!is_listed(bad), "{bad}");
        }
    }
}
