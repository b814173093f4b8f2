//! `ferry top`: what the machine does while it does it: a page of figures each interval, made of the
//! records of that interval, as `ferry run --trace` takes them out of the guest.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use abi::trace::{Call, Path, Record};
use anyhow::{Context, Result};
use policy::route::{self, Class};
use trace::summary::Summary;

use super::{Options, run_with};
use crate::bench::table::Table;
use crate::status::Usage;

/// Calls that a page shows.
const SHOWN: usize = 12;
/// The shortest interval, in seconds.
const SHORTEST: f64 = 0.05;
/// Back to the first column of the first line, and nothing below.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

/// Run a program and show what cores, servers and calls of the machine do meanwhile.
#[derive(Clone, clap::Args)]
#[command(
    after_help = "Example:\n  ferry top -- busybox sh -c 'while :; do ls -l / >/dev/null; done'\n\n\
    Shares are of the interval. A core that leaves no record at all is parked all the time or computes all \
    the time: \"quiet\"."
)]
pub struct Arguments {
    /// Seconds between two pages.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Where pages go, such as another terminal [default: standard error].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// Carries out `ferry top`; returns the program's exit status.
pub fn run(Arguments { interval, out, options }: &Arguments) -> Result<u8> {
    if !(SHORTEST..=86_400.0).contains(interval) {
        let text = format!("--interval {interval}: seconds from {SHORTEST} to 86400");
        return Err(Usage(text).into());
    }
    let (out, is_terminal): (Box<dyn Write + Send>, bool) = match out {
        Some(path) => {
            let file = File::options().write(true).create(true).truncate(true).open(path);
            let file = file.with_context(|| format!("cannot write {}", path.display()))?;
            let is_terminal = file.is_terminal();
            (Box::new(file), is_terminal)
        }
        None => (Box::new(std::io::stderr()), std::io::stderr().is_terminal()),
    };
    let mut options = options.clone();
    options.run.is_watched = true;
    run_with(&options, Some(Top::new(Duration::from_secs_f64(*interval), out, is_terminal)))
}

/// Calls that one server carried out for other cores.
#[derive(Clone, Copy, Default)]
struct Served {
    count: u64,
    fly_in: u64,
    poll: u64,
}

/// The records of one interval.
#[derive(Default)]
struct Window {
    summary: Summary,
    servers: BTreeMap<(&'static str, u8), Served>,
    /// By number and path: how many calls, and their ticks.
    calls: BTreeMap<(u16, Path), (u64, u64)>,
    lost: u64,
}

impl Window {
    fn add(&mut self, record: &Record) {
        self.summary.add(record);
        let Record::Call(call) = record else { return };
        let sums = self.calls.entry((call.number, call.path)).or_default();
        *sums = (sums.0 + 1, sums.1 + call.total());
        if call.path != Path::Local {
            self.serve(call);
        }
    }

    fn serve(&mut self, call: &Call) {
        let class = route::route(usize::from(call.number)).map_or(Class::Other, |row| row.class);
        let served = self.servers.entry((class.name(), call.server_core)).or_default();
        served.count += 1;
        served.fly_in += call.fly_in.ticks();
        served.poll += call.poll.ticks();
    }

    /// The page. `cores` is how many the machine has.
    fn page(&self, cores: u8, elapsed: Duration, ticks_per_second: u64) -> String {
        let seconds = elapsed.as_secs_f64();
        let ticks = seconds * ticks_per_second as f64;
        let rate = |count: u64| format!("{:.0}", count as f64 / seconds);
        let share = |part: f64| format!("{:.1}", (100.0 * part / ticks).clamp(0.0, 100.0));
        let mean = |sum: u64, count: u64| {
            let ticks = sum as f64 / count.max(1) as f64;
            format!("{:.0}", ticks * 1e9 / ticks_per_second.max(1) as f64)
        };
        let whole = self.summary.all.total.count();
        let mut text = format!("ferry top: {seconds:.2} s, {} calls/s", rate(whole));
        for (path, calls) in &self.summary.by_path {
            let part = 100.0 * calls.total.count() as f64 / whole.max(1) as f64;
            let _ = write!(text, ", {} {part:.0} %", path.name());
        }
        if self.lost > 0 {
            let _ = write!(text, ", {} records lost", self.lost);
        }
        text.push('\n');

        let rows = (0..cores).map(|number| {
            let Some(core) = self.summary.cores.get(&number) else {
                let mut row = vec![number.to_string(), "quiet".to_owned()];
                row.resize(7, String::new());
                return row;
            };
            let [kernel, spinning, parked] =
                [core.kernel, core.spinning, core.parked].map(|ticks| ticks as f64);
            vec![
                number.to_string(),
                share(ticks - kernel - spinning - parked),
                share(kernel),
                share(spinning),
                share(parked),
                rate(core.calls),
                rate(core.handled),
            ]
        });
        let heads = ["core", "user %", "kernel %", "spin %", "parked %", "calls/s", "handled/s"];
        section(&mut text, &heads, rows.collect());

        let rows = self.servers.iter().map(|((class, core), served)| {
            vec![
                (*class).to_owned(),
                core.to_string(),
                rate(served.count),
                share(served.poll as f64),
                mean(served.fly_in, served.count),
                mean(served.poll, served.count),
            ]
        });
        let heads = ["server", "core", "calls/s", "busy %", "fly-in ns", "handle ns"];
        section(&mut text, &heads, rows.collect());

        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_by_key(|(_, (_, ticks))| std::cmp::Reverse(*ticks));
        let rows = calls.iter().take(SHOWN).map(|((number, path), (count, ticks))| {
            vec![
                route::name(usize::from(*number)).to_owned(),
                path.name().to_owned(),
                rate(*count),
                mean(*ticks, *count),
                share(*ticks as f64 / f64::from(cores.max(1))),
            ]
        });
        section(&mut text, &["call", "path", "calls/s", "mean ns", "share %"], rows.collect());
        text
    }
}

fn section(text: &mut String, heads: &[&str], rows: Vec<Vec<String>>) {
    if !rows.is_empty() {
        let heads = heads.iter().map(|head| (*head).to_owned()).collect();
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}", Table { heads, rows }.to_text());
    }
}

/// Shows a page each interval.
pub struct Top {
    interval: Duration,
    out: Box<dyn Write + Send>,
    is_terminal: bool,
    began: Instant,
    window: Window,
}

impl Top {
    fn new(interval: Duration, out: Box<dyn Write + Send>, is_terminal: bool) -> Top {
        Top { interval, out, is_terminal, began: Instant::now(), window: Window::default() }
    }

    /// The first records are about to come.
    pub fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// A record that was taken out of the guest.
    pub fn add(&mut self, record: &Record) {
        self.window.add(record);
    }

    /// Records that found no room.
    pub fn lose(&mut self, count: u64) {
        self.window.lost += count;
    }

    /// Shows the page if the interval is over, or if there will be no more records. Pages that cannot
    /// be written are dropped: the program goes on.
    pub fn show_if_due(&mut self, cores: u8, ticks_per_second: u64, is_last: bool) {
        let elapsed = self.began.elapsed();
        if elapsed < self.interval && !is_last {
            return;
        }
        let page = self.window.page(cores, elapsed, ticks_per_second);
        let end: &[u8] = if self.is_terminal { b"" } else { b"\n" };
        let start = if self.is_terminal { CLEAR } else { b"" };
        let _ = self.out.write_all(&[start, page.as_bytes(), end].concat());
        let _ = self.out.flush();
        self.window = Window::default();
        self.began = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use abi::trace::Duration as Ticks;

    use super::*;

    #[test]
    fn a_page_has_cores_servers_and_calls() {
        let mut window = Window::default();
        let getppid = policy::table::number::getppid as u16;
        let call = Call { number: getppid, poll: Ticks(100), ..Call::default() };
        for _ in 0..3 {
            window.add(&Record::Call(Call { path: Path::Local, ..call }));
        }
        let away = Call { path: Path::Remote, server_core: 1, fly_in: Ticks(50), ..call };
        window.add(&Record::Call(away));
        window.lost = 2;
        let page = window.page(3, Duration::from_secs(2), 1_000);
        let lines: Vec<Vec<&str>> =
            page.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(page.starts_with("ferry top: 2.00 s, 2 calls/s"), "{page}");
        assert!(page.contains("2 records lost"), "{page}");
        // 300 of 2000 ticks were the kernel's on core 0, 100 on core 1.
        assert!(lines.contains(&vec!["0", "85.0", "15.0", "0.0", "0.0", "2", "2"]), "{page}");
        assert!(lines.contains(&vec!["2", "quiet"]), "{page}");
        assert!(
            lines.contains(&vec!["process", "1", "0", "5.0", "50000000", "100000000"]),
            "{page}"
        );
        assert!(lines.contains(&vec!["getppid", "local", "2", "100000000", "5.0"]), "{page}");
    }

    #[test]
    fn a_page_without_calls_is_one() {
        let page = Window::default().page(1, Duration::from_millis(500), 1_000_000);
        assert!(page.contains("0 calls/s") && page.contains("quiet"), "{page}");
    }
}
