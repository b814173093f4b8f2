//! A thread's syspage and the calls that it has under way: the safe half of the crate.
//!
//! A call that is posted has a *flight* until its output was taken. The result leaves its entry as soon
//! as somebody looks, so entries are scarce only while the kernel has them.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::task::Waker;
use std::time::{Duration, Instant};

use abi::syspage::{FLAG_LINK, status, wait_mode};

use crate::entries::{COUNT, Entries};
use crate::kernel::Kernel;
use crate::raw::binding::{Binding, relax};
use crate::raw::operations::Call;

/// A kernel core that parked is left alone by this many single calls before one of them wakes it:
/// waking costs about as much as they do.
const PARKED_CALLS: u32 = 4;
/// What `ferry_wait` answers when it did not wait for long enough.
const EINTR: i64 = -4;
/// What `ferry_cancel` answers when the call is not under way.
const ENOENT: i64 = -2;
/// Long enough for a kernel that runs on this core to look.
const MOMENT: Duration = Duration::from_micros(20);

/// A call that was posted and whose output was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightId {
    slot: usize,
    /// Counts all flights, so that an id stays that of one flight.
    serial: u64,
}

enum Progress {
    UnderWay {
        entry: u32,
        waker: Option<Waker>,
    },
    /// Its owner is gone; the resource has to stay for the kernel.
    Abandoned {
        _resource: Box<dyn Any>,
    },
    Done(i64),
}

struct Flight {
    serial: u64,
    progress: Progress,
}

/// What became of a call that was to be posted.
pub(crate) enum Outcome {
    /// It was carried out at once.
    Done(i64),
    /// It was posted.
    UnderWay(FlightId),
    /// There is no entry for it now.
    Full,
}

struct Flights {
    slots: Vec<Option<Flight>>,
    vacant: Vec<usize>,
    next_serial: u64,
    /// Slot of the flight in each entry under way.
    of_entry: [usize; COUNT as usize],
    /// Who waits for an entry, or for another call.
    waiting: Vec<Waker>,
}

/// The user's side of a syspage, or of none. It stays on its thread.
pub(crate) struct Ring {
    // Dropped before the flights: afterwards the kernel has none of their resources.
    kernel: Option<Kernel>,
    /// Entries posted and passed.
    position: Cell<u32>,
    /// `position` may grow up to this before the kernel's head has to be looked at again.
    limit: Cell<u32>,
    /// One bit for each entry that has a flight under way.
    under_way: Cell<u64>,
    parked_calls: Cell<u32>,
    /// A runtime is at work: it receives, and submits once per round.
    has_receiver: Cell<bool>,
    flights: RefCell<Flights>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Ring>>> = const { RefCell::new(None) };
}

impl Ring {
    /// This thread's; made when first asked for.
    pub(crate) fn current() -> Rc<Ring> {
        let made = CURRENT.try_with(|current| {
            let ring = || Rc::new(Ring::new(Binding::new().map(Kernel::Bound)));
            current.borrow_mut().get_or_insert_with(ring).clone()
        });
        // Late in the end of a thread there is none; calls are then carried out at once.
        made.unwrap_or_else(|_| Rc::new(Ring::new(None)))
    }

    pub(crate) fn new(kernel: Option<Kernel>) -> Ring {
        Ring {
            kernel,
            position: Cell::new(0),
            limit: Cell::new(COUNT),
            under_way: Cell::new(0),
            parked_calls: Cell::new(0),
            has_receiver: Cell::new(false),
            flights: RefCell::default(),
        }
    }

    /// Makes `ring` this thread's.
    #[cfg(test)]
    pub(crate) fn set_current(ring: Rc<Ring>) {
        CURRENT.with(|current| *current.borrow_mut() = Some(ring));
    }

    pub(crate) fn is_posting(&self) -> bool {
        self.kernel.is_some()
    }

    // --- Posting ---

    fn is_in_reach(&self, kernel: &Kernel, position: u32) -> bool {
        if position == self.limit.get() {
            let head = kernel.control().head.load(Ordering::Acquire);
            self.limit.set(head.wrapping_add(COUNT));
        }
        position != self.limit.get()
    }

    /// Whether no flight has the entry. Its status may still be that of one that is over.
    fn is_free(&self, position: u32) -> bool {
        self.under_way.get() >> (position % COUNT) & 1 == 0
    }

    /// The next position with a free entry; entries before it are passed.
    fn find_free(&self, kernel: &Kernel) -> Option<u32> {
        let mut position = self.position.get();
        loop {
            if !self.is_in_reach(kernel, position) {
                return None;
            }
            if self.is_free(position) {
                break;
            }
            position = position.wrapping_add(1);
        }
        let mut passed = self.position.get();
        while passed != position {
            kernel.entries().pass(passed);
            passed = passed.wrapping_add(1);
        }
        Some(position)
    }

    fn publish(&self, entries: &Entries, position: u32, call: &Call, flags: u8) {
        // Permitted numbers are below 512.
        entries.publish(position, call.number as u16, flags, &call.arguments);
        self.position.set(position.wrapping_add(1));
    }

    /// Whether the call would be posted, and not carried out at once.
    pub(crate) fn can_post(&self, call: &Call) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.control().permits(call.number))
    }

    /// Whether any call is under way.
    pub(crate) fn has_flights(&self) -> bool {
        self.under_way.get() != 0
    }

    /// Begins a call, after another one if there is one and it is not over.
    pub(crate) fn post(&self, call: &Call, after: Option<FlightId>) -> Outcome {
        let before = after.and_then(|id| self.entry_of(id));
        let Some(kernel) = &self.kernel else { return Outcome::Done(call.trap()) };
        if !kernel.control().permits(call.number) {
            return match before {
                Some(_) => Outcome::Full,
                None => Outcome::Done(kernel.trap(call)),
            };
        }
        let found = match before {
            Some(entry) => self.neighbour(kernel, entry).map(|position| (position, FLAG_LINK)),
            None => self.find_free(kernel).map(|position| (position, 0)),
        };
        let Some((position, flags)) = found else { return Outcome::Full };
        // The flight first: should memory run out, nothing was posted yet.
        let id = self.flights.borrow_mut().begin(position % COUNT);
        self.under_way.set(self.under_way.get() | 1 << (position % COUNT));
        self.publish(kernel.entries(), position, call, flags);
        if !self.has_receiver.get() {
            self.submit();
        }
        Outcome::UnderWay(id)
    }

    /// The next position, if its entry is free and behind `entry`: a link is with the neighbour.
    fn neighbour(&self, kernel: &Kernel, entry: u32) -> Option<u32> {
        let position = self.position.get();
        let is_next = position.wrapping_sub(1) % COUNT == entry;
        (is_next && self.is_in_reach(kernel, position) && self.is_free(position))
            .then_some(position)
    }

    /// Makes sure that the kernel looks at what was posted.
    pub(crate) fn submit(&self) {
        let Some(kernel) = &self.kernel else { return };
        fence(Ordering::SeqCst);
        if kernel.control().is_parked() {
            kernel.wait(wait_mode::SUBMIT, 0, None);
        }
    }

    /// Somebody submits what is posted and receives what is done, or no longer; returns what was so
    /// before.
    pub(crate) fn set_receiver(&self, has_receiver: bool) -> bool {
        self.has_receiver.replace(has_receiver)
    }

    pub(crate) fn has_receiver(&self) -> bool {
        self.has_receiver.get()
    }

    /// Carries a call out by the fastest way that there is now.
    pub(crate) fn call(&self, call: &Call) -> i64 {
        let Some(kernel) = &self.kernel else { return call.trap() };
        let control = kernel.control();
        if !control.permits(call.number) || !control.is_scanned() {
            return kernel.trap(call);
        }
        if control.is_parked() {
            self.parked_calls.set(self.parked_calls.get().wrapping_add(1));
            if !self.parked_calls.get().is_multiple_of(PARKED_CALLS) {
                return kernel.trap(call);
            }
        }
        let Some(position) = self.find_free(kernel) else { return kernel.trap(call) };
        self.publish(kernel.entries(), position, call, 0);
        // No fence: each turn looks whether the kernel is parked, and the wait rings the doorbell.
        loop {
            self.spin(kernel, position);
            if let Some(result) = kernel.entries().take(position) {
                return result;
            }
            kernel.wait(wait_mode::ONE, position % COUNT, None);
        }
    }

    /// Looks at an entry for a while.
    #[inline]
    fn spin(&self, kernel: &Kernel, position: u32) {
        let (entries, control) = (kernel.entries(), kernel.control());
        for _ in 0..control.spin_limit.load(Ordering::Relaxed) {
            if entries.status(position) != status::SUBMITTED || control.is_parked() {
                break;
            }
            relax();
        }
    }

    // --- Flights ---

    /// The entry of a flight that is not over.
    fn entry_of(&self, id: FlightId) -> Option<u32> {
        match self.flights.borrow().get(id)?.progress {
            Progress::UnderWay { entry, .. } if !self.is_over(entry) => Some(entry),
            _ => None,
        }
    }

    fn is_over(&self, entry: u32) -> bool {
        self.kernel.as_ref().is_none_or(|kernel| kernel.entries().status(entry) == status::DONE)
    }

    /// Takes the result of a flight that is done. The flight is over then.
    pub(crate) fn take(&self, id: FlightId) -> Option<i64> {
        let entry = match self.flights.borrow().get(id)?.progress {
            Progress::UnderWay { entry, .. } => Some(entry),
            _ => None,
        };
        if let (Some(entry), Some(kernel)) = (entry, &self.kernel) {
            let result = kernel.entries().take(entry)?;
            self.land(entry);
            self.flights.borrow_mut().end(id);
            return Some(result);
        }
        match self.flights.borrow_mut().end(id)?.progress {
            Progress::Done(result) => Some(result),
            _ => None,
        }
    }

    /// An entry is free again: whoever waits for one may try.
    fn land(&self, entry: u32) {
        self.under_way.set(self.under_way.get() & !(1 << entry));
        let waiting = std::mem::take(&mut self.flights.borrow_mut().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Has `waker` woken when the flight is done.
    pub(crate) fn wake_when_done(&self, id: FlightId, waker: &Waker) {
        let mut flights = self.flights.borrow_mut();
        if let Some(Flight { progress: Progress::UnderWay { waker: known, .. }, .. }) =
            flights.get_mut(id)
        {
            match known {
                Some(known) => known.clone_from(waker),
                None => *known = Some(waker.clone()),
            }
        }
    }

    /// Has `waker` woken when any call is done.
    pub(crate) fn wake_when_any_is_done(&self, waker: &Waker) {
        let mut flights = self.flights.borrow_mut();
        if !flights.waiting.iter().any(|known| known.will_wake(waker)) {
            flights.waiting.push(waker.clone());
        }
    }

    /// Asks the kernel to end the call's wait.
    pub(crate) fn cancel(&self, id: FlightId) {
        let Some(kernel) = &self.kernel else { return };
        self.submit();
        while let Some(entry) = self.entry_of(id) {
            // In this order: what is taken and cannot be cancelled waits for another call.
            let was_taken = self.is_taken(kernel, entry);
            if kernel.cancel(entry) != ENOENT || was_taken {
                return;
            }
            // The same answer says that the thread has no syspage: a kernel that is gone.
            if kernel.wait(wait_mode::ONE, entry, Some(MOMENT)) == ENOENT {
                return;
            }
        }
    }

    /// Whether the kernel has taken the call in an entry, or gone past it since.
    fn is_taken(&self, kernel: &Kernel, entry: u32) -> bool {
        let last = self.position.get().wrapping_sub(1);
        let position = last.wrapping_sub(last.wrapping_sub(entry) % COUNT);
        let ahead = kernel.control().head.load(Ordering::Acquire).wrapping_sub(position);
        ahead.cast_signed() > 0
    }

    /// Lets the kernel run for a moment, where nobody but this core could.
    pub(crate) fn look_harder(&self, id: FlightId) {
        if let (Some(kernel), Some(entry)) = (&self.kernel, self.entry_of(id))
            && !kernel.control().is_scanned()
        {
            kernel.wait(wait_mode::ONE, entry, Some(MOMENT));
        }
    }

    /// The owner of the flight is gone. The resource lives until the kernel is done with it.
    pub(crate) fn abandon(&self, id: FlightId, resource: Box<dyn Any>) {
        self.cancel(id);
        let is_over = self.take(id).is_some();
        if !is_over && let Some(flight) = self.flights.borrow_mut().get_mut(id) {
            flight.progress = Progress::Abandoned { _resource: resource };
        }
    }

    /// Takes what is done out of its entries and wakes who waits for it. Returns how many were done.
    pub(crate) fn receive(&self) -> usize {
        let Some(kernel) = &self.kernel else { return 0 };
        let mut count = 0;
        let mut left = self.under_way.get();
        while left != 0 {
            let entry = left.trailing_zeros();
            left &= left - 1;
            let Some(result) = kernel.entries().take(entry) else { continue };
            count += 1;
            let flight = self.flights.borrow_mut().finish(entry, result);
            self.land(entry);
            // Outside of the borrow: wakers and resources may do what they like.
            match flight {
                Some(Progress::UnderWay { waker: Some(waker), .. }) => waker.wake(),
                other => drop(other),
            }
        }
        count
    }

    /// Waits until some flight under way is done, or the time is over, or a signal came.
    pub(crate) fn wait_any(&self, timeout: Option<Duration>) {
        let Some(kernel) = &self.kernel else { return };
        let control = kernel.control();
        let under_way = self.under_way.get();
        if under_way == 0 {
            return;
        }
        for _ in 0..control.spin_limit.load(Ordering::Relaxed) / under_way.count_ones() {
            let mut left = under_way;
            while left != 0 {
                if kernel.entries().status(left.trailing_zeros()) == status::DONE {
                    return;
                }
                left &= left - 1;
            }
            if control.is_parked() {
                break;
            }
            relax();
        }
        // The kernel would find those again whose results were taken.
        (0..COUNT)
            .filter(|entry| self.is_free(*entry))
            .for_each(|entry| kernel.entries().clear(entry));
        kernel.wait(wait_mode::ANY, 0, timeout);
    }

    /// Waits until a flight is done. Whether it is; signals do not end this.
    pub(crate) fn wait_for(&self, id: FlightId, timeout: Option<Duration>) -> bool {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let Some(kernel) = &self.kernel else { return true };
        while let Some(entry) = self.entry_of(id) {
            self.submit();
            self.spin(kernel, entry);
            if self.is_over(entry) {
                break;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let waited = kernel.wait(wait_mode::ONE, entry, left);
            if waited < 0 && waited != EINTR && !self.is_over(entry) {
                return false;
            }
        }
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        #[cfg(test)]
        if let Some(Kernel::Double(double)) = &self.kernel {
            double.leave();
        }
    }
}

impl Default for Flights {
    fn default() -> Self {
        let (slots, vacant, waiting) = (Vec::new(), Vec::new(), Vec::new());
        Flights { slots, vacant, next_serial: 0, of_entry: [0; COUNT as usize], waiting }
    }
}

impl Flights {
    fn begin(&mut self, entry: u32) -> FlightId {
        let serial = self.next_serial;
        self.next_serial += 1;
        let progress = Progress::UnderWay { entry, waker: None };
        let flight = Some(Flight { serial, progress });
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot] = flight;
                slot
            }
            None => {
                self.slots.push(flight);
                self.slots.len() - 1
            }
        };
        self.of_entry[entry as usize % COUNT as usize] = slot;
        FlightId { slot, serial }
    }

    fn get(&self, id: FlightId) -> Option<&Flight> {
        self.slots.get(id.slot)?.as_ref().filter(|flight| flight.serial == id.serial)
    }

    fn get_mut(&mut self, id: FlightId) -> Option<&mut Flight> {
        self.slots.get_mut(id.slot)?.as_mut().filter(|flight| flight.serial == id.serial)
    }

    fn end(&mut self, id: FlightId) -> Option<Flight> {
        self.get(id)?;
        self.vacant.push(id.slot);
        self.slots.get_mut(id.slot)?.take()
    }

    /// The flight in an entry has its result; returns what it was until now.
    fn finish(&mut self, entry: u32, result: i64) -> Option<Progress> {
        let slot = self.of_entry[entry as usize % COUNT as usize];
        let flight = self.slots.get_mut(slot)?.as_mut()?;
        let before = std::mem::replace(&mut flight.progress, Progress::Done(result));
        if let Progress::Abandoned { .. } = before {
            self.slots[slot] = None;
            self.vacant.push(slot);
        }
        Some(before)
    }
}
