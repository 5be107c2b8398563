//! The contents of a report, before rendering.

use maud::Markup;

use super::chart::Chart;
use super::environment::Environment;

/// A report.
pub struct Report<'a> {
    /// Version of the program that measured.
    pub version: String,
    pub title: String,
    /// Title of the browser's tab, after `innodb-bpe: `.
    pub tab: String,
    /// Sentences below the title.
    pub facts: String,
    pub warning: Option<String>,
    pub sections: Vec<Section>,
    pub method: Option<Method<'a>>,
}

/// A titled section.
#[derive(Default)]
pub struct Section {
    pub title: String,
    /// Sentences below the title.
    pub facts: String,
    pub parts: Vec<Part>,
}

/// A piece of a section. A renderer omits what is empty.
#[derive(Default)]
pub struct Part {
    pub title: &'static str,
    /// On pages only.
    pub cards: Vec<Card>,
    pub table: Option<Table>,
    /// Sentences below the table.
    pub notes: Vec<String>,
    /// On pages only.
    pub charts: Vec<Chart>,
}

/// A prominent figure, with bars to compare.
pub struct Card {
    pub title: &'static str,
    pub figure: String,
    pub note: String,
    /// Name, which is also the class of the colour, and value.
    pub bars: Vec<(&'static str, f64)>,
}

/// A table. The first cell of a row is its name.
#[derive(Default)]
pub struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A table with a column for each item, and a last one for goals.
pub struct Columns<'a, T> {
    items: Vec<&'a T>,
    table: Table,
}

/// How it was measured. On pages only.
pub struct Method<'a> {
    pub prose: Markup,
    pub commands: &'a [String],
    /// Server options in addition to those of the environment, each with its reason.
    pub options: Vec<(String, String)>,
    pub environment: &'a Environment,
    /// Programs that share the cores.
    pub sharing: &'static str,
    /// The published measurement that this one follows.
    pub reference: Option<&'static str>,
}

impl Table {
    /// An empty table.
    pub fn new(header: &[&str]) -> Table {
        Table {
            header: header.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
        }
    }
}

impl<'a, T> Columns<'a, T> {
    /// An empty table with a column for each of the titled items.
    pub fn new(corner: &str, items: impl Iterator<Item = (&'static str, &'a T)>) -> Self {
        let (titles, items): (Vec<_>, Vec<_>) = items.unzip();
        let header = std::iter::once(corner).chain(titles).chain(["goal"]);
        Columns {
            items,
            table: Table::new(&header.collect::<Vec<_>>()),
        }
    }

    /// Adds a row without a goal.
    pub fn row(&mut self, name: impl Into<String>, cell: impl Fn(&T) -> String) {
        self.goal(name, String::new(), cell);
    }

    /// Adds a row with a goal.
    pub fn goal(&mut self, name: impl Into<String>, goal: String, cell: impl Fn(&T) -> String) {
        let cells = self.items.iter().map(|item| cell(item));
        let row = std::iter::once(name.into()).chain(cells);
        self.table.rows.push(row.chain([goal]).collect());
    }

    /// The complete table.
    pub fn table(self) -> Table {
        self.table
    }
}
