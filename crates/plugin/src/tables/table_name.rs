//! Maps the path of a data file to its table.
//!
//! A table, or a partition, has a data file in the directory of its schema: `./schema/table.ibd`, or
//! `/elsewhere/schema/table.ibd` with `DATA DIRECTORY`. Both names use the servers' character set `filename`. ASCII letters,
//! digits and `_` stay; other characters become `@` with four hexadecimal digits, or with two characters for some
//! letters ([`filename_charset`]). Partitions follow after `#p#` and `#sp#`, in upper case on MariaDB.
//!
//! The system tablespace, undo and general tablespaces are in no schema's directory and belong to no single table. The same
//! holds for the files of a DDL statement in progress (`#sql...`).

use std::path::Path;

mod filename_charset;

/// A table, by its SQL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// Schema (database).
    pub schema: String,
    /// Table.
    pub table: String,
    /// Partition, and its subpartition after a colon.
    pub partition: Option<String>,
}

/// Returns the table of the file at this path; `None` for other files. A relative path is below the data directory, which is
/// a server's working directory.
pub fn of_path(path: &str) -> Option<TableName> {
    let is_folder = |name: &str| Path::new(".").join(name).is_dir();
    let here = std::env::current_dir().unwrap_or_default();
    with_schemas(path, &here.to_string_lossy(), &is_folder)
}

/// `here` is the data directory. `is_schema` tells whether the data directory has a subdirectory of that name: a general
/// tablespace may be in any directory outside.
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

/// Decodes a file name to the SQL name. Invalid sequences stay unchanged.
fn decoded(name: &str) -> String {
    // Names that some systems reserve (con, aux, ...) have a marker.
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

/// Returns the character encoded after an `@`, and the length of its code in bytes.
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
    Some((filename_charset::letter(*first, *second)?, 2))
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
    fn tables_are_distinguished_from_other_files() {
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
        // The file name that MariaDB 10.11 and MySQL 9.7 give this table.
        assert_eq!(
            found("./d/gr@1i@1je@0020con@002d1@0020@65e5@672c@0020@1y.ibd"),
            table("d", "größe con-1 日本 č")
        );
        assert_eq!(found("./d/@65e5@672c.ibd"), table("d", "日本"));
        assert_eq!(found("./d/con@@@.ibd"), table("d", "con"));
        // Invalid encodings stay unchanged.
        assert_eq!(found("./d/a@b.ibd"), table("d", "a@b"));
        assert_eq!(found("./d/a@.ibd"), table("d", "a@"));
        assert_eq!(found("./d/a@é.ibd"), table("d", "a@é"));
        assert_eq!(found("./d/a@d800.ibd"), table("d", "a@d800"));
    }

    #[test]
    fn letters_have_two_characters() {
        assert_eq!(decoded("@0GB@0s@1j"), "ÀBìß");
        assert_eq!(filename_charset::letter(b'z', b'z'), None);
        assert_eq!(filename_charset::letter(b'@', b'A'), Some('Ⓐ'));
    }
}
