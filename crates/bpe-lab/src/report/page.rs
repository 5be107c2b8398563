//! Renders a report as one self-contained page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::STYLE as CHARTS;
use super::numbers::number;
use super::schema::{Card, Method, Part, Report, Table};

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// The whole page.
pub fn html(report: &Report) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "innodb-bpe: " (report.tab) }
                style { (PreEscaped(CHARTS)) (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p.product { "innodb-bpe " (report.version) }
                    h1 { (report.title) }
                    p.facts { (report.facts) }
                    @if let Some(warning) = &report.warning { p.warning { (warning) } }
                }
                main {
                    @for section in &report.sections {
                        section {
                            @if !section.title.is_empty() { h2 { (section.title) } }
                            @if !section.facts.is_empty() { p.facts { (section.facts) } }
                            @for one in &section.parts { (part(one)) }
                        }
                    }
                    @if let Some(one) = &report.method { (method(one)) }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn part(part: &Part) -> Markup {
    html! {
        @if !part.title.is_empty() { h3 { (part.title) } }
        @if !part.cards.is_empty() { div.cards { @for one in &part.cards { (card(one)) } } }
        @if let Some(one) = &part.table { (table(one, "")) }
        @if !part.notes.is_empty() { ul.notes { @for note in &part.notes { li { (note) } } } }
        @if !part.charts.is_empty() { div.charts { @for chart in &part.charts { (chart.figure()) } } }
    }
}

fn card(card: &Card) -> Markup {
    let best = card.bars.iter().map(|bar| bar.1).fold(1.0, f64::max);
    html! {
        article.card {
            h3 { (card.title) }
            p.gain { (card.figure) }
            p.reference { (card.note) }
            dl.bars {
                @for (name, value) in &card.bars {
                    dt { (name) }
                    dd {
                        span.bar.(name) style=(format!("width:{:.1}%", value / best * 100.0)) {}
                        span.value { (number(Some(*value), 0)) }
                    }
                }
            }
        }
    }
}

fn table(table: &Table, class: &str) -> Markup {
    html! {
        div.scroll { table.(class) {
            thead { tr { @for name in &table.header { th { (name) } } } }
            tbody {
                @for row in &table.rows {
                    tr {
                        @for (column, cell) in row.iter().enumerate() {
                            @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                        }
                    }
                }
            }
        } }
    }
}

fn method(method: &Method) -> Markup {
    let environment = method.environment;
    let options = environment.settings.iter().chain(&method.options);
    let options = Table {
        rows: options
            .map(|(option, why)| vec![option.clone(), why.clone()])
            .collect(),
        ..Table::new(&["Option", "Why"])
    };
    html! {
        section.method {
            h2 { "How it was measured" }
            (method.prose)
            @if !method.commands.is_empty() {
                h3 { "Commands" }
                pre { @for command in method.commands { (command) "\n" } }
            }
            h3 { "Server options" }
            p { "Everything else is the server's default." }
            (table(&options, "options"))
            h3 { "Machine" }
            p {
                (environment.machine.words()) ", server version " (environment.server_version) ". "
                (method.sharing)
            }
            @if let Some(reference) = method.reference {
                h3 { "The reference" }
                p { (reference) }
            }
        }
    }
}
