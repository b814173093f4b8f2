//! Outcomes: what is made of the figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::modelled::MODEL;
use super::statistics::{self, Interval};
use super::suite::{Case, Curve, Place, Suite, Target};

/// Follows the name of a side in figures of the peer as Debian boots it by default.
pub const DEFAULTS: &str = "@defaults";

/// Figures by name, one per repeat that yielded one.
pub type Samples = BTreeMap<String, Vec<f64>>;

/// One line of a result table, as it is written to JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the suite.
    pub suite: String,
    /// Name of the case.
    pub case: String,
    /// Of `ferry` and `peer`.
    pub unit: String,
    /// Median on Ferry.
    pub ferry: Option<f64>,
    /// Median of what it is compared with.
    pub peer: Option<f64>,
    /// Ferry over peer.
    pub ratio: Option<f64>,
    /// Lower end of the 95 % bootstrap interval of the ratio.
    pub ratio_low: Option<f64>,
    /// Upper end of the 95 % bootstrap interval of the ratio.
    pub ratio_high: Option<f64>,
    /// Measurements that both sides have at least; Ferry's where there is no other side.
    pub repeats: usize,
    /// What `ferry` was measured on, in words.
    #[serde(default)]
    pub side: String,
    /// What `peer` was measured on, in words; empty where there is nothing to compare with.
    #[serde(default)]
    pub beside: String,
    /// Name of the figure that `ferry` is made of, with `{}` for what is varied.
    #[serde(default)]
    pub figure: String,
    /// Likewise for `peer`.
    #[serde(default)]
    pub peer_figure: String,
    /// Median of the peer as Debian boots it by default, with its mitigations.
    pub peer_defaults: Option<f64>,
    /// The plot that it is a point of.
    pub plot: Option<String>,
    /// What is varied in that plot.
    pub x_label: Option<String>,
    /// Its value.
    pub x: Option<f64>,
    /// What Ferry wants; nothing where the figures are for information.
    pub target: Option<f64>,
    /// What has to be how large: `ratio <=`, `value >=` and so on.
    pub target_of: String,
    /// Whether Ferry reaches it; `None` when it was not measured.
    pub met: Option<bool>,
    /// Medians of the figures beside; those of the peer are named `peer ...`.
    #[serde(default)]
    pub counters: BTreeMap<String, f64>,
    /// What a paper reports for the like.
    pub paper: Option<String>,
    /// Ferry's figures, one per repeat.
    #[serde(default)]
    pub samples: Vec<f64>,
    /// Those of the other side.
    #[serde(default)]
    pub peer_samples: Vec<f64>,
}

/// The outcomes of a suite; with `is_native`, of the cases that the host alone yields.
pub fn outcomes(suite: &Suite, samples: &Samples, is_native: bool) -> Vec<Outcome> {
    let has_model = samples.keys().any(|name| side(name).ends_with(MODEL));
    let cases = suite.cases.iter().filter(|case| !is_native || case.ferry.starts_with("host "));
    // Cases of the model are only there when it was asked for.
    let cases = cases.filter(|case| has_model || !side(case.ferry).ends_with(MODEL));
    let mut outcomes: Vec<Outcome> =
        cases.map(|case| outcome(suite, case, case.ferry, case.peer, samples)).collect();
    for curve in suite.curves.iter().filter(|_| !is_native) {
        let first = outcomes.len();
        for (at, value) in curve.values.iter().enumerate() {
            let name = |figure: &str| figure.replace("{}", &value.to_string());
            let (ferry, peer) = (name(curve.case.ferry), name(curve.case.peer));
            let mut point = outcome(suite, &curve.case, &ferry, &peer, samples);
            point.case = format!("{}, {value}", curve.case.name);
            point.plot = Some(curve.plot.to_owned());
            point.x_label = Some(curve.x.to_owned());
            point.x = Some(f64::from(*value));
            point.paper =
                curve.case.papers.get(at).map(|paper| (*paper).to_owned()).or(point.paper);
            outcomes.push(point);
        }
        if let Some(most) = curve.case.ahead_from {
            let line = ahead_from(suite.name, curve, most, &outcomes[first..]);
            outcomes.push(line);
        }
    }
    outcomes
}

/// The least value of a curve from which on Ferry is ahead at every one. Without such a value, though
/// all were measured, the target is missed and there is no figure.
fn ahead_from(suite: &str, curve: &Curve, most: f64, points: &[Outcome]) -> Outcome {
    let is_ahead = |ratio: f64| if curve.case.is_rate { ratio > 1.0 } else { ratio < 1.0 };
    let ratios: Option<Vec<f64>> = points.iter().map(|point| point.ratio).collect();
    let behind = ratios.as_ref().map(|ratios| {
        let last = ratios.iter().rposition(|ratio| !is_ahead(*ratio));
        last.map_or(0, |last| last + 1)
    });
    let value = behind.and_then(|at| curve.values.get(at)).map(|value| f64::from(*value));
    Outcome {
        suite: suite.to_owned(),
        case: format!("{}: ahead from", curve.case.name),
        unit: curve.x.to_owned(),
        ferry: value,
        peer: None,
        ratio: None,
        ratio_low: None,
        ratio_high: None,
        repeats: points.iter().map(|point| point.repeats).min().unwrap_or(0),
        side: points.first().map_or(String::new(), |point| point.side.clone()),
        beside: points.first().map_or(String::new(), |point| point.beside.clone()),
        figure: curve.case.ferry.to_owned(),
        peer_figure: curve.case.peer.to_owned(),
        peer_defaults: None,
        plot: None,
        x_label: None,
        x: None,
        target: Some(most),
        target_of: Target::ValueAtMost(most).relation().to_owned(),
        met: behind.map(|_| value.is_some_and(|value| value <= most)),
        counters: BTreeMap::new(),
        paper: None,
        samples: Vec::new(),
        peer_samples: Vec::new(),
    }
}

/// The side of a figure's name.
pub fn side(figure: &str) -> &str {
    figure.split(' ').next().unwrap_or(figure)
}

/// A figure's side for people: `Ferry posted`, `Linux`.
fn side_in_words(suite: &Suite, figure: &str) -> String {
    let side = side(figure);
    let place = suite.runs.iter().find(|run| run.side == side).map(|run| run.place);
    match place {
        Some(Place::Ferry(_)) if side == "ferry" => "Ferry".to_owned(),
        Some(Place::Ferry(_)) => format!("Ferry {side}"),
        Some(Place::Peer(_)) => match side.strip_prefix("linux").unwrap_or(side) {
            "" => "Linux".to_owned(),
            which => format!("Linux {}", which.trim_start_matches(['_', '-'])),
        },
        Some(Place::Host) | None => side.to_owned(),
    }
}

/// The counters of a figure: `SIDE FIGURE.WHAT`.
fn counters<'a>(
    figure: &'a str,
    prefix: &'a str,
    samples: &'a Samples,
) -> impl Iterator<Item = (String, f64)> + 'a {
    samples.iter().filter_map(move |(name, values)| {
        let what = name.strip_prefix(figure)?.strip_prefix('.')?;
        Some((format!("{prefix}{what}"), statistics::median(values)?))
    })
}

fn outcome(suite: &Suite, case: &Case, ferry: &str, peer: &str, samples: &Samples) -> Outcome {
    let figures = |name: &str| -> Vec<f64> {
        let figures = samples.get(name).into_iter().flatten();
        let figures = figures.map(|figure| if case.is_rate { 1e3 / figure } else { *figure });
        // The rate of what took no time is no figure.
        figures.filter(|figure| figure.is_finite()).collect()
    };
    let peer_defaults = match peer.split_once(' ') {
        Some((side, figure)) => figures(&format!("{side}{DEFAULTS} {figure}")),
        None => Vec::new(),
    };
    let (side, beside) = (side_in_words(suite, ferry), side_in_words(suite, peer));
    let counted = counters(ferry, "", samples).chain(counters(peer, "peer ", samples));
    let (ferry, peer) = (figures(ferry), figures(peer));
    let interval = statistics::ratio_interval(&ferry, &peer);
    let value = statistics::median(&ferry);
    let ratio = interval.map(|Interval { middle, .. }| middle);
    let named = case.counters.iter().filter_map(|name| {
        let value = statistics::median(samples.get(*name)?)?;
        Some((name.split(' ').next_back()?.to_owned(), value))
    });
    Outcome {
        suite: suite.name.to_owned(),
        case: case.name.to_owned(),
        unit: case.unit.to_owned(),
        ferry: value,
        peer: statistics::median(&peer),
        ratio,
        ratio_low: interval.map(|Interval { low, .. }| low),
        ratio_high: interval.map(|Interval { high, .. }| high),
        repeats: if case.peer.is_empty() { ferry.len() } else { ferry.len().min(peer.len()) },
        side,
        beside,
        figure: case.ferry.to_owned(),
        peer_figure: case.peer.to_owned(),
        peer_defaults: statistics::median(&peer_defaults),
        plot: None,
        x_label: None,
        x: None,
        target: case.target.bound(),
        target_of: case.target.relation().to_owned(),
        met: case.target.is_met(value, ratio),
        counters: named.chain(counted).collect(),
        paper: case.paper.map(str::to_owned),
        samples: ferry,
        peer_samples: peer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::suite::{case, program};

    static SUITE: Suite = Suite {
        name: "s",
        runs: &[
            program("a", Place::Ferry("remote"), &[]),
            program("b", Place::Peer(""), &[]),
            program("linux", Place::Peer(""), &[]),
            program("linux1", Place::Peer(""), &[]),
        ],
        ..Suite::EMPTY
    };

    fn samples(figures: &[(&str, &[f64])]) -> Samples {
        figures.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec())).collect()
    }

    fn measured(case: Case, samples: &Samples) -> Outcome {
        outcome(&SUITE, &case, case.ferry, case.peer, samples)
    }

    #[test]
    fn a_ratio_is_that_of_the_medians() {
        let samples = samples(&[("a x", &[1.0, 2.0, 9.0]), ("b x", &[4.0, 4.0])]);
        let outcome = measured(case("c", "ns", "a x", "b x", 0.5), &samples);
        assert_eq!((outcome.ferry, outcome.peer), (Some(2.0), Some(4.0)));
        assert_eq!((outcome.ratio, outcome.met, outcome.repeats), (Some(0.5), Some(true), 2));
    }

    #[test]
    fn rates_are_per_microsecond_and_larger_is_better() {
        let samples = samples(&[("a x", &[5.0]), ("b x", &[50.0])]);
        let case = case("c", "ns", "a x", "b x", 0.0).rate(8.0);
        let outcome = measured(case, &samples);
        assert_eq!((outcome.ferry, outcome.peer), (Some(200.0), Some(20.0)));
        assert_eq!((outcome.ratio, outcome.met), (Some(10.0), Some(true)));
    }

    #[test]
    fn a_case_without_a_peer_is_judged_by_its_value() {
        let samples = samples(&[("a x", &[3.0]), ("a y", &[7.0])]);
        let case = case("c", "", "a x", "", 0.0).wants(Target::ValueAtMost(1.0)).beside(&["a y"]);
        let outcome = measured(case, &samples);
        assert_eq!((outcome.ratio, outcome.met, outcome.repeats), (None, Some(false), 1));
        assert_eq!(outcome.counters.get("y"), Some(&7.0));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let outcome = measured(case("c", "ns", "a x", "b x", 0.5), &Samples::new());
        assert_eq!((outcome.ferry, outcome.ratio, outcome.met), (None, None, None));
    }

    #[test]
    fn figures_with_a_dot_are_counters_of_their_figure() {
        let samples = samples(&[
            ("a x", &[1.0]),
            ("a x.traps", &[7.0, 9.0]),
            ("b x.traps", &[3.0]),
            ("a xy.traps", &[1.0]),
            ("b@defaults x", &[5.0]),
        ]);
        let outcome = measured(case("c", "ns", "a x", "b x", 0.5), &samples);
        let counters: Vec<_> = outcome.counters.into_iter().collect();
        assert_eq!(counters, [("peer traps".to_owned(), 3.0), ("traps".to_owned(), 8.0)]);
        assert_eq!((outcome.beside.as_str(), outcome.peer_defaults), ("Linux b", Some(5.0)));
    }

    #[test]
    fn a_curve_is_a_case_for_each_value() {
        static CURVE: Curve = Curve {
            plot: "p",
            x: "batch",
            values: &[1, 64],
            case: case("c", "ns", "a x_{}", "b x", 1.0).informs(),
        };
        let suite = Suite { name: "s", curves: std::slice::from_ref(&CURVE), ..Suite::EMPTY };
        let samples = samples(&[("a x_1", &[4.0]), ("a x_64", &[2.0]), ("b x", &[8.0])]);
        let points = outcomes(&suite, &samples, false);
        let ratios: Vec<_> = points.iter().map(|point| (point.x, point.ratio)).collect();
        assert_eq!(ratios, [(Some(1.0), Some(0.5)), (Some(64.0), Some(0.25))]);
        assert_eq!((points[1].case.as_str(), points[1].met), ("c, 64", None));
        assert_eq!((points[0].figure.as_str(), points[0].peer_figure.as_str()), ("a x_{}", "b x"));
        assert_eq!((&points[0].samples, &points[0].peer_samples), (&vec![4.0], &vec![8.0]));
    }

    #[test]
    fn ahead_means_at_all_later_values_too() {
        static CURVE: Curve = Curve {
            plot: "p",
            x: "coroutines",
            values: &[1, 2, 4],
            case: case("c", "ns", "a {}", "b", 1.0).papers(&["one", "two"]).ahead_from(2.0),
        };
        let suite = Suite { name: "s", curves: std::slice::from_ref(&CURVE), ..Suite::EMPTY };
        let found = |figures: [f64; 3]| {
            let [one, two, four] = figures.each_ref().map(std::slice::from_ref);
            let samples = samples(&[("a 1", one), ("a 2", two), ("a 4", four), ("b", &[5.0])]);
            let mut outcomes = outcomes(&suite, &samples, false);
            let papers: Vec<_> = outcomes.iter().map(|line| line.paper.as_deref()).collect();
            assert_eq!(papers, [Some("one"), Some("two"), None, None]);
            let line = outcomes.pop().unwrap();
            (line.ferry, line.met)
        };
        assert_eq!(found([4.0, 4.0, 4.0]), (Some(1.0), Some(true)));
        assert_eq!(found([6.0, 4.0, 4.0]), (Some(2.0), Some(true)));
        assert_eq!(found([4.0, 6.0, 4.0]), (Some(4.0), Some(false)));
        assert_eq!(found([4.0, 4.0, 6.0]), (None, Some(false)));
        let unmeasured = outcomes(&suite, &Samples::new(), false).pop().unwrap();
        assert_eq!((unmeasured.ferry, unmeasured.met), (None, None));
    }

    #[test]
    fn sides_are_told_in_words() {
        let of = |figure| side_in_words(&SUITE, figure);
        let words = ["a x", "b x", "linux x", "linux1 x", "gone x", ""].map(of);
        assert_eq!(words, ["Ferry a", "Linux b", "Linux", "Linux 1", "gone", ""]);
    }

    #[test]
    fn what_an_earlier_tool_did_not_write_is_empty() {
        let outcome = measured(case("c", "ns", "a x", "b x", 0.5), &Samples::new());
        let mut value = serde_json::to_value(&outcome).unwrap();
        for name in ["side", "beside", "figure", "peer_figure", "peer_samples", "plot", "x"] {
            value.as_object_mut().unwrap().remove(name).unwrap();
        }
        let read: Outcome = serde_json::from_value(value).unwrap();
        assert_eq!((read.case.as_str(), read.beside.as_str(), read.x), ("c", "", None));
    }
}
