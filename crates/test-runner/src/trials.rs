//! Selection of trials.

use std::hash::Hasher;

use fnv::FnvHasher;

use crate::build::Programs;
use crate::steps::{Load, Step, Trial, When};

/// Selection of a tier.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The first trial of each subject and all of [`SHORT`], alternately on one server or the other.
    One { turn: u64 },
    /// `One`, and every sixth of all.
    Sixth { turn: u64, all_canaries: bool },
    /// Everything; trials that do not depend on the server run on one.
    All { turn: u64 },
    /// All trials of these subjects.
    Subjects(Vec<String>),
}

/// Servers of most subjects' trials, alternating.
const SERVERS: [&str; 2] = ["mariadb-10.11", "mysql-9.7"];

/// Subjects of the full tier only: they take minutes, several servers or a browser.
const FULL_ONLY: [&str; 8] = [
    "cluster",
    "replication",
    "galera",
    "group_replication",
    "failovers",
    "life",
    "console_page",
    "experience",
];

/// Subjects of trials that take a few seconds each, and run code that nothing else runs, such as refusals.
const SHORT: [&str; 4] = ["bad_input", "messages", "reports", "variables"];

/// Parts of a trial's name.
struct Name<'a> {
    subject: &'a str,
    server: Option<&'a str>,
    /// The part that is the same for all servers.
    rest: &'a str,
}

impl<'a> Name<'a> {
    fn of(full: &'a str) -> Name<'a> {
        let (subject, rest) = full.split_once("::").unwrap_or((full, ""));
        match rest.split_once("::") {
            Some((server, rest)) => Name {
                subject,
                server: Some(server),
                rest,
            },
            None => Name {
                subject,
                server: None,
                rest,
            },
        }
    }

    /// The trials of a group stand for each other in `make test`.
    fn group(&self) -> (&'a str, Option<&'a str>) {
        let is_short = SHORT.contains(&self.subject);
        (self.subject, is_short.then_some(self.rest))
    }

    /// A number that is the same on all hosts, and for all servers.
    fn number(&self) -> u64 {
        let mut hasher = FnvHasher::default();
        hasher.write(self.subject.as_bytes());
        hasher.write(self.rest.as_bytes());
        // The low bits of the hash of short texts are similar.
        let hash = hasher.finish();
        hash ^ hash >> 32
    }
}

/// Whether a trial's server is the one of this turn.
fn is_in_turn(trial: &Trial, turn: u64) -> bool {
    let name = Name::of(&trial.name);
    let server = SERVERS[((name.number() / 6 + turn) % 2) as usize];
    !trial.in_turn || name.server == Some(server)
}

/// A trial whose rule is disabled, which the trial must detect.
fn is_canary(name: &str) -> bool {
    name.ends_with("is_noticed") || name.starts_with("canary::") || name.contains("_is_noticed_")
}

impl Choice {
    /// Whether a step that is no trial runs.
    pub fn takes_step(&self, step: &Step) -> bool {
        match self {
            Choice::One { .. } => step.when == When::Always,
            Choice::Sixth { turn, all_canaries } => match step.when {
                When::Always => true,
                When::Sixth(sixth) => turn % 6 == sixth || *all_canaries && step.is_canary,
            },
            Choice::All { .. } => true,
            Choice::Subjects(subjects) => subjects.iter().any(|subject| subject == step.subject()),
        }
    }

    /// The selected trials of a program, in its order.
    fn takes_of<'a>(&self, trials: &'a [Trial]) -> Vec<&'a Trial> {
        match self {
            Choice::One { turn } => few(trials, *turn),
            Choice::Sixth { turn, all_canaries } => {
                let few = few(trials, *turn);
                let takes = |trial: &Trial| {
                    let is_of_the_sixth = Name::of(&trial.name).number() % 6 == turn % 6;
                    let is_taken = is_of_the_sixth || *all_canaries && is_canary(&trial.name);
                    few.contains(&trial) || is_taken && is_in_turn(trial, turn / 6)
                };
                trials.iter().filter(|trial| takes(trial)).collect()
            }
            Choice::All { turn } => trials
                .iter()
                .filter(|trial| is_in_turn(trial, *turn))
                .collect(),
            Choice::Subjects(subjects) => trials
                .iter()
                .filter(|trial| {
                    subjects
                        .iter()
                        .any(|subject| subject == Name::of(&trial.name).subject)
                })
                .collect(),
        }
    }
}

/// The first trial of each subject and all of [`SHORT`], on the server whose turn it is if the trial exists for that.
fn few(trials: &[Trial], turn: u64) -> Vec<&Trial> {
    let mut chosen: Vec<&Trial> = Vec::new();
    for trial in trials {
        let name = Name::of(&trial.name);
        let is_chosen = chosen
            .iter()
            .any(|other| Name::of(&other.name).group() == name.group());
        if is_chosen || FULL_ONLY.contains(&name.subject) {
            continue;
        }
        let in_turn = trials.iter().find(|other| {
            let other = Name::of(&other.name);
            (other.subject, other.rest) == (name.subject, name.rest)
                && other.server == Some(SERVERS[(turn % 2) as usize])
        });
        chosen.push(in_turn.unwrap_or(trial));
    }
    chosen
}

/// Steps for the trials of all programs.
pub fn chosen(programs: &Programs, choice: &Choice) -> Vec<Step> {
    let mut steps = Vec::new();
    for program in programs.tests() {
        for trial in choice.takes_of(&program.trials) {
            let arguments = ["--exact", &trial.name, "--test-threads", "1"];
            // The share of reads that a cache answers falls when its server has no processor. The flood takes both processors,
            // and the documented times of answers are compared.
            let name = Name::of(&trial.name);
            let load = match (name.subject, name.rest) {
                ("file_systems", _) | ("console", "checks_are_answered_beside_a_flood") => {
                    Load::Alone
                }
                _ => Load::Third,
            };
            let step = programs
                .step(program, trial.name.clone(), &arguments)
                .load(load);
            steps.push(Step {
                is_canary: is_canary(&trial.name),
                ..step
            });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trials of `ddl` on both servers, of `faults` on one in turn, and some that exist once.
    fn listed() -> Vec<Trial> {
        let mut lines = Vec::new();
        for name in [
            "truncate",
            "rename",
            "import",
            "indexes",
            "a_stale_page_is_noticed",
        ] {
            for server in SERVERS {
                lines.push(format!("ddl::{server}::{name}"));
                lines.push(format!("[in turn] faults::{server}::{name}"));
            }
        }
        lines.push("ddl::without_a_server".into());
        lines.push("faults::mariadb-10.11::frozen".into());
        lines.iter().map(|line| Trial::of(line)).collect()
    }

    fn names<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Vec<&'a str> {
        trials
            .into_iter()
            .map(|trial| trial.name.as_str())
            .collect()
    }

    #[test]
    fn one_trial_of_each_subject_on_the_servers_in_turn() {
        let trials = listed();
        for (turn, server) in [(0, "mariadb-10.11"), (1, "mysql-9.7"), (2, "mariadb-10.11")] {
            let chosen = Choice::One { turn }.takes_of(&trials);
            let expected = [
                format!("ddl::{server}::truncate"),
                format!("faults::{server}::truncate"),
            ];
            assert_eq!(names(chosen), expected);
        }
    }

    #[test]
    fn short_trials_all_run_on_the_server_in_turn() {
        let trials: Vec<Trial> = [
            "bad_input::mariadb-10.11::sizes",
            "bad_input::mysql-9.7::sizes",
            "[in turn] bad_input::mysql-9.7::links",
            "[in turn] bad_input::mariadb-10.11::links",
            "bad_input::mariadb-10.11::imports_missing",
        ]
        .map(Trial::of)
        .into();
        let expected = [
            "bad_input::mysql-9.7::sizes",
            "bad_input::mysql-9.7::links",
            "bad_input::mariadb-10.11::imports_missing",
        ];
        assert_eq!(names(Choice::One { turn: 1 }.takes_of(&trials)), expected);
    }

    #[test]
    fn six_turns_in_a_row_run_every_trial() {
        let trials = listed();
        for begin in 12..24 {
            let seen: Vec<&Trial> = (begin..begin + 6)
                .flat_map(|turn| {
                    Choice::Sixth {
                        turn,
                        all_canaries: false,
                    }
                    .takes_of(&trials)
                })
                .collect();
            for trial in &trials {
                let name = Name::of(&trial.name);
                // One in turn counts on either server.
                let runs = seen.iter().any(|other| {
                    let other_name = Name::of(&other.name);
                    *other == trial
                        || trial.in_turn
                            && (other_name.subject, other_name.rest) == (name.subject, name.rest)
                });
                assert!(runs, "{} from turn {begin} on", trial.name);
            }
        }
    }

    #[test]
    fn trials_in_turn_alternate_between_servers_and_all_others_run_always() {
        let trials = listed();
        let (once, again) = (
            Choice::All { turn: 7 }.takes_of(&trials),
            Choice::All { turn: 8 }.takes_of(&trials),
        );
        // Ten of `ddl`, five of ten in turn, and the two that exist once.
        assert_eq!((once.len(), again.len()), (17, 17));
        for trial in &trials {
            let runs = [&once, &again].map(|chosen| chosen.contains(&trial));
            let expected = if trial.in_turn { 1 } else { 2 };
            assert_eq!(
                runs.iter().filter(|runs| **runs).count(),
                expected,
                "{}",
                trial.name
            );
        }
    }

    #[test]
    fn canaries_run_when_coherence_changed() {
        let trials = listed();
        for turn in 0..6 {
            let sixth = Choice::Sixth {
                turn,
                all_canaries: true,
            };
            let chosen = names(sixth.takes_of(&trials));
            let runs = |subject: &str, server: &str| {
                chosen.contains(&format!("{subject}::{server}::a_stale_page_is_noticed").as_str())
            };
            assert!(SERVERS.iter().all(|server| runs("ddl", server)), "{turn}");
            assert!(
                SERVERS.iter().any(|server| runs("faults", server)),
                "{turn}"
            );
        }
    }
}
