//! epoll calls: making instances, changing what they watch, and waiting for events.

use core::pin::pin;

use abi::Errno;
use abi::epoll::*;
use abi::fs::OpenFlags;
use abi::signal::SignalSet;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::time::{self, with_deadline};
use fs::OpenFile;
use fs::epoll::{Delivery, Epoll, Round};
use fs::eventfd::EventCounter;
use zerocopy::IntoBytes;

use super::descriptor::install;
use super::poll::{read_mask, read_timeout};
use crate::call::{Call, SysResult};
use crate::memory::AddressSpace;
use crate::process::{Interrupted, Thread};
use crate::signal::signalfd::SignalFile;
use crate::signal::with_mask;

/// Events that are taken and written at a time.
const BATCH: usize = 128;

pub fn eventfd(call: &Call, flags: u32) -> SysResult {
    let known = EFD_SEMAPHORE | OpenFlags::CLOEXEC.bits() | OpenFlags::NONBLOCK.bits();
    if flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let status = OpenFlags::from_bits_truncate(flags) & OpenFlags::NONBLOCK;
    let is_semaphore = flags & EFD_SEMAPHORE != 0;
    let file = EventCounter::open(call.unsigned(0), is_semaphore, status)?;
    install(call, file, flags & OpenFlags::CLOEXEC.bits() != 0)
}

/// `signalfd4(descriptor, set, size, flags)`
pub async fn signalfd(call: &Call, flags: u32) -> SysResult {
    if call.argument(2) != SignalSet::SIZE {
        return Err(Errno::EINVAL);
    }
    let set: SignalSet = call.user().read_value(call.argument(1)).await?;
    let known = OpenFlags::CLOEXEC.bits() | OpenFlags::NONBLOCK.bits();
    if flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let set = set.without(SignalSet::UNBLOCKABLE);
    let descriptor = call.int(0);
    if descriptor != -1 {
        let file = usable(call, descriptor)?;
        SignalFile::of(&file)?.change(&call.thread, set);
        return Ok(u64::from(descriptor.unsigned_abs()));
    }
    let status = OpenFlags::from_bits_truncate(flags) & OpenFlags::NONBLOCK;
    install(call, SignalFile::open(set, status)?, flags & OpenFlags::CLOEXEC.bits() != 0)
}

pub fn epoll_create(call: &Call) -> SysResult {
    if call.int(0) <= 0 {
        return Err(Errno::EINVAL);
    }
    install(call, Epoll::open()?, false)
}

pub fn epoll_create1(call: &Call) -> SysResult {
    let flags = call.unsigned(0);
    if flags & !EPOLL_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    install(call, Epoll::open()?, flags & EPOLL_CLOEXEC != 0)
}

/// `epoll_ctl(instance, operation, descriptor, event)`
pub async fn epoll_ctl(call: &Call) -> SysResult {
    let (operation, descriptor) = (call.int(1), call.int(2));
    let mut event = EpollEvent::default();
    if operation != EPOLL_CTL_DEL {
        event = call.user().read_value(call.argument(3)).await?;
    }
    let instance = usable(call, call.int(0))?;
    let file = usable(call, descriptor)?;
    if !file.file().can_be_watched() {
        return Err(Errno::EPERM);
    }
    // Which holds of a second descriptor of the instance as well.
    if Arc::ptr_eq(&instance, &file) {
        return Err(Errno::EINVAL);
    }
    let epoll = Epoll::of(&instance)?;
    let flags = EpollFlags::from_bits_retain(event.events);
    if flags.contains(EpollFlags::EXCLUSIVE) {
        let beside = EpollFlags::WITH_EXCLUSIVE.contains(flags) && Epoll::of(&file).is_err();
        if operation == EPOLL_CTL_MOD || (operation == EPOLL_CTL_ADD && !beside) {
            return Err(Errno::EINVAL);
        }
    }
    let caller: &Thread = &call.thread;
    match operation {
        EPOLL_CTL_ADD => epoll.add(caller, &file, descriptor, event)?,
        EPOLL_CTL_DEL => epoll.remove(&file, descriptor)?,
        EPOLL_CTL_MOD => epoll.modify(caller, &file, descriptor, event)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

fn usable(call: &Call, descriptor: i32) -> Result<Arc<OpenFile>, Errno> {
    let file = call.thread.file(descriptor)?;
    if file.is_path_only() { Err(Errno::EBADF) } else { Ok(file) }
}

/// A wait, decoded.
struct Wait {
    instance: Arc<OpenFile>,
    /// Where the events go.
    address: u64,
    most: usize,
    /// `Some(0)` for not at all.
    deadline_ns: Option<u64>,
}

impl Wait {
    fn new(call: &Call, deadline_ns: Option<u64>) -> Result<Wait, Errno> {
        let most = call.int(2);
        if most <= 0 || most > EPOLL_MAX_EVENTS {
            return Err(Errno::EINVAL);
        }
        let most = usize::try_from(most).map_err(|_| Errno::EINVAL)?;
        let address = call.argument(1);
        // The whole array must lie in user space, however little of it is used.
        call.user().sink(address, (most * size_of::<EpollEvent>()) as u64)?;
        let instance = usable(call, call.int(0))?;
        Epoll::of(&instance)?;
        Ok(Wait { instance, address, most, deadline_ns })
    }

    async fn run(self, call: &Call) -> SysResult {
        let epoll = Epoll::of(&self.instance)?;
        let caller: &Thread = &call.thread;
        let mut round = epoll.round();
        let mut found = epoll.collect(&mut round, caller, self.most.min(BATCH));
        let expires = |deadline_ns: u64| deadline_ns == 0 || deadline_ns <= time::now_ns();
        if found.is_empty() && !self.deadline_ns.is_some_and(expires) {
            let look = epoll.changed().wait_until(|| {
                round = epoll.round();
                let found = epoll.collect(&mut round, caller, self.most.min(BATCH));
                (!found.is_empty()).then_some(found)
            });
            let wait = call.thread.interruptible(with_deadline(look, self.deadline_ns));
            match Box::pin(wait).await {
                Ok(Ok(deliveries)) => found = deliveries,
                Ok(Err(_)) => {}
                Err(Interrupted) => return Err(Errno::EINTR),
            }
        }
        let result = self.deliver(call, epoll, (round, found)).await;
        // Level-triggered events are back in the list, and there may be more than were asked for.
        epoll.pass_on();
        result
    }

    /// Writes the events, batch after batch of the round while there is room for more and more are ready.
    async fn deliver(
        &self,
        call: &Call,
        epoll: &Epoll,
        (mut round, mut batch): (Round, Vec<Delivery>),
    ) -> SysResult {
        let mut done = 0;
        while !batch.is_empty() {
            let events: Vec<EpollEvent> = batch.iter().map(|delivery| delivery.event).collect();
            let address = self.address + (done * size_of::<EpollEvent>()) as u64;
            if let Err(error) = call.user().write_bytes(address, events.as_bytes()).await {
                epoll.give_back(&batch);
                return if done > 0 { Ok(done as u64) } else { Err(error) };
            }
            done += batch.len();
            if batch.len() < BATCH || done == self.most {
                break;
            }
            batch = epoll.collect(&mut round, &**call.thread, (self.most - done).min(BATCH));
        }
        Ok(done as u64)
    }
}

/// The end of a wait of so many milliseconds; `None` for never.
fn deadline_of_ms(timeout_ms: i32) -> Option<u64> {
    let timeout_ms = u64::try_from(timeout_ms).ok()?;
    Some(if timeout_ms == 0 { 0 } else { time::now_ns().saturating_add(timeout_ms * 1_000_000) })
}

/// An `epoll_wait` for few events that are there, or that does not wait. `None` when anything stands in the
/// way: nothing has been taken then.
pub fn epoll_wait_at_once(
    thread: &Thread,
    space: &AddressSpace,
    arguments: &[u64; 6],
) -> Option<u64> {
    let [descriptor, address, most, timeout_ms, ..] = *arguments;
    let most = usize::try_from(most as i32).ok().filter(|most| (1..BATCH).contains(most))?;
    let instance = thread.file(descriptor as i32).ok().filter(|file| !file.is_path_only())?;
    let epoll = Epoll::of(&instance).ok()?;
    let found = epoll.collect(&mut epoll.round(), thread, most);
    if found.is_empty() && timeout_ms as i32 != 0 {
        return None;
    }
    let events: Vec<EpollEvent> = found.iter().map(|delivery| delivery.event).collect();
    let is_written = space.put_all_now(address, events.as_bytes());
    if !is_written {
        epoll.give_back(&found);
    }
    // Level-triggered events are in the list still, and there may be more than were asked for.
    epoll.pass_on();
    is_written.then_some(found.len() as u64)
}

pub async fn epoll_wait(call: &Call) -> SysResult {
    Wait::new(call, deadline_of_ms(call.int(3)))?.run(call).await
}

pub async fn epoll_pwait(call: &Call) -> SysResult {
    let deadline_ns = deadline_of_ms(call.int(3));
    let mask = read_mask(call, call.argument(4), call.argument(5)).await?;
    wait_with_mask(call, mask, deadline_ns).await
}

pub async fn epoll_pwait2(call: &Call) -> SysResult {
    let deadline_ns = read_timeout(call, call.argument(3)).await?;
    let mask = read_mask(call, call.argument(4), call.argument(5)).await?;
    wait_with_mask(call, mask, deadline_ns).await
}

async fn wait_with_mask(
    call: &Call,
    mask: Option<SignalSet>,
    deadline_ns: Option<u64>,
) -> SysResult {
    let wait = pin!(async { Wait::new(call, deadline_ns)?.run(call).await });
    with_mask(&call.thread, mask, wait).await
}
