//! `bpe verify`: compares cached pages of a live server with its data files, and reports the number of differences, which must be 0.
//!
//! The plugin compares a bounded number of pages per request (`bpe_report('verify-next ...')`). This command repeats
//! the request until all open files are complete. Cached pages of closed files are not compared.

use std::path::PathBuf;
use std::process::ExitCode;

use interface::untrusted::visible_json;
use serde_json::Value;

use crate::commands::rescue::Rescue;
use crate::commands::walk::Walk;
use crate::connect;
use crate::connect::report;
use crate::connect::server::Server;
use crate::connect::state::is_on;
use crate::support::failure::{Exit, Failure};
use crate::support::progress_line::ProgressLine;
use crate::support::terminal::{complain, say};

/// Maximum number of wrong pages listed.
const MAX_LISTED: usize = 20;
/// Maximum number of requests. The server compares for 0.2 s in each: more than a month.
const MAX_REQUESTS: u32 = 1 << 24;

#[derive(clap::Args)]
pub struct Args {
    /// Percentage of the pages to compare
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    sample: u32,
    /// Save the cached copies of pages that are damaged in the data files, in this folder, which is made
    #[arg(long, value_name = "DIRECTORY")]
    save_pages: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: connect::Args,
}

#[derive(Default)]
struct Sums {
    compared: u64,
    skipped: u64,
    unproven: u64,
    wrong: u64,
    damaged: u64,
    pages: Vec<Value>,
    damaged_pages: Vec<Value>,
    /// Cached pages of closed files; `None` if unknown.
    not_open: Option<u64>,
}

impl Sums {
    fn add(&mut self, answer: &Value) {
        let add = |sum: &mut u64, name: &str| {
            *sum = sum.saturating_add(answer[name].as_u64().unwrap_or(0));
        };
        add(&mut self.compared, "compared");
        add(&mut self.skipped, "skipped");
        add(&mut self.unproven, "unproven");
        add(&mut self.wrong, "wrong");
        add(&mut self.damaged, "damaged");
        let list = |name: &str, listed: &mut Vec<Value>| {
            let pages = answer[name].as_array().into_iter().flatten();
            listed.extend(pages.take(MAX_LISTED.saturating_sub(listed.len())).cloned());
        };
        list("pages", &mut self.pages);
        list("damaged_pages", &mut self.damaged_pages);
    }

    /// Pages that were just being written or moved.
    fn left_out(&self) -> u64 {
        self.skipped.saturating_add(self.unproven)
    }

    fn json(&self) -> Value {
        serde_json::json!({
            "compared": self.compared,
            "skipped": self.skipped,
            "unproven": self.unproven,
            "wrong": self.wrong,
            "damaged": self.damaged,
            "pages": self.pages,
            "damaged_pages": self.damaged_pages,
            "not_open": self.not_open,
        })
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut server = Server::connect(&args.connection)?;
    report::require_plugin(&mut server)?;
    let status = server.status("bpe\\_%")?;
    let state = status.get("bpe_state").cloned().unwrap_or_default();
    if !is_on(&state) {
        let reason = status.get("bpe_state_reason").cloned().unwrap_or_default();
        let why = if reason.is_empty() {
            String::new()
        } else {
            format!(" ({reason})")
        };
        return Err(Failure::refused(format!(
            "the extension is {state}{why}: there is nothing to compare"
        ))
        .advise("switch it on with SET GLOBAL bpe_enabled = ON, and let it fill")
        .into());
    }
    let cached = status.get("bpe_pages_cached").and_then(|n| n.parse().ok());
    let mut rescue = args.save_pages.as_deref().map(Rescue::begin).transpose()?;
    let compared = ask(&mut server, &args, cached.unwrap_or(0), rescue.as_mut());
    // A failed comparison lists the saved pages, too.
    let saved = rescue.map(Rescue::end).transpose()?;
    let mut sums = compared?;
    if args.sample == 100 {
        sums.not_open = pages_of_closed_files(&mut server, &sums)?;
    }
    if args.json {
        say!("{}", visible_json(&sums.json().to_string()));
    } else {
        print(&sums, saved);
    }
    let is_well = sums.wrong == 0 && sums.damaged == 0;
    Ok(if is_well { Exit::Ok } else { Exit::No }.into())
}

/// Estimates the number of cached pages of closed files. It is inexact, because the server opens and closes files during the comparison.
fn pages_of_closed_files(server: &mut Server, sums: &Sums) -> Result<Option<u64>, Failure> {
    let status = server.status("bpe\\_pages\\_cached")?;
    let cached: Option<u64> = status
        .get("bpe_pages_cached")
        .and_then(|text| text.parse().ok());
    let seen = sums.compared.saturating_sub(sums.wrong);
    let seen = seen.saturating_add(sums.left_out());
    Ok(cached.map(|cached| cached.saturating_sub(seen)))
}

fn ask(
    server: &mut Server,
    args: &Args,
    cached: u64,
    mut rescue: Option<&mut Rescue>,
) -> Result<Sums, Failure> {
    let every = 100 / args.sample;
    let expected = cached / u64::from(every);
    let template = "{spinner} {elapsed_precise} {bar:20.cyan/dim} {pos} of about {len} pages";
    let mut progress = ProgressLine::new(expected, template);
    let mut sums = Sums::default();
    // Test with another report first: if the function is missing, its error has the right advice.
    report::ask(server, "summary", "cannot verify")?;
    let mut argument = format!("verify-start {every}");
    let mut walk = Walk::new(MAX_REQUESTS);
    loop {
        let answer = report::ask(server, &argument, "cannot verify")?;
        if let Some(why) = answer["error"].as_str() {
            return Err(Failure::step(format!("the verification stopped: {why}")));
        }
        sums.add(&answer);
        let name = argument.split(' ').nth(1).unwrap_or_default().to_owned();
        if let Some(rescue) = &mut rescue {
            for page in answer["damaged_pages"].as_array().into_iter().flatten() {
                rescue.fetch(server, &name, page)?;
            }
        }
        let compared = sums.compared;
        progress.show(Some(compared), "", || {
            format!("{compared} of about {expected} pages")
        });
        match answer["next"].as_str() {
            Some(next) if goes_on(&mut walk, next) => next.clone_into(&mut argument),
            Some(_) => return Err(Failure::step("the server's answer cannot be understood")),
            None => {
                // The server has already ended it, unless it found damaged pages.
                report::ask(server, &format!("verify-stop {name}"), "cannot end")?;
                return Ok(sums);
            }
        }
    }
}

/// Whether this is a request that continues the walk: `verify-next NAME FILE PAGE`. It becomes part of the next statement.
fn goes_on(walk: &mut Walk, next: &str) -> bool {
    let words: Vec<_> = next.split(' ').take(5).collect();
    let is_name = |name: &str| name.len() <= 32 && name.bytes().all(|b| b.is_ascii_alphanumeric());
    match words[..] {
        ["verify-next", name, file, page] => is_name(name) && walk.goes_on(file, page),
        _ => false,
    }
}

fn print(sums: &Sums, saved: Option<(usize, u64)>) {
    say!(
        "Compared    {} cached pages of open files with the data files",
        sums.compared
    );
    say!(
        "Left out    {} that were just being written or moved",
        sums.left_out()
    );
    if let Some(not_open) = sums.not_open {
        say!(
            "Not open    about {not_open} cached pages are of files that the server does not have open now"
        );
    }
    print_damaged(sums, saved);
    if sums.wrong == 0 {
        say!("Different   none");
        return;
    }
    say!(
        "Different   {} - they were dropped from the cache",
        sums.wrong
    );
    list(&sums.pages);
    complain!(
        "bpe: the cache held pages that differ from the data files. This must never happen: switch the extension off \
         (SET GLOBAL bpe_enabled = OFF), check your tables, and report it."
    );
}

/// Prints a line for each page of an answer.
fn list(pages: &[Value]) {
    for page in pages {
        say!(
            "            page {} of {}",
            page["page"],
            page["file"].as_str().unwrap_or("?")
        );
    }
}

fn print_damaged(sums: &Sums, saved: Option<(usize, u64)>) {
    if let Some((pages, gone)) = saved.filter(|saved| saved.0 + saved.1 as usize > 0) {
        let gone = match gone {
            0 => String::new(),
            gone => format!("; {gone} were no longer cached"),
        };
        say!("Saved       {pages} pages, listed in pages.json{gone}");
    }
    if sums.damaged == 0 {
        return;
    }
    say!(
        "Damaged     {} in the data files, whole in the cache, which keeps them",
        sums.damaged
    );
    list(&sums.damaged_pages);
    let advice = if saved.is_some() {
        "Copy the tables (mysqldump) before the server is restarted"
    } else {
        "Save the pages (bpe verify --save-pages DIRECTORY), and copy the tables (mysqldump), before the server is restarted"
    };
    complain!(
        "bpe: the data disk has damaged pages, which the cache has whole. {advice}. What to do then: docs/user/operate.md"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::rogue;

    #[test]
    fn endless_verification_ends() {
        let mut case = rogue::Case::harmless();
        let harmless = case.answer.clone();
        case.answer = std::sync::Arc::new(move |statement: &str| match statement {
            _ if statement.contains("bpe_report") => {
                let next = r#"{"compared": 1, "next": "verify-next a1 3 0"}"#;
                rogue::rows(1, &[&[next]])
            }
            _ => harmless(statement),
        });
        let (_folder, connection) = case.start();
        let args = Args {
            sample: 100,
            save_pages: None,
            json: false,
            connection,
        };
        let mut server = Server::connect(&args.connection).unwrap();
        let failure = ask(&mut server, &args, 1, None).map(drop).unwrap_err();
        assert!(failure.what.contains("cannot be understood"), "{failure}");
    }

    #[test]
    fn next_request_is_a_place() {
        let mut walk = Walk::new(10);
        for (next, is_place) in [
            ("verify-next 00ff 0 0", true),
            ("verify-next 00ff 3 64", true),
            ("verify-next 00ff 3", false),
            ("verify-next 00ff 3 65 1", false),
            ("verify-next a' 3 66", false),
            ("verify-page 00ff 3 67", false),
            ("", false),
        ] {
            assert_eq!(goes_on(&mut walk, next), is_place, "{next}");
        }
    }

    #[test]
    fn answers_add_up() {
        let mut sums = Sums::default();
        let pages: Vec<Value> = (0..15).map(|n| serde_json::json!({"page": n})).collect();
        let answer = serde_json::json!({
            "compared": 10, "skipped": 1, "unproven": 2, "wrong": 15, "pages": pages, "damaged": 1,
            "damaged_pages": [{"file": "./d/t.ibd", "number": 1, "page": 7}], "next": null
        });
        sums.add(&answer);
        sums.add(&answer);
        assert_eq!((sums.compared, sums.skipped), (20, 2));
        assert_eq!((sums.unproven, sums.wrong), (4, 30));
        assert_eq!(sums.pages.len(), MAX_LISTED);
        assert_eq!((sums.damaged, sums.damaged_pages.len()), (2, 2));
        sums.add(&Value::Null);
        assert_eq!(sums.json()["compared"], 20);
        sums.add(&serde_json::json!({"compared": u64::MAX, "skipped": u64::MAX}));
        assert_eq!((sums.compared, sums.left_out()), (u64::MAX, u64::MAX));
    }
}
