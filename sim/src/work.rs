//! What an application core has to do: compute, call, compute, call.

use abi::trace::{Call, Path};

use crate::Error;

/// One call and what comes before it, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// From the end of the call before to this one: the program's own.
    pub idle: u64,
    /// Number of the call.
    pub number: u16,
    /// Application that calls.
    pub application: u16,
    /// How the call was carried when it was traced.
    pub path: Path,
    /// Stages, as in a trace. What a call waited for a lock or in a queue is not among them.
    pub enter: u64,
    /// Travelling to the server.
    pub fly_in: u64,
    /// The handler at work.
    pub poll: u64,
    /// The handler waiting, as far as the core had nothing else to do.
    pub wait: u64,
    /// Travelling back.
    pub fly_out: u64,
    /// Back to the program.
    pub exit: u64,
}

/// Where the work of the application cores comes from.
pub trait Source {
    /// Writes down in `work` what stream `stream` does next, at `now`; false when it is done. Streams are asked
    /// one after the other, each in the order of its own time. In place, because copying it on its way out
    /// would cost a sixth of an event.
    ///
    /// # Errors
    ///
    /// Where the work cannot be read.
    fn next(&mut self, stream: usize, now: u64, work: &mut Work) -> Result<bool, Error>;
}

/// The time line of one core, built from its calls in the order of their ends.
///
/// A call that waited or travelled let others run on its core. What of it lies before the end of the call
/// ahead of it was theirs, so only the rest is taken as waiting and travelling, in this order; work is
/// always taken whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeline {
    /// When the last call ended.
    frontier: Option<u64>,
}

impl Timeline {
    /// The work that a call stands for. Before the first call of a core, nothing is known of it: its idle
    /// time counts from the beginning of the trace.
    pub fn take(&mut self, call: &Call) -> Work {
        let frontier = self.frontier.unwrap_or(0);
        let [enter, fly_in, poll, wait, fly_out, exit] =
            [call.enter, call.fly_in, call.poll, call.wait, call.fly_out, call.exit]
                .map(abi::trace::Duration::ticks);
        let idle = call.start.saturating_sub(frontier);
        let mut hidden = frontier.saturating_sub(call.start);
        let mut seen = |ticks: u64| {
            let taken = ticks.min(hidden);
            hidden -= taken;
            ticks - taken
        };
        let (wait, fly_out, fly_in) = (seen(wait), seen(fly_out), seen(fly_in));
        self.frontier = Some(frontier.max(call.end()));
        Work {
            idle,
            number: call.number,
            application: call.application,
            path: call.path,
            enter,
            fly_in,
            poll,
            wait,
            fly_out,
            exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use abi::trace::Duration;

    use super::*;

    fn call(start: u64, poll: u16, wait: u16) -> Call {
        Call { start, poll: Duration(poll), wait: Duration(wait), ..Call::default() }
    }

    #[test]
    fn a_call_that_travelled_while_another_ran_takes_what_is_left() {
        let mut timeline = Timeline::default();
        timeline.take(&call(100, 50, 0));
        let away = Call { fly_in: Duration(60), fly_out: Duration(30), ..call(80, 10, 20) };
        let work = timeline.take(&away);
        assert_eq!((work.idle, work.wait, work.fly_out, work.fly_in), (0, 0, 0, 40));
    }

    #[test]
    fn the_time_line_of_a_core_is_as_long_as_its_trace() {
        let mut timeline = Timeline::default();
        // The second call waited from 210 on while the first and the third ran.
        let calls = [call(100, 50, 0), call(220, 30, 0), call(200, 10, 90), call(400, 5, 0)];
        let works: Vec<Work> = calls.iter().map(|call| timeline.take(call)).collect();
        let length: u64 = works.iter().map(|work| work.idle + work.poll + work.wait).sum();
        assert_eq!(works.iter().map(|work| work.idle).collect::<Vec<_>>(), [100, 70, 0, 100]);
        assert_eq!(works[2].wait, 40);
        assert_eq!(length, 405);
    }
}
