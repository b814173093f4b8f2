//! Waiting for several files: poll, ppoll, select, pselect6.
//!
//! A first look registers nowhere: most calls find something. Only a call that waits enters the wait
//! queues of its files, once, and looks again after that. A wake-up says which file it is from, and
//! only such files are looked at again.

use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Poll, Waker};

use abi::Errno;
use abi::fs::{PollEvents, PollFd};
use abi::signal::SignalSet;
use abi::time::{Timespec, Timeval};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use base::sync::{Mutex, rank};
use base::task;
use base::time::{self, with_deadline};
use base::wait::{Kind, Registration, Target, Watcher};
use fs::OpenFile;
use fs::poll::PollTable;
use zerocopy::IntoBytes;

use crate::call::{Call, SysResult};
use crate::memory::AddressSpace;
use crate::process::{Interrupted, Resource, Thread};
use crate::signal::{RestartBlock, with_mask};

/// One file that is waited for.
struct Watched {
    file: Option<Arc<OpenFile>>,
    wanted: PollEvents,
    found: PollEvents,
}

impl Watched {
    fn look(&mut self, caller: &Thread, table: Option<&mut PollTable<'_>>) -> bool {
        self.found = match &self.file {
            Some(file) => {
                let wanted = self.wanted | PollEvents::ALWAYS;
                file.file().poll_for(caller, self.wanted, table) & wanted
            }
            None => PollEvents::NVAL,
        };
        !self.found.is_empty()
    }
}

/// What the files of one wait have told. The token of a file is its index.
struct Told {
    /// One bit for each file.
    bits: Box<[AtomicU64]>,
    waker: Mutex<Option<Waker>>,
}

impl Told {
    fn new(files: usize) -> Arc<Told> {
        let bits = (0..files.div_ceil(WORD_BITS)).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Told { bits, waker: Mutex::new(&rank::WATCHER, None) })
    }

    /// Whoever tells sets a bit first and looks for the waker then.
    fn set_waker(&self, waker: &Waker) {
        let mut present = self.waker.lock();
        if !present.as_ref().is_some_and(|present| present.will_wake(waker)) {
            let former = present.replace(waker.clone());
            drop(present);
            drop(former);
        }
    }

    /// Calls `each` with the index of every file that told something since the last time.
    fn take(&self, mut each: impl FnMut(usize)) {
        for (word, bits) in self.bits.iter().enumerate() {
            if bits.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut left = bits.swap(0, Ordering::AcqRel);
            while left != 0 {
                each(word * WORD_BITS + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}

impl Watcher for Told {
    fn notify(&self, token: u64, _events: PollEvents) -> bool {
        let index = usize::try_from(token).unwrap_or(usize::MAX);
        if let Some(bits) = self.bits.get(index / WORD_BITS) {
            bits.fetch_or(1 << (index % WORD_BITS), Ordering::AcqRel);
            let waker = self.waker.lock().clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        true
    }
}

/// How a wait ended.
enum Waited {
    /// Something was found, or the time is over.
    Done,
    /// A signal came first.
    Interrupted,
}

/// Files that are looked at before others have the core.
const LOOKS_AT_ONCE: usize = 1024;

/// Registers with files, of which the first has the token `first`; whether one of them has something. From
/// the first that has, the rest are only looked at.
fn register(
    watched: &mut [Watched],
    first: u64,
    caller: &Thread,
    told: &Arc<Told>,
    registrations: &mut Vec<Registration>,
) -> bool {
    let weak: Weak<dyn Watcher> = Arc::<Told>::downgrade(told);
    let mut is_any = false;
    for (watch, token) in watched.iter_mut().zip(first..) {
        let target = Target::Watcher(weak.clone(), token);
        let mut table = PollTable::new(Kind::Watcher, watch.wanted, &target, registrations);
        is_any |= watch.look(caller, (!is_any).then_some(&mut table));
    }
    is_any
}

async fn wait(call: &Call, watched: &mut [Watched], deadline_ns: Option<u64>) -> Waited {
    let caller: &Thread = &call.thread;
    let mut is_any = false;
    for (index, watch) in watched.iter_mut().enumerate() {
        if index > 0 && index.is_multiple_of(LOOKS_AT_ONCE) {
            task::yield_now().await;
        }
        is_any |= watch.look(caller, None);
    }
    if is_any || deadline_ns.is_some_and(|deadline_ns| deadline_ns <= time::now_ns()) {
        return Waited::Done;
    }
    let told = Told::new(watched.len());
    let mut registrations = Vec::new();
    let mut registered = 0;
    let look = poll_fn(|context| {
        told.set_waker(context.waker());
        let mut is_any = false;
        told.take(|index| {
            if let Some(watch) = watched.get_mut(index) {
                is_any |= watch.look(caller, None);
            }
        });
        let end = watched.len().min(registered + LOOKS_AT_ONCE);
        if let Some(next) = watched.get_mut(registered..end).filter(|next| !next.is_empty()) {
            is_any |= register(next, registered as u64, caller, &told, &mut registrations);
            registered = end;
            if registered < watched.len() {
                context.waker().wake_by_ref();
            }
        }
        if is_any { Poll::Ready(()) } else { Poll::Pending }
    });
    match Box::pin(call.thread.interruptible(with_deadline(look, deadline_ns))).await {
        Ok(_) => Waited::Done,
        Err(Interrupted) => Waited::Interrupted,
    }
}

/// The array of a `poll`, decoded.
struct PollArray {
    raw: Vec<PollFd>,
    watched: Vec<Watched>,
}

async fn read_array(call: &Call, address: u64, count: u64) -> Result<PollArray, Errno> {
    if count > call.process().limits.soft(Resource::Files) {
        return Err(Errno::EINVAL);
    }
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    let raw: Vec<PollFd> = call.user().read_array(address, count).await?;
    let files = call.thread.files();
    // Negative descriptors stay out; the rest keep their order.
    let watched = raw
        .iter()
        .filter(|entry| entry.descriptor >= 0)
        .map(|entry| Watched {
            file: files.get(entry.descriptor).ok(),
            wanted: PollEvents::from_bits_truncate(entry.events),
            found: PollEvents::empty(),
        })
        .collect();
    Ok(PollArray { raw, watched })
}

impl PollArray {
    /// Writes what was found back; how many entries have something.
    async fn answer(mut self, call: &Call, address: u64) -> SysResult {
        let mut watched = self.watched.iter();
        let mut count = 0;
        for entry in &mut self.raw {
            let found = if entry.descriptor < 0 { None } else { watched.next() };
            entry.returned_events = found.map_or(0, |watch| watch.found.bits());
            count += u64::from(entry.returned_events != 0);
        }
        call.user().write_bytes(address, self.raw.as_bytes()).await?;
        Ok(count)
    }
}

/// Most files that a look without a handler takes.
const FEW: usize = 128;

/// A `poll` of few files of which one has something, or that does not wait. `None` when anything stands
/// in the way: `poll` does it properly then.
pub fn poll_at_once(thread: &Thread, space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    let [address, count, timeout_ms, ..] = *arguments;
    let count = usize::try_from(count as u32).ok()?;
    if count as u64 > thread.process.limits.soft(Resource::Files) {
        return None;
    }
    let waits = timeout_ms as i32 != 0;
    // The array is cleared before it is filled, which takes longer than a look at a few files.
    if count <= FEW / 8 {
        poll_few::<{ FEW / 8 }>(thread, space, address, count, waits)
    } else {
        poll_few::<FEW>(thread, space, address, count, waits)
    }
}

fn poll_few<const MOST: usize>(
    thread: &Thread,
    space: &AddressSpace,
    address: u64,
    count: usize,
    waits: bool,
) -> Option<u64> {
    let mut raw = [PollFd::default(); MOST];
    let raw = raw.get_mut(..count)?;
    if !space.get_now(address, raw.as_mut_bytes()) {
        return None;
    }
    let files = thread.files();
    let mut answers = 0;
    for entries in raw.chunks_mut(AT_A_TIME) {
        let mut descriptors = [-1; AT_A_TIME];
        for (descriptor, entry) in descriptors.iter_mut().zip(entries.iter()) {
            *descriptor = entry.descriptor;
        }
        let some = files.get_some(&descriptors);
        for (entry, file) in entries.iter_mut().zip(&some) {
            let wanted = PollEvents::from_bits_truncate(entry.events);
            let found = match file {
                Some(file) => look_now(thread, file, wanted),
                None if entry.descriptor < 0 => PollEvents::empty(),
                None => PollEvents::NVAL,
            };
            entry.returned_events = found.bits();
            answers += u64::from(!found.is_empty());
        }
    }
    if answers == 0 && waits {
        return None;
    }
    // Where a part was written the long way writes it again.
    space.put_now(address, raw.as_bytes()).then_some(answers)
}

/// Files that are looked up under one hold of the table's lock.
const AT_A_TIME: usize = 8;

/// What a file has of the events that are asked for.
fn look_now(caller: &Thread, file: &OpenFile, wanted: PollEvents) -> PollEvents {
    file.file().poll_for(caller, wanted, None) & (wanted | PollEvents::ALWAYS)
}

pub async fn poll(call: &Call) -> SysResult {
    let timeout_ms = call.int(2);
    let deadline_ns = u64::try_from(timeout_ms)
        .ok()
        .map(|timeout_ms| time::now_ns().saturating_add(timeout_ms * 1_000_000));
    continue_poll(call, call.argument(0), u64::from(call.unsigned(1)), deadline_ns).await
}

/// Does a `poll`, from its start or after a signal that had no handler.
pub async fn continue_poll(
    call: &Call,
    array: u64,
    count: u64,
    deadline_ns: Option<u64>,
) -> SysResult {
    let mut decoded = read_array(call, array, count).await?;
    match wait(call, &mut decoded.watched, deadline_ns).await {
        Waited::Done => decoded.answer(call, array).await,
        Waited::Interrupted => {
            call.thread.signals.set_restart(RestartBlock::Poll { array, count, deadline_ns });
            Err(Errno::ERESTART_RESTARTBLOCK)
        }
    }
}

/// A signal mask of `ppoll` and `pselect6`.
pub async fn read_mask(call: &Call, address: u64, size: u64) -> Result<Option<SignalSet>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    if size != SignalSet::SIZE {
        return Err(Errno::EINVAL);
    }
    let bits: u64 = call.user().read_value(address).await?;
    Ok(Some(SignalSet(bits).without(SignalSet::UNBLOCKABLE)))
}

/// The end of a wait whose length is in a `struct timespec`; none for a null address.
pub async fn read_timeout(call: &Call, address: u64) -> Result<Option<u64>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let timeout_ns = call.user().read_value::<Timespec>(address).await?.to_ns()?;
    Ok(Some(time::now_ns().saturating_add(timeout_ns)))
}

/// Writes what is left of the time. A failure is no error, as in Linux.
async fn write_left(call: &Call, address: u64, deadline_ns: Option<u64>) {
    if let Some(deadline_ns) = deadline_ns {
        let left = Timespec::from_ns(deadline_ns.saturating_sub(time::now_ns()));
        let _ = call.user().write_value(address, &left).await;
    }
}

pub async fn ppoll(call: &Call) -> SysResult {
    let deadline_ns = read_timeout(call, call.argument(2)).await?;
    let mask = read_mask(call, call.argument(3), call.argument(4)).await?;
    let array = call.argument(0);
    let wait = pin!(async {
        let mut decoded = read_array(call, array, u64::from(call.unsigned(1))).await?;
        match wait(call, &mut decoded.watched, deadline_ns).await {
            Waited::Done => decoded.answer(call, array).await,
            Waited::Interrupted => Err(Errno::ERESTARTNOHAND),
        }
    });
    let result = with_mask(&call.thread, mask, wait).await;
    write_left(call, call.argument(2), deadline_ns).await;
    result
}

const WORD_BITS: usize = 64;
/// What makes a descriptor readable, writable and exceptional for `select`.
const READ_EVENTS: PollEvents = PollEvents::READABLE
    .union(PollEvents::RDBAND)
    .union(PollEvents::HUP)
    .union(PollEvents::ERR)
    .union(PollEvents::NVAL);
const WRITE_EVENTS: PollEvents =
    PollEvents::WRITABLE.union(PollEvents::WRBAND).union(PollEvents::ERR).union(PollEvents::NVAL);
const EXCEPTION_EVENTS: PollEvents = PollEvents::PRI.union(PollEvents::NVAL);
const SETS: [PollEvents; 3] = [READ_EVENTS, WRITE_EVENTS, EXCEPTION_EVENTS];

/// The three sets of a `select`, decoded: for each descriptor in any of them, what is watched.
struct Sets {
    words: usize,
    descriptors: Vec<usize>,
    /// For each descriptor, which of the three sets it is in.
    members: Vec<[bool; 3]>,
    watched: Vec<Watched>,
}

fn is_member(set: &[u64], descriptor: usize) -> bool {
    set.get(descriptor / WORD_BITS).is_some_and(|word| word >> (descriptor % WORD_BITS) & 1 != 0)
}

async fn read_sets(call: &Call) -> Result<Sets, Errno> {
    let count = usize::try_from(call.int(0)).map_err(|_| Errno::EINVAL)?;
    let files = call.thread.files();
    let count = count.min(files.capacity().next_multiple_of(WORD_BITS));
    let words = count.div_ceil(WORD_BITS);
    let user = call.user();
    let mut sets: [Vec<u64>; 3] = [Vec::new(), Vec::new(), Vec::new()];
    for (set, index) in sets.iter_mut().zip(1..) {
        let address = call.argument(index);
        if address != 0 {
            *set = user.read_array(address, words).await?;
        }
    }
    let mut decoded =
        Sets { words, descriptors: Vec::new(), members: Vec::new(), watched: Vec::new() };
    for descriptor in 0..count {
        let members =
            [0, 1, 2].map(|index| sets.get(index).is_some_and(|set| is_member(set, descriptor)));
        let mut wanted = PollEvents::empty();
        for (events, is_in) in SETS.iter().zip(members) {
            if is_in {
                wanted |= *events;
            }
        }
        if wanted.is_empty() {
            continue;
        }
        let number = i32::try_from(descriptor).map_err(|_| Errno::EBADF)?;
        decoded.descriptors.push(descriptor);
        decoded.members.push(members);
        decoded.watched.push(Watched {
            file: Some(files.get(number)?),
            wanted,
            found: PollEvents::empty(),
        });
    }
    Ok(decoded)
}

impl Watched {
    /// Whether nothing was found that one of the sets asks for (`HUP` alone in a set of writers).
    fn is_irrelevant(&self, members: &[bool; 3]) -> bool {
        SETS.iter().zip(members).all(|(events, is_in)| !is_in || !self.found.intersects(*events))
    }
}

/// A `select` of descriptors below 1024 of which one has something, or that does not wait. `None` when
/// anything stands in the way: `select` does it properly then.
pub fn select_at_once(thread: &Thread, space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    select_of(thread, space, arguments, 1_000_000)
}

/// The same for a `pselect6` that leaves the signal mask alone.
pub fn pselect_at_once(thread: &Thread, space: &AddressSpace, arguments: &[u64; 6]) -> Option<u64> {
    let mut mask = [0_u64; 2];
    if arguments[5] != 0 && (!space.get_now(arguments[5], mask.as_mut_bytes()) || mask[0] != 0) {
        return None;
    }
    select_of(thread, space, arguments, 1_000_000_000)
}

/// `second` is what the smaller part of the time counts up to.
fn select_of(
    thread: &Thread,
    space: &AddressSpace,
    arguments: &[u64; 6],
    second: u64,
) -> Option<u64> {
    let count = usize::try_from(arguments[0] as i32).ok()?;
    if count <= FEW {
        select_few::<{ FEW / WORD_BITS }>(thread, space, arguments, count, second)
    } else if count <= 1024 {
        select_few::<{ 1024 / WORD_BITS }>(thread, space, arguments, count, second)
    } else {
        None
    }
}

fn select_few<const WORDS: usize>(
    thread: &Thread,
    space: &AddressSpace,
    arguments: &[u64; 6],
    count: usize,
    second: u64,
) -> Option<u64> {
    let [_, reading, writing, exceptional, timeout, _] = *arguments;
    let addresses = [reading, writing, exceptional];
    let mut time = [0_u64; 2];
    if timeout != 0 && !space.get_now(timeout, time.as_mut_bytes()) {
        return None;
    }
    let waits = timeout == 0 || time != [0; 2];
    // The long way judges what is no proper time.
    if i64::try_from(time[0]).is_err() || time[1] >= second {
        return None;
    }
    let files = thread.files();
    let count = count.min(files.capacity());
    let words = count.div_ceil(WORD_BITS);
    let mut sets = [[0_u64; WORDS]; 3];
    for (set, address) in sets.iter_mut().zip(addresses) {
        if address != 0 && !space.get_now(address, set.get_mut(..words)?.as_mut_bytes()) {
            return None;
        }
    }
    let mut answers = [[0_u64; WORDS]; 3];
    let mut found = 0;
    for word in 0..words {
        let given = sets.map(|set| set.get(word).copied().unwrap_or(0));
        let mut left = given[0] | given[1] | given[2];
        if word == count / WORD_BITS {
            left &= (1 << (count % WORD_BITS)) - 1;
        }
        while left != 0 {
            let mut descriptors = [-1; AT_A_TIME];
            for descriptor in &mut descriptors {
                if left != 0 {
                    let index = word * WORD_BITS + left.trailing_zeros() as usize;
                    *descriptor = i32::try_from(index).ok()?;
                    left &= left - 1;
                }
            }
            let some = files.get_some(&descriptors);
            for (descriptor, file) in descriptors.iter().zip(&some) {
                let Ok(index) = usize::try_from(*descriptor) else { break };
                let bit = 1 << (index % WORD_BITS);
                let mut wanted = PollEvents::empty();
                for (events, set) in SETS.iter().zip(given) {
                    if set & bit != 0 {
                        wanted |= *events;
                    }
                }
                // One that is not open is `EBADF`, which the long way says.
                let there = look_now(thread, file.as_deref()?, wanted);
                if there.is_empty() {
                    continue;
                }
                for ((events, set), answer) in SETS.iter().zip(given).zip(&mut answers) {
                    if set & bit != 0 && there.intersects(*events) {
                        *answer.get_mut(word)? |= bit;
                        found += 1;
                    }
                }
            }
        }
    }
    if found == 0 && waits {
        return None;
    }
    for (index, (address, answer)) in addresses.iter().zip(&answers).enumerate() {
        if *address != 0 && !space.put_now(*address, answer.get(..words)?.as_bytes()) {
            // The long way reads the sets once more.
            for (address, set) in addresses.iter().zip(&sets).take(index) {
                if *address != 0 {
                    let _ = space.put_now(*address, set.get(..words)?.as_bytes());
                }
            }
            return None;
        }
    }
    Some(found)
}

async fn select_wait(call: &Call, deadline_ns: Option<u64>) -> SysResult {
    let mut sets = read_sets(call).await?;
    if let Waited::Interrupted = wait(call, &mut sets.watched, deadline_ns).await {
        return Err(Errno::ERESTARTNOHAND);
    }
    let user = call.user();
    let mut count = 0;
    for (which, events) in SETS.iter().enumerate() {
        let address = call.argument(which + 1);
        if address == 0 {
            continue;
        }
        let mut words = vec![0u64; sets.words];
        for ((descriptor, members), watch) in
            sets.descriptors.iter().zip(&sets.members).zip(&sets.watched)
        {
            let is_in = members.get(which).is_some_and(|is_in| *is_in);
            if is_in && watch.found.intersects(*events) && !watch.is_irrelevant(members) {
                if let Some(word) = words.get_mut(descriptor / WORD_BITS) {
                    *word |= 1 << (descriptor % WORD_BITS);
                }
                count += 1;
            }
        }
        user.write_bytes(address, words.as_bytes()).await?;
    }
    Ok(count)
}

pub async fn select(call: &Call) -> SysResult {
    let address = call.argument(4);
    let deadline_ns = if address == 0 {
        None
    } else {
        let timeout: Timeval = call.user().read_value(address).await?;
        let microseconds = u64::try_from(timeout.microseconds).map_err(|_| Errno::EINVAL)?;
        let seconds = u64::try_from(timeout.seconds).map_err(|_| Errno::EINVAL)?;
        let timeout_ns =
            seconds.saturating_mul(1_000_000_000).saturating_add(microseconds.saturating_mul(1000));
        Some(time::now_ns().saturating_add(timeout_ns))
    };
    let result = select_wait(call, deadline_ns).await;
    if let Some(deadline_ns) = deadline_ns {
        let left_ns = deadline_ns.saturating_sub(time::now_ns());
        let left = Timeval {
            seconds: (left_ns / 1_000_000_000) as i64,
            microseconds: (left_ns % 1_000_000_000 / 1000) as i64,
        };
        // A failure is no error, as in Linux.
        let _ = call.user().write_value(address, &left).await;
    }
    result
}

pub async fn pselect6(call: &Call) -> SysResult {
    let deadline_ns = read_timeout(call, call.argument(4)).await?;
    let mask = match call.argument(5) {
        0 => None,
        address => {
            let [mask, size]: [u64; 2] = call.user().read_value(address).await?;
            read_mask(call, mask, size).await?
        }
    };
    let result = with_mask(&call.thread, mask, pin!(select_wait(call, deadline_ns))).await;
    write_left(call, call.argument(4), deadline_ns).await;
    result
}
