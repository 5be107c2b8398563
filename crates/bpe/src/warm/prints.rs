//! Whether a page number means the same on two servers: compares some leaf pages of a file by keyed hashes of their first keys. Physical
//! copies agree in nine of ten after thousands of transactions, replicas loaded from a dump in none.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::random::random;
use crate::report;
use crate::server::Server;

/// Between two attempts, and how many there are: others may ask, too.
const PAUSE: Duration = Duration::from_millis(500);
const MOST_TRIES: u32 = 20;
/// Pages of a file that are compared.
pub const PAGES: usize = 12;
/// Fewer comparisons say nothing.
const FEWEST: usize = 3;
/// Share of pages that must agree.
const AGREE: f64 = 0.5;
/// Share of the pages whose hashes must differ from each other for a length of the key to tell them apart.
const DISTINCT: f64 = 0.8;
/// Lengths of the key of which there are hashes.
const LENGTHS: usize = 3;

/// Hashes of the beginning of a page's first record, of the lengths in ascending order.
pub type Print = [u64; LENGTHS];

/// Keys the hashes: 128 random bits in hexadecimal digits, made for each list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// # Errors
    /// The system gives no random numbers.
    pub fn new() -> Result<Secret, Failure> {
        let bytes = random::<16>()?;
        Ok(Secret(format!("{:032x}", u128::from_be_bytes(bytes))))
    }

    /// `None` if the text is none.
    pub fn parse(text: &str) -> Option<Secret> {
        let is_secret = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_secret.then(|| Secret(text.to_owned()))
    }

    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Asks the server whose cache is listed for fingerprints of cached pages. That needs the right to SET GLOBAL.
///
/// # Errors
/// The account lacks the right, or the server went away.
pub fn of_cached(
    server: &mut Server,
    secret: &Secret,
    files: &[(&str, &[u32])],
) -> Result<Vec<Vec<Option<Print>>>, Failure> {
    let argument = format!("heat-prints {} {}", secret.text(), json!(files));
    ask(server, &argument, files)
}

/// Asks the server that is to be made warm, of pages that are not cached, too. `warming`: the name of the warming there.
///
/// # Errors
/// The server went away, or has ended the warming.
pub fn of_all(
    server: &mut Server,
    warming: &str,
    secret: &Secret,
    files: &[(&str, &[u32])],
) -> Result<Vec<Vec<Option<Print>>>, Failure> {
    let argument = format!("warm-prints {warming} {} {}", secret.text(), json!(files));
    ask(server, &argument, files)
}

/// Asks again if the server was asked for too much at once.
fn ask(
    server: &mut Server,
    argument: &str,
    files: &[(&str, &[u32])],
) -> Result<Vec<Vec<Option<Print>>>, Failure> {
    let mut tries = 0;
    loop {
        let answer = report::ask(server, argument, "cannot be compared with others")
            .map_err(|failure| server.without_answer(failure))?;
        match answer["error"].as_str() {
            None => return parse(&answer, files).ok_or_else(misunderstood),
            Some(why) if tries < MOST_TRIES && why.contains("try again") => {
                tries += 1;
                sleep(PAUSE);
            }
            Some(why) => return Err(Failure::step(why)),
        }
    }
}

/// The answer of a server about pages of files; `None` if it cannot be understood.
fn parse(answer: &Value, files: &[(&str, &[u32])]) -> Option<Vec<Vec<Option<Print>>>> {
    let all = answer["prints"].as_array()?;
    let of_file = |(prints, (_, pages)): (&Value, &(&str, &[u32]))| {
        let prints = prints.as_array().filter(|all| all.len() == pages.len())?;
        prints.iter().map(parse_print).collect()
    };
    let all = (all.len() == files.len()).then_some(all)?;
    all.iter().zip(files).map(of_file).collect()
}

/// A fingerprint, or null for a page that has none.
pub fn parse_print(value: &Value) -> Option<Option<Print>> {
    if value.is_null() {
        return Some(None);
    }
    let hashes = value.as_array().filter(|all| all.len() == LENGTHS)?;
    let mut print = [0; LENGTHS];
    for (hash, value) in print.iter_mut().zip(hashes) {
        *hash = u64::from_str_radix(value.as_str()?, 16).ok()?;
    }
    Some(Some(print))
}

/// As servers write it, which [`parse_print`] reads.
pub fn written(print: &Option<Print>) -> Value {
    json!(print.map(|print| print.map(|hash| format!("{hash:016x}"))))
}

/// Some pages from all over a file.
pub fn spread(hot: &[(u32, u8)]) -> Vec<u32> {
    let step = (hot.len() / PAGES).max(1);
    // Neither the first pages, which are no leaves, nor always the same ones of an extent.
    let pages = hot.iter().map(|(page, _)| *page).filter(|page| *page > 4);
    pages.skip(step / 2).step_by(step).take(PAGES).collect()
}

/// Whether pages of a file are the same here and there; `None` if there are too few to tell.
pub fn agree(here: &[Option<Print>], there: &[Option<Print>]) -> Option<bool> {
    let both: Vec<(Print, Print)> = here
        .iter()
        .zip(there)
        .filter_map(|(here, there)| Some(((*here)?, (*there)?)))
        .collect();
    if both.len() < FEWEST {
        return None;
    }
    // Short keys are followed by what differs on each server, long ones may begin alike.
    let distinct = |length: &usize| {
        let hashes: HashSet<u64> = both.iter().map(|(here, _)| here[*length]).collect();
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

    fn prints(of: impl Fn(u64) -> Print) -> Vec<Option<Print>> {
        (0..10).map(|n| Some(of(n))).collect()
    }

    #[test]
    fn copies_agree_and_others_do_not() {
        // An INT, then what is of each server.
        let here = prints(|n| [n, n ^ 0x5a5a, n ^ 0x1234]);
        let copy = prints(|n| [n, n ^ 0x7777, n ^ 0x4321]);
        let other = prints(|n| [n + 100, n ^ 0x5a5a, n]);
        assert_eq!(agree(&here, &copy), Some(true));
        assert_eq!(agree(&here, &other), Some(false));
        // A BIGINT: the first four bytes are all alike.
        let here = prints(|n| [9, n, n ^ 0x1234]);
        let copy = prints(|n| [9, if n == 3 { 77 } else { n }, n ^ 0x4321]);
        let other = prints(|n| [9, n + 100, n]);
        assert_eq!(agree(&here, &copy), Some(true));
        assert_eq!(agree(&here, &other), Some(false));
    }

    #[test]
    fn too_little_says_nothing() {
        let some = prints(|n| [n; LENGTHS]);
        assert_eq!(agree(&some[..2], &some[..2]), None);
        let alike = prints(|_| [1; LENGTHS]);
        assert_eq!(agree(&alike, &alike), None);
        let none = vec![None; 10];
        assert_eq!(agree(&none, &some), None);
    }

    #[test]
    fn answers_are_checked() {
        let files: &[(&str, &[u32])] = &[("d/t.ibd", &[4, 5])];
        let print = Some([1, 2, u64::MAX]);
        let good = json!({ "prints": [[null, written(&print)]] });
        assert_eq!(parse(&good, files), Some(vec![vec![None, print]]));
        assert_eq!(parse_print(&written(&None)), Some(None));
        for wrong in [
            json!({ "prints": [[null]] }),
            json!({ "prints": [[null, null], []] }),
            json!({ "prints": [[null, ["1", "2"]]] }),
            json!({ "prints": [[null, [1, 2, 3]]] }),
            json!({ "prints": [[null, ["1", "2", "10000000000000000"]]] }),
            json!({}),
        ] {
            assert_eq!(parse(&wrong, files), None, "{wrong}");
        }
    }

    #[test]
    fn secrets_are_random_and_fit_into_statements() {
        let (one, other) = (Secret::new().unwrap(), Secret::new().unwrap());
        assert_ne!(one, other);
        assert_eq!(Secret::parse(one.text()), Some(one));
        for wrong in ["", "0123456789abcdef0123456789abcde'", &"0".repeat(33)] {
            assert_eq!(Secret::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn pages_are_from_all_over() {
        let hot: Vec<(u32, u8)> = (0..1200).map(|page| (page, 1)).collect();
        let pages = spread(&hot);
        assert_eq!(pages.len(), PAGES);
        assert!(pages[0] > 4 && pages[0] < 200 && pages[PAGES - 1] > 1000);
        assert_eq!(spread(&hot[..3]), Vec::<u32>::new());
        assert_eq!(spread(&[(9, 1)]), [9]);
    }
}
