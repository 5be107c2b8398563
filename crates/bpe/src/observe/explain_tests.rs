use super::super::histogram::Quantiles;
use super::*;

/// A full cache that helps and delays nothing.
pub fn good() -> Figures {
    let quantiles = |p50: f64| {
        Some(Quantiles {
            p50,
            p95: p50 * 2.0,
            p99: p50 * 4.0,
        })
    };
    Figures {
        at_ms: 1_700_000_000_000,
        interval_s: 5.0,
        state: "active".into(),
        state_reason: String::new(),
        async_mode: "libaio".into(),
        uptime_s: 1000,
        qps: 2000.0,
        tps: 100.0,
        threads_running: 8,
        connections: 64,
        pool_reads_per_s: 90_000.0,
        cache_reads_per_s: 900.0,
        data_reads_per_s: 100.0,
        innodb_reads_per_s: 1000.0,
        unseen_reads_per_s: 0.0,
        pool_hit_percent: Some(98.9),
        hit_ratio_percent: Some(90.0),
        hit_ratio_total_percent: 85.0,
        misses_per_s: 100.0,
        misses_returned_per_s: 20.0,
        cache_read_us: quantiles(80.0),
        data_read_us: quantiles(1080.0),
        latency_refused: false,
        saved_reads_total: 1_000_000,
        saved_bytes_per_s: 900.0 * 16384.0,
        saved_bytes_total: 1_000_000 * 16384,
        gain_us: Some(1000.0),
        saved_ms_per_s: Some(900.0),
        cache_written_bytes_per_s: 1e6,
        cache_written_bytes_24h: 5 << 30,
        data_written_bytes_per_s: 2e6,
        pages_cached: 62_000,
        bytes_cached: 62_000 * 16384,
        capacity_bytes: 1 << 30,
        memory_bytes: 4 << 20,
        pool_bytes: 128 << 20,
        admitted_per_s: 30.0,
        rejected_per_s: 60.0,
        evicted_per_s: 30.0,
        invalidated_per_s: 5.0,
        dropped_staging_full_per_s: 0.0,
        write_limit_rejected_per_s: 0.0,
        lock_accesses_per_s: 2000.0,
        lock_wait_percent: Some(0.2),
        device_errors: 0,
        reads_given_up: 0,
        failed_proofs: 0,
        audit_suspicions: 0,
        suspended_files: 0,
        damaged_pages: 0,
    }
}

fn about() -> Circumstances {
    Circumstances {
        devices: vec![Device {
            path: "/mnt/a".into(),
            active: true,
            state: "active".into(),
        }],
        ..Circumstances::default()
    }
}

fn said(change: impl FnOnce(&mut Figures, &mut Circumstances)) -> Vec<Sentence> {
    let (mut figures, mut about) = (good(), about());
    change(&mut figures, &mut about);
    let sentences = explain(&figures, &about);
    for sentence in &sentences {
        assert!(!sentence.text.contains(['{', '}']), "{}", sentence.text);
        assert!(!sentence.values.is_empty(), "{}", sentence.text);
    }
    sentences
}

fn keys(sentences: &[Sentence]) -> Vec<&'static str> {
    sentences.iter().map(|sentence| sentence.text_key).collect()
}

/// The change must produce this sentence with these words, and without the change it must be absent.
fn rule(key: &str, words: &[&str], change: impl FnOnce(&mut Figures, &mut Circumstances)) {
    assert!(
        !keys(&said(|_, _| {})).contains(&key),
        "{key} of a good one"
    );
    let sentences = said(change);
    let sentence = sentences.iter().find(|sentence| sentence.text_key == key);
    let Some(sentence) = sentence else {
        panic!("{key} is missing: {:?}", keys(&sentences));
    };
    for word in words {
        assert!(
            sentence.text.contains(word),
            "{word} is missing: {}",
            sentence.text
        );
    }
}

#[test]
fn reads_that_pass_the_extension_by() {
    rule(
        "trouble.unseen",
        &["Of 4,000 pages", "3,000 (75.0 %)", "is io_uring"],
        |f, _| {
            f.innodb_reads_per_s = 4000.0;
            f.unseen_reads_per_s = 3000.0;
            f.async_mode = "io_uring".into();
        },
    );
    let few = said(|f, _| {
        f.innodb_reads_per_s = 10.0;
        f.unseen_reads_per_s = 10.0;
    });
    assert!(
        !keys(&few).contains(&"trouble.unseen"),
        "of some reads nothing follows"
    );
    let most = said(|f, _| f.unseen_reads_per_s = 150.0);
    assert!(!keys(&most).contains(&"trouble.unseen"), "most pass it");
}

#[test]
fn a_cache_that_helps() {
    let sentences = said(|_, _| {});
    assert_eq!(
        keys(&sentences),
        [
            "verdict.helps",
            "saved.time",
            "larger.no",
            "bottleneck.none"
        ]
    );
    assert!(sentences.iter().all(|s| s.level == Level::Good));
    let all: Vec<_> = sentences.iter().map(|s| s.text.as_str()).collect();
    let all = all.join("\n");
    for words in [
        "of 1,000 reads a second",
        "answered 90.0 %; 100 a second",
        "1.00 ms less",
        "900 ms less in each second",
        "90 pages a second were evicted or rejected",
        "20 of 1,000 reads a second missed",
        "at most 2.0 % more of the reads",
        "at most 320 us, a typical one from the data disk 1.08 ms",
    ] {
        assert!(all.contains(words), "{words} is missing in\n{all}");
    }
}

#[test]
fn one_that_does_not_work_says_why() {
    rule(
        "inactive.not_installed",
        &["data disk, 100 a second", "bpe doctor"],
        |f, _| {
            f.state = "not installed".into();
        },
    );
    rule("inactive.bypass", &["bpe_bypass = OFF"], |f, _| {
        f.state = "bypass".into();
    });
    rule("inactive.disabled", &["bpe_enabled = ON"], |f, _| {
        f.state = "disabled".into();
    });
    rule(
        "inactive.trouble",
        &["is failed", "no space left"],
        |f, _| {
            f.state = "failed".into();
            f.state_reason = "no space left".into();
        },
    );
    let alone = said(|f, _| f.state = "passive".into());
    assert_eq!(
        alone.len(),
        1,
        "figures of a cache that is off mean nothing"
    );
}

#[test]
fn little_to_do_is_not_taken_for_little_help() {
    let idle = |f: &mut Figures, _: &mut Circumstances| {
        f.cache_reads_per_s = 0.2;
        f.misses_per_s = 0.2;
    };
    rule("idle.in_memory", &["98.9 %", "0.4 reads a second"], idle);
    assert_eq!(keys(&said(idle)), ["idle.in_memory"]);
    rule("idle.no_requests", &["no page was asked for"], |f, _| {
        f.cache_reads_per_s = 0.0;
        f.misses_per_s = 0.0;
        f.pool_hit_percent = None;
    });
    rule("few_reads", &["only 50 reads in 5 seconds"], |f, _| {
        f.cache_reads_per_s = 6.0;
        f.misses_per_s = 4.0;
    });
}

#[test]
fn little_help_and_harm() {
    rule("verdict.little", &["helps little", "5.0 %"], |f, _| {
        f.hit_ratio_percent = Some(5.0);
    });
    rule("verdict.costs", &["costs time"], |f, _| {
        f.gain_us = Some(-500.0)
    });
    rule(
        "saved.nothing",
        &["500 us longer", "450 ms", "faster disk"],
        |f, _| {
            f.gain_us = Some(-500.0);
            f.saved_ms_per_s = Some(-450.0);
        },
    );
    let alike = |f: &mut Figures, _: &mut Circumstances| {
        f.gain_us = Some(-20.0);
        f.saved_ms_per_s = Some(-18.0);
    };
    rule("verdict.alike", &["off the data disk"], alike);
    rule("saved.alike", &["1.08 ms", "20 us"], alike);
    rule("saved.unknown", &["has not been timed"], |f, _| {
        f.gain_us = None;
        f.saved_ms_per_s = None;
    });
    rule("saved.none", &["saved no time"], |f, _| {
        f.cache_reads_per_s = 0.0
    });
}

#[test]
fn a_larger_one_helps_only_if_pages_come_back() {
    rule(
        "larger.yes",
        &["80 of 1,000 reads", "up to 8.0 %"],
        |f, _| {
            f.misses_returned_per_s = 80.0;
        },
    );
    // Misses after writes or drops do not indicate a lack of space.
    let changed = said(|f, _| {
        f.misses_returned_per_s = 80.0;
        (f.evicted_per_s, f.rejected_per_s) = (10.0, 5.0);
    });
    assert!(keys(&changed).contains(&"larger.no"));
    let room = |f: &mut Figures, _: &mut Circumstances| {
        f.bytes_cached = f.capacity_bytes / 2;
        f.pages_cached = f.bytes_cached / 16384;
        (f.evicted_per_s, f.rejected_per_s) = (0.0, 0.0);
        f.misses_returned_per_s = 80.0;
    };
    // 32768 pages at 25 a second.
    rule(
        "larger.filling",
        &["50.0 %", "30 pages a second", "22 min"],
        room,
    );
    rule("larger.room", &["50.0 %"], |f, about| {
        room(f, about);
        f.admitted_per_s = f.invalidated_per_s;
    });
}

#[test]
fn disks_and_what_went_wrong() {
    rule("disk.failed", &["/mnt/a", "no space"], |_, about| {
        about.devices[0].active = false;
        about.devices[0].state = "failed: no space".into();
    });
    rule(
        "disk.remark",
        &["/mnt/a is used, but: it lies on"],
        |_, about| {
            about.devices[0].state = "active; it lies on the file system of the data".into();
        },
    );
    rule("trouble.errors", &["1,200 errors"], |f, _| {
        f.device_errors = 1200
    });
    rule("trouble.proofs", &["3 pages"], |f, _| f.failed_proofs = 3);
    rule(
        "trouble.given_up",
        &["7 reads", "longer than a second"],
        |f, _| {
            f.reads_given_up = 7;
        },
    );
    assert!(!keys(&said(|f, _| f.device_errors = 1)).contains(&"bottleneck.none"));
}

#[test]
fn suspended_files_are_explained() {
    let row = json!({
        "file": "./d/t.ibd", "why": "it had 1 bytes and has 2 now", "suspended_s": 150, "compared_pages": null, "rest_s": 90,
        "latest_s": null,
    });
    let suspended = SuspendedFile::of(&row);
    rule(
        "trouble.comparing",
        &[
            "./d/t.ibd",
            "for 3 min",
            "1 bytes and has 2",
            "goes passive",
        ],
        |f, about| {
            (f.audit_suspicions, f.suspended_files) = (1, 1);
            about.suspended.push(suspended.clone());
        },
    );
    let compared = SuspendedFile {
        compared_pages: Some(1157),
        latest_s: 600,
        ..suspended
    };
    rule(
        "trouble.suspended",
        &[
            "./d/t.ibd",
            "1,157 cached pages",
            "90 seconds",
            "after 10 min",
            "`touch`",
            "OFF and ON",
        ],
        |f, about| {
            (f.audit_suspicions, f.suspended_files) = (1, 1);
            about.suspended.push(compared.clone());
        },
    );
    rule("trouble.suspended_more", &["6 more"], |f, about| {
        f.suspended_files = 7;
        about.suspended.push(compared.clone());
    });
    // Without the function, the number is still known.
    rule("trouble.suspended_more", &["7 more"], |f, _| {
        f.suspended_files = 7
    });
    rule("trouble.damaged", &["3 pages", "--save-pages"], |f, _| {
        f.damaged_pages = 3
    });
    rule("trouble.suspicions", &["2 times", "error log"], |f, _| {
        f.audit_suspicions = 2
    });
    let now = said(|f, about| {
        (f.audit_suspicions, f.suspended_files) = (2, 1);
        about.suspended.push(compared.clone());
    });
    assert!(!keys(&now).contains(&"trouble.suspicions"), "said by file");
    assert!(!keys(&now).contains(&"trouble.suspended_more"));
}

#[test]
fn what_was_kept_over_a_restart() {
    let lost = [("./d/t.ibd", "it is another file of the same number")];
    let kept = Persisted::of(&super::super::persisted::tests::summary(&lost));
    for (key, words) in [
        ("kept.lost", "97.9 % of the cache"),
        ("kept.reason", "./d/t.ibd was not kept: it is another file"),
    ] {
        rule(key, &[words], |_, about| about.kept = kept.clone());
    }
    // Just after a start there is often no load yet.
    let idle = said(|f, about| {
        (f.cache_reads_per_s, f.misses_per_s) = (0.0, 0.0);
        about.kept = kept.clone();
    });
    assert_eq!(keys(&idle), ["idle.in_memory", "kept.lost", "kept.reason"]);
}

#[test]
fn what_holds_things_up_and_what_to_change() {
    let latency = |p50, p99| Some(Quantiles { p50, p95: p99, p99 });
    rule("bottleneck.disk", &["700 us against 1.08 ms"], |f, _| {
        f.cache_read_us = latency(700.0, 900.0);
    });
    rule("bottleneck.tail", &["(2.00 ms)", "(1.08 ms)"], |f, _| {
        f.cache_read_us = latency(80.0, 2000.0);
    });
    rule("bottleneck.locks", &["12.0 %", "now 4"], |f, about| {
        f.lock_wait_percent = Some(12.0);
        about.instances = 4;
    });
    let behind = |f: &mut Figures, _: &mut Circumstances| f.dropped_staging_full_per_s = 30.0;
    rule(
        "bottleneck.writing",
        &["30 a second were dropped", "admitted ("],
        behind,
    );
    rule(
        "bottleneck.io_capacity",
        &["allows 200 writes"],
        |f, about| {
            behind(f, about);
            about.io_capacity = 200;
        },
    );
    rule(
        "bottleneck.write_limit",
        &["(10 GiB)", "5 GiB"],
        |f, about| {
            f.write_limit_rejected_per_s = 4.0;
            about.daily_write_limit = 10 << 30;
        },
    );
    rule("memory.large", &["8 MiB", "6.2 %"], |f, _| {
        f.memory_bytes = 8 << 20
    });
    let bad = said(|f, _| f.lock_wait_percent = Some(12.0));
    assert!(!keys(&bad).contains(&"bottleneck.none"));
    let not_known = said(|f, _| f.data_read_us = None);
    assert!(!keys(&not_known).contains(&"bottleneck.none"));
}
