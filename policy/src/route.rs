//! Classes, paths and rows of the route table, and the choice of a path for one call.

use crate::table::{CALL_LIMIT, ROUTES};

/// Which kind of server carries out a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Files, directories, terminals, readiness.
    File,
    /// Sockets.
    Network,
    /// Process life, identity, scheduling.
    Process,
    /// Signals and interval timers.
    Signal,
    /// Pipes, futexes, shared memory, message queues.
    Ipc,
    /// Address spaces.
    Memory,
    /// Clocks and sleeping.
    Time,
    /// What fits nowhere else.
    Other,
}

/// Number of classes.
pub const CLASS_COUNT: usize = 8;

/// All classes, in order.
pub const CLASSES: [Class; CLASS_COUNT] = [
    Class::File,
    Class::Network,
    Class::Process,
    Class::Signal,
    Class::Ipc,
    Class::Memory,
    Class::Time,
    Class::Other,
];

impl Class {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Class::File => "file",
            Class::Network => "network",
            Class::Process => "process",
            Class::Signal => "signal",
            Class::Ipc => "ipc",
            Class::Memory => "memory",
            Class::Time => "time",
            Class::Other => "other",
        }
    }
}

/// The way one call is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPath {
    /// Trap, executed on the caller's core.
    Local,
    /// Trap, executed on a kernel core.
    Remote,
    /// No trap: written to a syspage, executed on a kernel core.
    Posted,
}

/// A set of call paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths(u8);

impl Paths {
    /// Only on the caller's core: the call changes the caller's own control flow.
    pub const LOCAL: Paths = Paths(1);
    /// Any path with a trap: the call depends on what its thread does meanwhile.
    pub const TRAPPED: Paths = Paths(3);
    /// Any path.
    pub const ANY: Paths = Paths(7);

    /// Whether the set has this path.
    pub const fn permits(self, path: CallPath) -> bool {
        self.0 & (1 << path as u8) != 0
    }
}

/// How well a call is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As in the Linux manual, flags and errors included.
    Full,
    /// Works, with the gap that the row names.
    Partial,
    /// Answers `ENOSYS`.
    None,
}

/// What a call needs under the coarse lock scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// Nothing: it touches only the caller's own state, or a clock.
    None,
    /// The lock of its class.
    OfClass,
}

/// One row of the route table.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Linux x86-64 call number.
    pub number: u16,
    /// Name of the call in the Linux manual.
    pub name: &'static str,
    /// Class of server.
    pub class: Class,
    /// Paths by which the call may travel.
    pub paths: Paths,
    /// How well it is supported.
    pub support: Support,
    /// What is missing; empty when nothing is.
    pub gap: &'static str,
    /// What it needs under the coarse lock scheme.
    pub locks: Locks,
}

/// The rows by call number, for constant-time look-up; `None` where there is no such call.
static BY_NUMBER: [Option<&'static Route>; CALL_LIMIT] = {
    let mut rows = [None; CALL_LIMIT];
    let mut index = 0;
    while index < ROUTES.len() {
        rows[ROUTES[index].number as usize] = Some(&ROUTES[index]);
        index += 1;
    }
    rows
};

/// The row of a call, if there is such a call.
pub fn route(number: usize) -> Option<&'static Route> {
    BY_NUMBER.get(number).copied().flatten()
}

/// Name of a call, for people.
pub fn name(number: usize) -> &'static str {
    route(number).map_or("unknown call", |row| row.name)
}

/// The path that a call takes when `wanted` is in force and `kernel_core_exists` tells whether
/// another core could carry it out.
pub fn choose_path(route: &Route, wanted: CallPath, kernel_core_exists: bool) -> CallPath {
    if !kernel_core_exists {
        CallPath::Local
    } else if route.paths.permits(wanted) {
        wanted
    } else if wanted == CallPath::Posted && route.paths.permits(CallPath::Remote) {
        CallPath::Remote
    } else {
        CallPath::Local
    }
}

/// Whether a call may be posted.
pub fn may_be_posted(route: &Route) -> bool {
    route.paths.permits(CallPath::Posted) && route.support != Support::None
}

/// The calls that may be posted: bit n % 64 of word n / 64 for call n.
pub fn posted_bitmap() -> [u64; CALL_LIMIT / 64] {
    let mut words = [0; CALL_LIMIT / 64];
    for row in ROUTES.iter().filter(|row| may_be_posted(row)) {
        words[usize::from(row.number) / 64] |= 1 << (row.number % 64);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_stay_or_does_not_exist_is_not_in_the_bitmap() {
        use crate::table::number;
        let words = posted_bitmap();
        let has = |number: usize| words[number / 64] >> (number % 64) & 1 != 0;
        assert!(has(number::read) && has(number::getppid));
        for number in [number::fork, number::rt_sigreturn, number::ppoll, number::ferry_wait] {
            assert!(!has(number), "{number}");
        }
        assert!(!has(CALL_LIMIT - 1));
    }

    #[test]
    fn calls_that_touch_their_callers_state_alone_need_no_lock() {
        use crate::table::number;
        let locks = |number: usize| route(number).map(|row| row.locks);
        assert_eq!(locks(number::getpid), Some(Locks::None));
        assert_eq!(locks(number::clock_gettime), Some(Locks::None));
        for shared in [number::read, number::mmap, number::kill, number::futex] {
            assert_eq!(locks(shared), Some(Locks::OfClass));
        }
    }

    #[test]
    fn rows_are_sorted_and_unique() {
        assert!(ROUTES.windows(2).all(|pair| pair[0].number < pair[1].number));
    }

    #[test]
    fn partial_rows_name_their_gap_and_others_do_not() {
        for row in ROUTES {
            assert_eq!(row.support == Support::Partial, !row.gap.is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn a_call_that_must_stay_never_travels() {
        let row = route(crate::table::number::execve).unwrap();
        assert_eq!(choose_path(row, CallPath::Remote, true), CallPath::Local);
    }

    #[test]
    fn a_call_that_may_not_be_posted_travels_by_trap() {
        let row = route(crate::table::number::ppoll).unwrap();
        assert_eq!(choose_path(row, CallPath::Posted, true), CallPath::Remote);
        assert_eq!(choose_path(row, CallPath::Local, true), CallPath::Local);
    }

    #[test]
    fn without_a_kernel_core_every_call_stays() {
        let row = route(crate::table::number::read).unwrap();
        assert_eq!(choose_path(row, CallPath::Remote, false), CallPath::Local);
        assert_eq!(choose_path(row, CallPath::Remote, true), CallPath::Remote);
    }
}
