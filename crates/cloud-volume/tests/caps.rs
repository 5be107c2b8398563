//! The caps, measured with fio: never exceeded by more than the bucket's depth and fio's edges, and reached. Also
//! verifies the data that fio wrote and read back.
//!
//! The tests share the host's processors, so they run one at a time.

mod common;

use std::sync::Mutex;
use std::time::Duration;

use cloud_volume::{Burst, Options, Profile};
use common::{Trial, fio, fio_installed};

static TURN: Mutex<()> = Mutex::new(());

/// Checks a measurement against a cap: at most 3 % above it, and at most 15 % below it. A busy host can only lower the
/// result, so the check has three tries.
fn near(what: &str, cap: f64, measure: impl Fn() -> f64) {
    for _ in 0..3 {
        let measured = measure();
        println!("{what}: {measured:.0} of {cap:.0}");
        assert!(measured <= cap * 1.03, "{what}: {measured:.0} of {cap:.0}");
        if measured >= cap * 0.85 {
            return;
        }
    }
    panic!("{what}: the cap of {cap:.0} is not reached in three tries");
}

/// Runs `check` on a volume of `profile` that holds one file of 64 MiB, which fio uses.
fn with_volume(
    profile: Profile,
    check: impl FnOnce(&Trial, &dyn Fn(&[&str]) -> serde_json::Value),
) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !fio_installed() {
        return;
    }
    let options = Options {
        profile: Profile::unlimited(),
        ..Options::default()
    };
    let Some(trial) = Trial::mount(options) else {
        return;
    };
    let file = trial.backing("data");
    std::fs::write(&file, vec![7; 64 << 20]).unwrap();
    trial.volume.set_profile(profile);
    check(&trial, &|arguments| {
        let common = [
            "--filename=data",
            "--size=64M",
            "--direct=1",
            "--ramp_time=1",
        ];
        let time = ["--time_based", "--runtime=3"];
        fio(
            trial.volume.mountpoint(),
            &[&common[..], &time[..], arguments].concat(),
        )
    });
}

fn iops(job: &serde_json::Value, direction: &str) -> f64 {
    job[direction]["iops"].as_f64().unwrap()
}

fn bandwidth(job: &serde_json::Value) -> f64 {
    ["read", "write"]
        .iter()
        .map(|direction| job[direction]["bw_bytes"].as_f64().unwrap())
        .sum()
}

#[test]
fn iops_are_shared_by_reads_and_writes() {
    with_volume(Profile::default(), |trial, run| {
        let before = trial.volume.statistics();
        near("mixed", 3000.0, || {
            let threads = ["--ioengine=psync", "--thread", "--numjobs=16"];
            let job = run(&[&threads[..], &["--rw=randrw", "--bs=16k"]].concat());
            let (reads, writes) = (iops(&job, "read"), iops(&job, "write"));
            assert!((0.8..1.25).contains(&(reads / writes)), "{reads}/{writes}");
            reads + writes
        });
        let after = trial.volume.statistics();
        let requests = after.reads - before.reads + after.writes - before.writes;
        assert_eq!(requests, after.billed_ios - before.billed_ios);
        assert!(after.throttled_us > before.throttled_us);
    });
}

#[test]
fn iops_cap_holds_for_each_engine() {
    for engine in ["libaio", "io_uring"] {
        if engine == "io_uring" && !io_uring_allowed() {
            common::skip("io_uring is disabled on this machine");
            continue;
        }
        with_volume(Profile::default(), |_, run| {
            let engine = format!("--ioengine={engine}");
            near(&engine, 3000.0, || {
                let job = run(&["--rw=randread", "--bs=16k", &engine, "--iodepth=32"]);
                iops(&job, "read")
            });
        });
    }
}

fn io_uring_allowed() -> bool {
    match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
        Ok(disabled) => disabled.trim() == "0",
        // Kernels before that switch: allowed if io_uring exists.
        Err(_) => std::fs::read_to_string("/proc/kallsyms")
            .is_ok_and(|symbols| symbols.contains("io_uring_setup")),
    }
}

#[test]
fn bandwidth_is_capped_for_large_requests() {
    with_volume(Profile::default(), |_, run| {
        for direction in ["read", "write"] {
            let rw = format!("--rw={direction}");
            near(direction, 125e6, || {
                let job = run(&[&rw, "--bs=1M", "--ioengine=libaio", "--iodepth=4"]);
                bandwidth(&job)
            });
        }
    });
}

#[test]
fn large_requests_count_as_several() {
    let profile = Profile {
        iops: Some(400),
        bandwidth: None,
        ..Profile::default()
    };
    with_volume(profile, |_, run| {
        near("1 MiB reads", 100.0, || {
            let job = run(&["--rw=read", "--bs=1M", "--ioengine=libaio", "--iodepth=4"]);
            iops(&job, "read")
        });
    });
}

#[test]
fn a_lone_request_takes_the_latency_at_least() {
    with_volume(Profile::default(), |_, run| {
        for direction in ["randread", "randwrite"] {
            let rw = format!("--rw={direction}");
            let job = run(&[&rw, "--bs=16k", "--ioengine=psync"]);
            let least = job[&direction[4..]]["lat_ns"]["min"].as_f64().unwrap();
            assert!(least >= 500_000.0, "{direction}: {least} ns");
        }
    });
}

#[test]
fn jitter_comes_on_top_of_the_latency() {
    let mut profile = Profile::default();
    profile.set("jitter", "4ms").unwrap();
    with_volume(profile, |_, run| {
        let job = run(&["--rw=randread", "--bs=16k", "--ioengine=psync"]);
        let latency = &job["read"]["lat_ns"];
        assert!(latency["min"].as_f64().unwrap() >= 500_000.0);
        assert!(latency["mean"].as_f64().unwrap() >= 2_000_000.0);
    });
}

#[test]
fn burst_credits_lift_the_cap_until_spent() {
    let profile = Profile {
        iops: Some(200),
        burst: Some(Burst {
            credits: 1_000_000,
            iops: 2000,
            refill: None,
        }),
        ..Profile::default()
    };
    with_volume(profile, |trial, run| {
        let engine = [
            "--rw=randread",
            "--bs=16k",
            "--ioengine=libaio",
            "--iodepth=32",
        ];
        near("with credits", 2000.0, || iops(&run(&engine), "read"));
        trial.volume.set_profile(Profile {
            iops: Some(200),
            ..Profile::default()
        });
        near("without", 200.0, || iops(&run(&engine), "read"));
    });
}

#[test]
fn caps_change_at_run_time() {
    with_volume(Profile::unlimited(), |trial, run| {
        let arguments = [
            "--rw=randread",
            "--bs=16k",
            "--ioengine=libaio",
            "--iodepth=16",
        ];
        let free = iops(&run(&arguments), "read");
        assert!(free > 3500.0, "unlimited: {free}");
        trial.volume.set_profile(Profile {
            iops: Some(500),
            latency: Duration::from_millis(2),
            ..Profile::default()
        });
        near("capped", 500.0, || iops(&run(&arguments), "read"));
    });
}

#[test]
fn what_was_written_is_read_back() {
    if !fio_installed() {
        return;
    }
    for profile in [Profile::unlimited(), Profile::default()] {
        let options = Options {
            profile,
            ..Options::default()
        };
        let Some(trial) = Trial::mount(options) else {
            return;
        };
        for (engine, direct) in [("libaio", "1"), ("psync", "1"), ("psync", "0")] {
            fio(
                trial.volume.mountpoint(),
                &[
                    &format!("--filename={engine}-{direct}"),
                    &format!("--ioengine={engine}"),
                    &format!("--direct={direct}"),
                    "--rw=randwrite",
                    "--bsrange=4k-256k",
                    "--blockalign=4k",
                    "--size=8M",
                    "--iodepth=16",
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--do_verify=1",
                ],
            );
            // The backing directory has the same bytes.
            let name = format!("{engine}-{direct}");
            let through = std::fs::read(trial.path(&name)).unwrap();
            let below = std::fs::read(trial.backing(&name)).unwrap();
            assert!(through == below && through.len() == 8 << 20, "{name}");
        }
    }
}
