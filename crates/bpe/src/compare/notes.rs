//! Limitations of a comparison, and hints about its figures.

use interface::limits::{FULL, IDLE};

use super::checks::TIMEOUT;
use super::options::CompareOptions;
use super::report::Row;
use crate::observe::Figures;

/// `serving`: figures of the last serving slice.
pub fn of(wish: &CompareOptions, serving: Option<&Figures>, rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(serving) = serving {
        let held = serving.bytes_cached as f64 * 100.0 / serving.capacity_bytes.max(1) as f64;
        if serving.innodb_reads_per_s < IDLE {
            notes.push(
                "hardly any page was read: InnoDB's pool has what this load asks for, and nothing that the extension does matters"
                    .to_owned(),
            );
        } else if held < FULL {
            notes.push(format!(
                "the cache holds {held:.0} % of what it can. While it still fills, the extension shows less than it will"
            ));
        }
    }
    let is_timed = |row: &Row| row.name == "read_mean_us" && row.difference.is_some();
    let has_pairs = rows.iter().any(|row| row.difference.is_some());
    if has_pairs && !rows.iter().any(is_timed) {
        notes.push("no page reads were timed on both sides".to_owned());
    }
    notes.push(
        "the interval is Hodges' and Lehmann's for paired differences (Wilcoxon's signed ranks). Of figures that do not differ, 1 in \
         20 will seem to"
            .to_owned(),
    );
    notes.push(format!(
        "InnoDB's pool keeps its contents from slice to slice, so slices of {} s favour neither side; a day without the extension \
         may differ from this",
        wish.slice
    ));
    notes.push(
        "burst credits and queues of the data volume carry over from slice to slice: bypass is flattered by the rest that serving \
         gives the volume, and serving pays for what bypass has used up"
            .to_owned(),
    );
    notes.push(if wish.refill {
        "in bypass, reads teach the cache nothing. Pages that were written are kept in it, which costs bypass what it costs serving"
            .to_owned()
    } else {
        "in bypass, reads teach the cache nothing, and pages that are written leave it: with each slice serving starts from a smaller \
         cache (--refill keeps them)"
            .to_owned()
    });
    notes.push(
        "1 extent of 64 is read from the data disk on both sides, so that latencies can be told: serving loses 1.6 % of its hits \
         by that"
            .to_owned(),
    );
    notes
}

/// `timeout`: the original `bpe_bypass_timeout`.
pub fn of_timeout(timeout: &str) -> Option<String> {
    (timeout != "0").then(|| {
        format!(
            "{TIMEOUT} was {timeout} s before, and is again. If nobody wants that, a comparison that was killed has left it: \
             SET GLOBAL {TIMEOUT} = 0"
        )
    })
}
