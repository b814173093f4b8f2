//! A syspage as everybody may know it.
//!
//! Who may do what: the scanner's core takes entries (`scanner`); whoever carries out a call that was
//! taken completes it, once, on any core; the owning thread waits and cancels. The pages are pinned
//! for as long as somebody holds this.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::Waker;

use abi::Errno;
use abi::syspage::{ENTRY_COUNT, notification};
use base::bell::Bell;
use base::cpu::CpuId;
use base::posted::InFlight;
use base::sync::{Mutex, rank};
use base::syspage::{ControlFrame, EntriesPage, NotificationFrame};
use base::task;
use base::wait::WaitQueue;
use policy::table::CALL_LIMIT;

use super::scanner::{self, Message};
use crate::call::{SysResult, encode};
use crate::counters::Counter;
use crate::memory::AddressSpace;
use crate::process::Thread;
use crate::signal::Interruption;

/// What ends the wait of one posted call.
pub struct Cancellation {
    cancelled: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Cancellation {
    fn new() -> Cancellation {
        Cancellation {
            cancelled: AtomicBool::new(false),
            waker: Mutex::new(&rank::CALL_SLOT, None),
        }
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Interruption for Cancellation {
    fn is_set(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    fn set_waker(&self, waker: &Waker) {
        let former = self.waker.lock().replace(waker.clone());
        drop(former);
    }

    fn clear_waker(&self) {
        let former = self.waker.lock().take();
        drop(former);
    }
}

/// Who asked for a syspage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The program, which gave the page.
    Program {
        /// Where it has it.
        address: u64,
    },
    /// Nobody: it is for the trampoline of an unmodified program.
    Trampoline {
        /// Where the table of sites is.
        sites: u64,
        /// Where the trampoline is.
        code: u64,
    },
}

/// What a syspage is made of.
pub(super) struct Parts {
    pub(super) id: u32,
    pub(super) thread: Arc<Thread>,
    pub(super) space: Arc<AddressSpace>,
    pub(super) origin: Origin,
    /// Where the user has control page, notification page, and the entries if they are the kernel's.
    pub(super) pages: Range<u64>,
    pub(super) entries: EntriesPage,
    pub(super) control: ControlFrame,
    pub(super) notification: NotificationFrame,
}

/// A syspage.
pub struct Syspage {
    parts: Parts,
    in_flight: InFlight,
    cancellations: [Cancellation; ENTRY_COUNT],
    /// Answers, by entry, for a trampoline whose thread has to come into the kernel first; their entries
    /// are under way until then. One, unless the program writes into the trampoline's entries itself.
    withheld: Mutex<Vec<(usize, u64)>>,
    /// Whoever waits for entries to be done, or for the end.
    changed: WaitQueue,
    /// Brings the scanner to look.
    bell: Bell,
    /// The scanner has let go of it.
    removed: AtomicBool,
    /// Entries that are to be cancelled if they wait for the one before them, which the scanner alone
    /// knows; it takes the bit away when it has done so.
    cancel_wanted: AtomicU64,
    /// Calls taken, per number; only the scanner's core counts.
    posted: Box<[Counter]>,
}

impl Syspage {
    pub(super) fn new(parts: Parts) -> Syspage {
        Syspage {
            parts,
            in_flight: InFlight::new(),
            cancellations: core::array::from_fn(|_| Cancellation::new()),
            withheld: Mutex::new(&rank::CALL_SLOT, Vec::new()),
            changed: WaitQueue::new(),
            bell: Bell::new(),
            removed: AtomicBool::new(false),
            cancel_wanted: AtomicU64::new(0),
            posted: (0..CALL_LIMIT).map(|_| Counter::new()).collect(),
        }
    }

    /// The scanner took a call with this number.
    #[inline]
    pub(super) fn count(&self, number: usize) {
        if let Some(count) = self.posted.get(number) {
            count.add(1);
        }
    }

    /// Calls taken so far, per number.
    pub fn posted_counts(&self) -> impl Iterator<Item = u64> {
        self.posted.iter().map(Counter::get)
    }

    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Its number, not 0.
    #[inline]
    pub fn id(&self) -> u32 {
        self.parts.id
    }

    /// Whether the program registered it.
    pub fn is_programs_own(&self) -> bool {
        matches!(self.parts.origin, Origin::Program { .. })
    }

    /// Whether the call that a trampoline has posted is being carried out and does not wait.
    pub fn carries_out_trampoline(&self) -> bool {
        let index = self.in_flight.bits().trailing_zeros() as usize;
        !self.is_programs_own()
            && index < ENTRY_COUNT
            && self.interruption(index).waker.lock().is_none()
    }

    /// Where the user has the control page.
    pub(super) fn control_address(&self) -> u64 {
        self.parts.pages.start
    }

    /// The thread that posts here.
    #[inline]
    pub fn thread(&self) -> &Arc<Thread> {
        &self.parts.thread
    }

    /// The address space that its calls are about.
    #[inline]
    pub fn space(&self) -> &AddressSpace {
        &self.parts.space
    }

    /// What ends the wait of the call in an entry.
    pub fn interruption(&self, index: usize) -> &Cancellation {
        &self.cancellations[index % ENTRY_COUNT]
    }

    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// The scanner took an entry that cannot be answered at once.
    pub fn begin(&self, index: usize) {
        self.interruption(index).cancelled.store(false, Ordering::Relaxed);
        self.in_flight.begin(index);
        // Whoever wants to cancel it can do so from now on.
        self.changed.wake_all();
    }

    /// The answer of a call that was begun.
    pub fn complete(&self, index: usize, result: SysResult) {
        // For a trampoline the kernel itself takes the result of what it cancelled, and restarts it.
        let keeps = !self.is_programs_own();
        let result =
            result.map_err(|errno| if errno.is_restart() && !keeps { Errno::EINTR } else { errno });
        if keeps && (result == Err(super::must_trap()) || self.parts.thread.has_attention()) {
            // A signal that the call itself has raised comes before its answer: the thread is on its
            // way into the kernel, and takes both there. A call that was refused is made there.
            self.withheld.lock().push((index, encode(result)));
            self.changed.wake_all();
            return;
        }
        let is_posted_again = self.in_flight.complete(&self.parts.entries, index, encode(result));
        self.announce();
        if is_posted_again {
            self.ring();
        } else if CpuId::current() != super::scanner_core() {
            task::ring_doorbell(super::scanner_core());
        }
    }

    /// Publishes the answer of an entry if it was withheld; true when it was.
    pub(super) fn release_withheld(&self, index: usize) -> bool {
        let answer = {
            let mut withheld = self.withheld.lock();
            let found = withheld.iter().position(|(entry, _)| *entry == index);
            found.map(|place| withheld.swap_remove(place).1)
        };
        let Some(answer) = answer else { return false };
        if self.in_flight.complete(&self.parts.entries, index, answer) {
            self.ring();
        } else {
            task::ring_doorbell(super::scanner_core());
        }
        true
    }

    /// Results were published: tells the user, if it wants to know, and wakes its `ferry_wait`.
    pub(super) fn announce(&self) {
        self.parts.notification.notify(notification::COMPLETED);
        self.changed.wake_all();
    }

    /// Tells the user to trap after it has posted.
    pub(super) fn set_parked(&self) {
        self.parts.control.set_parked(true);
    }

    /// Whether something may be posted that nobody has taken.
    pub(super) fn may_have_work(&self) -> bool {
        self.parts.entries.may_have_work(|| self.parts.control.head())
    }

    /// Makes the scanner look, wherever the thread is.
    pub(super) fn ring(&self) {
        if self.bell.ring() {
            scanner::send(Message::Look(self.parts.id));
        }
        task::ring_doorbell(super::scanner_core());
    }

    /// The scanner looks now.
    pub(super) fn answer_ring(&self) {
        self.bell.answer();
    }

    /// Ends the wait of a call; false when it is not under way.
    pub(super) fn cancel(&self, index: usize) -> bool {
        let under_way = self.in_flight.bits() >> (index % ENTRY_COUNT) & 1 != 0;
        if under_way {
            self.interruption(index).cancel();
        }
        under_way
    }

    /// Has the scanner cancel an entry if it finds that it waits for the one before it.
    pub(super) fn want_cancel(&self, index: usize) {
        self.cancel_wanted.fetch_or(1 << (index % ENTRY_COUNT), Ordering::SeqCst);
        self.ring();
    }

    /// Takes the wish back, or says that it is fulfilled; whether it stood.
    pub(super) fn want_no_cancel(&self, index: usize) -> bool {
        let bit = 1 << (index % ENTRY_COUNT);
        self.cancel_wanted.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Entries that are to be cancelled, one bit each.
    pub(super) fn cancel_wanted(&self) -> u64 {
        self.cancel_wanted.load(Ordering::SeqCst)
    }

    /// The scanner has let go.
    pub(super) fn note_removed(&self) {
        self.removed.store(true, Ordering::Release);
        self.changed.wake_all();
    }

    /// Waits until the scanner has let go and nothing is under way. What can be cancelled is.
    pub(super) async fn drain(&self) {
        let removed = || self.removed.load(Ordering::Acquire).then_some(());
        self.changed.wait_until(removed).await;
        (0..ENTRY_COUNT).for_each(|index| {
            self.cancel(index);
        });
        let is_idle = || {
            (0..ENTRY_COUNT).for_each(|index| {
                self.release_withheld(index);
            });
            (self.in_flight.bits() == 0).then_some(())
        };
        self.changed.wait_until(is_idle).await;
    }

    /// Waits until `look` finds what it wants among the entries.
    pub(super) fn wait_until<T>(&self, look: impl FnMut() -> Option<T>) -> impl Future<Output = T> {
        self.changed.wait_until(look)
    }
}
