//! Plots as data: the points of an x-y plot, sorted into the lines that are drawn.
//!
//! Each outcome with a `plot` is a point of Ferry's line and, where there is something to compare
//! with, of that one's. Lines are told apart by the figures that they are made of, so one that several
//! cases compare with is there once. Points have the median with its 95 % bootstrap interval.

use super::outcome::Outcome;
use super::statistics::{self, Interval};

/// What is drawn between one pair of axes.
#[derive(Debug)]
pub struct Plot<'a> {
    /// Its title.
    pub title: &'a str,
    /// What is varied.
    pub x_label: &'a str,
    /// Unit of the values.
    pub unit: &'a str,
    /// The outcomes that it has points of.
    pub outcomes: Vec<&'a Outcome>,
    /// The lines.
    pub lines: Vec<Line<'a>>,
}

/// A line of a plot.
#[derive(Debug)]
pub struct Line<'a> {
    /// What it shows: the side, and the figure where the side has several.
    pub name: String,
    side: &'a str,
    figure: &'a str,
    /// Its points by rising `x`.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// What is varied.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// 2.5th percentile.
    pub low: f64,
    /// 97.5th percentile.
    pub high: f64,
}

/// The plots of these outcomes, in their order.
pub fn plots(outcomes: &[Outcome]) -> Vec<Plot<'_>> {
    let mut plots: Vec<Plot> = Vec::new();
    for outcome in outcomes {
        let Some(title) = outcome.plot.as_deref() else { continue };
        let same = |plot: &&mut Plot| {
            let first = plot.outcomes.first();
            plot.title == title
                && plot.unit == outcome.unit
                && first.is_some_and(|first| first.suite == outcome.suite)
        };
        if let Some(plot) = plots.iter_mut().find(same) {
            plot.outcomes.push(outcome);
        } else {
            let x_label = outcome.x_label.as_deref().unwrap_or("");
            let outcomes = vec![outcome];
            plots.push(Plot { title, x_label, unit: &outcome.unit, outcomes, lines: Vec::new() });
        }
    }
    for plot in &mut plots {
        plot.lines = lines(&plot.outcomes);
    }
    plots
}

impl Plot<'_> {
    /// What was varied, by rising value.
    pub fn values(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.outcomes.iter().filter_map(|outcome| outcome.x).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }

    /// What papers report for the whole of it.
    pub fn papers(&self) -> Vec<&str> {
        if self.has_papers_by_value() { Vec::new() } else { papers(self.outcomes.iter().copied()) }
    }

    /// What papers report for a value; nothing where they do for the whole.
    pub fn papers_at(&self, x: f64) -> Vec<&str> {
        let at = self.outcomes.iter().copied().filter(|outcome| outcome.x == Some(x));
        if self.has_papers_by_value() { papers(at) } else { Vec::new() }
    }

    /// Whether papers report something else for some value than for another.
    pub fn has_papers_by_value(&self) -> bool {
        self.outcomes.iter().any(|one| {
            let same = |other: &&&Outcome| other.figure == one.figure;
            self.outcomes.iter().filter(same).any(|other| other.paper != one.paper)
        })
    }

    /// The name of the line of a figure.
    pub fn line_name(&self, figure: &str) -> Option<&str> {
        let line = self.lines.iter().find(|line| line.figure == figure);
        line.map(|line| line.name.as_str())
    }
}

/// Each paper's words once.
fn papers<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Vec<&'a str> {
    let mut papers: Vec<&str> = Vec::new();
    for paper in outcomes.filter_map(|outcome| outcome.paper.as_deref()) {
        if !papers.contains(&paper) {
            papers.push(paper);
        }
    }
    papers
}

fn lines<'a>(outcomes: &[&'a Outcome]) -> Vec<Line<'a>> {
    let ferry = outcomes.iter().map(|outcome| {
        (outcome.side.as_str(), outcome.figure.as_str(), outcome.x, outcome.ferry, &outcome.samples)
    });
    let peer = outcomes.iter().map(|outcome| {
        let figures = &outcome.peer_samples;
        (outcome.beside.as_str(), outcome.peer_figure.as_str(), outcome.x, outcome.peer, figures)
    });
    let mut lines: Vec<Line> = Vec::new();
    for (side, figure, x, median, samples) in ferry.chain(peer) {
        let (Some(x), Some(y)) = (x, median) else { continue };
        let at = lines.iter().position(|line| line.figure == figure).unwrap_or_else(|| {
            lines.push(Line { name: String::new(), side, figure, points: Vec::new() });
            lines.len() - 1
        });
        let interval = statistics::median_interval(samples);
        let (low, high) = interval.map_or((y, y), |Interval { low, high, .. }| (low, high));
        let points = &mut lines[at].points;
        if points.iter().all(|point| point.x != x) {
            points.push(Point { x, y, low, high });
        }
    }
    let names: Vec<String> = lines.iter().map(|line| name(line, &lines)).collect();
    for (line, name) in lines.iter_mut().zip(names) {
        line.name = name;
        line.points.sort_by(|one, other| one.x.total_cmp(&other.x));
    }
    lines
}

/// The side, and the figure where others have the same side.
fn name(line: &Line, lines: &[Line]) -> String {
    if lines.iter().filter(|other| other.side == line.side).count() == 1 {
        return line.side.to_owned();
    }
    let figure = line.figure.split_once(' ').map_or(line.figure, |(_, figure)| figure);
    let words = figure.replace("{}", "").replace('_', " ");
    let words: Vec<&str> = words.split_whitespace().collect();
    format!("{}: {}", line.side, words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::outcome::{Samples, outcomes};
    use crate::bench::suite::{Curve, Place, Suite, case, program};

    const fn curve(name: &'static str, figure: &'static str, peer: &'static str) -> Curve {
        let case = case(name, "ns", figure, peer, 1.0);
        Curve { plot: "batches", x: "calls", values: &[64, 1], case }
    }

    static SUITE: Suite = Suite {
        name: "s",
        runs: &[
            program("posted", Place::Ferry("posted"), &[]),
            program("linux", Place::Peer(""), &[]),
        ],
        curves: &[
            curve("post", "posted batch_{}", "linux trap"),
            curve("post beside uring", "posted batch_{}", "linux uring_{}"),
            curve("trap", "posted trap", "linux trap"),
        ],
        ..Suite::EMPTY
    };

    fn measured() -> Vec<Outcome> {
        let figures: [(&str, &[f64]); 5] = [
            ("posted batch_1", &[10.0, 12.0, 11.0]),
            ("posted batch_64", &[1.0]),
            ("posted trap", &[20.0]),
            ("linux trap", &[30.0]),
            ("linux uring_64", &[5.0]),
        ];
        let samples = figures.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec()));
        outcomes(&SUITE, &samples.collect::<Samples>(), false)
    }

    #[test]
    fn a_line_is_there_once_however_many_cases_it_is_in() {
        let outcomes = measured();
        let plots = plots(&outcomes);
        assert_eq!(plots.len(), 1);
        let names: Vec<_> = plots[0].lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(
            names,
            ["Ferry posted: batch", "Ferry posted: trap", "Linux: trap", "Linux: uring"]
        );
        assert_eq!(plots[0].line_name("linux trap"), Some("Linux: trap"));
        assert_eq!(plots[0].values(), [1.0, 64.0]);
    }

    #[test]
    fn points_rise_and_have_intervals_and_those_not_measured_are_left_out() {
        let outcomes = measured();
        let plots = plots(&outcomes);
        let batch = &plots[0].lines[0].points;
        assert_eq!(batch[0], Point { x: 1.0, y: 11.0, low: 10.0, high: 12.0 });
        assert_eq!(batch[1], Point { x: 64.0, y: 1.0, low: 1.0, high: 1.0 });
        assert_eq!(plots[0].lines[3].points.len(), 1);
    }

    #[test]
    fn papers_stand_at_their_value_or_once_for_all() {
        let mut outcomes = measured();
        for outcome in &mut outcomes {
            outcome.paper = Some("ten times".to_owned());
        }
        assert_eq!(plots(&outcomes)[0].papers(), ["ten times"]);
        outcomes[0].paper = Some("twice".to_owned());
        let plots = plots(&outcomes);
        assert!(plots[0].papers().is_empty());
        assert_eq!(plots[0].papers_at(64.0), ["twice", "ten times"]);
        assert_eq!(plots[0].papers_at(1.0), ["ten times"]);
    }

    #[test]
    fn a_side_with_one_line_needs_no_figure_in_its_name() {
        let mut outcomes = measured();
        outcomes.truncate(2);
        let plots = plots(&outcomes);
        let names: Vec<_> = plots[0].lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["Ferry posted", "Linux"]);
    }
}
