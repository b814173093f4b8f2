//! A trace as an HTML page without scripts, network or other files: time line of the cores, distributions
//! of the calls, and the tables of the summary. Made as the page of `ferry bench` is.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use abi::trace::{EventKind, Record};
use anyhow::Result;
use maud::{Markup, html};
use trace::summary::Summary;
use trace::{Histogram, Names, Reader};

use super::tables;

/// Steps of the time line.
const BINS: usize = 160;
/// Width and height of a step, in pixels.
const BIN: (usize, usize) = (5, 40);
/// Height of a distribution, in pixels.
const HEIGHT: f64 = 80.0;
/// Calls whose distribution is drawn: those that took most time.
const DRAWN_CALLS: usize = 8;

/// What a core does in a step of the time line, with its colour (Okabe and Ito).
const KINDS: [(&str, &str); 3] =
    [("kernel", "#005a9c"), ("spinning", "#b84a00"), ("parked", "#bbbbbb")];

/// The page of a trace.
pub fn page(
    file: &Path,
    summary: &Summary,
    names: Names,
    reader: Reader<BufReader<File>>,
) -> Result<String> {
    let ticks_per_second = reader.header().ticks_per_second;
    let lines = time_line(summary, reader)?;
    let title = format!("Trace {}", file.display());
    let seconds = summary.duration() as f64 / ticks_per_second.max(1) as f64;
    let mut calls: Vec<_> = summary.by_call.iter().collect();
    calls.sort_by_key(|(_, calls)| std::cmp::Reverse(calls.total.sum()));
    let body = html! {
                section {
                    h2 { "What the cores did" }
                    p {
                        "From left to right " (format!("{seconds:.6}")) " s. White is the programs' own time. "
                        @for (kind, colour) in KINDS {
                            span style=(format!("color:{colour}")) { "■ " } (kind) " "
                        }
                    }
                    @for (core, bins) in &lines { (strip(*core, bins)) }
                }
                section {
                    h2 { "How long calls took" }
                    p { "Number of calls by duration, on a scale of doublings; those that took most time first." }
                    @for (number, calls) in calls.iter().take(DRAWN_CALLS) {
                        (histogram(&names(**number), &calls.total, ticks_per_second))
                    }
                }
                section {
                    h2 { "In numbers" }
                    pre { (tables::summary(summary, ticks_per_second, names)) }
                }
    };
    Ok(crate::page::page(&title, &body))
}

/// Share of each step that a core spent in each kind.
type Bins = Vec<[f64; KINDS.len()]>;

fn time_line(summary: &Summary, mut reader: Reader<BufReader<File>>) -> Result<Vec<(u8, Bins)>> {
    let began = summary.began.unwrap_or(0);
    let step = (summary.duration() as f64 / BINS as f64).max(1.0);
    let mut lines: Vec<(u8, Bins)> =
        summary.cores.keys().map(|&core| (core, vec![[0.0; KINDS.len()]; BINS])).collect();
    let mut add = |core: u8, kind: usize, start: u64, ticks: u64| {
        let Some((_, bins)) = lines.iter_mut().find(|(number, _)| *number == core) else { return };
        let (from, to) = ((start - began) as f64 / step, (start + ticks - began) as f64 / step);
        for (at, bin) in bins.iter_mut().enumerate().skip(from as usize) {
            let overlap = to.min(at as f64 + 1.0) - from.max(at as f64);
            if overlap <= 0.0 {
                break;
            }
            bin[kind] += overlap;
        }
    };
    while let Some(entry) = reader.next_entry()? {
        match entry.record {
            Record::Call(call) => {
                add(call.core, 0, call.start, call.enter.ticks());
                let handler = call.start + call.enter.ticks() + call.fly_in.ticks();
                add(call.server_core, 0, handler, call.poll.ticks());
                add(call.core, 0, call.end() - call.exit.ticks(), call.exit.ticks());
            }
            Record::Event(event) => {
                let kind = match event.kind {
                    EventKind::Spin => 1,
                    EventKind::Park => 2,
                    EventKind::Interrupt | EventKind::PageFault | EventKind::Switch => 0,
                    _ => continue,
                };
                add(event.core, kind, event.time, event.duration.ticks());
            }
            Record::Lock(_) => {}
        }
    }
    Ok(lines)
}

fn strip(core: u8, bins: &Bins) -> Markup {
    let (width, height) = BIN;
    html! {
        figure {
            figcaption { "core " (core) }
            svg viewBox=(format!("0 0 {} {height}", BINS * width)) width="100%" role="img" {
                rect x="0" y="0" width=(BINS * width) height=(height) fill="#ffffff" stroke="#dddddd" {}
                @for (at, bin) in bins.iter().enumerate() {
                    @for (kind, (_, colour)) in KINDS.iter().enumerate() {
                        @let below: f64 = bin[..kind].iter().sum::<f64>().min(1.0);
                        @let share = bin[kind].min(1.0 - below);
                        @if share > 0.0 {
                            rect x=(at * width) width=(width) fill=(colour)
                                y=(format!("{:.1}", height as f64 * (1.0 - below - share)))
                                height=(format!("{:.1}", height as f64 * share)) {}
                        }
                    }
                }
            }
        }
    }
}

fn histogram(name: &str, histogram: &Histogram, ticks_per_second: u64) -> Markup {
    let ticks = |ns: u64| (ns as f64 * ticks_per_second as f64 / 1e9) as u64;
    // Doublings from 16 ns to 17 s.
    let bounds: Vec<u64> = (4..34).map(|power| ticks(1 << power).max(1)).collect();
    let counts = histogram.ranges(&bounds);
    let most = counts.iter().copied().max().unwrap_or(1).max(1) as f64;
    let label = |at: usize| match at {
        0 => "below 16 ns".to_owned(),
        at => format!("{} ns", 8_u64 << at),
    };
    html! {
        figure {
            figcaption { code { (name) } ", " (histogram.count()) " calls" }
            svg viewBox=(format!("0 0 {} {}", counts.len() * 16, HEIGHT + 4.0)) width="100%" role="img" {
                @for (at, count) in counts.iter().enumerate() {
                    @let height = *count as f64 / most * HEIGHT;
                    rect x=(at * 16) width="14" fill="#005a9c"
                        y=(format!("{:.1}", HEIGHT - height)) height=(format!("{height:.1}")) {
                        title { (label(at)) ": " (count) }
                    }
                }
                line x1="0" x2=(counts.len() * 16) y1=(HEIGHT) y2=(HEIGHT) stroke="#000000" {}
            }
        }
    }
}
