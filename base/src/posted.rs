//! Posted calls: the entries that a thread and the kernel share, and how each side walks them.
//!
//! The contract is `docs/abi/syspage.md`. [`Entries`] is the shared memory: atomics only, because
//! whoever is on the other side may write to it at any moment. [`Consumer`] is the kernel's side: it
//! takes each call once, whatever the user scribbles, because it remembers what it took. [`Producer`]
//! is the user's side, for programs that are linked with the kernel: tests, models and the native
//! benchmark.

use alloc::boxed::Box;

use abi::syspage::{ENTRY_COUNT, FLAG_LINK, pass_mark, status};

use crate::primitives::{AtomicU32, AtomicU64, Ordering, fence, prepare_write};

/// A 64-byte entry, as `abi::syspage::Entry` has it; number, flags and pass mark are one word.
#[repr(C, align(64))]
struct Entry {
    status: AtomicU32,
    what: AtomicU32,
    arguments: [AtomicU64; 6],
    result: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Entries>() == 4096);

/// The entries of a syspage.
#[repr(C)]
pub struct Entries([Entry; ENTRY_COUNT]);

/// A call, copied out of its entry. Small, so that no copy of it takes a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostedCall {
    /// Which entry it is from; below `ENTRY_COUNT`.
    pub index: u8,
    /// Its number.
    pub number: u16,
    /// Its flags.
    pub flags: u8,
    /// Entries taken or passed with this one. To be published before the result: a user who has seen
    /// results counts on the places up to there.
    pub head: u32,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Entries {
    /// Free entries, for who has no frame to share.
    pub fn new() -> Entries {
        Entries(core::array::from_fn(|_| Entry {
            status: AtomicU32::new(status::FREE),
            what: AtomicU32::new(0),
            arguments: core::array::from_fn(|_| AtomicU64::new(0)),
            result: AtomicU64::new(0),
        }))
    }

    #[inline]
    fn at(&self, index: usize) -> &Entry {
        &self.0[index % ENTRY_COUNT]
    }

    /// Whether the entry waits for the kernel, or says so.
    #[inline]
    pub fn is_submitted(&self, index: usize) -> bool {
        self.at(index).status.load(Ordering::Acquire) == status::SUBMITTED
    }

    /// Whether the entry says that its result is there.
    #[inline]
    pub fn is_done(&self, index: usize) -> bool {
        self.at(index).status.load(Ordering::Acquire) == status::DONE
    }

    /// Whether a kernel that has come to `head` may find something new. The head moves meanwhile: it is
    /// asked for again after the look, because the entry may have been taken and answered between the two,
    /// and what the kernel has not taken is behind it. What the caller posted itself is never missed.
    pub fn may_have_work(&self, head: impl Fn() -> u32) -> bool {
        let mut seen = head();
        for _ in 0..ENTRY_COUNT {
            let what = self.at(seen as usize).what.load(Ordering::Relaxed);
            if self.is_submitted(seen as usize) || (what >> 24) as u8 == pass_mark(seen) {
                return true;
            }
            // `is_submitted` acquires: whoever sees an answer sees the head that was published before it.
            let now = head();
            if now == seen {
                return false;
            }
            seen = now;
        }
        // Somebody else posts here, faster than this looks: a look too many does no harm.
        true
    }

    #[inline]
    fn is_free(&self, index: usize) -> bool {
        self.at(index).status.load(Ordering::Acquire) == status::FREE
    }

    /// Publishes a result. Once per call taken.
    #[inline]
    pub fn complete(&self, index: usize, result: u64) {
        let entry = self.at(index);
        entry.result.store(result, Ordering::Relaxed);
        entry.status.store(status::DONE, Ordering::Release);
    }

    /// Number of the call in an entry, as the user wrote it.
    pub fn number(&self, index: usize) -> usize {
        (self.at(index).what.load(Ordering::Relaxed) & 0xffff) as usize
    }

    /// The user's side: the result of an entry, which is free afterwards; `None` while it is not done.
    #[inline]
    pub fn take_result(&self, index: usize) -> Option<u64> {
        let entry = self.at(index);
        if entry.status.load(Ordering::Acquire) != status::DONE {
            return None;
        }
        let result = entry.result.load(Ordering::Relaxed);
        entry.status.store(status::FREE, Ordering::Relaxed);
        Some(result)
    }

    /// Fetches the line of an entry that will be read and answered soon. Only within a burst: the line
    /// of an entry that is not written yet would be torn from the user.
    #[inline]
    fn prepare(&self, index: usize) {
        prepare_write(self.at(index));
    }

    #[inline]
    fn copy(&self, index: usize, head: u32) -> PostedCall {
        let entry = self.at(index);
        let what = entry.what.load(Ordering::Relaxed);
        PostedCall {
            index: (index % ENTRY_COUNT) as u8,
            number: what as u16,
            flags: (what >> 16) as u8,
            head,
            arguments: core::array::from_fn(|at| entry.arguments[at].load(Ordering::Relaxed)),
        }
    }
}

impl Default for Entries {
    fn default() -> Self {
        Entries::new()
    }
}

/// What became of a call when it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It has its result.
    Done(u64),
    /// It is under way: [`InFlight::begin`] was called for it, and [`InFlight::complete`] will be.
    Later,
}

/// Which entries the kernel has under way. Rule: `begin` only by who took the entry, then `complete`
/// once, on any core.
pub struct InFlight(AtomicU64);

impl InFlight {
    /// None.
    pub fn new() -> InFlight {
        InFlight(AtomicU64::new(0))
    }

    /// The entry stays under way.
    pub fn begin(&self, index: usize) {
        self.0.fetch_or(1 << (index % ENTRY_COUNT), Ordering::Relaxed);
    }

    /// Publishes the result of an entry under way. The scanner may have gone past it meanwhile: the
    /// caller rings the scanner's doorbell afterwards. True when the user has posted the entry again
    /// already: the scanner may have looked while it still counted as under way and found nothing, so the
    /// caller has it look once more.
    #[must_use]
    pub fn complete(&self, entries: &Entries, index: usize, result: u64) -> bool {
        // In this order: an entry that is submitted and not under way would be taken again.
        entries.complete(index, result);
        self.0.fetch_and(!(1 << (index % ENTRY_COUNT)), Ordering::AcqRel);
        // With the fence in `Consumer::is_new`: either the scanner sees that the bit is gone, or this
        // sees what the scanner saw.
        fence(Ordering::SeqCst);
        entries.is_submitted(index)
    }

    /// One bit per entry.
    #[inline]
    pub fn bits(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Default for InFlight {
    fn default() -> Self {
        InFlight::new()
    }
}

/// A visit that has taken so many entries is in the middle of a burst.
const BURST: usize = 2;
/// How far ahead the lines of a burst are fetched.
const AHEAD: usize = 8;

/// The kernel's side of one syspage. One core owns it.
pub struct Consumer {
    /// Entries taken or passed so far.
    head: u32,
    /// Entries that were taken and wait for the one before them.
    held: u64,
    /// Their calls; made when first needed.
    held_calls: Option<Box<[PostedCall; ENTRY_COUNT]>>,
}

impl Consumer {
    /// At the first entry.
    pub fn new() -> Consumer {
        Consumer { head: 0, held: 0, held_calls: None }
    }

    /// Entries taken or passed so far.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// Whether entries were taken that have not begun.
    #[inline]
    pub fn holds_any(&self) -> bool {
        self.held != 0
    }

    /// Whether a visit would find something. One load of shared memory while it would not.
    #[inline]
    pub fn has_work(&self, entries: &Entries, in_flight: &InFlight) -> bool {
        if self.held != 0 && self.runnable(in_flight) != 0 {
            return true;
        }
        self.is_new(entries, in_flight, self.index()) || self.is_passed(entries)
    }

    /// Whether an entry was posted and not taken.
    #[inline]
    fn is_new(&self, entries: &Entries, in_flight: &InFlight, index: usize) -> bool {
        entries.is_submitted(index)
            && (!self.is_busy(in_flight, index) || self.is_new_after_all(in_flight, index))
    }

    /// An entry was posted while its former call counts as under way: see `InFlight::complete`.
    #[cold]
    fn is_new_after_all(&self, in_flight: &InFlight, index: usize) -> bool {
        fence(Ordering::SeqCst);
        !self.is_busy(in_flight, index)
    }

    /// Entries that were taken and need wait no longer.
    fn runnable(&self, in_flight: &InFlight) -> u64 {
        self.held & !(in_flight.bits() | self.held).rotate_left(1)
    }

    #[inline]
    fn index(&self) -> usize {
        self.head as usize % ENTRY_COUNT
    }

    #[inline]
    fn is_passed(&self, entries: &Entries) -> bool {
        let what = entries.at(self.index()).what.load(Ordering::Relaxed);
        (what >> 24) as u8 == pass_mark(self.head)
    }

    /// Takes at most `most` submitted entries and has each served, in order. Returns how many results
    /// were published.
    #[inline]
    pub fn visit(
        &mut self,
        entries: &Entries,
        in_flight: &InFlight,
        most: usize,
        mut serve: impl FnMut(&PostedCall) -> Served,
    ) -> usize {
        let mut done = 0;
        if self.held != 0 {
            done += self.serve_held(entries, in_flight, &mut serve);
        }
        for step in 0..most {
            let index = self.index();
            if !self.is_new(entries, in_flight, index) {
                if !self.is_passed(entries) {
                    break;
                }
                self.head = self.head.wrapping_add(1);
                continue;
            }
            if step >= BURST {
                entries.prepare(index + AHEAD);
            }
            self.head = self.head.wrapping_add(1);
            let call = entries.copy(index, self.head);
            if call.flags & FLAG_LINK != 0 && self.is_busy(in_flight, before(index)) {
                self.hold(call);
                continue;
            }
            if let Served::Done(result) = serve(&call) {
                entries.complete(index, result);
                done += 1;
            }
        }
        done
    }

    #[inline]
    fn is_busy(&self, in_flight: &InFlight, index: usize) -> bool {
        (in_flight.bits() | self.held) >> index & 1 != 0
    }

    #[cold]
    fn hold(&mut self, call: PostedCall) {
        let calls = self.held_calls.get_or_insert_with(|| Box::new([call; ENTRY_COUNT]));
        calls[usize::from(call.index)] = call;
        self.held |= 1 << call.index;
    }

    #[cold]
    fn serve_held(
        &mut self,
        entries: &Entries,
        in_flight: &InFlight,
        serve: &mut impl FnMut(&PostedCall) -> Served,
    ) -> usize {
        let mut done = 0;
        loop {
            // Again and again, so that a chain of short calls goes through in one visit.
            let index = self.runnable(in_flight).trailing_zeros() as usize;
            if index >= ENTRY_COUNT {
                break;
            }
            self.held &= !(1 << index);
            let Some(mut call) = self.held_calls.as_ref().map(|calls| calls[index]) else {
                continue;
            };
            call.head = self.head;
            if let Served::Done(result) = serve(&call) {
                entries.complete(index, result);
                done += 1;
            }
        }
        done
    }

    /// Takes one entry of the `wanted` ones, one bit each, that was held and has not begun: when it is
    /// cancelled, or the syspage goes away.
    pub fn take_held(&mut self, wanted: u64) -> Option<usize> {
        let index = (self.held & wanted).trailing_zeros() as usize;
        (index < ENTRY_COUNT).then(|| {
            self.held &= !(1 << index);
            index
        })
    }
}

impl Default for Consumer {
    fn default() -> Self {
        Consumer::new()
    }
}

#[inline]
fn before(index: usize) -> usize {
    (index + ENTRY_COUNT - 1) % ENTRY_COUNT
}

/// The user's side of one syspage.
///
/// It remembers what it posted and has not taken, so that it need not look at an entry before it
/// writes it, nor say *free* after it has read it: each would cost a transfer of the line.
#[derive(Default)]
pub struct Producer {
    position: u32,
    /// The kernel's head, as it was when last looked at.
    head: u32,
    /// Entries that were posted and not taken here; one bit each.
    outstanding: u64,
}

impl Producer {
    /// At the first entry.
    pub fn new() -> Producer {
        Producer::default()
    }

    /// Posts a call and says in which entry; `None` when there is no free one that the kernel would
    /// come to within a lap. `head` is the kernel's, as the control page shows it. Arguments that are
    /// not given stay what they were.
    #[inline]
    pub fn post<const COUNT: usize>(
        &mut self,
        entries: &Entries,
        head: &AtomicU32,
        number: u16,
        flags: u8,
        arguments: [u64; COUNT],
    ) -> Option<usize> {
        let position = self.find_free(entries, head)?;
        let index = position as usize % ENTRY_COUNT;
        let entry = entries.at(index);
        for (word, argument) in entry.arguments.iter().zip(arguments) {
            word.store(argument, Ordering::Relaxed);
        }
        entry.what.store(u32::from(number) | u32::from(flags) << 16, Ordering::Relaxed);
        entry.status.store(status::SUBMITTED, Ordering::Release);
        self.position = position.wrapping_add(1);
        self.outstanding |= 1 << index;
        Some(index)
    }

    /// The result of an entry; `None` while it is not done. The entry may be used again, though it says
    /// *done* until then.
    #[inline]
    pub fn take_result(&mut self, entries: &Entries, index: usize) -> Option<u64> {
        let entry = entries.at(index);
        if entry.status.load(Ordering::Acquire) != status::DONE {
            return None;
        }
        self.outstanding &= !(1 << (index % ENTRY_COUNT));
        Some(entry.result.load(Ordering::Relaxed))
    }

    /// Whether nothing is in the entry. Without a look at it when its result was taken here.
    #[inline]
    fn may_use(&self, entries: &Entries, position: u32) -> bool {
        let index = position as usize % ENTRY_COUNT;
        self.outstanding >> index & 1 == 0 || entries.is_free(index)
    }

    /// The first position with a free entry; those before it get their pass marks.
    #[inline]
    fn find_free(&mut self, entries: &Entries, head: &AtomicU32) -> Option<u32> {
        let mut position = self.position;
        loop {
            if position.wrapping_sub(self.head) >= ENTRY_COUNT as u32 {
                self.head = head.load(Ordering::Acquire);
                if position.wrapping_sub(self.head) >= ENTRY_COUNT as u32 {
                    return None;
                }
            }
            if self.may_use(entries, position) {
                break;
            }
            position = position.wrapping_add(1);
        }
        while self.position != position {
            let what = &entries.at(self.position as usize).what;
            let mark = u32::from(pass_mark(self.position)) << 24;
            what.store(what.load(Ordering::Relaxed) & 0x00ff_ffff | mark, Ordering::Relaxed);
            self.position = self.position.wrapping_add(1);
        }
        Some(position)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    struct Both {
        entries: Entries,
        in_flight: InFlight,
        consumer: Consumer,
        producer: Producer,
        head: AtomicU32,
    }

    fn both() -> Both {
        Both {
            entries: Entries::new(),
            in_flight: InFlight::new(),
            consumer: Consumer::new(),
            producer: Producer::new(),
            head: AtomicU32::new(0),
        }
    }

    impl Both {
        fn post(&mut self, number: u16, flags: u8) -> Option<usize> {
            self.producer.post(&self.entries, &self.head, number, flags, [0; 6])
        }

        /// Serves all that is there; calls with number 1 stay under way. Returns the numbers served.
        fn serve(&mut self) -> Vec<usize> {
            let mut seen = Vec::new();
            let in_flight = &self.in_flight;
            self.consumer.visit(&self.entries, in_flight, 64, |call| {
                seen.push(usize::from(call.number));
                if call.number == 1 {
                    in_flight.begin(usize::from(call.index));
                    return Served::Later;
                }
                Served::Done(call.number as u64 * 10)
            });
            self.head.store(self.consumer.head(), Ordering::Release);
            seen
        }
    }

    #[test]
    fn a_call_comes_with_the_head_that_counts_it() {
        let entries = Entries::new();
        let (mut consumer, mut producer) = (Consumer::new(), Producer::new());
        for number in 1..=3 {
            producer.post(&entries, &AtomicU32::new(0), number, 0, [0; 6]).unwrap();
        }
        let mut heads = Vec::new();
        consumer.visit(&entries, &InFlight::new(), 64, |call| {
            heads.push((call.number, call.head));
            Served::Done(0)
        });
        assert_eq!(heads, [(1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn calls_are_served_in_order_and_results_taken_once() {
        let mut both = both();
        for number in 2..66 {
            assert_eq!(both.post(number, 0), Some(usize::from(number) - 2));
        }
        for _ in 0..3 {
            assert_eq!(both.post(99, 0), None);
        }
        assert_eq!(both.serve(), (2..66).collect::<Vec<_>>());
        assert_eq!(both.entries.take_result(5), Some(70));
        assert_eq!(both.entries.take_result(5), None);
        assert!(!both.consumer.has_work(&both.entries, &both.in_flight));
    }

    #[test]
    fn a_call_that_waits_for_ever_stops_nobody_for_many_laps() {
        let mut both = both();
        let waiting = both.post(1, 0).unwrap();
        assert_eq!(both.serve(), [1]);
        for round in 0..1000 {
            let index = both.post(2, 0).unwrap();
            assert_ne!(index, waiting, "round {round}");
            assert_eq!(both.serve(), [2], "round {round}");
            assert_eq!(both.entries.take_result(index), Some(20));
        }
        assert!(!both.in_flight.complete(&both.entries, waiting, 7));
        assert_eq!(both.entries.take_result(waiting), Some(7));
        // And it is used again when its turn comes.
        let used: Vec<_> = (0..64)
            .map(|_| {
                let index = both.post(2, 0).unwrap();
                assert_eq!(both.serve(), [2]);
                assert_eq!(both.entries.take_result(index), Some(20));
                index
            })
            .collect();
        assert!(used.contains(&waiting));
    }

    #[test]
    fn a_kernel_that_lags_behind_loses_nothing() {
        let mut both = both();
        let waiting = both.post(1, 0).unwrap();
        both.serve();
        for round in 0..100 {
            let mut posted = 0;
            while both.post(2, 0).is_some() {
                posted += 1;
            }
            assert!(posted >= 62, "round {round}: {posted}");
            if round % 3 == 0 {
                assert!(!both.in_flight.complete(&both.entries, waiting, 0));
                both.in_flight.begin(waiting);
            }
            assert_eq!(both.serve().len(), posted, "round {round}");
            for index in (0..64).filter(|index| *index != waiting) {
                both.entries.take_result(index);
            }
        }
    }

    #[test]
    fn entries_whose_results_were_taken_are_used_again_though_they_say_done() {
        let mut both = both();
        let waiting = both.post(1, 0).unwrap();
        assert_eq!(both.serve(), [1]);
        for round in 0..300 {
            let index = both.post(2, 0).unwrap();
            assert_ne!(index, waiting, "round {round}");
            assert_eq!(both.producer.take_result(&both.entries, index), None);
            assert_eq!(both.serve(), [2], "round {round}");
            assert_eq!(both.producer.take_result(&both.entries, index), Some(20));
            assert!(both.entries.is_done(index));
            assert_eq!(both.serve(), [0; 0], "round {round}");
        }
    }

    #[test]
    fn results_that_nobody_takes_are_passed_too() {
        let mut both = both();
        let kept = both.post(2, 0).unwrap();
        both.serve();
        for _ in 0..200 {
            let index = both.post(3, 0).unwrap();
            assert_eq!(both.serve(), [3]);
            both.entries.take_result(index).unwrap();
        }
        assert_eq!(both.entries.take_result(kept), Some(20));
    }

    #[test]
    fn a_linked_entry_begins_after_the_one_before_it_and_others_overtake() {
        let mut both = both();
        let first = both.post(1, 0).unwrap();
        both.post(2, FLAG_LINK).unwrap();
        both.post(3, FLAG_LINK).unwrap();
        both.post(4, 0).unwrap();
        assert_eq!(both.serve(), [1, 4]);
        assert_eq!(both.serve(), [0; 0]);
        assert!(!both.in_flight.complete(&both.entries, first, 0));
        assert!(both.consumer.has_work(&both.entries, &both.in_flight));
        assert_eq!(both.serve(), [2, 3]);
    }

    #[test]
    fn an_entry_under_way_is_not_taken_again_whatever_its_status_says() {
        let mut both = both();
        let index = both.post(1, 0).unwrap();
        both.serve();
        for _ in 0..63 {
            both.post(2, 0).unwrap();
        }
        both.serve();
        // The head is back at the first entry; the user says once more that it is submitted.
        both.entries.at(index).status.store(status::SUBMITTED, Ordering::Release);
        assert_eq!(both.serve(), [0; 0]);
        assert!(!both.consumer.has_work(&both.entries, &both.in_flight));
    }
}
