//! Rewrites messages of the command for a page, where a form field is not an option.

use crate::support::failure::Failure;

/// Rewrites a message of the command for a page, where a form field is not an option.
pub fn as_on_a_form(text: &str) -> String {
    let mut said = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("--") {
        let (before, option) = rest.split_at(at);
        said.push_str(before);
        // Only whole words: `--state-dir` and similar names are options of the console, too.
        let begins = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        let field = ["--path", "--size"].into_iter().find(|name| {
            begins
                && option.strip_prefix(name).is_some_and(|after| {
                    !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_')
                })
        });
        let length = field.map_or(2, str::len);
        said.push_str(&option[if field.is_some() { 2 } else { 0 }..length]);
        rest = &option[length..];
    }
    said.push_str(rest);
    said
}

/// Rewrites several messages.
pub fn on_a_form(texts: Vec<String>) -> Vec<String> {
    texts.iter().map(|text| as_on_a_form(text)).collect()
}

/// Rewrites all messages of a failure.
pub fn failure_on_a_form(mut failure: Failure) -> Failure {
    failure.what = as_on_a_form(&failure.what);
    failure.advice = failure.advice.map(|advice| as_on_a_form(&advice));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_fields_and_no_options() {
        for (said, shown) in [
            ("--path: it is empty", "path: it is empty"),
            ("--path /mnt: is no folder", "path /mnt: is no folder"),
            ("give a --size of at most 5", "give a size of at most 5"),
            (
                "with the same --path and --size",
                "with the same path and size",
            ),
            ("(--size), --path", "(size), path"),
            ("no more --size", "no more size"),
            // Not an option of the form, or no option at all.
            (
                "another folder with --state-dir",
                "another folder with --state-dir",
            ),
            ("--path-of --sizes", "--path-of --sizes"),
            ("/mnt/a--path --", "/mnt/a--path --"),
            ("---size", "---size"),
        ] {
            assert_eq!(as_on_a_form(said), shown, "{said}");
        }
    }
}
