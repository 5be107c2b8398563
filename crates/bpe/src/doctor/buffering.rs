//! Whether the server reads its data files through the operating system's page cache.
//!
//! Pages there are read at memory speed, which neither the server's counters nor a hit ratio show. `fsync` is the
//! default of `innodb_flush_method` in MySQL before 8.4 and MariaDB before 10.6.

use super::finding::Finding;
use crate::connect::server::Server;

pub fn page_cache(server: &mut Server) -> Option<Finding> {
    let mut value = |name: &str| server.variable(name).ok().flatten();
    judge(
        value("innodb_data_file_buffering").as_deref(),
        value("innodb_flush_method").as_deref(),
    )
}

/// `buffering` is a variable since MariaDB 11 and takes precedence if it exists. `method` is `innodb_flush_method`; an
/// empty value means the default of older servers.
fn judge(buffering: Option<&str>, method: Option<&str>) -> Option<Finding> {
    let (is_direct, setting, remedy) = match (buffering, method) {
        (Some(value), _) => (
            matches!(value, "OFF" | "0"),
            format!("innodb_data_file_buffering is {value}"),
            "SET GLOBAL innodb_data_file_buffering = OFF and take it and innodb_flush_method out of the option files",
        ),
        (None, Some(method)) => {
            let method = if method.is_empty() { "fsync" } else { method };
            (
                method.starts_with("O_DIRECT"),
                format!("innodb_flush_method is {method}"),
                "set innodb_flush_method = O_DIRECT for the next start",
            )
        }
        (None, None) => return None,
    };
    if is_direct {
        return Some(Finding::ok(
            "page cache",
            format!("{setting}: the data files are read past it"),
        ));
    }
    Some(
        Finding::warn(
            "page cache",
            format!(
                "{setting}: the operating system's page cache holds data files, too; what is there is fast already, and no hit \
                 ratio shows it"
            ),
        )
        .advise(format!(
            "{remedy}, and give the memory to the buffer pool; or let `bpe compare` say whether the extension helps as it is"
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn direct_and_buffered_files_are_told_apart() {
        for (buffering, method, level) in [
            (None, Some("O_DIRECT"), Level::Ok),
            (None, Some("O_DIRECT_NO_FSYNC"), Level::Ok),
            (None, Some("fsync"), Level::Warn),
            (None, Some("O_DSYNC"), Level::Warn),
            (None, Some(""), Level::Warn),
            // The newer variable takes precedence, and the older one keeps its configured value.
            (Some("OFF"), Some("fsync"), Level::Ok),
            (Some("ON"), Some("O_DIRECT"), Level::Warn),
        ] {
            let finding = judge(buffering, method).unwrap();
            assert_eq!(finding.level, level, "{buffering:?} {method:?}");
            assert_eq!(finding.advice.is_some(), level == Level::Warn);
        }
        assert!(judge(None, None).is_none());
    }

    #[test]
    fn the_default_of_old_servers_has_a_name() {
        let finding = judge(None, Some("")).unwrap();
        assert!(finding.text.starts_with("innodb_flush_method is fsync"));
    }
}
