//! Runs every policy at every size.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use bpe::failure::Failure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use replay::policies::{self, PolicyName};
use replay::{
    EnginePolicy, Outcome, ProductError, ProductOptions, ProductOutcome, Trace, run_product,
};

/// The extension, or a policy to compare it with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    Product,
    /// The extension with an explicitly named policy.
    Engine(EnginePolicy),
    Policy(PolicyName),
}

impl Contender {
    pub fn all() -> impl Iterator<Item = Contender> {
        let policies = PolicyName::ALL.into_iter().map(Contender::Policy);
        std::iter::once(Contender::Product).chain(policies)
    }

    /// Everything that `--policy` can name.
    pub fn known() -> impl Iterator<Item = Contender> {
        let engine = EnginePolicy::ALL.iter().copied().map(Contender::Engine);
        Self::all().chain(engine)
    }

    /// The extension's policy; `None` for a simulated policy.
    pub fn engine(self) -> Option<EnginePolicy> {
        match self {
            Contender::Product => Some(EnginePolicy::default()),
            Contender::Engine(policy) => Some(policy),
            Contender::Policy(_) => None,
        }
    }

    /// The name for `--policy`.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Product => "product",
            Contender::Engine(policy) => policy.as_str(),
            Contender::Policy(policy) => policy.as_str(),
        }
    }

    /// Title for table and plot.
    pub fn title(self) -> Cow<'static, str> {
        let title = match self {
            Contender::Product => "the extension",
            Contender::Engine(policy) => return format!("the extension with {policy}").into(),
            Contender::Policy(PolicyName::Lru) => "LRU",
            Contender::Policy(PolicyName::Clock) => "CLOCK, 2 bits",
            Contender::Policy(PolicyName::S3Fifo) => "S3-FIFO",
            Contender::Policy(PolicyName::WTinyLfu) => "W-TinyLFU",
            Contender::Policy(PolicyName::Mq) => "MQ",
            Contender::Policy(PolicyName::Opt) => "OPT with bypass",
        };
        title.into()
    }
}

/// Result of one policy at one size.
#[derive(Debug)]
pub struct Measurement {
    pub contender: Contender,
    pub outcome: Outcome,
    /// For the extension only, with any policy.
    pub product: Option<ProductOutcome>,
}

/// Results at one size.
#[derive(Debug)]
pub struct Size {
    pub ratio: f64,
    pub pages: u64,
    pub measurements: Vec<Measurement>,
}

impl Size {
    pub fn measurement(&self, contender: Contender) -> Option<&Measurement> {
        self.measurements
            .iter()
            .find(|measurement| measurement.contender == contender)
    }

    /// Maximum possible hit ratio of reads.
    pub fn opt(&self) -> f64 {
        self.measurement(Contender::Policy(PolicyName::Opt))
            .map_or(f64::NAN, |measurement| measurement.outcome.read_hit_ratio())
    }
}

#[derive(Debug)]
pub struct Results {
    /// Measured events, and how many of them are reads.
    pub events: u64,
    pub reads: u64,
    /// Events before the measured part.
    pub before: usize,
    pub distinct_pages: usize,
    /// Instances of the extension.
    pub instances: u32,
    pub sizes: Vec<Size>,
}

impl Results {
    pub fn gather(
        trace: &Trace,
        measured: Range<usize>,
        sizes: &[(f64, u64)],
        requested: &[Contender],
        instances: u32,
    ) -> Result<Results, Failure> {
        let bar = bar((measured.end * requested.len() * sizes.len()) as u64);
        let mut gathered = Vec::new();
        for &(ratio, pages) in sizes {
            let mut measurements = Vec::new();
            for &contender in requested {
                bar.set_message(format!("{} at {ratio} x", contender.title()));
                let done = bar.position();
                let mut progress = |events| bar.set_position(done + events as u64);
                let measurement = measure(
                    contender,
                    trace,
                    measured.clone(),
                    pages,
                    instances,
                    &mut progress,
                )
                .inspect_err(|_| bar.finish_and_clear())
                .map_err(failure)?;
                measurements.push(measurement);
                bar.set_position(done + measured.end as u64);
            }
            gathered.push(Size {
                ratio,
                pages,
                measurements,
            });
        }
        bar.finish_and_clear();
        let events = &trace.events()[measured.clone()];
        Ok(Results {
            events: events.len() as u64,
            reads: events.iter().filter(|event| !event.is_write()).count() as u64,
            before: measured.start,
            distinct_pages: trace.distinct_pages(),
            instances,
            sizes: gathered,
        })
    }
}

/// Runs one policy at one size, in pages. `instances`: of the extension. `progress` receives the number of processed events.
pub fn measure(
    contender: Contender,
    trace: &Trace,
    measured: Range<usize>,
    pages: u64,
    instances: u32,
    progress: &mut dyn FnMut(usize),
) -> Result<Measurement, ProductError> {
    let product = match contender.engine() {
        Some(policy) => {
            let options = ProductOptions {
                instances,
                policy,
                ..ProductOptions::new(pages)
            };
            Some(run_product(trace, measured.clone(), &options, progress)?)
        }
        None => None,
    };
    let outcome = match contender {
        Contender::Policy(policy) => {
            policies::run(policy, trace, measured, pages as usize, progress)
        }
        Contender::Product | Contender::Engine(_) => product.map(|p| p.outcome).unwrap_or_default(),
    };
    Ok(Measurement {
        contender,
        outcome,
        product,
    })
}

pub fn failure(error: ProductError) -> Failure {
    match error {
        ProductError::TooSmall { .. } | ProductError::TooManyInstances { .. } => {
            Failure::usage(error.to_string())
        }
        ProductError::Open(_) | ProductError::Directory { .. } => {
            Failure::step(error.to_string()).advise(
                "the cache file is made in /dev/shm if that has room, else in the folder TMPDIR names: \
                 set TMPDIR to a folder with room for it, or lower --cache-ratio",
            )
        }
        ProductError::Failed { .. } => Failure::step(error.to_string()),
    }
}

/// A progress bar, hidden without a terminal.
fn bar(events: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(events), ProgressDrawTarget::stderr_with_hz(5));
    let style =
        ProgressStyle::with_template("{bar:30.cyan/dim} {percent:>3} %  {msg} ({eta} left)");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
