//! Which path is best for a program, and why: a pure function of what was measured.

use super::measure::{AUTO, PathFigures};
use crate::run::CallFigures;

/// A path has to be better than another by this share of its time to count as better.
const NOTICEABLE: f64 = 0.07;
/// Shorter programs are over before anything can be told, in milliseconds.
const SHORTEST_MS: f64 = 20.0;
/// Calls that wait for somebody else: what they take is not what they cost.
const WAITING: &[&str] = &[
    "wait4",
    "waitid",
    "nanosleep",
    "clock_nanosleep",
    "pause",
    "futex",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "rt_sigtimedwait",
    "rt_sigsuspend",
    "accept",
    "accept4",
];
/// The carrying out of a call that waits counts with at most this, in nanoseconds.
const MOST_HANDLING_NS: f64 = 20_000.0;
/// Calls that are looked at.
const DOMINANT: usize = 6;
/// What was called less often says little: the first time is always dear. In calls.
const FEW: u64 = 10;
/// Fewer misses drown in what the start of the machine varies by.
const FEW_MISSES: u64 = 20_000;
/// Below this share of the program's time, calls are no matter.
const LITTLE: f64 = 0.05;

/// What a kind of call costs on each path.
#[derive(Clone, Debug, PartialEq)]
pub struct CallCost {
    /// Name of the call.
    pub name: String,
    /// How often it was made.
    pub calls: u64,
    /// Whether it may wait for somebody else.
    pub may_wait: bool,
    /// Per path, as measured: mean per call in nanoseconds, and the share that was posted. Of a posted
    /// call that is only its handling.
    pub cost: Vec<Option<(f64, f64)>>,
    /// Index of the cheapest path, of those whose cost is known whole.
    pub best: Option<usize>,
}

/// What is advised.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Index of the best fixed path; nothing when they are alike or too little was measured.
    pub best: Option<usize>,
    /// The calls that cost most.
    pub dominant: Vec<CallCost>,
    /// Share of the program's time that its calls take on the first path; nothing where the time is
    /// shorter than what the calls take, which happens on a busy machine.
    pub share_of_calls: Option<f64>,
    /// Sentences: why.
    pub reasons: Vec<String>,
}

/// Whether a call may wait for somebody else.
fn may_wait(name: &str) -> bool {
    WAITING.contains(&name)
}

/// What one call takes of its caller's time, as far as the kernel sees it.
fn cost(call: &CallFigures) -> f64 {
    let handle = match may_wait(&call.name) {
        true => call.handle_ns.min(MOST_HANDLING_NS),
        false => call.handle_ns,
    };
    call.enter_ns + call.fly_in_ns + handle + call.fly_out_ns
}

/// Mean cost of a kind of call on a path, and how much of it was posted.
fn mean(path: &PathFigures, name: &str) -> Option<(f64, f64)> {
    let of_name = || path.calls.iter().filter(|call| call.name == name);
    let calls: u64 = of_name().map(|call| call.calls).sum();
    let total: f64 = of_name().map(|call| cost(call) * call.calls as f64).sum();
    let posted: u64 = of_name().filter(|call| call.way == "posted").map(|call| call.calls).sum();
    (calls > 0).then(|| (total / calls as f64, posted as f64 / calls as f64))
}

/// The calls that cost most on the first path.
fn dominant(paths: &[PathFigures]) -> Vec<CallCost> {
    let Some(first) = paths.first() else { return Vec::new() };
    let mut names: Vec<&str> = first.calls.iter().map(|call| call.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut costs: Vec<CallCost> = names
        .into_iter()
        .map(|name| {
            let of_name = first.calls.iter().filter(|call| call.name == name);
            let cost: Vec<_> = paths.iter().map(|path| mean(path, name)).collect();
            let whole = cost.iter().enumerate().filter_map(|(index, cost)| match cost {
                Some((cost, 0.0)) => Some((index, *cost)),
                _ => None,
            });
            CallCost {
                name: name.to_owned(),
                calls: of_name.map(|call| call.calls).sum(),
                may_wait: may_wait(name),
                best: whole.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index),
                cost,
            }
        })
        .collect();
    let total = |of: &CallCost| of.cost[0].map_or(0.0, |(cost, _)| cost * of.calls as f64);
    costs.sort_by(|a, b| total(b).total_cmp(&total(a)));
    if costs.iter().any(|call| call.calls >= FEW) {
        costs.retain(|call| call.calls >= FEW);
    }
    costs.truncate(DOMINANT);
    costs
}

/// All calls together: how many, their cost in milliseconds, and how many were posted.
fn all_calls(path: &PathFigures) -> (u64, f64, u64) {
    let calls = path.calls.iter().map(|call| call.calls).sum();
    let cost: f64 = path.calls.iter().map(|call| cost(call) * call.calls as f64).sum();
    let posted = path.calls.iter().filter(|call| call.way == "posted");
    (calls, cost / 1e6, posted.map(|call| call.calls).sum())
}

/// Judges.
pub fn advise(paths: &[PathFigures]) -> Advice {
    let dominant = dominant(paths);
    let share_of_calls = match paths.first() {
        Some(first) => {
            Some(all_calls(first).1 / first.program_ms).filter(|share| (0.0..=1.0).contains(share))
        }
        None => None,
    };
    let mut advice = Advice { best: None, dominant, share_of_calls, reasons: Vec::new() };
    let mut order: Vec<usize> = (0..paths.len()).filter(|&at| paths[at].path != AUTO).collect();
    order.sort_by(|a, b| paths[*a].program_ms.total_cmp(&paths[*b].program_ms));
    let [best, second, ..] = order[..] else { return advice };
    let (best, second) = (&paths[best], &paths[second]);
    let spread_ms = paths.iter().map(|path| path.spread_ms).fold(0.0, f64::max);
    if spread_ms > SHORTEST_MS && spread_ms > second.program_ms - best.program_ms {
        advice.reasons.push(format!(
            "Runs of the same differ by {spread_ms:.0} ms, more than paths do: this machine has other \
             work, or the program is too short."
        ));
    } else if best.program_ms < SHORTEST_MS {
        advice.reasons.push(format!(
            "The program takes {:.0} ms, which is too short to tell paths apart; give it more to do.",
            best.program_ms
        ));
        return advice;
    } else if best.program_ms > second.program_ms * (1.0 - NOTICEABLE) {
        advice.reasons.push(format!(
            "{} and {} take the same time, within {:.0} %.",
            capitalised(&best.path),
            second.path,
            NOTICEABLE * 100.0
        ));
    } else {
        advice.best = Some(order[0]);
    }
    advice.reasons.extend(why_calls_matter(advice.share_of_calls, paths));
    match advice.best.map(|index| &paths[index]) {
        Some(path) if path.path == "local" => advice.reasons.extend(why_local(paths)),
        Some(path) => advice.reasons.extend(why_elsewhere(path, paths)),
        None => {}
    }
    advice.reasons.extend(what_auto_did(best, paths));
    advice.reasons.extend(paths.iter().filter_map(woken));
    advice.reasons.extend(caches(paths));
    advice
}

fn why_calls_matter(share: Option<f64>, paths: &[PathFigures]) -> Option<String> {
    let (calls, cost, _) = all_calls(paths.first()?);
    let Some(share) = share else {
        return Some(format!("Its {calls} calls take {cost:.0} ms on its own core."));
    };
    Some(if share < LITTLE {
        format!(
            "Its {calls} calls take {cost:.1} ms, {:.0} % of its time: the path can change little.",
            share * 100.0
        )
    } else {
        format!(
            "Its {calls} calls take {cost:.0} ms on its own core, {:.0} % of its time.",
            share * 100.0
        )
    })
}

/// Calls that travel cost more than they save.
fn why_local(paths: &[PathFigures]) -> Option<String> {
    let remote = paths.iter().find(|path| path.path == "remote")?;
    let travelled = || remote.calls.iter().filter(|call| call.way == "remote");
    let count = travelled().map(|call| call.calls).sum::<u64>().max(1) as f64;
    let mean = |of: fn(&CallFigures) -> f64| {
        travelled().map(|call| of(call) * call.calls as f64).sum::<f64>() / count
    };
    let flight = mean(|call| call.fly_in_ns + call.fly_out_ns);
    let handling = mean(|call| match may_wait(&call.name) {
        true => call.handle_ns.min(MOST_HANDLING_NS),
        false => call.handle_ns,
    });
    Some(format!(
        "A call that travels flies {flight:.0} ns to and fro, and is carried out in {handling:.0} ns: \
         nothing is gained by another core."
    ))
}

/// What another core takes off the program's.
fn why_elsewhere(best: &PathFigures, paths: &[PathFigures]) -> Option<String> {
    let (calls, _, posted) = all_calls(best);
    let local = paths.first()?;
    let saved = (local.program_ms - best.program_ms).max(0.0);
    let how = match best.path.as_str() {
        "posted" => format!("{:.0} % of its calls need no trap", percent(posted, calls)),
        _ => "its calls are carried out beside it".to_owned(),
    };
    Some(format!("With a core for its calls, {how}, which saves {saved:.0} ms beside one core."))
}

/// What the choice call by call came to, beside the best fixed path.
fn what_auto_did(best: &PathFigures, paths: &[PathFigures]) -> Option<String> {
    let auto = paths.iter().find(|path| path.path == AUTO)?;
    let away = auto.calls.iter().filter(|call| call.way != "local");
    let (calls, ..) = all_calls(auto);
    Some(format!(
        "Auto takes {:.2} times the time of {}: it sent {:.0} % of the calls to another core.",
        auto.program_ms / best.program_ms.max(f64::MIN_POSITIVE),
        best.path,
        percent(away.map(|call| call.calls).sum(), calls)
    ))
}

/// A core that has to be woken is slow to answer.
fn woken(path: &PathFigures) -> Option<String> {
    let (calls, ..) = all_calls(path);
    (path.doorbells > calls / 2 && calls > 100).then(|| {
        format!(
            "{}: a core had to be woken {} times for {calls} calls: they come too rarely for it to \
             stay awake, or this machine has no processor to spare for it.",
            capitalised(&path.path),
            path.doorbells
        )
    })
}

/// What the model says about the program's core.
fn caches(paths: &[PathFigures]) -> Option<String> {
    let local = paths.first()?.modelled.as_ref()?;
    let other = paths.iter().skip(1).filter_map(|path| Some((path, path.modelled.as_ref()?)));
    let misses = |counts: &model::Counts| counts.l1i + counts.l1d;
    let (path, least) = other.min_by_key(|(_, counts)| misses(counts))?;
    let (here, there) = (misses(local), misses(least));
    (there > FEW_MISSES && there < here).then(|| {
        format!(
            "On {} its core misses its first-level caches {:.0} % less often than on local \
             (modelled).",
            path.path,
            percent(here - there, here)
        )
    })
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, way: &str, calls: u64, stages: [f64; 4]) -> CallFigures {
        let [enter_ns, fly_in_ns, handle_ns, fly_out_ns] = stages;
        let (name, way) = (name.to_owned(), way.to_owned());
        CallFigures { name, way, calls, enter_ns, fly_in_ns, handle_ns, fly_out_ns }
    }

    fn path(path: &str, program_ms: f64, calls: Vec<CallFigures>) -> PathFigures {
        PathFigures { path: path.to_owned(), program_ms, calls, ..PathFigures::default() }
    }

    /// A program that makes 100,000 short calls.
    fn short_calls(times_ms: [f64; 3]) -> Vec<PathFigures> {
        let [local, remote, posted] = times_ms;
        vec![
            path("local", local, vec![call("getppid", "local", 100_000, [50.0, 0.0, 150.0, 0.0])]),
            path(
                "remote",
                remote,
                vec![call("getppid", "remote", 100_000, [50.0, 400.0, 150.0, 500.0])],
            ),
            path(
                "posted",
                posted,
                vec![call("getppid", "posted", 100_000, [0.0, 0.0, 100.0, 0.0])],
            ),
        ]
    }

    #[test]
    fn short_calls_stay_where_they_are() {
        let advice = advise(&short_calls([100.0, 200.0, 150.0]));
        assert_eq!(advice.best, Some(0));
        let text = advice.reasons.join("\n");
        assert!(text.contains("flies 900 ns") && text.contains("carried out in 150 ns"), "{text}");
        assert!(text.contains("20 ms on its own core, 20 %"), "{text}");
    }

    #[test]
    fn posting_wins_by_the_traps_that_it_saves() {
        let advice = advise(&short_calls([100.0, 200.0, 40.0]));
        assert_eq!(advice.best, Some(2));
        let text = advice.reasons.join("\n");
        assert!(
            text.contains("100 % of its calls need no trap") && text.contains("saves 60 ms"),
            "{text}"
        );
    }

    #[test]
    fn auto_stands_beside_the_best_path_and_is_none() {
        let mut paths = short_calls([100.0, 200.0, 150.0]);
        let calls = vec![
            call("getppid", "local", 75_000, [50.0, 0.0, 150.0, 0.0]),
            call("getppid", "remote", 25_000, [50.0, 400.0, 150.0, 500.0]),
        ];
        paths.push(path(AUTO, 90.0, calls));
        let advice = advise(&paths);
        assert_eq!(advice.best, Some(0));
        let text = advice.reasons.join("\n");
        assert!(text.contains("Auto takes 0.90 times the time of local"), "{text}");
        assert!(text.contains("sent 25 % of the calls"), "{text}");
    }

    #[test]
    fn what_differs_by_little_is_alike() {
        let advice = advise(&short_calls([100.0, 200.0, 97.0]));
        assert_eq!(advice.best, None);
        assert!(advice.reasons[0].contains("Posted and local take the same time"));
    }

    #[test]
    fn what_varies_more_than_it_differs_is_no_verdict() {
        let mut paths = short_calls([100.0, 200.0, 40.0]);
        paths[1].spread_ms = 90.0;
        let advice = advise(&paths);
        assert_eq!(advice.best, None);
        assert!(advice.reasons[0].contains("differ by 90 ms"), "{:?}", advice.reasons);
    }

    #[test]
    fn what_is_too_short_is_said_to_be() {
        let advice = advise(&short_calls([10.0, 12.0, 11.0]));
        assert_eq!(advice.best, None);
        assert!(advice.reasons[0].contains("too short"));
    }

    #[test]
    fn a_program_that_computes_hears_that_paths_are_no_matter() {
        let calls = || vec![call("write", "local", 10, [50.0, 0.0, 1000.0, 0.0])];
        let paths = [path("local", 1000.0, calls()), path("remote", 990.0, calls())];
        let advice = advise(&paths);
        assert_eq!(advice.best, None);
        assert!(advice.reasons.iter().any(|reason| reason.contains("can change little")));
    }

    #[test]
    fn waiting_is_no_cost_and_the_dearest_call_comes_first() {
        let calls = vec![
            call("wait4", "local", 10, [0.0, 0.0, 1e9, 0.0]),
            call("read", "local", 1000, [0.0, 0.0, 1000.0, 0.0]),
            call("close", "local", 1000, [0.0, 0.0, 100.0, 0.0]),
        ];
        let advice = advise(&[path("local", 100.0, calls), path("remote", 200.0, Vec::new())]);
        let names: Vec<_> = advice.dominant.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["read", "wait4", "close"]);
        assert!(advice.dominant[1].may_wait);
        assert_eq!(advice.dominant[0].cost, [Some((1000.0, 0.0)), None]);
    }

    #[test]
    fn the_best_path_of_a_call_is_among_those_that_are_known_whole() {
        let paths = short_calls([100.0, 200.0, 40.0]);
        let advice = advise(&paths);
        assert_eq!(advice.dominant[0].best, Some(0));
        assert_eq!(advice.dominant[0].cost[2], Some((100.0, 1.0)));
    }

    #[test]
    fn cores_that_sleep_between_calls_are_told() {
        let mut paths = short_calls([100.0, 200.0, 150.0]);
        paths[1].doorbells = 90_000;
        let text = advise(&paths).reasons.join("\n");
        assert!(text.contains("woken 90000 times"), "{text}");
    }

    #[test]
    fn nothing_measured_is_no_advice() {
        assert_eq!(advise(&[]).best, None);
    }
}
