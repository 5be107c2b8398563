//! Heat lists: which pages a server has cached and how hot they are, as bytes. The plugin gives them (`bpe_report('heat:...')`) and
//! takes them (`warm-put`); the command carries them from one to the other.
//!
//! A list is a sequence of pages in ascending order. Each is one number in LEB128: how many pages were passed since the one before
//! (or since where the list begins), shifted up by some bits, in which its heat stands. So most take one byte.

/// Bits of heat in what a server gives: how often a page was asked for of late, 0 to 15.
pub const BITS_GIVEN: u32 = 4;
/// Bits of heat in what a server takes: the class, 0 the hottest.
pub const BITS_TAKEN: u32 = 2;
/// Classes of pages.
pub const CLASSES: usize = 1 << BITS_TAKEN;
/// Pages of a file that are handed over as one: a granule. As a list it takes two bytes a page at most.
pub const GRANULE_PAGES: u32 = 1 << 14;
/// Bytes of a list that is handed over at once at most.
pub const MOST_BYTES: usize = 48 << 10;
/// Levels of heat that a server gives.
pub const LEVELS: usize = 1 << BITS_GIVEN;
/// The share of pages that is hotter than the pages of a class, at most.
const HOTTER: [f64; CLASSES] = [0.05, 0.20, 0.50, 1.0];
/// Bytes of one number at most.
const MOST_OF_A_NUMBER: usize = 6;

/// Makes a list.
#[derive(Clone, Debug)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// The least page that may come next.
    next: u64,
    bits: u32,
    pages: usize,
}

impl Encoder {
    /// An empty list of pages from `from` on.
    pub fn new(from: u32, bits: u32) -> Encoder {
        Encoder {
            bytes: Vec::new(),
            next: from.into(),
            bits,
            pages: 0,
        }
    }

    /// Adds a page, which must come after the one before. Whether it did.
    pub fn push(&mut self, page: u32, heat: u8) -> bool {
        let Some(passed) = u64::from(page).checked_sub(self.next) else {
            return false;
        };
        let heat = u64::from(heat).min((1 << self.bits) - 1);
        let mut number = passed << self.bits | heat;
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

    /// The list.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// A list that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The pages of a list that begins at `from`, and their heat.
pub struct Decoder<'a> {
    bytes: &'a [u8],
    next: u64,
    bits: u32,
}

impl<'a> Decoder<'a> {
    /// Of these bytes.
    pub fn new(bytes: &'a [u8], from: u32, bits: u32) -> Decoder<'a> {
        Decoder {
            bytes,
            next: from.into(),
            bits,
        }
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for (n, &byte) in self.bytes.iter().take(MOST_OF_A_NUMBER).enumerate() {
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
            let heat = (number & ((1 << self.bits) - 1)) as u8;
            let page = u32::try_from(self.next + (number >> self.bits)).ok()?;
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

/// The class of each level of heat among pages of this heat: by the share of all pages that are hotter.
pub fn classes(heats: impl Iterator<Item = u8>) -> [u8; LEVELS] {
    let mut levels = [0u64; LEVELS];
    heats.for_each(|heat| levels[usize::from(heat) % LEVELS] += 1);
    let all = levels.iter().sum::<u64>().max(1) as f64;
    let mut hotter = 0;
    let mut classes = [0; LEVELS];
    for level in (0..LEVELS).rev() {
        let share = hotter as f64 / all;
        let class = HOTTER.iter().position(|most| share < *most);
        classes[level] = class.unwrap_or(CLASSES - 1) as u8;
        hotter += levels[level];
    }
    classes
}

/// Whether a name may stand in a list: that of a tablespace of tables below the data directory, without steps upwards. The system
/// tablespaces, undo and temporary ones are never in it, nor the tables of the schema `mysql`.
pub fn is_listed(name: &str) -> bool {
    let mut steps = name.split('/');
    let is_sound = steps.all(|step| !matches!(step, "" | "." | "..")) && name.len() <= 512;
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let is_the_servers = matches!(folder, "mysql" | "sys" | "#innodb_temp")
        || folder.is_empty() && file == "mysql.ibd"
        || file.starts_with("#sql");
    // It goes into a statement.
    let is_quotable = |byte: u8| !byte.is_ascii_control() && !b"\\'\"".contains(&byte);
    is_sound && !is_the_servers && file.ends_with(".ibd") && name.bytes().all(is_quotable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back() {
        let pages = [(7, 3), (8, 0), (9, 15), (500, 1), (501, 2), (u32::MAX, 15)];
        let mut encoder = Encoder::new(7, BITS_GIVEN);
        assert!(pages.iter().all(|&(page, heat)| encoder.push(page, heat)));
        assert!(!encoder.push(9, 1), "backwards");
        assert_eq!(encoder.pages(), pages.len());
        assert!(encoder.bytes()[..3].len() == 3 && encoder.bytes().len() <= 3 + 2 + 1 + 6);
        let bytes = encoder.into_bytes();
        let back: Result<Vec<_>, _> = Decoder::new(&bytes, 7, BITS_GIVEN).collect();
        assert_eq!(back.unwrap(), pages);
    }

    #[test]
    fn a_granule_fits() {
        let mut encoder = Encoder::new(0, BITS_TAKEN);
        (0..GRANULE_PAGES).for_each(|page| assert!(encoder.push(page, 3)));
        assert_eq!(encoder.bytes().len(), GRANULE_PAGES as usize);
        let mut sparse = Encoder::new(0, BITS_TAKEN);
        let every = (0..GRANULE_PAGES).step_by(33);
        every.for_each(|page| assert!(sparse.push(page, 9)));
        assert!(sparse.bytes().len() <= 2 * sparse.pages() && sparse.bytes().len() < MOST_BYTES);
    }

    #[test]
    fn what_is_no_list_is_told() {
        let pages = |bytes: &[u8], from| {
            Decoder::new(bytes, from, BITS_TAKEN).collect::<Result<Vec<_>, _>>()
        };
        assert_eq!(pages(&[], 0), Ok(vec![]));
        assert_eq!(pages(&[0x80], 0), Err(Malformed), "cut");
        assert_eq!(pages(&[0xff; 20], 0), Err(Malformed), "no end");
        // Beyond the last page that there can be.
        assert_eq!(pages(&[0, 0], u32::MAX), Err(Malformed));
        assert_eq!(
            pages(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], 0),
            Err(Malformed)
        );
    }

    #[test]
    fn classes_follow_shares_of_hotter_pages() {
        let classes_of_few = classes((0..100).map(|n| if n < 4 { 15 } else { 1 }));
        assert_eq!((classes_of_few[15], classes_of_few[1]), (0, 0));
        let classes = classes((0..100).map(|n| n / 25));
        assert_eq!(classes[..4], [3, 3, 2, 0]);
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
