//! "Does it help me?": the figures in words.
//!
//! A rule is a function from figures to a sentence or none. A sentence carries every figure that it is based on. The
//! figure has its name in [`Figures`], or comes with the values that it is computed from.

use interface::limits::{ALIKE, BEHIND, CONTENDED, FEW, FULL, IDLE, LITTLE, MEMORY, UNSEEN, WORTH};
use serde_json::{Value, json};

use super::figures::Figures;
use super::persisted::Persisted;
use super::rules::Rules;
use super::sentence::{Level, Sentence};
use crate::connect::report;
use crate::connect::server::Server;
use crate::support::failure::Failure;

/// Maximum number of suspended files reported one by one.
const MAX_NAMED: usize = 3;

/// Inputs of an explanation besides the figures.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// Pages per second; 0: no limit.
    pub io_capacity: u64,
    /// Bytes; 0: no limit.
    pub daily_write_limit: u64,
    /// As configured; 0: a number derived from the machine.
    pub instances: u64,
    pub devices: Vec<Device>,
    /// Data files that the audit has suspended, oldest first; at most `MAX_NAMED`.
    pub suspended: Vec<SuspendedFile>,
    /// Recovery result of the last start, during the server's first hour only.
    pub kept: Option<Persisted>,
    /// The table rules, if any.
    pub rules: Option<Rules>,
    /// The account, if it lacks the privilege for reports.
    pub denied: Option<String>,
}

/// A data file that changed without a write by the server. Its pages are not cached for some time.
#[derive(Debug, Clone, Default)]
pub struct SuspendedFile {
    pub file: String,
    pub why: String,
    pub suspended_s: u64,
    /// Pages found equal to the file; `None` before the comparison.
    pub compared_pages: Option<u64>,
    /// Seconds the file must stay unchanged.
    pub rest_s: u64,
    /// Seconds after which it is cached again even if the server keeps changing it.
    pub latest_s: u64,
}

impl SuspendedFile {
    fn of(row: &Value) -> Self {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| row[name].as_u64();
        Self {
            file: text("file"),
            why: text("why"),
            suspended_s: number("suspended_s").unwrap_or(0),
            compared_pages: number("compared_pages"),
            rest_s: number("rest_s").unwrap_or(0),
            latest_s: number("latest_s").unwrap_or(0),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Device {
    pub path: String,
    pub active: bool,
    pub state: String,
}

impl Circumstances {
    /// Runs two statements. Suspended files add one, the server's first hour adds one, table rules add two. Reports
    /// need the PROCESS privilege; without it, devices, files and rules stay unknown.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn read(server: &mut Server, figures: &Figures) -> Result<Self, Failure> {
        let variables = server.variables("bpe%")?;
        let number = |name: &str| -> u64 {
            let text = variables.get(name);
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let devices = if variables.is_empty() {
            None
        } else {
            report::ask_if_any(server, "devices")?
        };
        let suspended = if figures.suspended_files == 0 {
            None
        } else {
            report::ask_if_any(server, "suspended")?
        };
        let json = |text: Option<String>| -> Value {
            text.and_then(|text| report::parse(&text).ok())
                .unwrap_or_default()
        };
        let (devices, suspended) = (json(devices), json(suspended));
        let kept = if variables.is_empty() {
            None
        } else {
            Persisted::read(server, figures.uptime_s)?
        };
        let has_rules = variables
            .get("bpe_tables")
            .is_some_and(|text| !text.is_empty());
        let rules = match has_rules {
            true => Rules::read(server)?,
            false => None,
        };
        Ok(Self {
            denied: report::denied_account(server),
            rules,
            io_capacity: number("bpe_io_capacity"),
            daily_write_limit: number("bpe_daily_write_limit"),
            instances: number("bpe_instances"),
            devices: devices
                .as_array()
                .into_iter()
                .flatten()
                .map(|device| Device {
                    path: device["path"].as_str().unwrap_or_default().to_owned(),
                    active: device["active"].as_bool().unwrap_or(false),
                    state: device["state"].as_str().unwrap_or_default().to_owned(),
                })
                .collect(),
            suspended: suspended
                .as_array()
                .into_iter()
                .flatten()
                .take(MAX_NAMED)
                .map(SuspendedFile::of)
                .collect(),
            kept,
        })
    }
}

/// All sentences, most important first.
pub fn explain(figures: &Figures, about: &Circumstances) -> Vec<Sentence> {
    if figures.state != "active" {
        let denied = about.denied.iter().map(|account| denied(account));
        return [inactive(figures)].into_iter().chain(denied).collect();
    }
    let mut sentences = Vec::new();
    let reads = figures.cache_reads_per_s + figures.misses_per_s;
    if reads < IDLE {
        sentences.push(idle(figures, reads));
    } else {
        if let Some(ratio) = figures.hit_ratio_percent {
            sentences.push(verdict(figures, reads, ratio));
        }
        sentences.extend(few_reads(figures, reads));
        sentences.push(time_saved(figures));
        sentences.push(larger(figures, reads));
    }
    sentences.extend(about.kept.iter().flat_map(Persisted::sentences));
    sentences.extend(about.rules.iter().flat_map(Rules::sentences));
    sentences.extend(unseen(figures));
    sentences.extend(disks(about));
    sentences.extend(troubles(figures));
    sentences.extend(suspicions(figures, about));
    let bottlenecks = bottlenecks(figures, about);
    if bottlenecks.is_empty() && reads >= IDLE {
        sentences.extend(no_bottleneck(figures));
    }
    sentences.extend(bottlenecks);
    sentences.extend(memory(figures));
    sentences.extend(about.denied.iter().map(|account| denied(account)));
    sentences
}

fn denied(account: &str) -> Sentence {
    Sentence::new(
        "trouble.denied",
        Level::Note,
        "The account {account} lacks the PROCESS privilege, so tables, files, cache disks and latencies are not shown. \
         An administrator can run: GRANT PROCESS ON *.* TO {account}",
        &[("account", json!(account))],
    )
}

fn inactive(figures: &Figures) -> Sentence {
    let reads = ("data_reads_per_s", json!(figures.data_reads_per_s));
    match figures.state.as_str() {
        "not installed" => Sentence::new(
            "inactive.not_installed",
            Level::Note,
            "The extension is not installed. Pages that are not in InnoDB's memory come from the data disk, \
             {data_reads_per_s} a second now. `bpe doctor` says whether a cache would help.",
            &[reads],
        ),
        "disabled" => Sentence::new(
            "inactive.disabled",
            Level::Note,
            "The extension is switched off. Pages that are not in InnoDB's memory come from the data disk, \
             {data_reads_per_s} a second now. SET GLOBAL bpe_enabled = ON switches it on.",
            &[reads],
        ),
        "bypass" => Sentence::new(
            "inactive.bypass",
            Level::Note,
            "The extension is bypassed: what is cached stays, but all pages that are not in InnoDB's memory come from the data disk, \
             {data_reads_per_s} a second now. SET GLOBAL bpe_bypass = OFF serves them again.",
            &[reads],
        ),
        state => Sentence::new(
            "inactive.trouble",
            Level::Bad,
            "The extension is {state} and serves nothing: {state_reason}. {data_reads_per_s} pages a second are read from the \
             data disk.",
            &[
                ("state", json!(state)),
                ("state_reason", json!(figures.state_reason)),
                reads,
            ],
        ),
    }
}

fn idle(figures: &Figures, reads: f64) -> Sentence {
    let reads = ("reads_per_s", json!(reads));
    match figures.pool_hit_percent {
        Some(percent) => Sentence::new(
            "idle.in_memory",
            Level::Note,
            "There is nothing for the cache to do now: InnoDB found {pool_hit_percent} of the pages it asked for in its memory, \
             and {reads_per_s} reads a second missed it.",
            &[reads, ("pool_hit_percent", json!(percent))],
        ),
        None => Sentence::new(
            "idle.no_requests",
            Level::Note,
            "There is nothing for the cache to do now: no page was asked for, and {reads_per_s} reads a second reached the \
             cache.",
            &[reads],
        ),
    }
}

fn verdict(figures: &Figures, reads: f64, ratio: f64) -> Sentence {
    let values = [
        ("reads_per_s", json!(reads)),
        ("hit_ratio_percent", json!(ratio)),
        ("data_reads_per_s", json!(figures.data_reads_per_s)),
    ];
    let (key, level, opening) = if alike(figures) && ratio >= LITTLE {
        (
            "verdict.alike",
            Level::Note,
            "It takes reads off the data disk, but does not make them faster",
        )
    } else if figures.gain_us.is_some_and(|gain| gain < 0.0) {
        ("verdict.costs", Level::Bad, "It costs time")
    } else if ratio < LITTLE {
        ("verdict.little", Level::Note, "It helps little so far")
    } else {
        ("verdict.helps", Level::Good, "It helps")
    };
    let text = format!(
        "{opening}: of {{reads_per_s}} reads a second that missed InnoDB's memory the cache answered {{hit_ratio_percent}}; \
         {{data_reads_per_s}} a second went to the data disk."
    );
    Sentence::new(key, level, &text, &values)
}

/// Whether reads of both disks take about the same time.
fn alike(figures: &Figures) -> bool {
    match (figures.gain_us, figures.data_read_us) {
        (Some(gain), Some(data)) => gain.abs() * 100.0 < data.p50 * ALIKE,
        _ => false,
    }
}

fn few_reads(figures: &Figures, reads: f64) -> Option<Sentence> {
    let counted = (reads * figures.interval_s).round();
    (counted < FEW).then(|| {
        Sentence::new(
            "few_reads",
            Level::Note,
            "There were only {reads} reads in {interval_s} seconds, too few for a stable ratio. Look again under load, \
             or for longer.",
            &[
                ("reads", json!(counted)),
                ("interval_s", json!(figures.interval_s.round())),
            ],
        )
    })
}

fn time_saved(figures: &Figures) -> Sentence {
    if figures.cache_reads_per_s == 0.0 {
        return Sentence::new(
            "saved.none",
            Level::Note,
            "That saved no time: the cache answered {cache_reads_per_s} reads a second.",
            &[("cache_reads_per_s", json!(0))],
        );
    }
    if let (true, Some(data)) = (alike(figures), figures.data_read_us) {
        return Sentence::new(
            "saved.alike",
            Level::Note,
            "A read from the cache typically takes as long as one from the data disk ({data_p50_us}, the difference is \
             {difference_us}). It pays if the data disk is limited or billed by reads; otherwise put bpe_path on a faster disk.",
            &[
                ("data_p50_us", json!(data.p50)),
                ("difference_us", json!(figures.gain_us.unwrap_or(0.0).abs())),
            ],
        );
    }
    match (figures.gain_us, figures.saved_ms_per_s) {
        (Some(gain), Some(saved)) if gain >= 0.0 => Sentence::new(
            "saved.time",
            Level::Good,
            "A read from the cache typically took {gain_us} less than one from the data disk. With {cache_reads_per_s} of them \
             a second, clients together waited {saved_ms_per_s} less in each second.",
            &[
                ("gain_us", json!(gain)),
                ("cache_reads_per_s", json!(figures.cache_reads_per_s)),
                ("saved_ms_per_s", json!(saved)),
            ],
        ),
        (Some(gain), Some(saved)) => Sentence::new(
            "saved.nothing",
            Level::Bad,
            "A read from the cache typically took {slower_us} longer than one from the data disk, which cost clients \
             {lost_ms_per_s} in each second. Put bpe_path on a faster disk, or SET GLOBAL bpe_enabled = OFF.",
            &[
                ("slower_us", json!(-gain)),
                ("lost_ms_per_s", json!(-saved)),
            ],
        ),
        _ => Sentence::new(
            "saved.unknown",
            Level::Note,
            "It is not known how much time that saved. There were {cache_reads_per_s} reads a second from the cache \
             and {data_reads_per_s} from the data disk, and one of the two has not been timed yet.",
            &[
                ("cache_reads_per_s", json!(figures.cache_reads_per_s)),
                ("data_reads_per_s", json!(figures.data_reads_per_s)),
            ],
        ),
    }
}

/// Whether a larger cache would serve more reads. It would not while the cache has room, or if the missed pages were never read before.
fn larger(figures: &Figures, reads: f64) -> Sentence {
    let used = figures.bytes_cached as f64 * 100.0 / (figures.capacity_bytes as f64).max(1.0);
    let used_value = ("used_percent", json!(used));
    if used < FULL && figures.evicted_per_s == 0.0 && figures.rejected_per_s == 0.0 {
        let page = figures.bytes_cached as f64 / (figures.pages_cached as f64).max(1.0);
        let left = figures.capacity_bytes.saturating_sub(figures.bytes_cached);
        // A write removes a page and often readmits it at once, which fills no space.
        let net = figures.admitted_per_s - figures.invalidated_per_s;
        let per_minute = net * page * 60.0;
        let full_in = left as f64 / per_minute;
        return if net >= 1.0 && page > 0.0 && full_in < 24.0 * 60.0 {
            Sentence::new(
                "larger.filling",
                Level::Note,
                "A larger cache would not help now: {used_percent} of it is used. It admits {admitted_per_s} pages a \
                 second and loses {invalidated_per_s} to writes. At this rate it will be full in {full_in_minutes}; it \
                 answers more as it fills.",
                &[
                    used_value,
                    ("admitted_per_s", json!(figures.admitted_per_s)),
                    ("invalidated_per_s", json!(figures.invalidated_per_s)),
                    ("full_in_minutes", json!(full_in)),
                ],
            )
        } else {
            Sentence::new(
                "larger.room",
                Level::Good,
                "A larger cache would not help: {used_percent} of it is used, and no page had to make room for another.",
                &[used_value],
            )
        };
    }
    let returned = figures.misses_returned_per_s;
    // A larger cache would not prevent misses after a write or after a full write queue.
    let for_room = figures.evicted_per_s + figures.rejected_per_s;
    let more = returned.min(for_room) * 100.0 / reads;
    let values = [
        used_value,
        ("misses_returned_per_s", json!(returned)),
        ("for_want_of_room_per_s", json!(for_room)),
        ("more_percent", json!(more)),
        ("reads_per_s", json!(reads)),
    ];
    if more >= WORTH {
        Sentence::new(
            "larger.yes",
            Level::Note,
            "A larger cache would help. {used_percent} of it is used, and {for_want_of_room_per_s} pages a second were \
             evicted or rejected for lack of room. {misses_returned_per_s} of {reads_per_s} reads a second missed \
             pages that had been asked for recently. About twice the bpe_size would answer up to {more_percent} more \
             of the reads.",
            &values,
        )
    } else {
        Sentence::new(
            "larger.no",
            Level::Good,
            "A larger cache would help little. {used_percent} of it is used, and {for_want_of_room_per_s} pages a \
             second were evicted or rejected for lack of room. {misses_returned_per_s} of {reads_per_s} reads a second \
             missed pages that had been asked for recently. It would answer at most {more_percent} more of the reads.",
            &values,
        )
    }
}

/// Compares InnoDB's own read counter with the hooks' counter. The cache cannot serve reads that bypass the hooks.
fn unseen(figures: &Figures) -> Option<Sentence> {
    let (all, unseen) = (figures.innodb_reads_per_s, figures.unseen_reads_per_s);
    let percent = unseen * 100.0 / all.max(f64::MIN_POSITIVE);
    (all * figures.interval_s >= FEW && percent > UNSEEN).then(|| {
        Sentence::new(
            "trouble.unseen",
            Level::Note,
            "Of {innodb_reads_per_s} pages a second that InnoDB read, {unseen_reads_per_s} ({unseen_percent}) went \
             past the extension, which cannot answer them. It leaves out temporary tables and reads of several pages \
             at once (as with innodb_use_native_aio=OFF). Installed on a running server, it also leaves out read-ahead \
             by io_uring until the server restarts. Bpe_async_mode is {async_mode}.",
            &[
                ("innodb_reads_per_s", json!(all)),
                ("unseen_reads_per_s", json!(unseen)),
                ("unseen_percent", json!(percent)),
                ("async_mode", json!(figures.async_mode)),
            ],
        )
    })
}

fn disks(about: &Circumstances) -> Vec<Sentence> {
    let sentence = |device: &Device| {
        let remark = device.state.strip_prefix("active; ");
        let (key, level, text, state) = match (device.active, remark) {
            (false, _) => (
                "disk.failed",
                Level::Bad,
                "The cache disk {path} is not used: {disk_state}. The extension retries it by itself. If this \
                 continues, replace the disk or remove it from bpe_path.",
                device.state.as_str(),
            ),
            (true, Some(remark)) => (
                "disk.remark",
                Level::Note,
                "The cache disk {path} is used, but: {disk_state}.",
                remark,
            ),
            (true, None) => return None,
        };
        let values = [("path", json!(device.path)), ("disk_state", json!(state))];
        Some(Sentence::new(key, level, text, &values))
    };
    about.devices.iter().filter_map(sentence).collect()
}

/// Failures since the cache was opened.
fn troubles(figures: &Figures) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    if figures.device_errors > 0 {
        sentences.push(Sentence::new(
            "trouble.errors",
            Level::Bad,
            "The cache disks have returned {device_errors} errors since the cache was opened. No statement failed \
             because of it, but check the disk (dmesg, smartctl).",
            &[("device_errors", json!(figures.device_errors))],
        ));
    }
    if figures.failed_proofs > 0 {
        sentences.push(Sentence::new(
            "trouble.proofs",
            Level::Bad,
            "{failed_proofs} pages read from a cache disk were not as they had been written. They were read from the data files \
             instead, but the disk or its driver loses data: replace it.",
            &[("failed_proofs", json!(figures.failed_proofs))],
        ));
    }
    if figures.reads_given_up > 0 {
        sentences.push(Sentence::new(
            "trouble.given_up",
            Level::Bad,
            "{reads_given_up} reads of the cache disks took longer than a second since the cache was opened. Their pages came from the \
             data files instead: the disk hangs at times.",
            &[("reads_given_up", json!(figures.reads_given_up))],
        ));
    }
    sentences
}

/// Pages whose only intact copy is in the cache.
fn damaged(figures: &Figures) -> Option<Sentence> {
    (figures.damaged_pages > 0).then(|| {
        Sentence::new(
            "trouble.damaged",
            Level::Bad,
            "{damaged_pages} pages are damaged in the data files, and whole in the cache. The data disk or its driver loses data. Run `bpe \
             verify --save-pages DIRECTORY` and copy the tables before this server is restarted. The error log names the pages.",
            &[("damaged_pages", json!(figures.damaged_pages))],
        )
    })
}

/// Data files that another process appears to write to.
fn suspicions(figures: &Figures, about: &Circumstances) -> Vec<Sentence> {
    let minutes = |seconds: u64| json!(seconds as f64 / 60.0);
    let mut sentences: Vec<_> = damaged(figures).into_iter().collect();
    let suspended: Vec<_> = about
        .suspended
        .iter()
        .map(|suspended| {
            let values = [
                ("file", json!(suspended.file)),
                ("why", json!(suspended.why)),
                ("suspended_minutes", minutes(suspended.suspended_s)),
            ];
            match suspended.compared_pages {
                None => Sentence::new(
                    "trouble.comparing",
                    Level::Note,
                    "The data file {file} has not been cached for {suspended_minutes}: {why}, but not by a call of the server. \
                     Its cached pages are now compared with it. If one differs, the extension drops everything and goes passive.",
                    &values,
                ),
                Some(compared) => {
                    let more = [
                        ("compared_pages", json!(compared)),
                        ("rest_s", json!(suspended.rest_s)),
                        ("latest_minutes", minutes(suspended.latest_s)),
                    ];
                    Sentence::new(
                        "trouble.suspended",
                        Level::Note,
                        "The data file {file} has not been cached for {suspended_minutes}: {why}, but not by a call of the \
                         server. {compared_pages} cached pages of it were compared with the file, and none differed. It is cached \
                         again once nothing has changed it for {rest_s} seconds, or after {latest_minutes} in which only the \
                         server changes it. Find out what sets the times of data files: a copy, a restore, `touch`. SET GLOBAL \
                         bpe_enabled = OFF and ON caches it at once, but empties the cache.",
                        &[&values[..], &more].concat(),
                    )
                }
            }
        })
        .collect();
    let told = suspended.len() as u64;
    sentences.extend(suspended);
    if figures.suspended_files > told {
        sentences.push(Sentence::new(
            "trouble.suspended_more",
            Level::Note,
            "{more_files} more data files are not cached because they were changed, but not by a call of the server. SELECT \
             bpe_report('suspended') names them all, and the error log each of the first.",
            &[("more_files", json!(figures.suspended_files - told))],
        ));
    }
    if figures.suspended_files == 0 && figures.audit_suspicions > 0 {
        sentences.push(Sentence::new(
            "trouble.suspicions",
            Level::Note,
            "Since the server started, a data file was changed {audit_suspicions} times, but not by a call of the server. No cached \
             page differed, and the files are cached again. The error log names them: find out what writes there, or sets times.",
            &[("audit_suspicions", json!(figures.audit_suspicions))],
        ));
    }
    sentences
}

/// Bottlenecks in the extension itself.
fn bottlenecks(figures: &Figures, about: &Circumstances) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    if let (Some(cache), Some(data)) = (figures.cache_read_us, figures.data_read_us) {
        let values =
            |q: &'static str, cache: f64| [(q, json!(cache)), ("data_p50_us", json!(data.p50))];
        if cache.p50 <= data.p50 && cache.p50 * 2.0 > data.p50 && !alike(figures) {
            sentences.push(Sentence::new(
                "bottleneck.disk",
                Level::Note,
                "The cache disk is hardly faster than the data disk: {cache_p50_us} against {data_p50_us} for a typical read. \
                 A faster disk for bpe_path would gain more.",
                &values("cache_p50_us", cache.p50),
            ));
        } else if cache.p50 <= data.p50 && cache.p99 > data.p50 {
            sentences.push(Sentence::new(
                "bottleneck.tail",
                Level::Note,
                "One read in a hundred from the cache took longer ({cache_p99_us}) than a typical one from the data disk \
                 ({data_p50_us}): the cache disk, or the processor, is busy with something else at times.",
                &values("cache_p99_us", cache.p99),
            ));
        }
    }
    if let Some(waits) = figures.lock_wait_percent.filter(|waits| *waits > CONTENDED) {
        sentences.push(Sentence::new(
            "bottleneck.locks",
            Level::Bad,
            "Threads wait for each other: {lock_wait_percent} of the accesses to instances found the lock held. Raise \
             bpe_instances, now {instances} (0: one below 8 cores, 8 from 8 cores on).",
            &[
                ("lock_wait_percent", json!(waits)),
                ("instances", json!(about.instances)),
            ],
        ));
    }
    let dropped = figures.dropped_staging_full_per_s;
    let behind = dropped * 100.0 / (dropped + figures.admitted_per_s).max(f64::MIN_POSITIVE);
    if dropped >= 1.0 && behind > BEHIND {
        let values = [
            ("dropped_staging_full_per_s", json!(dropped)),
            ("admitted_per_s", json!(figures.admitted_per_s)),
            ("io_capacity", json!(about.io_capacity)),
        ];
        sentences.push(if about.io_capacity > 0 {
            Sentence::new(
                "bottleneck.io_capacity",
                Level::Note,
                "The cache fills more slowly than it could: {dropped_staging_full_per_s} pages a second were dropped \
                 and {admitted_per_s} admitted, because bpe_io_capacity allows {io_capacity} writes a second. Raise it \
                 if the disk can take more.",
                &values,
            )
        } else {
            Sentence::new(
                "bottleneck.writing",
                Level::Note,
                "Pages arrive faster than they are written to the cache disk: {dropped_staging_full_per_s} a second \
                 were dropped and {admitted_per_s} admitted ({dropped_percent}), those asked for least first. They get \
                 another chance when they are read again. A faster disk, or several in bpe_path, can take more; so can \
                 a less busy processor.",
                &[
                    values[0].clone(),
                    values[1].clone(),
                    ("dropped_percent", json!(behind)),
                ],
            )
        });
    }
    if figures.write_limit_rejected_per_s > 0.0 {
        sentences.push(Sentence::new(
            "bottleneck.write_limit",
            Level::Note,
            "bpe_daily_write_limit ({limit_bytes}) keeps {write_limit_rejected_per_s} pages a second out: {written_24h_bytes} \
             were written in the last 24 hours. Raise it if the disk is rated for more.",
            &[
                ("limit_bytes", json!(about.daily_write_limit)),
                (
                    "write_limit_rejected_per_s",
                    json!(figures.write_limit_rejected_per_s),
                ),
                ("written_24h_bytes", json!(figures.cache_written_bytes_24h)),
            ],
        ));
    }
    sentences
}

/// Reported only with figures that prove it.
fn no_bottleneck(figures: &Figures) -> Option<Sentence> {
    let (cache, data) = (figures.cache_read_us?, figures.data_read_us?);
    let waits = figures.lock_wait_percent?;
    (cache.p50 <= data.p50 && figures.device_errors == 0).then(|| {
        Sentence::new(
            "bottleneck.none",
            Level::Good,
            "It is not a bottleneck itself: 99 of 100 reads from the cache took at most {cache_p99_us}, a typical one \
             from the data disk {data_p50_us}. Locks were found held in {lock_wait_percent} of accesses, and there \
             were {device_errors} disk errors.",
            &[
                ("cache_p99_us", json!(cache.p99)),
                ("data_p50_us", json!(data.p50)),
                ("lock_wait_percent", json!(waits)),
                ("device_errors", json!(figures.device_errors)),
            ],
        )
    })
}

fn memory(figures: &Figures) -> Option<Sentence> {
    let percent = figures.memory_bytes as f64 * 100.0 / (figures.pool_bytes as f64).max(1.0);
    (percent > MEMORY).then(|| {
        Sentence::new(
            "memory.large",
            Level::Note,
            "It takes {memory_bytes} of memory, {memory_percent} of InnoDB's pool of {pool_bytes}. A smaller bpe_size \
             takes less, and InnoDB's pool could use the rest.",
            &[
                ("memory_bytes", json!(figures.memory_bytes)),
                ("memory_percent", json!(percent)),
                ("pool_bytes", json!(figures.pool_bytes)),
            ],
        )
    })
}

#[cfg(test)]
#[path = "explain_tests.rs"]
pub mod tests;
