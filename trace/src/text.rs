//! A record as a line for people.

use abi::trace::{EventKind, Record};

use crate::Names;

/// Says what a record is about, in one line. Times are in ticks.
pub fn line(record: &Record, names: Names<'_>) -> String {
    match record {
        Record::Call(call) => {
            let mut text = format!(
                "{:>14}  {} of thread {} by {}",
                call.start,
                names(call.number),
                call.application,
                call.path.name()
            );
            if call.server_core != call.core {
                text += &format!(", core {} for core {}", call.server_core, call.core);
            }
            let handle = call.poll.ticks() + call.wait.ticks();
            text + &format!(": {} ticks, {handle} of them handled", call.total())
        }
        Record::Lock(lock) => format!(
            "{:>14}  {} lock {} for {} of thread {}: waited {} ticks, held {}",
            lock.entry,
            lock.scheme.name(),
            lock.lock,
            names(lock.number),
            lock.application,
            lock.waited,
            lock.held
        ),
        Record::Event(event) => {
            let mut text = format!("{:>14}  {}", event.time, event.kind.name());
            if event.application != 0 {
                text += &format!(" of thread {}", event.application);
            }
            if event.other_core != event.core {
                text += &format!(", core {}", event.other_core);
            }
            match event.kind {
                EventKind::PageFault => text += &format!(" at {:#x}", event.value),
                EventKind::PathChange | EventKind::ServerMove | EventKind::Interrupt => {
                    text += &format!(", detail {}", event.detail);
                }
                _ => {}
            }
            match event.duration.ticks() {
                0 => text,
                ticks => text + &format!(": {ticks} ticks"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use abi::trace::{Call, Duration, Event, Lock, LockScheme, Path};

    use super::*;

    #[test]
    fn records_are_told_by_what_they_are_about() {
        let call = Call {
            core: 0,
            server_core: 1,
            number: 0,
            application: 7,
            path: Path::Posted,
            start: 12,
            poll: Duration(30),
            fly_in: Duration(5),
            ..Call::default()
        };
        let names = |_| "read".to_string();
        let text = line(&Record::Call(call), &names);
        assert_eq!(
            text.trim_start(),
            "12  read of thread 7 by posted, core 1 for core 0: 35 ticks, 30 of them handled"
        );
        let lock = Lock { scheme: LockScheme::GiantMcs, waited: 3, held: 4, ..Lock::default() };
        assert!(
            line(&Record::Lock(lock), &names)
                .ends_with("giant-mcs lock 0 for read of thread 0: waited 3 ticks, held 4")
        );
        let fault = Event {
            core: 1,
            kind: EventKind::PageFault,
            application: 7,
            other_core: 1,
            detail: 1,
            time: 5,
            duration: Duration(9),
            value: 0x1000,
        };
        assert!(
            line(&Record::Event(fault), &names)
                .ends_with("5  page-fault of thread 7 at 0x1000: 9 ticks")
        );
    }
}
