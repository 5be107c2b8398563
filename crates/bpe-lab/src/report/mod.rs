//! Reports: the one form in which demonstrations, the experience and replays present their figures.
//!
//! # Terms
//! - *Report*: title, facts and sections, filled from measured figures by the module that measured them.
//! - *Part*: a piece of a section: cards, table, notes and charts, each optional.
//! - *Chart*: curves over seconds, or over sizes of the cache.
//! - *Environment*: facts about the run, its server and its machine, stored with the figures.
//!
//! Files: [`schema`] has these types, [`numbers`] formats values. [`text`] renders a report for the terminal, [`page`] as a
//! self-contained page. [`chart`] draws curves, and [`picture`] puts charts into an SVG file. A renderer computes no figure.

mod chart;
mod environment;
mod numbers;
mod page;
mod picture;
mod schema;
mod text;

pub use chart::{Axis, Chart, Range, Series};
pub use environment::{Environment, date};
pub use numbers::{number, percent, seconds, share};
pub use page::html;
pub use picture::Picture;
pub use schema::{Card, Columns, Method, Part, Report, Section, Table};
pub use text::text;
