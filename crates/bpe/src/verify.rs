//! `bpe verify`: compares the cached pages of a live server with its data files, and says how many differ: none may.
//!
//! The plugin compares (`bpe_report('verify-next ...')`), a bounded number of pages at a time; this asks until all files have
//! been gone through.

use std::process::ExitCode;

use interface::untrusted::visible_json;
use serde_json::Value;

use crate::connection;
use crate::diagnostics;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::report;
use crate::server::Server;
use crate::state::is_on;
use crate::terminal::{complain, say};

/// Wrong pages that are listed.
const LISTED: usize = 20;

#[derive(clap::Args)]
pub struct Args {
    /// Percentage of the pages to compare
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    sample: u32,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: connection::Args,
}

#[derive(Default)]
struct Sums {
    compared: u64,
    skipped: u64,
    unproven: u64,
    wrong: u64,
    pages: Vec<Value>,
}

impl Sums {
    fn add(&mut self, answer: &Value) {
        let number = |name: &str| answer[name].as_u64().unwrap_or(0);
        self.compared += number("compared");
        self.skipped += number("skipped");
        self.unproven += number("unproven");
        self.wrong += number("wrong");
        let pages = answer["pages"].as_array().into_iter().flatten();
        self.pages
            .extend(pages.take(LISTED.saturating_sub(self.pages.len())).cloned());
    }

    fn json(&self) -> Value {
        serde_json::json!({
            "compared": self.compared,
            "skipped": self.skipped,
            "unproven": self.unproven,
            "wrong": self.wrong,
            "pages": self.pages,
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
    let sums = ask(&mut server, &args, cached.unwrap_or(0))?;
    if args.json {
        say!("{}", visible_json(&sums.json().to_string()));
    } else {
        print(&sums);
    }
    Ok(if sums.wrong == 0 { Exit::Ok } else { Exit::No }.into())
}

fn ask(server: &mut Server, args: &Args, cached: u64) -> Result<Sums, Failure> {
    let every = 100 / args.sample;
    let expected = cached / u64::from(every);
    let template = "{spinner} {elapsed_precise} {bar:20.cyan/dim} {pos} of about {len} pages";
    let mut progress = Progress::new(expected, template);
    let mut sums = Sums::default();
    // First the function is asked for, whose absence has another advice.
    report::ask(server, "summary", "cannot verify")?;
    let key = diagnostics::key(server, "verifying")?;
    let mut argument = format!("verify-start {key} {every}");
    loop {
        let answer = report::ask(server, &argument, "cannot verify")?;
        if let Some(why) = answer["error"].as_str() {
            return Err(Failure::step(format!("the verification stopped: {why}")));
        }
        sums.add(&answer);
        let compared = sums.compared;
        progress.show(Some(compared), "", || {
            format!("{compared} of about {expected} pages")
        });
        match answer["next"].as_str() {
            // It goes into the next statement.
            Some(next)
                if next
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b" -".contains(&b)) =>
            {
                next.clone_into(&mut argument);
            }
            Some(_) => return Err(Failure::step("the server's answer cannot be understood")),
            None => return Ok(sums),
        }
    }
}

fn print(sums: &Sums) {
    say!(
        "Compared    {} cached pages with the data files",
        sums.compared
    );
    say!(
        "Left out    {} that were just being written or moved",
        sums.skipped + sums.unproven
    );
    if sums.wrong == 0 {
        say!("Different   none");
        return;
    }
    say!(
        "Different   {} - they were dropped from the cache",
        sums.wrong
    );
    for page in &sums.pages {
        say!(
            "            page {} of {}",
            page["page"],
            page["file"].as_str().unwrap_or("?")
        );
    }
    complain!(
        "bpe: the cache held pages that differ from the data files. This must never happen: switch the extension off \
         (SET GLOBAL bpe_enabled = OFF), check your tables, and report it."
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_add_up() {
        let mut sums = Sums::default();
        let pages: Vec<Value> = (0..15).map(|n| serde_json::json!({"page": n})).collect();
        let answer = serde_json::json!({
            "compared": 10, "skipped": 1, "unproven": 2, "wrong": 15, "pages": pages, "next": null
        });
        sums.add(&answer);
        sums.add(&answer);
        assert_eq!((sums.compared, sums.skipped), (20, 2));
        assert_eq!((sums.unproven, sums.wrong), (4, 30));
        assert_eq!(sums.pages.len(), LISTED);
        sums.add(&Value::Null);
        assert_eq!(sums.json()["compared"], 20);
    }
}
