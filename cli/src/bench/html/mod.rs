//! The page of a record: what was measured, where and how, as one HTML file without scripts, network or
//! other files.
//!
//! `maud` escapes every text. The page forbids its reader's browser to fetch or run anything, so a
//! mistake here shows as an error in the console, which `ferry test page` reads.

mod chart;
mod scale;

use anyhow::Result;
use maud::{Markup, PreEscaped, html};

use super::calibration;
use super::curves::{Plot, plots};
use super::modelled;
use super::outcome::Outcome;
use super::record::Record;
use super::suites;
use super::table::{self, Table};

/// The page.
pub fn page(record: &Record) -> String {
    let names = record.suites().join(", ");
    let title = format!("Ferry beside Linux: {names}");
    let body = html! {
                (circumstances(record))
                (failures(record))
                @for name in record.suites() { (suite(record, name)) }
                (legend())
    };
    crate::page::page(&title, &body)
}

/// Where, when and with what.
fn circumstances(record: &Record) -> Markup {
    let of = &record.circumstances;
    let command = format!("ferry {}", record.command.join(" "));
    let processors = format!("{} × {}", of.processors, of.processor);
    let rows = [
        ("Command", command.as_str()),
        ("Date", &record.date()),
        ("Commit", &of.commit),
        ("Repeats", &record.repeats.to_string()),
        ("Processors", &processors),
        ("Load before", &format!("{:.1}", of.load)),
        ("Host", &of.host),
        ("QEMU", &of.qemu),
        ("Peer", &of.peer),
        ("Compiler", &of.compiler),
    ];
    html! {
        dl.circumstances {
            @for (name, value) in rows {
                div { dt { (name) } dd { (if value.is_empty() { "unknown" } else { value }) } }
            }
        }
        @if let Some(warning) = of.warning() { p.warning { "Mind that " (warning) "." } }
    }
}

fn failures(record: &Record) -> Markup {
    html! {
        @if !record.failures.is_empty() {
            section.failures {
                h2 { "What failed" }
                ul { @for failure in &record.failures { li { pre { (failure) } } } }
            }
        }
    }
}

fn suite(record: &Record, name: &str) -> Markup {
    let of_suite = || record.outcomes.iter().filter(|outcome| outcome.suite == name);
    let single: Vec<&Outcome> = of_suite().filter(|outcome| outcome.plot.is_none()).collect();
    let points: Vec<Outcome> =
        of_suite().filter(|outcome| outcome.plot.is_some()).cloned().collect();
    html! {
        section {
            h2 { code { (name) } }
            @if let Some(suite) = suites::find(name) { p { (suite.about) "." } }
            @if !single.is_empty() { (outcomes(&single)) }
            div.plots {
                (ratios(&single))
                @for plot in plots(&points) { (curves(&plot)) }
            }
            (counted_by_model(record, name))
            (calibrated(record, name))
            @if !points.is_empty() {
                details {
                    summary { "Every point of the plots: ratios, targets, counters" }
                    (outcomes(&points.iter().collect::<Vec<_>>()))
                }
            }
        }
    }
}

/// What the model of caches and TLBs counted for a suite.
fn counted_by_model(record: &Record, name: &str) -> Markup {
    let sides: Vec<_> = record.modelled.iter().filter(|side| side.suite == name).cloned().collect();
    html! {
        @if let Some(head) = modelled::head(&sides) {
            h3 { "Caches and TLBs, modelled" }
            p { (head) }
            (wide_table(&modelled::table(&sides)))
            @for note in modelled::notes(&sides) { p { (note) "." } }
        }
    }
}

/// What Ferry measured of the machine at the boots of a suite.
fn calibrated(record: &Record, name: &str) -> Markup {
    let figures: Vec<_> =
        record.calibration.iter().filter(|figure| figure.suite == name).cloned().collect();
    html! {
        @for line in calibration::to_text(&figures).lines() { p { (line) } }
    }
}

/// The table of cases, with what belongs to a case in a row below it.
fn outcomes(outcomes: &[&Outcome]) -> Markup {
    let mut cells = table::cases(outcomes.iter().copied());
    // The paper's figures stand beside; on the terminal there is no room for that.
    let has_papers = outcomes.iter().any(|outcome| outcome.paper.is_some());
    if has_papers {
        cells.heads.push("papers".to_owned());
    }
    let is_number: Vec<bool> = (0..cells.heads.len()).map(|at| cells.is_of_numbers(at)).collect();
    let columns = cells.heads.len();
    let papers: Vec<&str> =
        outcomes.iter().map(|outcome| outcome.paper.as_deref().unwrap_or("")).collect();
    html! {
        table.cases {
            thead { tr { @for (head, is_number) in cells.heads.iter().zip(&is_number) {
                th.number[*is_number] { (head) }
            } } }
            tbody {
                @for (at, (row, outcome)) in cells.rows.iter().zip(outcomes).enumerate() {
                    tr.missed[outcome.met == Some(false)] {
                        @for ((cell, head), is_number) in row.iter().zip(&cells.heads).zip(&is_number) {
                            td.number[*is_number] data-head=(head) { (cell) }
                        }
                        @if has_papers {
                            @let is_same = at > 0 && !papers[at].is_empty() && papers[at] == papers[at - 1];
                            td.papers data-head="papers" { (if is_same { "as above" } else { papers[at] }) }
                        }
                    }
                    @let details = table::details(outcome);
                    @if !details.is_empty() {
                        tr.details { td colspan=(columns) { (details.join("; ")) } }
                    }
                }
            }
        }
    }
}

fn ratios(outcomes: &[&Outcome]) -> Markup {
    let missing = outcomes.iter().filter(|outcome| outcome.ratio.is_none()).count();
    match chart::ratios(outcomes) {
        Ok(None) => html! {},
        Ok(Some(svg)) => figure(
            "Ratios",
            Ok(svg),
            html! {
                "Ratio of the medians with its 95 % interval. Left of 1 Ferry's figure is the smaller one. "
                "The bar with arrows is the target: a full circle meets it, an empty one misses it; a "
                "diamond has none."
                @if missing > 0 { " " (missing) " without a ratio are in the table only." }
            },
        ),
        Err(error) => figure("Ratios", Err(error), html! {}),
    }
}

fn curves(plot: &Plot) -> Markup {
    let caption = html! {
        "Medians with their 95 % intervals."
        @for paper in plot.papers() { " " (paper) "." }
        (small_table(&table::curves(plot)))
    };
    figure(plot.title, chart::curves(plot), caption)
}

fn small_table(cells: &Table) -> Markup {
    html! {
        details {
            summary { "As a table" }
            (wide_table(cells))
        }
    }
}

/// A table that is moved sideways where there is no room for it.
fn wide_table(cells: &Table) -> Markup {
    let is_number: Vec<bool> = (0..cells.heads.len()).map(|at| cells.is_of_numbers(at)).collect();
    html! {
        div.wide { table {
            thead { tr { @for (head, is_number) in cells.heads.iter().zip(&is_number) {
                th.number[*is_number] { (head) }
            } } }
            tbody { @for row in &cells.rows { tr {
                @for (cell, is_number) in row.iter().zip(&is_number) {
                    td.number[*is_number] { (cell) }
                }
            } } }
        } }
    }
}

/// A drawing below its title.
fn figure(title: &str, drawing: Result<String>, caption: Markup) -> Markup {
    html! {
        figure {
            h3 { (title) }
            @match drawing {
                Ok(svg) => div role="img" aria-label=(title) { (PreEscaped(svg)) }
                Err(error) => p.warning { "It could not be drawn: " (format!("{error:#}")) }
            }
            figcaption { (caption) }
        }
    }
}

fn legend() -> Markup {
    html! {
        section {
            h2 { "How to read this" }
            p {
                "A figure is the median over the repeats. A ratio is Ferry's median over that of what "
                "stands beside it, with its 95 % bootstrap interval; both ran the same static program in "
                "the same QEMU with the same processors and memory, in turn. The peer is Debian's cloud "
                "kernel with its mitigations switched off, which is the harder peer; "
                em { "mitigated" } " is the same kernel as Debian boots it by default. Figures are those "
                "of a virtual machine under emulation unless the case says otherwise."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::outcome::{Samples, outcomes};
    use crate::bench::suite::{Case, Curve, Place, Suite, case, program};

    const HOSTILE: &str = "</style><script>alert('x')</script> \"&";

    static SUITE: Suite = Suite {
        name: HOSTILE,
        runs: &[
            program("posted", Place::Ferry("posted"), &[]),
            program("linux", Place::Peer(""), &[]),
        ],
        cases: &[
            Case { name: HOSTILE, ..case("", HOSTILE, "posted a", "linux a", 0.5) }.paper(HOSTILE),
            case("missed", "ns", "posted a", "linux a", 0.1),
        ],
        curves: &[Curve {
            plot: HOSTILE,
            x: HOSTILE,
            values: &[1, 1000],
            case: case("batch", "ns", "posted batch_{}", "linux a", 0.5),
        }],
        ..Suite::EMPTY
    };

    fn record() -> Record {
        let figures: [(&str, &[f64]); 6] = [
            ("posted a", &[190.0, 200.0, 230.0]),
            ("posted a.<traps>", &[3.0]),
            ("linux a", &[390.0, 410.0, 400.0]),
            ("linux@defaults a", &[512.0]),
            ("posted batch_1", &[300.0, 280.0]),
            ("posted batch_1000", &[10.0, 11.0]),
        ];
        let samples = figures.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec()));
        let mut record = Record::begin(3);
        record.outcomes = outcomes(&SUITE, &samples.collect::<Samples>(), false);
        record.failures = vec![HOSTILE.to_owned()];
        record.modelled = vec![modelled::tests::side_of(HOSTILE), modelled::tests::side_of("s")];
        record.circumstances.qemu = HOSTILE.to_owned();
        record.command = vec!["bench".to_owned(), HOSTILE.to_owned()];
        record
    }

    #[test]
    fn no_text_becomes_markup() {
        let page = page(&record());
        assert!(!page.contains("<script") && !page.contains("<traps>"), "{page}");
        assert_eq!(page.matches("</style>").count(), 1);
        assert!(page.matches("&lt;script&gt;").count() >= 8);
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = page(&record());
        for reference in ["src=", "url(", "@import", "<link rel=\"stylesheet"] {
            assert!(!page.contains(reference), "{reference}");
        }
        // The name of the SVG language is no address that is fetched.
        let addresses = page.matches("http").count();
        let names = page.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(addresses, names + page.matches("http-equiv").count());
    }

    #[test]
    fn it_has_the_plots_the_tables_and_the_details() {
        let page = page(&record());
        assert_eq!(page.matches("<svg ").count(), 2);
        assert_eq!(page.matches("class=\"details\"").count(), 2);
        assert!(page.contains("&lt;traps&gt; 3") && page.contains("512"), "{page}");
        assert!(page.contains("class=\"missed\"") && page.contains("What failed"));
        assert!(page.contains("log scale"));
        assert_eq!(page.matches("Modelled (x)").count(), 1);
    }

    #[test]
    fn a_record_without_figures_has_a_page_too() {
        let mut empty = record();
        empty.outcomes = outcomes(&SUITE, &Samples::new(), false);
        assert_eq!(page(&empty).matches("<svg ").count(), 1, "{}", page(&empty));
        empty.outcomes.clear();
        assert!(page(&empty).contains("What failed"));
    }
}
