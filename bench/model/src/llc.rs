//! The shared last level, which is also the directory: who may write a line, and who has a copy.
//!
//! Three states per line, as in MSI. A CPU writes only lines that it owns; owning one takes the copies
//! of all others. The last level includes the private caches: what it displaces is gone there too.
//! Orders to other CPUs wait in their inboxes and are carried out before their next access; a CPU that
//! asks the last level for something first reads its own inbox under the same lock, so that no order is
//! older than what it gets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sizes::{LINE, Sizes};

/// Most CPUs: their copies are bits.
pub const MAX_CPUS: usize = 16;

/// Where a line came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The last level had it, and nobody else had written it since.
    LastLevel,
    /// Another CPU had written it and still owned it.
    OtherCpu,
    /// Memory.
    Memory,
}

/// What the last level gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Obtained {
    /// Where from.
    pub source: Source,
    /// Whether copies of other CPUs were taken away.
    pub was_shared: bool,
}

/// An order to a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The line is gone.
    Drop(u64),
    /// The line may be read only.
    Share(u64),
}

/// Orders for a CPU.
#[derive(Default)]
struct Inbox {
    has_orders: AtomicBool,
    orders: Mutex<Vec<Order>>,
}

#[derive(Clone, Copy, Default)]
struct Line {
    key: u64,
    /// CPU + 1 that may write it; 0 is none.
    owner: u8,
    is_valid: bool,
    /// A bit for each CPU that may have a copy.
    sharers: u16,
}

struct Directory {
    lines: Vec<Line>,
    ways: usize,
    set_mask: u64,
}

/// The last level and the inboxes.
pub struct LastLevel {
    directory: Mutex<Directory>,
    inboxes: Vec<Inbox>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves counters that are a little off, which is better than none.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LastLevel {
    /// An empty one.
    pub fn new(cpus: usize, sizes: &Sizes) -> LastLevel {
        let (kib, ways) = sizes.llc;
        let count = kib * 1024 / LINE;
        let directory = Directory {
            lines: vec![Line::default(); count as usize],
            ways: ways as usize,
            set_mask: count / ways - 1,
        };
        LastLevel {
            directory: Mutex::new(directory),
            inboxes: (0..cpus).map(|_| Inbox::default()).collect(),
        }
    }

    /// Whether there are orders for a CPU.
    #[inline]
    pub fn has_orders(&self, cpu: usize) -> bool {
        self.inboxes[cpu].has_orders.load(Ordering::Acquire)
    }

    /// Takes the orders for a CPU.
    pub fn take_orders(&self, cpu: usize) -> Vec<Order> {
        let inbox = &self.inboxes[cpu];
        let mut orders = lock(&inbox.orders);
        inbox.has_orders.store(false, Ordering::Release);
        std::mem::take(&mut *orders)
    }

    fn send(&self, cpu: usize, order: Order) {
        let inbox = &self.inboxes[cpu];
        let mut orders = lock(&inbox.orders);
        orders.push(order);
        inbox.has_orders.store(true, Ordering::Release);
    }

    fn send_to_all(&self, cpus: u16, order: Order) {
        for cpu in (0..self.inboxes.len()).filter(|cpu| cpus >> cpu & 1 != 0) {
            self.send(cpu, order);
        }
    }

    /// Gives a CPU a line, to read or to write. `orders` gets what others wanted of this CPU before.
    pub fn obtain(
        &self,
        cpu: usize,
        key: u64,
        is_store: bool,
        orders: impl FnOnce(Vec<Order>),
    ) -> Obtained {
        let mut directory = lock(&self.directory);
        if self.has_orders(cpu) {
            orders(self.take_orders(cpu));
        }
        let (own_bit, own) = (1u16 << cpu, cpu as u8 + 1);
        let (line, is_new, displaced) = directory.use_line(key);
        if let Some(displaced) = displaced {
            self.send_to_all(displaced.sharers, Order::Drop(displaced.key));
        }
        let others = line.sharers & !own_bit;
        let has_other_owner = line.owner != 0 && line.owner != own;
        let source = match (is_new, has_other_owner) {
            (true, _) => Source::Memory,
            (false, true) => Source::OtherCpu,
            (false, false) => Source::LastLevel,
        };
        if is_store {
            line.owner = own;
            line.sharers = own_bit;
            self.send_to_all(others, Order::Drop(key));
        } else {
            if has_other_owner {
                self.send(usize::from(line.owner) - 1, Order::Share(key));
                line.owner = 0;
            }
            line.sharers |= own_bit;
        }
        Obtained { source, was_shared: is_store && others != 0 }
    }

    /// A CPU writes back a line that it owned.
    pub fn write_back(&self, cpu: usize, key: u64) {
        let mut directory = lock(&self.directory);
        let owner = cpu as u8 + 1;
        let found = directory.set(key).iter_mut().find(|line| line.is_valid && line.key == key);
        if let Some(line) = found.filter(|line| line.owner == owner) {
            line.owner = 0;
            line.sharers &= !(1 << cpu);
        }
    }
}

impl Directory {
    fn set(&mut self, key: u64) -> &mut [Line] {
        let first = (key & self.set_mask) as usize * self.ways;
        &mut self.lines[first..first + self.ways]
    }

    /// The line, made the most recently used one; whether it was missing, and what it displaced.
    fn use_line(&mut self, key: u64) -> (&mut Line, bool, Option<Line>) {
        let set = self.set(key);
        match set.iter().position(|line| line.is_valid && line.key == key) {
            Some(at) => {
                let line = set[at];
                set.copy_within(0..at, 1);
                set[0] = line;
                (&mut set[0], false, None)
            }
            None => {
                let last = set.len() - 1;
                let displaced = set[last];
                set.copy_within(0..last, 1);
                set[0] = Line { key, is_valid: true, ..Line::default() };
                (&mut set[0], true, displaced.is_valid.then_some(displaced))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_level() -> LastLevel {
        LastLevel::new(3, &Sizes { llc: (1, 2), ..Sizes::default() })
    }

    fn obtain(level: &LastLevel, cpu: usize, key: u64, is_store: bool) -> (Source, bool) {
        let Obtained { source, was_shared } = level.obtain(cpu, key, is_store, |_| ());
        (source, was_shared)
    }

    #[test]
    fn a_line_that_another_cpu_wrote_comes_from_there_once() {
        let level = last_level();
        assert_eq!(obtain(&level, 0, 5, true), (Source::Memory, false));
        assert_eq!(obtain(&level, 1, 5, false), (Source::OtherCpu, false));
        assert_eq!(level.take_orders(0), [Order::Share(5)]);
        assert_eq!(obtain(&level, 2, 5, false), (Source::LastLevel, false));
        assert!(!level.has_orders(0));
    }

    #[test]
    fn writing_takes_all_copies() {
        let level = last_level();
        for cpu in 0..3 {
            obtain(&level, cpu, 5, false);
        }
        assert_eq!(obtain(&level, 1, 5, true), (Source::LastLevel, true));
        assert_eq!(
            (level.take_orders(0), level.take_orders(2)),
            (vec![Order::Drop(5)], vec![Order::Drop(5)])
        );
        assert!(!level.has_orders(1));
        assert_eq!(obtain(&level, 0, 5, true), (Source::OtherCpu, true));
        assert_eq!(level.take_orders(1), [Order::Drop(5)]);
    }

    #[test]
    fn a_line_that_was_written_back_is_nobodys() {
        let level = last_level();
        obtain(&level, 0, 5, true);
        level.write_back(1, 5);
        level.write_back(0, 5);
        assert_eq!(obtain(&level, 1, 5, false), (Source::LastLevel, false));
    }

    #[test]
    fn what_the_last_level_displaces_is_gone_in_private_caches_too() {
        let level = last_level();
        for key in [0, 8, 16] {
            assert_eq!(obtain(&level, 0, key, false), (Source::Memory, false));
        }
        assert_eq!(level.take_orders(0), [Order::Drop(0)]);
        assert_eq!(obtain(&level, 0, 0, false), (Source::Memory, false));
    }

    #[test]
    fn orders_are_read_before_anything_is_given() {
        let level = last_level();
        obtain(&level, 0, 5, true);
        obtain(&level, 1, 5, true);
        let mut read = Vec::new();
        level.obtain(0, 5, false, |orders| read = orders);
        assert_eq!(read, [Order::Drop(5)]);
        assert!(!level.has_orders(0));
    }
}
