//! Simulations as HTML pages without scripts: what each core did, and how a sweep went. The page is made as
//! that of `ferry trace plot`.

use maud::{Markup, html};
use sim::Outcome;

/// Width and height of a bar, in pixels.
const BAR: (f64, f64) = (800.0, 26.0);
/// Width and height of the area of a curve, in pixels.
const AREA: (f64, f64) = (800.0, 320.0);
/// Room beside and below the area, for figures.
const MARGIN: f64 = 60.0;

/// What an application core does, with colours (Okabe and Ito).
const PARTS: [(&str, &str); 6] = [
    ("its programs", "#f0e442"),
    ("calls on it", "#005a9c"),
    ("locks", "#b84a00"),
    ("answers of kernel cores", "#56b4e9"),
    ("devices and others", "#bbbbbb"),
    ("memory", "#cc79a7"),
];

/// What a kernel core does.
const SERVER_PARTS: [(&str, &str); 2] = [("handling", "#005a9c"), ("spinning", "#b84a00")];

/// Colours of curves.
const COLOURS: [&str; 7] =
    ["#005a9c", "#b84a00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];

/// The page of one simulation, with the text that the terminal has.
pub fn outcome(title: &str, outcome: &Outcome, text: &str) -> String {
    let share = |ticks: u64| ticks as f64 / outcome.ended.max(1) as f64;
    let streams = outcome.streams.iter().map(|stream| {
        let times = [
            stream.user,
            stream.kernel,
            stream.lock_wait,
            stream.away_wait,
            stream.blocked,
            stream.memory_wait,
        ];
        (format!("core {}", stream.core), times.map(share).to_vec())
    });
    let servers = outcome.servers.iter().filter(|server| server.requests > 0).map(|server| {
        let times = [server.busy, server.spinning].map(share).to_vec();
        (format!("kernel core {}", server.core), times)
    });
    let body = html! {
        section {
            h2 { "What the cores waited for and did" }
            (legend(&PARTS))
            @for (name, shares) in streams { (bar(&name, &shares, &PARTS)) }
        }
        section {
            h2 { "Kernel cores" }
            (legend(&SERVER_PARTS))
            @for (name, shares) in servers { (bar(&name, &shares, &SERVER_PARTS)) }
        }
        section { h2 { "In numbers" } pre { (text) } }
    };
    crate::page::page(title, &body)
}

fn legend(parts: &[(&str, &str)]) -> Markup {
    html! {
        p { @for (name, colour) in parts { span style=(format!("color:{colour}")) { "■ " } (name) " " } "□ nothing" }
    }
}

fn bar(name: &str, shares: &[f64], parts: &[(&str, &str)]) -> Markup {
    let (width, height) = BAR;
    let before = |at: usize| shares[..at].iter().sum::<f64>().min(1.0);
    html! {
        figure {
            figcaption { (name) }
            svg viewBox=(format!("0 0 {width} {height}")) width="100%" role="img" {
                rect x="0" y="0" width=(width) height=(height) fill="#ffffff" stroke="#dddddd" {}
                @for (at, (share, (part, colour))) in shares.iter().zip(parts).enumerate() {
                    rect x=(format!("{:.2}", before(at) * width)) y="0" height=(height) fill=(colour)
                        width=(format!("{:.2}", share.min(1.0 - before(at)).max(0.0) * width)) {
                        title { (part) ": " (format!("{:.1} %", share * 100.0)) }
                    }
                }
            }
        }
    }
}

/// A curve: its name, and its points.
pub type Curve = (String, Vec<(f64, f64)>);

/// The page of a sweep: throughput over what was varied, with the table that the terminal has.
pub fn sweep(title: &str, what: &str, curves: &[Curve], text: &str) -> String {
    let body = html! {
        section {
            h2 { "Calls per second by " (what) }
            p {
                @for (at, (name, _)) in curves.iter().enumerate() {
                    span style=(format!("color:{}", COLOURS[at % COLOURS.len()])) { "■ " } (name) " "
                }
            }
            (plot(what, curves))
        }
        section { h2 { "In numbers" } pre { (text) } }
    };
    crate::page::page(title, &body)
}

fn plot(what: &str, curves: &[Curve]) -> Markup {
    let (width, height) = AREA;
    let points = || curves.iter().flat_map(|(_, points)| points);
    let least_x = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let most_x = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
    let most_y = points().map(|point| point.1).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let place_x = |x: f64| MARGIN + (x - least_x) / (most_x - least_x).max(1e-9) * width;
    let place_y = |y: f64| height - y / most_y * (height - 20.0);
    let line = |points: &[(f64, f64)]| {
        let places = points.iter().map(|(x, y)| format!("{:.1},{:.1}", place_x(*x), place_y(*y)));
        places.collect::<Vec<_>>().join(" ")
    };
    html! {
        svg viewBox=(format!("0 0 {} {}", width + 2.0 * MARGIN, height + MARGIN)) width="100%" role="img" {
            line x1=(MARGIN) x2=(MARGIN + width) y1=(height) y2=(height) stroke="#000000" {}
            line x1=(MARGIN) x2=(MARGIN) y1="0" y2=(height) stroke="#000000" {}
            text x=(MARGIN) y=(height + 18.0) font-size="14" { (least_x) }
            text x=(MARGIN + width) y=(height + 18.0) font-size="14" text-anchor="end" { (most_x) }
            text x=(MARGIN + width / 2.0) y=(height + 36.0) font-size="14" text-anchor="middle" { (what) }
            text x=(MARGIN - 4.0) y="20" font-size="14" text-anchor="end" { (format!("{most_y:.0}")) }
            text x=(MARGIN - 4.0) y=(height) font-size="14" text-anchor="end" { "0" }
            @for (at, (_, points)) in curves.iter().enumerate() {
                @let colour = COLOURS[at % COLOURS.len()];
                polyline points=(line(points)) fill="none" stroke=(colour) stroke-width="2" {}
                @for (x, y) in points {
                    circle cx=(format!("{:.1}", place_x(*x))) cy=(format!("{:.1}", place_y(*y))) r="4" fill=(colour) {
                        title { (x) ": " (format!("{y:.0}")) }
                    }
                }
            }
        }
    }
}
