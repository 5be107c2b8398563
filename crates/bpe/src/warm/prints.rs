//! Whether a page number means the same on two servers: some leaf pages of a file are held against each other, by sums of their first
//! keys. Physical copies agree in nine of ten after thousands of transactions, replicas loaded from a dump in none.

use std::collections::HashSet;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::failure::Failure;
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
/// Share of the pages whose sums must differ from each other for a length of the key to tell them apart.
const DISTINCT: f64 = 0.8;
/// Lengths of the key of which there are sums.
const LENGTHS: usize = 3;

/// Sums of a page's first record, of the lengths in ascending order.
pub type Print = [u16; LENGTHS];

/// The answer of a server about so many pages; `None` if it cannot be understood.
pub fn parse(answer: &Value, pages: usize) -> Option<Vec<Option<Print>>> {
    let all = answer["prints"]
        .as_array()
        .filter(|all| all.len() == pages)?;
    let prints = all.iter().map(|one| {
        if one.is_null() {
            return Some(None);
        }
        let sums = one["first"]
            .as_array()
            .filter(|sums| sums.len() == LENGTHS)?;
        let mut print = [0; LENGTHS];
        for (sum, value) in print.iter_mut().zip(sums) {
            *sum = u16::try_from(value.as_u64()?).ok()?;
        }
        Some(Some(print))
    });
    prints.collect()
}

/// Some pages from all over a file.
pub fn spread(hot: &[(u32, u8)]) -> Vec<u32> {
    let step = (hot.len() / PAGES).max(1);
    // Neither the first pages, which are no leaves, nor always the same ones of an extent.
    let pages = hot.iter().map(|(page, _)| *page).filter(|page| *page > 4);
    pages.skip(step / 2).step_by(step).take(PAGES).collect()
}

/// Numbers of pages as a statement takes them.
pub fn joined(pages: &[u32]) -> String {
    let pages: Vec<String> = pages.iter().map(u32::to_string).collect();
    pages.join(",")
}

/// Asks a server, again if it has been asked for too much at once.
///
/// # Errors
/// The server went away, or does not know what it is asked for.
pub fn ask(server: &mut Server, argument: &str) -> Result<Value, Failure> {
    let mut tries = 0;
    loop {
        let answer = report::ask(server, argument, "cannot be compared with others")
            .map_err(|failure| server.without_answer(failure))?;
        match answer["error"].as_str() {
            None => return Ok(answer),
            Some(_)
                if tries < MOST_TRIES
                    && answer["error"]
                        .as_str()
                        .is_some_and(|why| why.contains("try again")) =>
            {
                tries += 1;
                sleep(PAUSE);
            }
            Some(why) => return Err(Failure::step(why)),
        }
    }
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
        let sums: HashSet<u16> = both.iter().map(|(here, _)| here[*length]).collect();
        sums.len() as f64 >= both.len() as f64 * DISTINCT
    };
    let length = (0..LENGTHS).find(distinct)?;
    let same = both
        .iter()
        .filter(|(here, there)| here[length] == there[length]);
    Some(same.count() as f64 >= both.len() as f64 * AGREE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn prints(of: impl Fn(u16) -> Print) -> Vec<Option<Print>> {
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
        let good = json!({ "prints": [null, { "index": 1, "first": [1, 2, 3] }] });
        assert_eq!(parse(&good, 2), Some(vec![None, Some([1, 2, 3])]));
        for (wrong, pages) in [
            (good.clone(), 3),
            (json!({ "prints": [{ "first": [1, 2] }] }), 1),
            (json!({ "prints": [{ "first": [1, 2, 70_000] }] }), 1),
            (json!({}), 1),
        ] {
            assert_eq!(parse(&wrong, pages), None, "{wrong}");
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
