//! The server's report of the state recovered from the previous process.

use std::time::Duration;

use anyhow::{Context, ensure};
use private_server::Server;
use serde_json::Value;

use crate::sql::{self, report};

/// Recovered pages and files, and the reasons for the rejected ones.
#[derive(Debug)]
pub struct Taken {
    /// Recovered pages of the cache; and pages that were lost with the previous process.
    pub pages: u64,
    pub dropped: u64,
    /// Trusted files, and their pages at the last count. Counts are periodic, so a killed server may have counted none.
    pub files: u64,
    pub trusted: u64,
    /// Pages of rejected files, counted in the same way.
    pub lost_pages: u64,
    /// Files that the server has not opened yet.
    pub pending: u64,
    /// Rejected files by their names on the server, and the reason for each.
    pub lost: Vec<(String, String)>,
}

impl Taken {
    /// The report of a server with the plugin loaded early, after it has opened the files in question. The figures must agree.
    pub fn by(server: &Server) -> anyhow::Result<Taken> {
        sql::expect_state(server, "active")?;
        let summary = report(server, "summary")?;
        let said = &summary["inherited"];
        let text = |of: &Value| of.as_str().map(String::from).context("no text");
        let files = |of: &str| -> anyhow::Result<Vec<_>> {
            let files = said[of].as_array().context("no such list")?.iter();
            files
                .map(|one| Ok((text(&one["file"])?, text(&one["why"])?)))
                .collect()
        };
        let count = |of: &str| said[of]["files"].as_u64().context("no files");
        let lost_pages = said["lost"]["pages"].as_u64().context("no pages")?;
        let dropped = said["dropped"].as_u64().context("no dropped pages")?;
        let taken = Taken {
            pages: sql::figure(server, "pages_inherited")?,
            dropped: dropped + lost_pages,
            trusted: sql::figure(server, "pages_trusted")?,
            lost_pages,
            files: count("trusted")?,
            pending: count("left")?,
            lost: files("lost_files")?,
        };
        ensure!(
            said["pages"].as_u64() == Some(taken.pages),
            "{said} is reported, and {taken:?}"
        );
        // The server keeps the reasons of some files only.
        ensure!(
            count("lost")? >= taken.lost.len() as u64,
            "{said} is reported, and {taken:?}"
        );
        Ok(taken)
    }

    /// Why the pages of this table (`database.table`) are rejected; `None` if no reason is reported.
    pub fn lost(&self, table: &str) -> Option<&str> {
        let end = format!("{}.ibd", table.replace('.', "/"));
        let mut lost = self.lost.iter();
        let (_, why) = lost.find(|(file, _)| file.ends_with(&end))?;
        Some(why)
    }

    /// Fails unless pages were recovered, and files are trusted.
    pub fn expect_warm(&self) -> anyhow::Result<()> {
        ensure!(self.pages > 300 && self.files > 0, "not warm: {self:?}");
        Ok(())
    }

    /// Fails if any file is trusted. Pages may have been recovered, to be listed.
    pub fn expect_nothing_trusted(&self) -> anyhow::Result<()> {
        ensure!(self.files == 0 && self.trusted == 0, "trusted: {self:?}");
        Ok(())
    }

    /// Fails unless nothing was recovered.
    pub fn expect_cold(&self) -> anyhow::Result<()> {
        ensure!(self.pages == 0, "warm: {self:?}");
        Ok(())
    }
}

/// Reads of a file's pages: served by the cache, and others.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    pub hits: u64,
    pub misses: u64,
}

impl Reads {
    /// Reads of this table's file (`database.table`) since it was opened.
    pub fn of(server: &Server, table: &str) -> anyhow::Result<Reads> {
        let end = format!("{}.ibd", table.replace('.', "/"));
        let files = report(server, "files")?;
        let mut file = files.as_array().into_iter().flatten();
        let is = |row: &&Value| {
            row["file"]
                .as_str()
                .is_some_and(|name| name.ends_with(&end))
        };
        let row = file
            .find(is)
            .with_context(|| format!("{table} is not among {files}"))?;
        let figure = |name| row[name].as_u64().context("no figure");
        Ok(Reads {
            hits: figure("hits")?,
            misses: figure("misses")?,
        })
    }

    /// Everything was cached, except for pages still staged when the previous process ended.
    pub fn are_warm(self) -> bool {
        self.hits > 20 && self.hits > self.misses
    }

    /// Each page had to be read from the file once.
    pub fn are_cold(self) -> bool {
        self.misses > 20
    }
}

/// Waits until the pages of rejected files are loaded from the data files, except for pages that the server had read before.
/// Returns their number.
pub fn expect_loaded(server: &Server) -> anyhow::Result<u64> {
    sql::wait_until(
        "pages of rejected files are loaded",
        Duration::from_secs(120),
        || {
            let log = std::fs::read(server.log())?;
            let log = String::from_utf8_lossy(&log);
            // Only log lines after the recovery message of this start count.
            let since = log.rsplit(" cached pages").next().unwrap_or_default();
            let is_loaded = since.contains("not proven after the restart are loaded again:");
            Ok(is_loaded && sql::status(server, "warm_state")? == "none")
        },
    )?;
    sql::figure(server, "warm_pages_loaded")
}

/// Waits until no page is staged in memory. A killed server loses staged pages; a stopping one writes as many as it can within a
/// second.
pub fn expect_written(server: &Server) -> anyhow::Result<()> {
    sql::wait_until(
        "what is staged is written",
        Duration::from_secs(300),
        || {
            let instances = report(server, "instances")?;
            let rows = instances.as_array().context("no instances")?;
            let staged = rows.iter().map(|row| row["staged"].as_u64());
            let staged: Option<u64> = staged.sum();
            Ok(staged.context("no figure")? == 0)
        },
    )
}
