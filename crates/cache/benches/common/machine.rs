//! The host, and the resource usage of a thread.

use std::time::Duration;

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Cores, processor and kernel in one line.
pub fn describe() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |text| {
            text.trim_start_matches([' ', '\t', ':'])
        });
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    format!(
        "{} cores, {model}, Linux {}, load before the run {}",
        cores(),
        kernel.trim(),
        load.split(' ').next().unwrap_or("unknown")
    )
}

/// Median; 0 if there are no figures.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Resource usage of the calling thread so far.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// User and system together.
    pub cpu: Duration,
    /// Number of voluntary context switches.
    pub waits: u64,
}

impl Usage {
    pub fn of_this_thread() -> Usage {
        // SAFETY: zeros are a value of this struct of integers, and the call fills it.
        let usage = unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage
        };
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
        };
        Usage {
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            waits: usage.ru_nvcsw as u64,
        }
    }

    /// Sum over all threads of this process whose names begin with `name`.
    pub fn of_threads(name: &str) -> Usage {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
        let mut sum = Usage::default();
        for folder in tasks.flatten().map(|task| task.path()) {
            let read = |file| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
            if !read("comm").starts_with(name) {
                continue;
            }
            let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
            let nanos = number(read("schedstat").split(' ').next()).unwrap_or(0);
            let status = read("status");
            let mut lines = status.lines();
            let waits = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum.cpu += Duration::from_nanos(nanos);
            sum.waits += number(waits).unwrap_or(0);
        }
        sum
    }

    pub fn since(self, before: Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(before.cpu),
            waits: self.waits - before.waits,
        }
    }
}
