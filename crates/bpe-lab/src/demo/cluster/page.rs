//! `report.html` of the failovers.

use bpe::size;
use maud::{Markup, html};

use super::figures::{FREE, Figures, THROUGHPUT};
use super::load::PATIENCE;
use super::plan::Standby;
use super::shown::{charts, heading, notes, rows};
use crate::demo::report::{date, frame};

/// The whole page.
pub fn page(figures: &Figures) -> Markup {
    let body = html! {
        header {
            p.product { "innodb-bpe " (figures.version) }
            h1 { "What a warm standby is worth: " (figures.cluster.title()) }
            p.facts {
                (heading(figures)) ". " (date(figures.began)) ", took "
                (format!("{:.0} min", figures.seconds / 60.0)) "."
            }
            @if figures.quick {
                p.warning { "A quick run: little data and short times." }
            }
        }
        main {
            section {
                h2 { "The primary is killed" }
                (table(figures))
                ul.notes { @for note in notes(figures) { li { (note) } } }
                div.charts { @for chart in charts(figures) { (chart.markup()) } }
            }
            (method(figures))
        }
    };
    frame(&format!("failover on {}", figures.server), &body)
}

fn table(figures: &Figures) -> Markup {
    let (header, rows) = rows(figures);
    html! {
        div.scroll { table {
            thead { tr { @for name in header { th { (name) } } } }
            tbody {
                @for row in rows {
                    tr {
                        @for (column, cell) in row.into_iter().enumerate() {
                            @if column == 0 { th { (cell) } } @else { td { (cell) } }
                        }
                    }
                }
            }
        } }
    }
}

fn method(figures: &Figures) -> Markup {
    let machine = &figures.machine;
    html! {
        section.method {
            h2 { "How it was measured" }
            p {
                "Three servers run on this machine. Each has its data directory on an emulated volume of its own (" (figures.iops)
                " I/Os a second shared by reads and writes, 0.5 ms per I/O, 125 MB/s) and its cache on the local disk. All begin with "
                "physical copies of one data directory, and with an empty pool and an empty cache."
            }
            p {
                "The load: " (figures.load) ". It asks for " (format!("{:.0}", figures.wanted)) " statements a second. Requests are due at "
                "even distances, answered or not. One that is not begun within " (PATIENCE.as_secs()) " s is lost; it counts as one that took "
                "that long. The load fills the primary's cache until its hit ratio has stopped rising. Then the primary is measured, and killed "
                "with signal 9. When the standby accepts a write, the clients are sent to it: this is the promotion."
            }
            ul {
                li { b { (Standby::Cold.title()) } ": the extension is on everywhere. The standby's has what replication brought into it: "
                    "the tables that are written." }
                li { b { (Standby::Warm.title()) } ": the same, and " code { "bpe warm" } " carries the primary's list of cached pages to the "
                    "standby, which reads them from its own files. Once it may take half of what the standby's volume can do. From then on "
                    code { "bpe warm --follow" } " may take 4 % of it." }
                @if figures.of(Standby::Off).is_some() {
                    li { b { (Standby::Off.title()) } ": the plugin is loaded and switched off on all servers." }
                }
            }
            p {
                "The throughput is back at the end of the first second that has " (format!("{THROUGHPUT:.0}")) " % of that before, and has it on average "
                "with the two seconds after. That before is the median of the seconds measured. Processors are free when they are idle, wait for "
                "a disk, or run what has a lower priority; a failover with less than " (format!("{FREE:.0}")) " % of them free is void."
            }
            h3 { "Server options" }
            p { "Everything else is the server's default." }
            div.scroll { table.options {
                thead { tr { th { "Option" } th { "Why" } } }
                tbody {
                    @for (option, reason) in &figures.settings {
                        tr { td { code { (option) } } td { (reason) } }
                    }
                    @for option in &figures.options {
                        tr { td { code { (option) } } td { "the cluster; as on the standby" } }
                    }
                }
            } }
            h3 { "Machine" }
            p {
                (machine.cores) " cores"
                @if !machine.processor.is_empty() { " (" (machine.processor) ")" }
                ", " (size::human(machine.memory)) " of memory, " (machine.system) ", Linux " (machine.kernel) ", "
                (machine.file_system) ", server version " (figures.server_version) ". Servers, clients and volumes share the cores."
            }
        }
    }
}
