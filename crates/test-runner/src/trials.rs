//! Selection of trials.

use std::hash::Hasher;

use fnv::FnvHasher;

use crate::build::Programs;
use crate::steps::{Load, Step, When};

/// Selection of a tier.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The first trial of each subject, alternately on one server or the other.
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

/// Subjects about the extension itself: the server is only the load. The full tier runs each of their trials on one
/// server, the next time on the other.
const ON_ONE_SERVER: [&str; 14] = [
    "image",
    "warm_memory",
    "compare",
    "disk_incidents",
    "hostile",
    "faults",
    "bounds",
    "damage",
    "memory",
    "competing",
    "recording",
    "record",
    "scans",
    "command",
];

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
    fn takes_of<'a>(&self, trials: &'a [String]) -> Vec<&'a String> {
        match self {
            Choice::One { turn } => first_of_each_subject(trials, *turn),
            Choice::Sixth { turn, all_canaries } => {
                let first = first_of_each_subject(trials, *turn);
                let takes = |full: &String| {
                    let name = Name::of(full);
                    let is_of_the_sixth =
                        name.number() % 6 == turn % 6 && self.is_on_this_server(&name, turn / 6);
                    first.contains(&full) || is_of_the_sixth || *all_canaries && is_canary(full)
                };
                trials.iter().filter(|full| takes(full)).collect()
            }
            Choice::All { turn } => trials
                .iter()
                .filter(|full| self.is_on_this_server(&Name::of(full), *turn))
                .collect(),
            Choice::Subjects(subjects) => trials
                .iter()
                .filter(|full| {
                    subjects
                        .iter()
                        .any(|subject| subject == Name::of(full).subject)
                })
                .collect(),
        }
    }

    fn is_on_this_server(&self, name: &Name<'_>, turn: u64) -> bool {
        let Some(server) = name.server.filter(|server| SERVERS.contains(server)) else {
            return true;
        };
        let chosen = SERVERS[((name.number() / 6 + turn) % 2) as usize];
        !ON_ONE_SERVER.contains(&name.subject) || server == chosen
    }
}

/// The first trial of each subject, on the server whose turn it is if the trial exists for that.
fn first_of_each_subject(trials: &[String], turn: u64) -> Vec<&String> {
    let mut chosen: Vec<&String> = Vec::new();
    for full in trials {
        let name = Name::of(full);
        let is_chosen = chosen
            .iter()
            .any(|other| Name::of(other).subject == name.subject);
        if is_chosen || FULL_ONLY.contains(&name.subject) {
            continue;
        }
        let in_turn = trials.iter().find(|other| {
            let other = Name::of(other);
            (other.subject, other.rest) == (name.subject, name.rest)
                && other.server == Some(SERVERS[(turn % 2) as usize])
        });
        chosen.push(in_turn.unwrap_or(full));
    }
    chosen
}

/// Steps for the trials of all programs.
pub fn chosen(programs: &Programs, choice: &Choice) -> Vec<Step> {
    let mut steps = Vec::new();
    for program in programs.tests() {
        for trial in choice.takes_of(&program.trials) {
            let arguments = ["--exact", trial, "--test-threads", "1"];
            // The share of reads that a cache answers falls when its server has no processor. The flood takes both processors,
            // and the documented times of answers are compared.
            let name = Name::of(trial);
            let load = match (name.subject, name.rest) {
                ("file_systems", _) | ("console", "checks_are_answered_beside_a_flood") => {
                    Load::Alone
                }
                _ => Load::Third,
            };
            let step = programs.step(program, trial.clone(), &arguments).load(load);
            steps.push(Step {
                is_canary: is_canary(trial),
                ..step
            });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Vec<String> {
        let mut names = Vec::new();
        for name in [
            "truncate",
            "rename",
            "import",
            "indexes",
            "a_stale_page_is_noticed",
        ] {
            for server in SERVERS {
                names.push(format!("ddl::{server}::{name}"));
                names.push(format!("faults::{server}::{name}"));
            }
        }
        names.push("ddl::without_a_server".into());
        names
    }

    #[test]
    fn one_trial_of_each_subject_on_the_servers_in_turn() {
        let names = listed();
        for (turn, server) in [(0, "mariadb-10.11"), (1, "mysql-9.7"), (2, "mariadb-10.11")] {
            let chosen = Choice::One { turn }.takes_of(&names);
            let expected = [
                format!("ddl::{server}::truncate"),
                format!("faults::{server}::truncate"),
            ];
            assert_eq!(chosen, expected.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn six_turns_in_a_row_run_every_trial_that_the_full_tier_runs() {
        let names = listed();
        let seen: Vec<&String> = (12..18)
            .flat_map(|turn| {
                Choice::Sixth {
                    turn,
                    all_canaries: false,
                }
                .takes_of(&names)
            })
            .collect();
        let all = Choice::All { turn: 2 };
        for name in all.takes_of(&names) {
            assert!(seen.contains(&name), "{name}");
        }
    }

    #[test]
    fn server_independent_trials_alternate_between_servers() {
        let names = listed();
        let of = |turn| -> Vec<String> {
            let all = Choice::All { turn }.takes_of(&names);
            all.into_iter()
                .filter(|name| name.starts_with("faults"))
                .cloned()
                .collect()
        };
        let (once, again) = (of(7), of(8));
        assert_eq!((once.len(), again.len()), (5, 5));
        assert!(once.iter().all(|name| !again.contains(name)));
    }

    #[test]
    fn canaries_run_when_coherence_changed() {
        let names = listed();
        for turn in 0..6 {
            let chosen = Choice::Sixth {
                turn,
                all_canaries: true,
            }
            .takes_of(&names);
            assert!(
                names
                    .iter()
                    .filter(|name| is_canary(name))
                    .all(|name| chosen.contains(&name))
            );
        }
    }
}
