//! The page of results in a real browser: it is shown without complaints, each plot has something drawn
//! in it, and it fits a telephone and a printer.
//!
//! The record is made here: two suites, a curve over decades and a near one, and texts that would do harm
//! if they were taken for markup. The page is opened by itself, and once more in two frames, as wide as a
//! screen and as a telephone, whose script says where the plots lie and then fails on purpose: so this
//! test knows that it would hear of an error.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Bench;
use super::browser::{Area, Browser, Seen};
use super::report::{Case, Filter, Report};
use crate::process;

/// What making a page may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Widths of a screen and of a telephone, in pixels.
const WIDTHS: [(&str, usize); 2] = [("screen", 1100), ("telephone", 390)];
/// Height of the window: no page of this test is longer.
const HEIGHT: usize = 9000;
/// Of a plot, this share is ink: less is empty, more is a blot.
const INK: std::ops::Range<f64> = 0.004..0.4;
/// Fewer colours than these are no plot: letters alone have more shades.
const LEAST_COLOURS: usize = 12;
/// Letters of this size, in pixels, can still be read.
const LEAST_LETTERS: f64 = 9.0;
/// Width and size of letters of a plot as it is drawn.
const DRAWN: (f64, f64) = (480.0, 13.0);
/// Text that is markup unless it is escaped.
const HOSTILE: &str = "</style><script>alert('x')</script>\"&<b>";
/// What the script of the frames ends with.
const ON_PURPOSE: &str = "on purpose";

/// Runs the stage.
pub fn run(bench: &Bench, filter: &Filter, report: &mut Report) -> Result<()> {
    let work = bench.work.join("page");
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let Some(browser) = Browser::find(&work) else {
        report.note("page: not run, because there is no browser (Debian's package chromium)");
        return Ok(());
    };
    report.progress("page: results in a browser");
    let page = make_page(bench, &work, &record())?;
    let plots = count(&page, "<svg ");
    let seen = browser.look(&page, (1100, 4000))?;
    let framed = browser.look(&frames(&work, &page)?, (WIDTHS[0].1 as u32 + 400, HEIGHT as u32))?;
    let mut checks: Vec<(String, Result<()>)> = vec![
        ("page/no-complaints".to_owned(), no_complaints(&seen, &framed)),
        ("page/shown".to_owned(), shown(&seen, plots)),
        ("page/printed".to_owned(), printed(&seen)),
        ("page/kept-results".to_owned(), kept_results(bench, &work)),
    ];
    for (name, width) in WIDTHS {
        checks.push((format!("page/{name}"), fits(&framed, name, width, plots)));
    }
    let wanted = |name: &str| filter.wants("page", name.trim_start_matches("page/"));
    let cases: Vec<Case> = checks
        .into_iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, result)| Case::new(name, result.err().map(|error| format!("{error:#}"))))
        .collect();
    report.add("page", &cases);
    Ok(())
}

/// Writes a record and has the tool make its page.
fn make_page(bench: &Bench, work: &Path, record: &Value) -> Result<std::path::PathBuf> {
    let results = work.join("results");
    fs::create_dir_all(&results)?;
    fs::write(results.join("results.json"), record.to_string())?;
    let page = work.join("page.html");
    report_of(bench, &results, &page)?;
    Ok(page)
}

fn report_of(bench: &Bench, results: &Path, page: &Path) -> Result<()> {
    let mut command = Command::new(&bench.ferry.tool);
    command.args(["bench", "report"]).arg(results).arg("--html").arg(page);
    let finished = process::run(&mut command, b"", DEADLINE)?;
    ensure!(finished.succeeded(), "{}", finished.describe());
    Ok(())
}

fn count(page: &Path, text: &str) -> usize {
    fs::read_to_string(page).unwrap_or_default().matches(text).count()
}

fn no_complaints(seen: &Seen, framed: &Seen) -> Result<()> {
    ensure!(seen.console.is_empty(), "the console says:\n{}", seen.console.join("\n"));
    let [only] = framed.console.as_slice() else {
        bail!("not the one error made on purpose:\n{}", framed.console.join("\n"));
    };
    ensure!(only.contains(ON_PURPOSE), "not the error made on purpose: {only}");
    Ok(())
}

fn shown(seen: &Seen, plots: usize) -> Result<()> {
    // Two suites with a plot of ratios each, and two curves.
    ensure!(plots == 4, "the page has {plots} plots, not 4");
    let in_document = seen.document.matches("<svg ").count();
    ensure!(in_document == plots, "the browser has {in_document} plots, not {plots}");
    ensure!(!seen.document.contains("<script"), "a text became markup");
    let area = seen.picture.area();
    let (ink, colours) = (seen.picture.ink(area), seen.picture.colours(area));
    ensure!(INK.contains(&ink), "{ink} of the page is dark");
    ensure!(colours >= LEAST_COLOURS, "the page has {colours} colours");
    Ok(())
}

fn printed(seen: &Seen) -> Result<()> {
    ensure!(seen.print.starts_with(b"%PDF-"), "what is printed is no PDF");
    ensure!(seen.print.len() > 20_000, "what is printed has {} bytes", seen.print.len());
    Ok(())
}

/// Every result that is kept in the tree has a page with plots.
fn kept_results(bench: &Bench, work: &Path) -> Result<()> {
    let mut pages = 0;
    for entry in fs::read_dir(bench.root.join("bench/results"))? {
        let file = entry?.path();
        let page = work.join("kept.html");
        report_of(bench, &file, &page)?;
        let plots = count(&page, "<svg ");
        ensure!(plots > 0, "the page of {} has no plot", file.display());
        pages += 1;
    }
    ensure!(pages > 0, "there are no results in bench/results");
    Ok(())
}

/// A page with the page in frames of all widths, beside one another.
fn frames(work: &Path, page: &Path) -> Result<std::path::PathBuf> {
    let text = fs::read_to_string(page)?.replace('&', "&amp;").replace('"', "&quot;");
    let mut left = 0;
    let mut body = String::new();
    for (name, width) in WIDTHS {
        body += &format!(
            "<iframe id={name} style='position:absolute;border:0;top:0;left:{left}px;\
             width:{width}px;height:{HEIGHT}px' srcdoc=\"{text}\"></iframe>\n"
        );
        left += width;
    }
    // Each frame's widths and heights, then those of its plots, as numbers.
    let script = "onload = () => {
        for (const frame of document.querySelectorAll('iframe')) {
            const root = frame.contentDocument.documentElement;
            const left = frame.getBoundingClientRect().left;
            const plots = [...root.querySelectorAll('svg')].map(plot => plot.getBoundingClientRect());
            const numbers = plots.map(at => [at.left + left, at.top, at.width, at.height].map(Math.round));
            const body = root.querySelector('body').getBoundingClientRect();
            const all = [[root.scrollWidth, body.height], ...numbers];
            frame.dataset.seen = all.map(row => row.join(' ')).join(';');
        }
        throw new Error('on purpose');
    }";
    let file = work.join("frames.html");
    let text = format!("<!DOCTYPE html><meta charset=utf-8><body>{body}<script>{script}</script>");
    fs::write(&file, text)?;
    Ok(file)
}

/// What the script of a frame found: the width and height of what it shows, and its plots.
fn measures(document: &str, name: &str) -> Option<(usize, usize, Vec<Area>)> {
    let frame = document.split("<iframe ").find(|part| part.contains(&format!("id=\"{name}\"")))?;
    let seen = frame.rsplit_once("data-seen=\"")?.1.split('"').next()?;
    let mut rows = seen.split(';').map(|row| {
        row.split(' ').filter_map(|number| Some(number.parse::<f64>().ok()? as usize)).collect()
    });
    let whole: Vec<usize> = rows.next()?;
    let plots = rows.map(|row| match row[..] {
        [left, top, width, height] => Some(Area { left, top, width, height }),
        _ => None,
    });
    Some((*whole.first()?, *whole.get(1)?, plots.collect::<Option<_>>()?))
}

/// At this width nothing is cut off, and each plot can be read and has something drawn in it.
fn fits(framed: &Seen, name: &str, width: usize, count: usize) -> Result<()> {
    let measures = measures(&framed.document, name);
    let (wide, high, plots) = measures.context("the script of the frames did not run")?;
    ensure!(wide <= width, "the page is {wide} pixels wide, not {width}");
    ensure!(high < HEIGHT, "the page is {high} pixels high: let this test have a higher window");
    ensure!(plots.len() == count, "there are {} plots, not {count}", plots.len());
    for (at, plot) in plots.into_iter().enumerate() {
        let letters = plot.width as f64 / DRAWN.0 * DRAWN.1;
        ensure!(letters >= LEAST_LETTERS, "letters in plot {at} are {letters:.1} pixels high");
        let (ink, colours) = (framed.picture.ink(plot), framed.picture.colours(plot));
        ensure!(INK.contains(&ink), "{ink} of plot {at} is dark");
        ensure!(colours >= LEAST_COLOURS, "plot {at} has {colours} colours");
    }
    Ok(())
}

/// Results as `ferry bench` writes them; what is left out is empty.
fn record() -> Value {
    let curve = |plot: &str, side: &str, x: u32, figure: f64| {
        json!({
            "suite": "first", "case": format!("{side}, {x}"), "unit": "ns", "repeats": 3,
            "ferry": figure, "samples": [figure * 0.9, figure, figure * 1.2],
            "peer": 400.0, "peer_samples": [390.0, 400.0, 430.0],
            "ratio": figure / 400.0, "ratio_low": figure / 450.0, "ratio_high": figure / 350.0,
            "side": side, "beside": "Linux", "figure": format!("{side} {{}}"), "peer_figure": "linux trap",
            "plot": plot, "x_label": "calls at a time", "x": x,
            "target": 0.5, "target_of": "ratio <=", "met": figure <= 200.0,
            "counters": { "traps": 1.0 },
        })
    };
    let case = |suite: &str, name: &str, ratio: f64, met: Value| {
        json!({
            "suite": suite, "case": name, "unit": "ns", "repeats": 3, "beside": "Linux",
            "ferry": 400.0 * ratio, "peer": 400.0, "peer_defaults": 512.0,
            "ratio": ratio, "ratio_low": ratio * 0.9, "ratio_high": ratio * 1.2,
            "target": 0.5, "target_of": "ratio <=", "met": met, "paper": HOSTILE,
            "counters": { HOSTILE: 3.0 },
        })
    };
    let mut outcomes = vec![
        case("first", "getppid, a case with a long name that has to be broken", 0.3, json!(true)),
        case("first", HOSTILE, 3.0, json!(false)),
        case("second", "read", 0.9, json!(null)),
    ];
    for (side, cost) in [("Ferry local", 300.0), ("Ferry posted", 1500.0), (HOSTILE, 800.0)] {
        for x in [1, 8, 64, 512] {
            outcomes.push(curve("over decades", side, x, cost / f64::from(x)));
        }
    }
    for x in 1..=20 {
        outcomes.push(curve(HOSTILE, "Ferry posted", x, 200.0 + f64::from(x) * 10.0));
    }
    json!({
        "format": 2, "command": ["bench", "first", HOSTILE], "started": 1_700_000_000, "repeats": 3,
        "circumstances": {
            "processor": HOSTILE, "processors": 2, "host": "Linux", "qemu": "QEMU emulator version 7.2",
            "peer": "vmlinuz", "compiler": "cc", "load": 1.5, "commit": "0123456789ab+",
        },
        "outcomes": outcomes,
        "failures": [format!("first, linux, repeat 2: {HOSTILE}\nand its last words")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_found_is_read_by_the_name_of_the_frame() {
        let document = "<iframe id=\"screen\" srcdoc=\"x\" data-seen=\"1100 20.5;1 2 3 4\"></iframe>\
                        <iframe id=\"telephone\" data-seen=\"390 9\"></iframe>";
        let area = Area { left: 1, top: 2, width: 3, height: 4 };
        assert_eq!(measures(document, "screen"), Some((1100, 20, vec![area])));
        assert_eq!(measures(document, "telephone"), Some((390, 9, vec![])));
        assert_eq!(measures(document, "another"), None);
    }
}
