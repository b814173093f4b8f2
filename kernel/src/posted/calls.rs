//! The calls by which a thread gets, waits for and gives back its syspage.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::memory::Protection;
use abi::syspage::{ENTRY_COUNT, VERSION, feature, wait_mode};
use abi::time::Timespec;
use base::memory::Frame;
use base::sync::{Mutex, rank};
use base::syspage::{ControlFrame, EntriesPage, NotificationFrame};
use base::time::{self, with_deadline};
use base::user::UserContext;
use policy::route;
use policy::table::number;

use super::scanner::{self, LIMIT, Message};
use super::syspage::{Origin, Parts};
use super::{PROCESS_LIMIT, SPIN_LIMIT, Syspage};
use crate::call::{self, Call, SysResult};
use crate::locks;
use crate::memory::{AddressSpace, AreaFlags, PAGE, SharedPage, SharedPlace, is_page_aligned};
use crate::process::Thread;

/// Bytes from the trampoline down to the syspages of a program that does not know of them.
const DISTANCE: u64 = 1 << 40;

/// Numbers that syspages have now; number 0 is nobody's.
static NUMBERS: Mutex<[u64; LIMIT / 64]> = {
    let mut words = [0; LIMIT / 64];
    words[0] = 1;
    Mutex::new(&rank::CALL_SLOT, words)
};

fn take_number() -> Option<u32> {
    let mut words = NUMBERS.lock();
    let (index, word) = words.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
    let bit = word.trailing_ones();
    *word |= 1 << bit;
    u32::try_from(index * 64).ok().map(|first| first + bit)
}

fn give_number(id: u32) {
    if let Some(word) = NUMBERS.lock().get_mut(id as usize / 64) {
        *word &= !(1 << (id % 64));
    }
}

/// Carries out a call that may travel.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::ferry_wait => wait(call).await,
        number::ferry_cancel => cancel(call).await,
        _ => Err(call::unknown(call.number())),
    }
}

/// Carries out a call that changes how its thread calls, on the thread's core.
pub async fn serve_local(call: &Call, context: &mut UserContext) -> SysResult {
    let bound = call.thread.syspage();
    // A program that posts by itself needs no trampoline in this thread.
    let has_own = bound.as_ref().is_some_and(|syspage| syspage.is_programs_own());
    match call.number() {
        number::ferry_register => {
            if bound.is_some() && !has_own {
                leave(&call.thread).await;
                super::trampoline::stand_in(&call.thread.space(), context);
            }
            register(call)
        }
        number::ferry_unregister if has_own => {
            leave(&call.thread).await;
            Ok(0)
        }
        number::ferry_unregister => Err(Errno::ENOENT),
        _ => Err(call::unknown(call.number())),
    }
}

fn register(call: &Call) -> SysResult {
    let thread = &call.thread;
    let (version, address, flags) = (call.argument(0), call.argument(1), call.argument(2));
    if version != u64::from(VERSION) || flags != 0 || !is_page_aligned(address) {
        return Err(Errno::EINVAL);
    }
    if thread.restrictions.is_active() {
        return Err(Errno::EPERM);
    }
    bind(thread, Origin::Program { address }).map(|syspage| syspage.control_address())
}

/// Makes a syspage and gives it to the calling thread, on the core of that thread.
pub(super) fn bind(thread: &Arc<Thread>, origin: Origin) -> Result<Arc<Syspage>, Errno> {
    if thread.syspage().is_some() {
        return Err(Errno::EBUSY);
    }
    let count = &thread.process.syspages;
    if count.fetch_add(1, Ordering::Relaxed) >= PROCESS_LIMIT {
        count.fetch_sub(1, Ordering::Relaxed);
        return Err(Errno::EMFILE);
    }
    let made = take_number()
        .ok_or(Errno::EMFILE)
        .and_then(|id| make(thread, id, origin).inspect_err(|_| give_number(id)));
    let syspage = made.inspect_err(|_| {
        count.fetch_sub(1, Ordering::Relaxed);
    })?;
    scanner::send(Message::Add(syspage.clone()));
    thread.set_syspage(Some(syspage.clone()));
    super::enter_core(thread);
    Ok(syspage)
}

pub(super) fn make(thread: &Arc<Thread>, id: u32, origin: Origin) -> Result<Arc<Syspage>, Errno> {
    let space = thread.space();
    let features = if super::may_spin() { feature::SCANNED } else { 0 };
    let bitmap = route::posted_bitmap();
    let control = ControlFrame::new(Frame::zeroed()?, features, PROCESS_LIMIT, SPIN_LIMIT, &bitmap);
    let notification = NotificationFrame::new(Frame::zeroed()?);
    let both = Protection::READ | Protection::WRITE;
    let own = |frame: &Frame, protection| SharedPage {
        frame: frame.clone(),
        protection,
        flags: AreaFlags::SHARED | AreaFlags::DONT_FORK,
    };
    let mut pages = vec![own(control.frame(), Protection::READ), own(notification.frame(), both)];
    let frame = match origin {
        Origin::Program { address } => space.pin(address)?,
        Origin::Trampoline { .. } => {
            let frame = Frame::zeroed()?;
            pages.push(own(&frame, both));
            frame
        }
    };
    let page_count = pages.len() as u64;
    let place = match origin {
        Origin::Program { .. } => SharedPlace::Near(0),
        // Far from where the program maps: it may count on addresses that it has just unmapped.
        Origin::Trampoline { code, .. } => {
            SharedPlace::Near(code.saturating_sub(DISTANCE) + u64::from(id) * 4 * PAGE)
        }
    };
    let mapped = space.map_shared(place, b"[ferry]", pages);
    let control_address = mapped.inspect_err(|_| unpin(&space, origin, &frame))?;
    let entries = EntriesPage::new(frame);
    match origin {
        Origin::Program { address } => control.set_addresses(address, 0, 0),
        Origin::Trampoline { sites, code } => {
            control.set_addresses(control_address + 2 * PAGE, sites, code);
        }
    }
    let pages = control_address..control_address + page_count * PAGE;
    let thread = thread.clone();
    let parts = Parts { id, thread, space, origin, pages, entries, control, notification };
    Ok(Arc::new(Syspage::new(parts)))
}

fn unpin(space: &AddressSpace, origin: Origin, frame: &Frame) {
    if matches!(origin, Origin::Program { .. }) {
        space.unpin(frame);
    }
}

/// Takes a thread's syspage away: cancels what can be cancelled and waits for the rest. For threads
/// without one this is a look.
pub async fn leave(thread: &Thread) {
    let Some(syspage) = thread.syspage() else { return };
    thread.set_syspage(None);
    let parts = syspage.parts();
    super::forget_core(parts.id);
    scanner::send(Message::Remove(syspage.clone()));
    syspage.drain().await;
    thread.process.counters.absorb(&thread.counters, syspage.posted_counts());
    unpin(&parts.space, parts.origin, parts.entries.frame());
    // The program may have put something else there: only what still shows these frames goes.
    let frames = [parts.control.frame(), parts.notification.frame(), parts.entries.frame()];
    parts.space.unmap_shared(parts.pages.clone(), &frames);
    thread.process.syspages.fetch_sub(1, Ordering::Relaxed);
    give_number(parts.id);
}

/// The syspage that the calling program registered.
fn own_syspage(thread: &Thread) -> Result<Arc<Syspage>, Errno> {
    thread.syspage().filter(|syspage| syspage.is_programs_own()).ok_or(Errno::ENOENT)
}

/// The answer to a `ferry_wait` that only says that something was posted; `None` for every other call.
/// On the caller's core: a caller that waited for the scanner's core to wake up would not have anything
/// to do meanwhile, and the scanner nothing new when it has parked again.
#[inline]
pub fn submit_at_once(
    number: usize,
    arguments: &[u64; 6],
    thread: &Arc<Thread>,
) -> Option<SysResult> {
    let is_submit = number == number::ferry_wait && arguments[0] == wait_mode::SUBMIT;
    let submit = || own_syspage(thread).map(|syspage| tell_scanner(thread, &syspage));
    is_submit.then(|| locks::during(number, thread.number(), submit))
}

/// Something may have been posted.
fn tell_scanner(thread: &Thread, syspage: &Syspage) -> u64 {
    thread.counters.doorbells.add(1);
    syspage.ring();
    0
}

async fn wait(call: &Call) -> SysResult {
    let syspage = own_syspage(&call.thread)?;
    let (mode, index) = (call.argument(0), call.argument(1));
    // `SUBMIT` was answered where it trapped.
    let is_known = (wait_mode::ANY..=wait_mode::ONE).contains(&mode);
    if !is_known || (mode == wait_mode::ONE && index >= ENTRY_COUNT as u64) {
        return Err(Errno::EINVAL);
    }
    let deadline_ns = match call.argument(2) {
        0 => None,
        address => {
            let timeout_ns = call.user().read_value::<Timespec>(address).await?.to_ns()?;
            Some(time::now_ns().saturating_add(timeout_ns))
        }
    };
    tell_scanner(&call.thread, &syspage);
    let entries = &syspage.parts().entries;
    if mode == wait_mode::ONE && entries.is_submitted(index as usize) {
        call.process().counters.note_posted_wait(entries.number(index as usize));
    }
    let mut look: Box<dyn FnMut() -> Option<SysResult> + Send> = match mode {
        wait_mode::ANY => Box::new(|| {
            let done = || (0..ENTRY_COUNT).find(|&index| entries.is_done(index));
            if let Some(index) = done() {
                return Some(Ok(index as u64));
            }
            if (0..ENTRY_COUNT).any(|index| entries.is_submitted(index)) {
                return None;
            }
            // The last one may have been done between the two looks.
            Some(done().map(|index| index as u64).ok_or(Errno::EAGAIN))
        }),
        wait_mode::ALL => {
            Box::new(|| (0..ENTRY_COUNT).all(|index| !entries.is_submitted(index)).then_some(Ok(0)))
        }
        _ => Box::new(move || (!entries.is_submitted(index as usize)).then_some(Ok(0))),
    };
    let event = with_deadline(syspage.wait_until(&mut look), deadline_ns);
    match call.thread.interruptible(event).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Errno::ETIMEDOUT),
        Err(_) => Err(Errno::EINTR),
    }
}

async fn cancel(call: &Call) -> SysResult {
    let syspage = own_syspage(&call.thread)?;
    let index = call.argument(0);
    if index >= ENTRY_COUNT as u64 {
        return Err(Errno::EINVAL);
    }
    let index = index as usize;
    let entries = &syspage.parts().entries;
    if syspage.cancel(index) {
        return Ok(0);
    }
    if !entries.is_submitted(index) {
        return Err(Errno::ENOENT);
    }
    // What is posted and not taken yet will be soon; what waits for the entry before it is answered
    // without having begun. Only the scanner tells the two apart.
    syspage.want_cancel(index);
    let told = || {
        if syspage.cancel(index) {
            return Some(Ok(0));
        }
        (!entries.is_submitted(index)).then_some(Err(Errno::ENOENT))
    };
    let taken = call.thread.interruptible(syspage.wait_until(told)).await;
    if !syspage.want_no_cancel(index) {
        return Ok(0);
    }
    taken.unwrap_or(Err(Errno::ERESTARTNOINTR))
}
