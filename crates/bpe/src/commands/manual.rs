//! Shell completions and manual pages, generated from clap's definitions.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

use crate::support::failure::{Exit, Failure};

#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(clap::Args)]
pub struct ManArgs {
    /// Folder for the pages; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub fn completions(args: CompletionsArgs, mut command: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    // A closed pipe is no failure.
    let _ = io::stdout().write_all(&script);
    Ok(Exit::Ok.into())
}

/// Writes `COMMAND.1`, and `COMMAND-NAME.1` for every subcommand.
pub fn pages(args: ManArgs, command: Command) -> anyhow::Result<ExitCode> {
    let failed = |error: io::Error| {
        let what = format!(
            "cannot write manual pages to {}: {error}",
            args.out.display()
        );
        Failure::new(Exit::Failed, what)
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "whoever builds the product writes its pages"
    )]
    fs::create_dir_all(&args.out).map_err(failed)?;
    clap_mangen::generate_to(command, &args.out).map_err(failed)?;
    Ok(Exit::Ok.into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Cli;

    #[test]
    fn every_subcommand_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("man");
        pages(ManArgs { out: out.clone() }, Cli::command()).unwrap();
        for (page, words) in [
            ("bpe", "bpe\\-status(1)"),
            ("bpe-status", "explain"),
            ("bpe-top", "interval"),
            ("bpe-doctor", "server\\-binary"),
        ] {
            let text = fs::read_to_string(out.join(format!("{page}.1"))).unwrap();
            assert!(text.contains(words), "{words} is missing in\n{text}");
        }
        let all = fs::read_dir(&out).unwrap().count();
        let subcommands = Cli::command().get_subcommands().count();
        assert!(all > subcommands, "{all} pages"); // some have subcommands of their own
    }

    #[test]
    fn completions_know_the_subcommands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "bpe", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["enable", "--explain", "top", "server-binary"] {
                assert!(
                    script.contains(word.trim_start_matches('-')),
                    "{shell}: {word}"
                );
            }
        }
    }
}
