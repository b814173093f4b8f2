//! Tables for people: the cases of a record, its curves, and a table on the terminal.
//!
//! Figures have three digits, and times and rates the unit that keeps them short. The same cells make
//! the terminal's table, `docs/results.md` and the HTML page.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table as Drawn, TableStyle, Width,
};

use super::curves::{Plot, plots};
use super::outcome::Outcome;

/// Columns of a terminal that tables keep within where they can.
const TERMINAL_COLUMNS: u16 = 100;

/// What the names of the peer's counters begin with.
const PEER_COUNTER: &str = "peer ";

/// Cells below heads.
#[derive(Debug, PartialEq)]
pub struct Table {
    /// Names of the columns.
    pub heads: Vec<String>,
    /// One row per case, or per value of what is varied.
    pub rows: Vec<Vec<String>>,
}

/// A figure for people: three significant digits, `-` for none.
pub fn figure(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(9.995e-5..1e12).contains(&size) => format!("{value:.2e}"),
        size if size >= 9.995e5 => {
            let (unit, name) = if size >= 9.995e8 { (1e9, "G") } else { (1e6, "M") };
            format!("{} {name}", figure(Some(value / unit)))
        }
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        size if size >= 0.099_95 => format!("{value:.3}"),
        size if size >= 0.009_995 => format!("{value:.4}"),
        _ => format!("{value:.5}"),
    }
}

/// A unit that keeps these figures short, and how many of the unit given it has.
pub fn short_unit(unit: &str, figures: impl Iterator<Item = f64>) -> (String, f64) {
    let logarithms: Vec<f64> = figures.filter(|figure| *figure > 0.0).map(f64::log10).collect();
    let mean = logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64;
    // Each is a thousand times the one before.
    let ladders: [&[&str]; 2] = [&["ns", "µs", "ms", "s"], &["/s", "k/s", "M/s", "G/s"]];
    for ladder in ladders {
        let Some(at) =
            ladder.iter().position(|known| *known == unit || (*known, unit) == ("µs", "us"))
        else {
            continue;
        };
        // Up to four digits stay as they are.
        let steps =
            if mean >= 4.0 { ((mean - 1.0) / 3.0).floor() } else { (mean / 3.0).floor().min(0.0) };
        let to = (at as f64 + steps).clamp(0.0, ladder.len() as f64 - 1.0) as usize;
        return (ladder[to].to_owned(), 1000f64.powi(to as i32 - at as i32));
    }
    (unit.to_owned(), 1.0)
}

/// `yes`, `no`, or `-` when it was not measured or nothing is wanted.
pub fn yes_or_no(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    }
}

/// The interval of the ratio; empty for none.
pub fn interval(outcome: &Outcome) -> String {
    match (outcome.ratio_low, outcome.ratio_high) {
        (None, _) | (_, None) => String::new(),
        (low, high) => format!("{}..{}", figure(low), figure(high)),
    }
}

/// What Ferry wants: `≤ 0.5` of a ratio, `Ferry ≤ 1` of the figure itself.
pub fn target(outcome: &Outcome) -> String {
    let Some(bound) = outcome.target else { return String::new() };
    let relation = outcome.target_of.replace("<=", "≤").replace(">=", "≥");
    let relation = relation.replace("ratio ", "").replace("value", "Ferry");
    format!("{relation} {bound}")
}

/// Counters of a case, in words: Ferry's, and the peer's.
pub fn details(outcome: &Outcome) -> Vec<String> {
    let (peer, ferry): (Vec<_>, Vec<_>) =
        outcome.counters.iter().partition(|(name, _)| name.starts_with(PEER_COUNTER));
    let words = |counters: &[(&String, &f64)], whose: &str| {
        let one = |(name, value): &(&String, &f64)| {
            format!("{} {}", name.trim_start_matches(PEER_COUNTER), count(**value))
        };
        let all: Vec<String> = counters.iter().map(one).collect();
        (!all.is_empty()).then(|| format!("{whose}{}", all.join(", ")))
    };
    let whose = if peer.is_empty() { ["", ""] } else { ["Ferry: ", "peer: "] };
    [words(&ferry, whose[0]), words(&peer, whose[1])].into_iter().flatten().collect()
}

/// A counter for people: whole where it is.
fn count(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e6 {
        format!("{value:.0}")
    } else {
        figure(Some(value))
    }
}

/// The table of cases, one row each. The column of the peer with its default mitigations is there when
/// it was measured.
pub fn cases<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Table {
    let outcomes: Vec<&Outcome> = outcomes.collect();
    let has_defaults = outcomes.iter().any(|outcome| outcome.peer_defaults.is_some());
    let mut heads =
        vec!["case", "unit", "Ferry", "peer", "beside", "ratio", "95 %", "target", "met"];
    if has_defaults {
        heads.push("mitigated");
    }
    let row = |outcome: &&Outcome| {
        let figures = outcome.ferry.into_iter().chain(outcome.peer);
        let (unit, many) = short_unit(&outcome.unit, figures);
        let short = |value: Option<f64>| figure(value.map(|value| value / many));
        let mut row = vec![
            outcome.case.clone(),
            unit,
            short(outcome.ferry),
            short(outcome.peer),
            outcome.beside.clone(),
            figure(outcome.ratio),
            interval(outcome),
            target(outcome),
            yes_or_no(outcome.met).to_owned(),
        ];
        if has_defaults {
            row.push(short(outcome.peer_defaults));
        }
        row
    };
    let rows = outcomes.iter().map(row).collect();
    Table { heads: heads.into_iter().map(str::to_owned).collect(), rows }
}

/// The table of a plot: a row for each value, a column for each line, then the ratios; those that have
/// a target say whether it is met.
pub fn curves(plot: &Plot) -> Table {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let (unit, many) = short_unit(plot.unit, points().map(|point| point.y));
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for outcome in plot.outcomes.iter().filter(|outcome| outcome.ratio.is_some()) {
        let pair = (outcome.figure.as_str(), outcome.peer_figure.as_str());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let mut heads = vec![plot.x_label.to_owned()];
    let with_unit = |name: &str| match unit.as_str() {
        "" => name.to_owned(),
        unit => format!("{name}, {unit}"),
    };
    heads.extend(plot.lines.iter().map(|line| with_unit(&line.name)));
    heads.extend(pairs.iter().map(|(ferry, peer)| {
        let name = |figure| plot.line_name(figure).unwrap_or(figure).to_owned();
        if pairs.len() == 1 {
            "ratio".to_owned()
        } else {
            format!("{} / {}", name(ferry), name(peer))
        }
    }));
    let has_papers = plot.has_papers_by_value();
    if has_papers {
        heads.push("papers".to_owned());
    }
    let row = |x: f64| {
        let mut row = vec![format!("{x}")];
        for line in &plot.lines {
            let point = line.points.iter().find(|point| point.x == x);
            row.push(figure(point.map(|point| point.y / many)));
        }
        for pair in &pairs {
            let outcome = plot.outcomes.iter().find(|outcome| {
                (outcome.figure.as_str(), outcome.peer_figure.as_str()) == *pair
                    && outcome.x == Some(x)
            });
            row.push(match outcome {
                None => "-".to_owned(),
                Some(outcome) => {
                    let ratio = figure(outcome.ratio);
                    match outcome.met {
                        None => ratio,
                        Some(true) => format!("{ratio} met"),
                        Some(false) => format!("{ratio} missed"),
                    }
                }
            });
        }
        if has_papers {
            row.push(plot.papers_at(x).join("; "));
        }
        row
    };
    Table { heads, rows: plot.values().into_iter().map(row).collect() }
}

/// All tables of these outcomes, as text for the terminal: the cases, then each plot below its title,
/// then what belongs to single cases.
pub fn to_text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let single = || outcomes.iter().filter(|outcome| outcome.plot.is_none());
    if single().next().is_some() {
        text += &cases(single()).to_text();
    }
    for plot in plots(outcomes) {
        text += &format!("\n{}\n{}", plot.title, curves(&plot).to_text());
        for paper in plot.papers() {
            text += &format!("Papers: {paper}\n");
        }
    }
    for outcome in single() {
        let mut details = details(outcome);
        details.extend(outcome.paper.iter().map(|paper| format!("papers: {paper}")));
        if !details.is_empty() {
            text += &format!("{}: {}\n", outcome.case, details.join("; "));
        }
    }
    text
}

impl Table {
    /// The table as text, within the columns of a terminal where only words have to be broken for it.
    pub fn to_text(&self) -> String {
        let mut drawn = Drawn::new();
        drawn.load_style(TableStyle::new()).set_width(TERMINAL_COLUMNS);
        drawn.set_content_arrangement(ContentArrangement::Dynamic);
        drawn.set_header(&self.heads).add_rows(&self.rows);
        for (at, column) in drawn.column_iter_mut().enumerate() {
            column.set_padding(if at == 0 { (0, 0) } else { (2, 0) });
            if self.is_of_numbers(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if at > 0 {
                let widths = self.rows.iter().filter_map(|row| Some(row.get(at)?.chars().count()));
                let width = u16::try_from(widths.max().unwrap_or(0)).unwrap_or(u16::MAX);
                let lower = Width::Fixed(width.saturating_add(2));
                column.set_constraint(ColumnConstraint::LowerBoundary(lower));
            }
        }
        drawn.trim_fmt() + "\n"
    }

    /// The table in Markdown.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule: Vec<&str> = (0..self.heads.len())
            .map(|at| if self.is_of_numbers(at) { "--:" } else { "---" })
            .collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}|{}|\n{rows}", line(&self.heads), rule.join("|"))
    }

    /// Whether the cells of a column stand to the right: they begin with a digit, or have nothing.
    pub fn is_of_numbers(&self, column: usize) -> bool {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let mut cells =
            cells.map(|cell| cell.trim_start_matches('-')).filter(|cell| !cell.is_empty());
        let mut has_some = false;
        let all = cells.all(|cell| {
            has_some = true;
            cell.starts_with(|first: char| first.is_ascii_digit())
        });
        all && has_some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::outcome::{Samples, outcomes};
    use crate::bench::suite::{Case, Curve, Place, Suite, case, program};

    const CASES: &[Case] = &[
        case("getppid", "ns", "posted a", "linux a", 0.5).paper("Memsc: 11 639 ns"),
        case(
            "a boot, whose name is so long that it has to be broken in two",
            "ns",
            "posted b",
            "linux b",
            2.0,
        ),
    ];

    static SUITE: Suite = Suite {
        name: "s",
        runs: &[
            program("posted", Place::Ferry("posted"), &[]),
            program("linux", Place::Peer(""), &[]),
        ],
        cases: CASES,
        curves: &[Curve {
            plot: "batches",
            x: "calls at a time",
            values: &[1, 64],
            case: case("batch", "ns", "posted batch_{}", "linux a", 0.5),
        }],
        ..Suite::EMPTY
    };

    fn measured() -> Vec<Outcome> {
        let samples: Samples = [
            ("posted a", 200.0),
            ("posted a.traps", 3.0),
            ("linux a", 400.0),
            ("linux a.traps", 5.0),
            ("linux@defaults a", 500.0),
            ("posted b", 49_690_215.0),
            ("linux b", 1_128_816_333.0),
            ("posted batch_1", 300.0),
            ("posted batch_64", 10.0),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), vec![value; 3]))
        .collect();
        outcomes(&SUITE, &samples, false)
    }

    #[test]
    fn figures_keep_three_digits() {
        let texts = [0.0, 0.000_012_3, 0.0423, 0.5, 2.0, 9.999, 12.34, 1234.5, 12_345_678.0]
            .map(|value| figure(Some(value)));
        let expected =
            ["0", "1.23e-5", "0.0423", "0.500", "2.00", "10.0", "12.3", "1234", "12.3 M"];
        assert_eq!(texts, expected);
        assert_eq!((figure(None), figure(Some(-3.0))), ("-".to_owned(), "-3.00".to_owned()));
    }

    #[test]
    fn units_grow_and_shrink_with_their_figures() {
        let unit = |unit, figures: &[f64]| short_unit(unit, figures.iter().copied());
        assert_eq!(unit("ns", &[200.0, 9000.0]), ("ns".to_owned(), 1.0));
        assert_eq!(unit("ns", &[50e6, 1.1e9]), ("ms".to_owned(), 1e6));
        assert_eq!(unit("ms", &[4e12]), ("s".to_owned(), 1e3));
        assert_eq!(unit("M/s", &[0.005]), ("k/s".to_owned(), 1e-3));
        assert_eq!(unit("cycles", &[1e9]), ("cycles".to_owned(), 1.0));
        assert_eq!(unit("ns", &[]), ("ns".to_owned(), 1.0));
    }

    #[test]
    fn cases_have_their_peer_by_name_and_the_mitigated_one() {
        let outcomes = measured();
        let table = cases(outcomes.iter().filter(|outcome| outcome.plot.is_none()));
        let expected = [
            "getppid",
            "ns",
            "200",
            "400",
            "Linux",
            "0.500",
            "0.500..0.500",
            "≤ 0.5",
            "yes",
            "500",
        ];
        assert_eq!(table.rows[0], expected);
        assert_eq!(table.rows[1][1..4], ["ms", "49.7", "1129"]);
        assert_eq!(table.rows[0].len(), table.heads.len());
    }

    #[test]
    fn curves_have_a_row_for_each_value_and_say_whether_targets_are_met() {
        let outcomes = measured();
        let table = curves(&plots(&outcomes)[0]);
        assert_eq!(table.heads, ["calls at a time", "Ferry posted, ns", "Linux, ns", "ratio"]);
        let expected = [["1", "300", "400", "0.750 missed"], ["64", "10.0", "400", "0.0250 met"]];
        assert_eq!(table.rows, expected);
    }

    #[test]
    fn text_keeps_within_the_terminal_and_breaks_words_only() {
        let text = to_text(&measured());
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.lines().any(|line| line.starts_with("batches")), "{text}");
        assert!(
            text.contains("getppid: Ferry: traps 3; peer: traps 5; papers: Memsc: 11 639 ns"),
            "{text}"
        );
        for cell in ["49.7", "1129", "0.0440..0.0440", "≤ 2"] {
            assert!(text.contains(cell), "{cell} is broken in\n{text}");
        }
    }

    #[test]
    fn markdown_has_a_line_per_row_and_keeps_bars_of_text() {
        let row = vec!["a|b".to_owned(), "1.5".to_owned()];
        let table = Table { heads: vec!["name".to_owned(), "ns".to_owned()], rows: vec![row] };
        assert_eq!(table.to_markdown(), "| name | ns |\n|---|--:|\n| a\\|b | 1.5 |\n");
    }
}
