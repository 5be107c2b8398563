//! Which table a data file belongs to, by its path.
//!
//! A table, or a partition of one, lies in a file of its own in the folder of its schema: `./schema/table.ibd`, or
//! `/elsewhere/schema/table.ibd` with `DATA DIRECTORY`. Both names are written in the servers' character set `filename`:
//! ASCII letters, digits and `_` as they are, everything else as `@` with four hexadecimal digits, or with two characters for
//! some [`letters`]. Partitions follow after `#p#` and `#sp#`, in upper case on MariaDB.
//!
//! The system tablespace, undo and general tablespaces lie in no schema's folder and belong to no single table; nor do the
//! files of a change under way (`#sql...`).

use std::path::Path;

mod letters;

/// A table, by the names SQL knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// Schema (database).
    pub schema: String,
    /// Table.
    pub table: String,
    /// Partition, and after a colon its subpartition.
    pub partition: Option<String>,
}

/// The table that the file of this path belongs to; `None` for files of no table. A relative path is one below the data
/// directory, which is the current directory of a server.
pub fn of_path(path: &str) -> Option<TableName> {
    let is_folder = |name: &str| Path::new(".").join(name).is_dir();
    let here = std::env::current_dir().unwrap_or_default();
    with_schemas(path, &here.to_string_lossy(), &is_folder)
}

/// `here` is the data directory, `is_schema` whether it has a folder of that name: a general tablespace may lie in any
/// folder outside.
fn with_schemas(path: &str, here: &str, is_schema: &dyn Fn(&str) -> bool) -> Option<TableName> {
    let (folder, file) = path.strip_suffix(".ibd")?.rsplit_once('/')?;
    if folder == here {
        return None;
    }
    let (above, schema) = match folder.rsplit_once('/') {
        Some((above, schema)) => (above, schema),
        None => (".", folder),
    };
    if matches!(schema, "" | "." | "..") || (above != "." && above != here && !is_schema(schema)) {
        return None;
    }
    let mut parts = file.split('#');
    let table = decoded(parts.next().filter(|table| !table.is_empty())?);
    let mut partition: Option<String> = None;
    while let (Some(kind), Some(name)) = (parts.next(), parts.next()) {
        match (kind.to_ascii_lowercase().as_str(), &mut partition) {
            ("p", None) => partition = Some(decoded(name)),
            ("sp", Some(partition)) => {
                partition.push(':');
                partition.push_str(&decoded(name));
            }
            _ => {}
        }
    }
    Some(TableName {
        schema: decoded(schema),
        table,
        partition,
    })
}

/// A name as SQL knows it. What is not well encoded stays as it is.
fn decoded(name: &str) -> String {
    // Names that some systems reserve (con, aux, ...) are marked.
    let name = name.strip_suffix("@@@").unwrap_or(name);
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('@') {
        text.push_str(before);
        let (letter, length) = encoded(after).unwrap_or(('@', 0));
        text.push(letter);
        rest = &after[length..];
    }
    text.push_str(rest);
    text
}

/// The character after an `@`, and how many bytes tell it.
fn encoded(after: &str) -> Option<(char, usize)> {
    let hexadecimal = after
        .get(..4)
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .and_then(char::from_u32);
    if let Some(character) = hexadecimal {
        return Some((character, 4));
    }
    let [first, second, ..] = after.as_bytes() else {
        return None;
    };
    Some((letters::letter(*first, *second)?, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str) -> Option<(String, String, Option<String>)> {
        let is_schema = |name: &str| ["d", "mysql", "shop@002d1"].contains(&name);
        with_schemas(path, "/var/lib/mysql", &is_schema)
            .map(|name| (name.schema, name.table, name.partition))
    }

    fn table(schema: &str, table: &str) -> Option<(String, String, Option<String>)> {
        Some((schema.into(), table.into(), None))
    }

    #[test]
    fn tables_are_told_from_the_rest() {
        assert_eq!(found("./d/t.ibd"), table("d", "t"));
        assert_eq!(found("d/t.ibd"), table("d", "t"));
        assert_eq!(found("./other/t.ibd"), table("other", "t"));
        assert_eq!(found("/var/lib/mysql/d/t.ibd"), table("d", "t"));
        assert_eq!(found("/mnt/more/d/t.ibd"), table("d", "t"));
        for other in [
            "./ibdata1",
            "/mnt/sys/d/ibdata2",
            "./undo_001",
            "./undo001",
            "./u.ibu",
            "./mysql.ibd",
            "mysql.ibd",
            "./general.ibd",
            "../elsewhere/general.ibd",
            "/var/lib/mysql/general.ibd",
            "/mnt/spaces/general.ibd",
            "./d/#sql-ib12-34.ibd",
            "./d/#sql-alter-1-2.ibd",
            "",
            "/",
            ".ibd",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn partitions_are_named() {
        let partition = |name: &str| Some(("d".into(), "t".into(), Some(name.into())));
        assert_eq!(found("./d/t#P#p0.ibd"), partition("p0"));
        assert_eq!(found("./d/t#p#p0.ibd"), partition("p0"));
        assert_eq!(found("./d/t#p#p0#tmp.ibd"), partition("p0"));
        assert_eq!(found("./d/t#P#north@002d1.ibd"), partition("north-1"));
        assert_eq!(found("./d/t#p#p0#sp#p0sp1.ibd"), partition("p0:p0sp1"));
        assert_eq!(found("./d/t#P#p0#SP#p0sp1.ibd"), partition("p0:p0sp1"));
    }

    #[test]
    fn names_are_decoded() {
        assert_eq!(
            found("./shop@002d1/a@0020b@0023c@0040d.ibd"),
            table("shop-1", "a b#c@d")
        );
        // As MariaDB 10.11 and MySQL 9.7 name this table's file.
        assert_eq!(
            found("./d/gr@1i@1je@0020con@002d1@0020@65e5@672c@0020@1y.ibd"),
            table("d", "größe con-1 日本 č")
        );
        assert_eq!(found("./d/@65e5@672c.ibd"), table("d", "日本"));
        assert_eq!(found("./d/con@@@.ibd"), table("d", "con"));
        // Not well encoded: shown as it is.
        assert_eq!(found("./d/a@b.ibd"), table("d", "a@b"));
        assert_eq!(found("./d/a@.ibd"), table("d", "a@"));
        assert_eq!(found("./d/a@é.ibd"), table("d", "a@é"));
        assert_eq!(found("./d/a@d800.ibd"), table("d", "a@d800"));
    }

    #[test]
    fn letters_have_two_characters() {
        assert_eq!(decoded("@0GB@0s@1j"), "ÀBìß");
        assert_eq!(letters::letter(b'z', b'z'), None);
        assert_eq!(letters::letter(b'@', b'A'), Some('Ⓐ'));
    }
}
