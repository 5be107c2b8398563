//! Options of a user's sysbench script: only options that the script declares.
//!
//! sysbench has many more options. Some would redirect it to another server or make it read a file (`--config-file`). Its
//! command `help` lists a script's declared options.

use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use private_server::process;

/// Maximum number of options in a run.
const MOST: usize = 16;
/// Maximum bytes of a name, and of a value.
const LONGEST: usize = 64;
/// Characters allowed in a value besides letters and digits. Without `/`, so that none is a path.
const IN_VALUES: &str = "._-+,:";
/// Timeout of `help`, which executes the script's outermost statements.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of the checks whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum bytes of its answer.
const ANSWER: u64 = 1 << 20;

/// Converts a requested `name=value` to a sysbench option. A leading `--` of the name is optional.
///
/// # Errors
/// The first invalid option, and its error.
pub fn check(given: &[String]) -> Result<Vec<String>, String> {
    if given.len() > MOST {
        return Err(format!("at most {MOST} options are allowed"));
    }
    given
        .iter()
        .map(|option| {
            let (name, value) = option
                .strip_prefix("--")
                .unwrap_or(option)
                .split_once('=')
                .ok_or_else(|| format!("`{option}` is not an option: write name=value"))?;
            let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c));
            let is_value = value
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || IN_VALUES.contains(c));
            if !is_name || name.len() > LONGEST {
                return Err(format!("`{name}` is no name of an option"));
            }
            if !is_value || value.is_empty() || value.len() > LONGEST {
                return Err(format!(
                    "the value of `{name}` may have only letters, digits and {IN_VALUES}, at most {LONGEST} of them"
                ));
            }
            Ok(format!("--{name}={value}"))
        })
        .collect()
}

/// Rejects an option that the script does not declare.
///
/// # Errors
/// The error lists the declared options.
pub fn expect(options: &[String], declared: &[String]) -> Result<(), String> {
    // sysbench treats both as equal.
    let plain = |name: &str| name.replace('-', "_");
    for option in options {
        let name = option.trim_start_matches("--");
        let name = name.split_once('=').map_or(name, |(name, _)| name);
        if !declared.iter().any(|one| plain(one) == plain(name)) {
            return Err(if declared.is_empty() {
                format!("the script declares no options, so it has no `{name}`")
            } else {
                format!(
                    "the script declares no option `{name}`; it has {}",
                    declared.join(", ")
                )
            });
        }
    }
    Ok(())
}

/// Returns the names of the script's declared options. A script without options has no `help`.
///
/// # Errors
/// sysbench cannot load the script; the error has its message.
pub fn declared(sysbench: &Path, folder: &Path, script: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("cannot ask sysbench for its options: {error}");
    // Not a pipe: it could fill up, or the script's child processes could keep it open.
    let mut output = tempfile::tempfile().map_err(failed)?;
    let mut command = Command::new(sysbench);
    command
        .arg(script)
        .arg("help")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(output.try_clone().map_err(failed)?);
    let mut child = process::spawn(command, libc::SIGKILL).map_err(failed)?;
    let end = Instant::now() + PATIENCE;
    let mut over = None;
    while over.is_none() && !process::has_exited(&child) {
        std::thread::sleep(LOOK);
        let printed = output.metadata().map_or(0, |meta| meta.len());
        if printed > ANSWER {
            over = Some(format!("printed more than {ANSWER} bytes"));
        } else if Instant::now() > end {
            over = Some(format!("had not ended after {} s", PATIENCE.as_secs()));
        }
    }
    let status = process::end_group(&mut child, Duration::ZERO).map_err(failed)?;
    if let Some(over) = over {
        return Err(format!(
            "asked for its options (sysbench's command help), the script {over}, and was killed"
        ));
    }
    let mut text = Vec::new();
    output.rewind().map_err(failed)?;
    output.take(ANSWER).read_to_end(&mut text).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    if text.contains("does not implement the 'help' command") {
        return Ok(Vec::new());
    }
    if !status.success() {
        let why: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("sysbench "))
            .take(3)
            .collect();
        return Err(format!(
            "sysbench cannot load the script ({status}): {}",
            why.join("; ")
        ));
    }
    Ok(names(&text))
}

/// Parses the part `x.lua options:`, with lines such as `  --tables=N   Number of tables [1]` or `  --flag[=on|off]  ...`.
fn names(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| !line.ends_with(" options:"))
        .skip(1)
        .map_while(|line| line.strip_prefix("  --"))
        .filter_map(|line| {
            let end = line.find(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c))?;
            Some(line[..end].to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn options_are_names_and_plain_values() {
        let good = of(&[
            "tables=4",
            "--table-size=1000",
            "mode=a.b,c:d+e-f_g",
            "x=-1",
        ]);
        assert_eq!(
            check(&good).unwrap(),
            [
                "--tables=4",
                "--table-size=1000",
                "--mode=a.b,c:d+e-f_g",
                "--x=-1"
            ]
        );
        for wrong in [
            "tables",
            "=4",
            "tables=",
            "Tables=4",
            "ta bles=4",
            "--=1",
            "-x=1",
            "x=/etc/passwd",
            "x=a b",
            "x=a\nb",
            "x=$HOME",
            "x=\u{6771}",
            "x=a;b",
        ] {
            assert!(check(&of(&[wrong])).is_err(), "{wrong}");
        }
        assert!(check(&of(&["x=1"; MOST])).is_ok());
        assert!(check(&of(&["x=1"; MOST + 1])).is_err());
        assert!(check(&[format!("x={}", "1".repeat(LONGEST + 1))]).is_err());
    }

    #[test]
    fn a_script_that_does_not_say_its_options_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("own.lua");
        let declared = |text: &str| {
            std::fs::write(&script, text).unwrap();
            // The shell receives `help` as its argument.
            declared(Path::new("/bin/sh"), folder.path(), &script)
        };
        let help = "echo; echo 'own.lua options:'; echo '  --rows=N  Rows [1]'";
        assert_eq!(declared(help).unwrap(), ["rows"]);
        let why = declared("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done").unwrap_err();
        assert!(why.contains("printed more than"), "{why}");
        let why = declared("echo wrong; exit 3").unwrap_err();
        assert!(
            why.contains("cannot load the script") && why.contains("wrong"),
            "{why}"
        );
    }

    #[test]
    fn only_declared_options_go_to_sysbench() {
        let help = "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

own.lua options:
  --flag[=on|off]    A flag [off]
  --table-size=N     Rows, see --config-file [10000]
  --words=[LIST,...] Words [a,b]

";
        let declared = names(help);
        assert_eq!(declared, ["flag", "table-size", "words"]);
        let expect = |name: &str| expect(&check(&of(&[name])).unwrap(), &declared);
        assert!(expect("flag=on").is_ok() && expect("table_size=3").is_ok());
        for name in ["config-file", "mysql-host", "threads", "time", "tables"] {
            let why = expect(&format!("{name}=1")).unwrap_err();
            assert!(why.contains("it has flag, table-size, words"), "{why}");
        }
        assert!(names("sysbench 1.0.20\n\n").is_empty());
        assert!(super::expect(&of(&["--x=1"]), &[]).is_err());
    }
}
