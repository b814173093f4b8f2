//! Advisory locks on files: `flock`, POSIX record locks, and record locks of open file descriptions.
//!
//! All locks are in one table under one lock (`TABLE`): they are few, and a wait for one must see all
//! of them. Nothing here waits: a conflict is `EAGAIN`; the waiter registers with `released()`, tries
//! again when it is woken, and says so through `wait_for`, which finds cycles (`EDEADLK`).

use crate::metadata::InodeId;
use abi::Errno;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, Once, rank};
use base::wait::WaitQueue;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Others may share.
    Shared,
    /// Nobody else.
    Exclusive,
}

/// Who holds a record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A process, by the number of its file table (POSIX locks).
    Process(u64),
    /// An open file description, by its number.
    Description(u64),
}

/// What an open file description is to this table: its file, its number, and whether anything was taken through
/// it. Dropped with the description, it gives back what that holds.
pub struct Holder {
    inode: InodeId,
    description: u64,
    has_taken: AtomicBool,
}

impl Holder {
    /// The description of this number, on this file.
    pub const fn new(inode: InodeId, description: u64) -> Holder {
        Holder { inode, description, has_taken: AtomicBool::new(false) }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if !*self.has_taken.get_mut() {
            return;
        }
        let id = self.description;
        change(self.inode, |locks| {
            locks.whole.retain(|(holder, _)| *holder != id);
            locks.cut(Owner::Description(id), &Range { start: 0, last: u64::MAX });
        });
        released().wake_all();
    }
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` for "to the end, however far that moves".
    pub last: u64,
}

/// A lock that is in the way, or held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds it.
    pub owner: Owner,
    /// Process id to report; -1 for descriptions.
    pub process: i32,
    /// Which kind.
    pub kind: LockKind,
    /// Which bytes.
    pub range: Range,
}

/// Why a record lock was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This lock is in the way.
    Held(Record),
    /// The owner has as many on the file as one may have.
    TooMany,
}

/// Most records of one owner on one file: each change looks at all records of its file.
pub const MOST_RECORDS: usize = 8192;

#[derive(Default)]
struct FileLocks {
    records: Vec<Record>,
    whole: Vec<(u64, LockKind)>,
}

struct Table {
    files: BTreeMap<InodeId, FileLocks>,
    waiting: BTreeMap<Owner, Owner>,
}

static TABLE: Mutex<Table> =
    Mutex::new(&rank::FILE_LOCKS, Table { files: BTreeMap::new(), waiting: BTreeMap::new() });
/// Number of POSIX records, so that closing a descriptor need not look when there are none.
static POSIX_RECORDS: AtomicUsize = AtomicUsize::new(0);
static RELEASED: Once<WaitQueue> = Once::new();

/// Woken whenever a lock goes away.
pub fn released() -> &'static WaitQueue {
    RELEASED.call_once(WaitQueue::new)
}

impl Range {
    /// The range of `start` and `length` as `struct flock` means them, `start` already absolute.
    /// `EINVAL` when it begins before the file does, `EOVERFLOW` when it ends too far.
    pub fn new(start: i64, length: i64) -> Result<Range, Errno> {
        let (start, last) = match length {
            0 => (start, None),
            1.. => (start, Some(start.checked_add(length - 1).ok_or(Errno::EOVERFLOW)?)),
            _ => (start.checked_add(length).ok_or(Errno::EINVAL)?, Some(start - 1)),
        };
        let start = u64::try_from(start).map_err(|_| Errno::EINVAL)?;
        let last = match last {
            None => u64::MAX,
            Some(last) => u64::try_from(last).map_err(|_| Errno::EINVAL)?,
        };
        Ok(Range { start, last })
    }

    /// Length as `struct flock` gives it.
    pub fn length(&self) -> i64 {
        if self.last == u64::MAX {
            return 0;
        }
        i64::try_from(self.last - self.start + 1).unwrap_or(0)
    }

    fn overlaps(&self, other: &Range) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    fn touches(&self, other: &Range) -> bool {
        self.start <= other.last.saturating_add(1) && other.start <= self.last.saturating_add(1)
    }
}

impl FileLocks {
    fn conflict(&self, owner: Owner, kind: LockKind, range: &Range) -> Option<Record> {
        let is_in_the_way = |record: &&Record| {
            record.owner != owner
                && record.range.overlaps(range)
                && (kind == LockKind::Exclusive || record.kind == LockKind::Exclusive)
        };
        self.records.iter().filter(is_in_the_way).min_by_key(|record| record.range.start).copied()
    }

    /// Whether an owner may take a range, or give it back, which can make two records of one.
    fn has_room(&self, owner: Owner, takes: bool, range: &Range) -> bool {
        let own = || self.records.iter().filter(|record| record.owner == owner);
        let is_split =
            |record: &Record| record.range.start < range.start && range.last < record.range.last;
        match takes {
            true => own().count() < MOST_RECORDS,
            false => !own().any(is_split) || own().count() < 2 * MOST_RECORDS,
        }
    }

    /// Takes the range out of all records of an owner.
    fn cut(&mut self, owner: Owner, range: &Range) {
        let mut kept = Vec::with_capacity(self.records.len() + 1);
        for record in self.records.drain(..) {
            if record.owner != owner || !record.range.overlaps(range) {
                kept.push(record);
                continue;
            }
            if record.range.start < range.start {
                let left = Range { start: record.range.start, last: range.start - 1 };
                kept.push(Record { range: left, ..record });
            }
            if record.range.last > range.last {
                let right = Range { start: range.last + 1, last: record.range.last };
                kept.push(Record { range: right, ..record });
            }
        }
        self.records = kept;
    }

    /// Adds a record and joins it with those of the same owner and kind that it touches.
    fn add(&mut self, mut record: Record) {
        self.records.retain(|other| {
            let joins = other.owner == record.owner
                && other.kind == record.kind
                && other.range.touches(&record.range);
            if joins {
                record.range.start = record.range.start.min(other.range.start);
                record.range.last = record.range.last.max(other.range.last);
            }
            !joins
        });
        self.records.push(record);
    }

    fn posix_count(&self) -> usize {
        self.records.iter().filter(|record| matches!(record.owner, Owner::Process(_))).count()
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.whole.is_empty()
    }
}

/// Changes the locks of one file, keeps the counts, and wakes the waiters.
fn change<R>(inode: InodeId, act: impl FnOnce(&mut FileLocks) -> R) -> R {
    let mut table = TABLE.lock();
    let locks = tree::get_or_insert(&mut table.files, inode, FileLocks::default);
    let before = locks.posix_count();
    let result = act(locks);
    let after = locks.posix_count();
    let is_empty = locks.is_empty();
    if is_empty {
        table.files.remove(&inode);
    }
    POSIX_RECORDS.fetch_add(after, Ordering::AcqRel);
    POSIX_RECORDS.fetch_sub(before, Ordering::AcqRel);
    drop(table);
    result
}

/// The first lock that is in the way of one that `owner` would take.
pub fn test(inode: InodeId, owner: Owner, kind: LockKind, range: &Range) -> Option<Record> {
    TABLE.lock().files.get(&inode)?.conflict(owner, kind, range)
}

/// A lock as `/proc/locks` shows it.
pub struct Line {
    /// `POSIX`, `OFDLCK` or `FLOCK`.
    pub class: &'static str,
    /// Whether others may share it.
    pub is_shared: bool,
    /// Process that took it, -1 where none is kept.
    pub process: i32,
    /// On which inode.
    pub inode: InodeId,
    /// First byte.
    pub start: u64,
    /// Last byte; `None` for the end, however far that moves.
    pub last: Option<u64>,
}

/// All locks.
pub fn list() -> Vec<Line> {
    let table = TABLE.lock();
    let mut lines = Vec::new();
    for (&inode, locks) in &table.files {
        for record in &locks.records {
            let is_posix = matches!(record.owner, Owner::Process(_));
            lines.push(Line {
                class: if is_posix { "POSIX" } else { "OFDLCK" },
                is_shared: record.kind == LockKind::Shared,
                process: record.process,
                inode,
                start: record.range.start,
                last: Some(record.range.last).filter(|&last| last != u64::MAX),
            });
        }
        lines.extend(locks.whole.iter().map(|&(_, kind)| Line {
            class: "FLOCK",
            is_shared: kind == LockKind::Shared,
            process: -1,
            inode,
            start: 0,
            last: None,
        }));
    }
    lines
}

/// Takes a record lock (`Some`) or gives a range back (`None`). The error says what is in the way.
pub fn set(
    through: &Holder,
    owner: Owner,
    process: i32,
    kind: Option<LockKind>,
    range: &Range,
) -> Result<(), Refusal> {
    let result = change(through.inode, |locks| {
        if let Some(record) = kind.and_then(|kind| locks.conflict(owner, kind, range)) {
            return Err(Refusal::Held(record));
        }
        if !locks.has_room(owner, kind.is_some(), range) {
            return Err(Refusal::TooMany);
        }
        locks.cut(owner, range);
        if let Some(kind) = kind {
            locks.add(Record { owner, process, kind, range: *range });
        }
        Ok(())
    });
    if matches!(owner, Owner::Description(_)) && kind.is_some() {
        through.has_taken.store(true, Ordering::Release);
    }
    if result.is_ok() {
        released().wake_all();
    }
    result
}

/// Notes that `owner` waits for what `holder` has. `EDEADLK` when `holder` waits for `owner`, at
/// however many removes. Ended by `stop_waiting`.
pub fn wait_for(owner: Owner, holder: Owner) -> Result<(), Errno> {
    let mut table = TABLE.lock();
    let mut next = holder;
    for _ in 0..table.waiting.len() + 1 {
        if next == owner {
            return Err(Errno::EDEADLK);
        }
        match table.waiting.get(&next) {
            Some(&holder) => next = holder,
            None => break,
        }
    }
    tree::insert(&mut table.waiting, owner, holder);
    Ok(())
}

/// The owner waits no more.
pub fn stop_waiting(owner: Owner) {
    TABLE.lock().waiting.remove(&owner);
}

/// Locks the whole file for a description (`flock`), changes the kind of its lock, or unlocks.
/// `EAGAIN` when others are in the way; as in Linux a lock that could not be changed is lost.
pub fn flock(holder: &Holder, kind: Option<LockKind>) -> Result<(), Errno> {
    let result = flock_quietly(holder, kind);
    released().wake_all();
    result
}

/// As `flock` for somebody who holds nothing yet and waits: a failure changes nothing, so nobody is
/// woken.
pub fn flock_quietly(holder: &Holder, kind: Option<LockKind>) -> Result<(), Errno> {
    let id = holder.description;
    let result = change(holder.inode, |locks| {
        let held = locks.whole.iter().find(|(holder, _)| *holder == id).map(|&(_, kind)| kind);
        if kind.is_some() && held == kind {
            return Ok(());
        }
        locks.whole.retain(|(holder, _)| *holder != id);
        let Some(kind) = kind else { return Ok(()) };
        let is_free = locks
            .whole
            .iter()
            .all(|&(_, other)| kind == LockKind::Shared && other == LockKind::Shared);
        if !is_free {
            return Err(Errno::EAGAIN);
        }
        locks.whole.push((id, kind));
        Ok(())
    });
    if result.is_ok() && kind.is_some() {
        holder.has_taken.store(true, Ordering::Release);
    }
    result
}

/// A process closes a descriptor of a file: its POSIX locks on that file are gone, whatever
/// description they were taken through.
pub fn close(inode: InodeId, files: u64) {
    if POSIX_RECORDS.load(Ordering::Acquire) == 0 {
        return;
    }
    let owner = Owner::Process(files);
    let had = TABLE
        .lock()
        .files
        .get(&inode)
        .is_some_and(|locks| locks.records.iter().any(|record| record.owner == owner));
    if had {
        change(inode, |locks| locks.cut(owner, &Range { start: 0, last: u64::MAX }));
        released().wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks(records: &[(u64, LockKind, u64, u64)]) -> FileLocks {
        let mut locks = FileLocks::default();
        for &(owner, kind, start, last) in records {
            locks.add(record(owner, kind, start, last));
        }
        locks
    }

    fn record(owner: u64, kind: LockKind, start: u64, last: u64) -> Record {
        Record { owner: Owner::Process(owner), process: 1, kind, range: Range { start, last } }
    }

    use LockKind::{Exclusive, Shared};

    #[test]
    fn shared_locks_conflict_only_with_exclusive_ones() {
        let held = locks(&[(1, Shared, 0, 9), (2, Exclusive, 20, 29)]);
        let all = Range { start: 0, last: u64::MAX };
        let first = Range { start: 0, last: 9 };
        assert!(held.conflict(Owner::Process(3), Shared, &first).is_none());
        assert!(held.conflict(Owner::Process(3), Exclusive, &first).is_some());
        assert!(held.conflict(Owner::Process(3), Shared, &all).is_some());
        assert!(
            held.conflict(Owner::Process(2), Shared, &all).is_none(),
            "one's own is no conflict"
        );
    }

    #[test]
    fn unlocking_the_middle_leaves_both_ends() {
        let mut held = locks(&[(1, Exclusive, 0, 99)]);
        held.cut(Owner::Process(1), &Range { start: 40, last: 59 });
        let mut ranges: Vec<_> =
            held.records.iter().map(|record| (record.range.start, record.range.last)).collect();
        ranges.sort_unstable();
        assert_eq!(ranges, [(0, 39), (60, 99)]);
    }

    #[test]
    fn neighbours_join() {
        let held = locks(&[(1, Shared, 0, 9), (1, Shared, 10, 19), (1, Exclusive, 20, 29)]);
        assert_eq!(held.records.len(), 2);
    }

    #[test]
    fn one_owner_has_so_many_records_on_a_file_and_no_more() {
        let mut held = FileLocks::default();
        let one = Owner::Process(1);
        let all = Range { start: 0, last: u64::MAX };
        for first in 0..MOST_RECORDS as u64 {
            assert!(held.has_room(one, true, &all));
            held.add(record(1, Shared, 2 * first, 2 * first));
        }
        assert!(!held.has_room(one, true, &all));
        assert!(held.has_room(one, false, &all), "what is held can be given back");
        assert!(held.has_room(Owner::Process(2), true, &all));
        held.cut(one, &Range { start: 0, last: 0 });
        assert!(held.has_room(one, true, &all));
    }

    #[test]
    fn negative_lengths_count_backwards() {
        assert_eq!(Range::new(10, -5), Ok(Range { start: 5, last: 9 }));
        assert_eq!(Range::new(3, -5), Err(Errno::EINVAL));
        assert_eq!(Range::new(5, 0), Ok(Range { start: 5, last: u64::MAX }));
        assert_eq!(Range::new(i64::MAX, 2), Err(Errno::EOVERFLOW));
    }

    #[test]
    fn two_waiters_for_one_another_are_a_deadlock() {
        let (one, two) = (Owner::Process(1 << 40), Owner::Process(2 << 40));
        assert_eq!(wait_for(one, two), Ok(()));
        assert_eq!(wait_for(two, one), Err(Errno::EDEADLK));
        stop_waiting(one);
        assert_eq!(wait_for(two, one), Ok(()));
        stop_waiting(two);
    }
}
