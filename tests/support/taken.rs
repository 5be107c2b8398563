//! What a server has recovered from the process before it, as it reports.

use std::time::Duration;

use anyhow::{Context, ensure};
use private_server::Server;
use serde_json::Value;

use crate::sql::{self, report};

/// What a server has recovered, and why not the rest.
#[derive(Debug)]
pub struct Taken {
    /// Pages of the cache that were recovered, and such that were lost with the process before.
    pub pages: u64,
    pub dropped: u64,
    /// Trusted files, and their pages as they were counted now and then: a server that was killed may have counted none.
    pub files: u64,
    pub trusted: u64,
    /// Pages of rejected files, counted in the same way.
    pub lost_pages: u64,
    /// Files that the server has not opened yet.
    pub pending: u64,
    /// Rejected files by the names that the server gives them, and the reason for each.
    pub lost: Vec<(String, String)>,
}

impl Taken {
    /// Of a server with the plugin loaded early, once it has opened the files in question. The figures must agree.
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
        // The reasons of some files only are kept.
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

/// Reads of the pages of a file that the cache served, and others.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    pub hits: u64,
    pub misses: u64,
}

impl Reads {
    /// Of the file of this table (`database.table`) since it was opened.
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

    /// All was there, but for what was staged when the process before ended.
    pub fn are_warm(self) -> bool {
        self.hits > 20 && self.hits > self.misses
    }

    /// Each page had to be read from the file once.
    pub fn are_cold(self) -> bool {
        self.misses > 20
    }
}

/// Waits until the pages of rejected files were loaded from the data files since the server's start, but for those that the server had read
/// before. Returns their number.
pub fn expect_loaded(server: &Server) -> anyhow::Result<u64> {
    sql::wait_until(
        "pages of rejected files are loaded",
        Duration::from_secs(120),
        || {
            let log = std::fs::read(server.log())?;
            let log = String::from_utf8_lossy(&log);
            // The start reports what it has recovered.
            let since = log.rsplit(" cached pages").next().unwrap_or_default();
            let is_loaded = since.contains("not proven after the restart are loaded again:");
            Ok(is_loaded && sql::status(server, "warm_state")? == "none")
        },
    )?;
    sql::figure(server, "warm_pages_loaded")
}

/// Waits until the cache disk has what waits in memory for it: a server that is killed loses that, and one that stops writes what it can
/// within a second.
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
