//! `ferry sim sweep`: one configuration, varied. Points are simulated on all cores of the host, or each by a
//! task of a Slurm array (`array`).

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use clap::ValueEnum;
use sim::configuration::{LockName, PathName};
use sim::{Configuration, Outcome};

use super::{Prepared, array, page, read};
use crate::bench::table::Table;
use crate::status::Usage;
use crate::traces;

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry sim sweep machine.toml --cores 1,2,4,8 --locks fine,giant-clh"
)]
pub struct Arguments {
    /// The configuration to begin with.
    configuration: PathBuf,
    /// Numbers of cores.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Paths; not for a published configuration.
    #[arg(long, value_delimiter = ',')]
    path: Vec<PathOption>,
    /// Lock schemes; a published configuration has giant-ticket and coarse.
    #[arg(long, value_delimiter = ',')]
    locks: Vec<LockOption>,
    /// Lock latencies in ticks, as in 0..1000:100. Split 2/3 for taking and 1/3 for releasing.
    #[arg(long, value_name = "FROM..TO:STEP", value_parser = latencies)]
    lock_latency: Option<Latencies>,
    /// Draw the throughput into an HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Simulate nothing: write a Slurm array script with a task for each point.
    #[arg(long, value_name = "SCRIPT", conflicts_with_all = ["html", "point", "collect"])]
    slurm: Option<PathBuf>,
    /// Simulate this point alone, counted from 0, and write its result beside SCRIPT.
    #[arg(long, value_name = "N", requires = "of", conflicts_with_all = ["html", "collect"])]
    point: Option<usize>,
    /// The script that the point belongs to.
    #[arg(long, value_name = "SCRIPT", requires = "point")]
    of: Option<PathBuf>,
    /// Gather what the tasks of a script wrote, instead of simulating.
    #[arg(long, value_name = "SCRIPT")]
    collect: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Latencies(Vec<u64>);

fn latencies(text: &str) -> Result<Latencies, String> {
    let wrong = || "write FROM..TO:STEP, as in 0..1000:100".to_owned();
    let (from, rest) = text.split_once("..").ok_or_else(wrong)?;
    let (to, step) = rest.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let (from, to, step) = (number(from)?, number(to)?, number(step)?);
    if step == 0 || from > to || (to - from) / step > 10_000 {
        return Err("at most 10,000 steps, each larger than 0, and upwards".to_owned());
    }
    Ok(Latencies((from..=to).step_by(usize::try_from(step).map_err(|_| wrong())?).collect()))
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PathOption {
    Auto,
    Local,
    Remote,
    Posted,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LockOption {
    Fine,
    Coarse,
    GiantTicket,
    GiantClh,
    GiantMcs,
}

impl From<PathOption> for PathName {
    fn from(option: PathOption) -> PathName {
        match option {
            PathOption::Auto => PathName::Auto,
            PathOption::Local => PathName::Local,
            PathOption::Remote => PathName::Remote,
            PathOption::Posted => PathName::Posted,
        }
    }
}

impl From<LockOption> for LockName {
    fn from(option: LockOption) -> LockName {
        match option {
            LockOption::Fine => LockName::Fine,
            LockOption::Coarse => LockName::Coarse,
            LockOption::GiantTicket => LockName::GiantTicket,
            LockOption::GiantClh => LockName::GiantClh,
            LockOption::GiantMcs => LockName::GiantMcs,
        }
    }
}

/// What a point yields.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Simulated {
    /// Its row of the table.
    pub row: Vec<String>,
    /// Calls per second.
    pub throughput: f64,
    /// The exit status that it asks for.
    pub status: u8,
}

/// One configuration of a sweep.
#[derive(Clone)]
struct Point {
    configuration: Configuration,
    latency: Option<u64>,
}

/// Carries out `ferry sim sweep`.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let points = points(arguments, &read(&arguments.configuration)?)?;
    if let Some(script) = &arguments.slurm {
        return array::write(script, points.len());
    }
    if let (Some(number), Some(script)) = (arguments.point, &arguments.of) {
        let last = points.len() - 1;
        let point = points
            .get(number)
            .ok_or_else(|| Usage(format!("--point {number}: the sweep has points 0 to {last}")))?;
        return array::keep(script, number, &simulate(point)?);
    }
    let results = match &arguments.collect {
        Some(script) => array::collect(script, points.len())?,
        None => simulate_all(&points)?,
    };
    let status = results.iter().map(|result| result.status).max().unwrap_or(0);
    let missing = points.len() - results.len();
    if missing > 0 {
        eprintln!("ferry sim: {missing} of {} points have no result", points.len());
    }
    let throughputs: Vec<f64> = results.iter().map(|result| result.throughput).collect();
    let rows: Vec<Vec<String>> = results.into_iter().map(|result| result.row).collect();
    let heads =
        ["cores", "path", "locks", "latency", "mean done, s", "calls/s", "taken %", "away %"];
    let by_latency = arguments.lock_latency.is_some();
    let curves = curves(&rows, &throughputs, by_latency);
    let text = Table { heads: heads.map(str::to_owned).to_vec(), rows }.to_text();
    traces::print(&text)?;
    if let Some(file) = &arguments.html {
        let title = format!("Sweep of {}", arguments.configuration.display());
        let what = if by_latency { "lock latency, ticks" } else { "cores" };
        super::write_page(file, &page::sweep(&title, what, &curves, &text))?;
    }
    Ok(status.max(u8::from(missing > 0)))
}

/// Simulates on all cores of this machine.
fn simulate_all(points: &[Point]) -> Result<Vec<Simulated>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<Simulated>>>> =
        Mutex::new(points.iter().map(|_| None).collect());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(points.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(point) = points.get(at) else { break };
                    let result = simulate(point);
                    if let Ok(mut results) = results.lock() {
                        results[at] = Some(result);
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

/// Throughput by lock latency where that is varied, else by cores; a curve for each combination of the rest.
fn curves(rows: &[Vec<String>], throughputs: &[f64], by_latency: bool) -> Vec<page::Curve> {
    let mut curves: Vec<page::Curve> = Vec::new();
    for (row, throughput) in rows.iter().zip(throughputs) {
        let [cores, path, locks, latency, ..] = row.as_slice() else { continue };
        let (at, name) = match by_latency {
            true => (latency, format!("{cores} cores, {path}, {locks}")),
            false => (cores, format!("{path}, {locks}")),
        };
        let Ok(at) = at.parse() else { continue };
        match curves.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push((at, *throughput)),
            None => curves.push((name, vec![(at, *throughput)])),
        }
    }
    curves
}

fn simulate(point: &Point) -> Result<Simulated> {
    let mut prepared = Prepared::new(point.configuration.clone())?;
    if let Some(latency) = point.latency {
        let costs = &mut prepared.machine.costs;
        costs.release = latency / 3;
        costs.release_spread = 0;
        costs.acquire = latency - costs.release;
        costs.hand_over = costs.acquire;
    }
    let outcome = prepared.run()?;
    let (row, throughput) = (row(point, &outcome), outcome.throughput());
    Ok(Simulated { row, throughput, status: prepared.status() })
}

/// Every combination; what is not varied stays as it is.
fn points(arguments: &Arguments, base: &Configuration) -> Result<Vec<Point>> {
    fn or_as_is<T: Copy>(values: &[T]) -> Vec<Option<T>> {
        if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() }
    }
    let latencies =
        arguments.lock_latency.as_ref().map_or(vec![None], |latencies| or_as_is(&latencies.0));
    let mut points = Vec::new();
    for cores in or_as_is(&arguments.cores) {
        for path in or_as_is(&arguments.path) {
            for locks in or_as_is(&arguments.locks) {
                let configuration = varied(base, cores, path, locks)?;
                points.extend(
                    latencies
                        .iter()
                        .map(|&latency| Point { configuration: configuration.clone(), latency }),
                );
            }
        }
    }
    Ok(points)
}

fn varied(
    base: &Configuration,
    cores: Option<usize>,
    path: Option<PathOption>,
    locks: Option<LockOption>,
) -> Result<Configuration, Usage> {
    let usage = |error: sim::Error| Usage(error.to_string());
    match base {
        Configuration::Ferry(base) => {
            let mut ferry = base.clone();
            ferry.cores = cores.unwrap_or(ferry.cores);
            ferry.path = path.map_or(ferry.path, PathName::from);
            ferry.locks = locks.map_or(ferry.locks, LockName::from);
            ferry.layout().map_err(usage)?;
            Ok(Configuration::Ferry(ferry))
        }
        Configuration::Published(base) => {
            let mut published = base.clone();
            published.simulated_cores = cores.unwrap_or(published.simulated_cores);
            published.is_coarse_grained = match locks {
                None => published.is_coarse_grained,
                Some(LockOption::Coarse) => true,
                Some(LockOption::GiantTicket) => false,
                Some(_) => {
                    let text =
                        "a published configuration has the lock schemes giant-ticket and coarse";
                    return Err(Usage(text.to_owned()));
                }
            };
            if path.is_some() {
                return Err(Usage("a published configuration has no paths".to_owned()));
            }
            published.check().map_err(usage)?;
            Ok(Configuration::Published(published))
        }
    }
}

fn row(point: &Point, outcome: &Outcome) -> Vec<String> {
    let (cores, path, locks) = match &point.configuration {
        Configuration::Ferry(ferry) => (
            ferry.cores,
            format!("{:?}", ferry.path).to_lowercase(),
            ferry.locks.scheme().name().to_owned(),
        ),
        Configuration::Published(published) => {
            let locks = if published.is_coarse_grained { "coarse" } else { "giant-ticket" };
            (published.simulated_cores, "-".to_owned(), locks.to_owned())
        }
    };
    let away: u64 = outcome.streams.iter().map(|stream| stream.away).sum();
    let seconds = outcome.mean_duration() / outcome.ticks_per_second.max(1) as f64;
    vec![
        cores.to_string(),
        path,
        locks,
        point.latency.map_or("-".to_owned(), |latency| latency.to_string()),
        format!("{seconds:.6}"),
        format!("{:.0}", outcome.throughput()),
        format!("{:.1}", outcome.contention() * 100.0),
        format!("{:.1}", away as f64 * 100.0 / outcome.calls().max(1) as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_latencies_are_read_and_wrong_ones_refused() {
        assert_eq!(latencies("0..1000:250").unwrap().0, [0, 250, 500, 750, 1000]);
        for wrong in ["0..10", "5..1:1", "0..10:0", "a..b:c", "0..1000000:1"] {
            assert!(latencies(wrong).is_err(), "{wrong}");
        }
    }
}
