//! Fingerprints decide whether a page number means the same on two servers. They compare some leaf pages of a file by
//! keyed hashes of their first keys. Physical copies agree in nine of ten pages after thousands of transactions.
//! Replicas loaded from a dump agree in none.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::connect::report;
use crate::connect::server::Server;
use crate::support::failure::Failure;
use crate::support::random::random;

/// Number of pages compared per file.
pub const PAGES: usize = 12;
/// Minimum number of comparisons for a verdict.
const MIN_COMPARED: usize = 3;
/// Minimum share of pages that agree.
const AGREE: f64 = 0.5;
/// Minimum share of distinct hashes. With fewer, this key length does not distinguish pages.
const DISTINCT: f64 = 0.8;
/// Number of hashed key lengths.
const LENGTHS: usize = 3;

/// Hashes of the prefix of a page's first record, shortest first, as the server formats them.
pub type Fingerprint = [String; LENGTHS];

/// Whether a file's pages are equal on both servers, by its name and its tablespace number on the source.
pub type Compared = BTreeMap<(String, Option<u32>), bool>;

/// Some pages of a file, and their fingerprints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub file: String,
    /// Its tablespace number.
    pub space: Option<u32>,
    pub pages: Vec<u32>,
    /// Null for a page that has none.
    pub prints: Vec<Option<Fingerprint>>,
}

/// Key of the hashes: 128 random bits in hexadecimal digits, generated for each list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Secret(String);

impl Secret {
    /// # Errors
    /// The system provides no random numbers.
    pub fn new() -> Result<Secret, Failure> {
        let bytes = random::<16>()?;
        Ok(Secret(format!("{:032x}", u128::from_be_bytes(bytes))))
    }

    /// `None` if the text is no secret.
    pub fn parse(text: &str) -> Option<Secret> {
        let is_secret = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_secret.then(|| Secret(text.to_owned()))
    }
}

/// Reads the fingerprints of each sample's pages from a server.
///
/// # Errors
/// The account lacks the privilege for `SET GLOBAL`, or the connection was lost.
pub fn fetch(
    server: &mut Server,
    secret: &Secret,
    samples: &[&Sample],
) -> Result<Vec<Vec<Option<Fingerprint>>>, Failure> {
    let files: Vec<_> = samples
        .iter()
        .map(|sample| (&sample.file, &sample.pages))
        .collect();
    let argument = format!("heat-prints {} {}", secret.0, json!(files));
    let answer = report::ask(
        server,
        &argument,
        "cannot compare pages with another server",
    )
    .map_err(|failure| server.without_answer(failure))?;
    parse(&answer, samples).ok_or_else(misunderstood)
}

/// The fingerprints in an answer; `None` if it is malformed.
fn parse(answer: &Value, samples: &[&Sample]) -> Option<Vec<Vec<Option<Fingerprint>>>> {
    let prints = Vec::<Vec<Option<Fingerprint>>>::deserialize(&answer["prints"]).ok()?;
    let mut pairs = prints.iter().zip(samples);
    let is_complete =
        prints.len() == samples.len() && pairs.all(|(of, sample)| of.len() == sample.pages.len());
    is_complete.then_some(prints)
}

/// Pages spread over the whole file.
pub fn spread(hot: &[(u32, u8)]) -> Vec<u32> {
    let step = (hot.len() / PAGES).max(1);
    // Skip the first pages, which are no leaves, and vary the position within an extent.
    let pages = hot.iter().map(|(page, _)| *page).filter(|page| *page > 4);
    pages.skip(step / 2).step_by(step).take(PAGES).collect()
}

/// Whether the pages of a file are equal on both servers; `None` if too few can be compared.
pub fn agree(here: &[Option<Fingerprint>], there: &[Option<Fingerprint>]) -> Option<bool> {
    let both = here.iter().zip(there);
    let both: Vec<(&Fingerprint, &Fingerprint)> = both
        .filter_map(|(here, there)| here.as_ref().zip(there.as_ref()))
        .collect();
    if both.len() < MIN_COMPARED {
        return None;
    }
    // The data after a short key differs between servers, and long keys may have a common prefix.
    let distinct = |length: &usize| {
        let hashes: HashSet<&str> = both.iter().map(|(here, _)| &*here[*length]).collect();
        hashes.len() as f64 >= both.len() as f64 * DISTINCT
    };
    let length = (0..LENGTHS).find(distinct)?;
    let same = both
        .iter()
        .filter(|(here, there)| here[length] == there[length]);
    Some(same.count() as f64 >= both.len() as f64 * AGREE)
}

pub fn misunderstood() -> Failure {
    Failure::step("the server's answer cannot be understood").advise(
        "the bpe.so on both servers and this command must be of versions that know each other",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prints(of: impl Fn(u64) -> [u64; LENGTHS]) -> Vec<Option<Fingerprint>> {
        let print = |n| Some(of(n).map(|hash| format!("{hash:016x}")));
        (0..10).map(print).collect()
    }

    #[test]
    fn only_physical_copies_agree() {
        // An INT key, followed by columns that differ between servers.
        let here = prints(|n| [n, n ^ 0x5a5a, n ^ 0x1234]);
        let copy = prints(|n| [n, n ^ 0x7777, n ^ 0x4321]);
        let other = prints(|n| [n + 100, n ^ 0x5a5a, n]);
        assert_eq!(agree(&here, &copy), Some(true));
        assert_eq!(agree(&here, &other), Some(false));
        // A BIGINT key: the first four bytes are equal.
        let here = prints(|n| [9, n, n ^ 0x1234]);
        let copy = prints(|n| [9, if n == 3 { 77 } else { n }, n ^ 0x4321]);
        let other = prints(|n| [9, n + 100, n]);
        assert_eq!(agree(&here, &copy), Some(true));
        assert_eq!(agree(&here, &other), Some(false));
    }

    #[test]
    fn small_sample_has_no_verdict() {
        let some = prints(|n| [n; LENGTHS]);
        assert_eq!(agree(&some[..2], &some[..2]), None);
        let alike = prints(|_| [1; LENGTHS]);
        assert_eq!(agree(&alike, &alike), None);
        let none = vec![None; 10];
        assert_eq!(agree(&none, &some), None);
    }

    #[test]
    fn malformed_answer_is_refused() {
        let sample = Sample {
            file: "d/t.ibd".into(),
            space: None,
            pages: vec![4, 5],
            prints: Vec::new(),
        };
        let parse = |answer: Value| parse(&answer, &[&sample]);
        let good = parse(json!({ "prints": [[null, ["1", "2", "f"]]] })).unwrap();
        assert_eq!(good, [[None, Some(["1", "2", "f"].map(str::to_owned))]]);
        for wrong in [
            json!({ "prints": [[null]] }),
            json!({ "prints": [[null, null], []] }),
            json!({ "prints": [[null, ["1", "2"]]] }),
            json!({ "prints": [[null, [1, 2, 3]]] }),
            json!({}),
        ] {
            assert_eq!(parse(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn secrets_are_random_and_fit_into_statements() {
        let (one, other) = (Secret::new().unwrap(), Secret::new().unwrap());
        assert_ne!(one, other);
        assert_eq!(Secret::parse(&one.0), Some(one));
        for wrong in ["", "0123456789abcdef0123456789abcde'", &"0".repeat(33)] {
            assert_eq!(Secret::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sampled_pages_are_spread() {
        let hot: Vec<(u32, u8)> = (0..1200).map(|page| (page, 1)).collect();
        let pages = spread(&hot);
        assert_eq!(pages.len(), PAGES);
        assert!(pages[0] > 4 && pages[0] < 200 && pages[PAGES - 1] > 1000);
        assert_eq!(spread(&hot[..3]), Vec::<u32>::new());
        assert_eq!(spread(&[(9, 1)]), [9]);
    }
}
