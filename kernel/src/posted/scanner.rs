//! The scanner: what one core alone knows of all syspages, and its turn around them.
//!
//! Nobody else touches a `Scanner`; others send it messages. There is room for every message that can
//! exist: per syspage one `Add`, one `Remove`, and one `Look` (`Syspage::ring`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use abi::Errno;
use base::cpu::CpuId;
use base::posted::{Consumer, PostedCall, Served};
use base::ring::Ring;
use base::sync::Once;

use super::{ON_CORE, Syspage};
use crate::call::encode;
use crate::{counters, machine};

/// Syspages that may exist.
pub(super) const LIMIT: usize = 1024;
/// Entries that one visit takes before the next syspage has its turn.
pub(super) const BATCH: usize = 16;

/// What others tell the scanner.
pub(super) enum Message {
    /// There is a new syspage.
    Add(Arc<Syspage>),
    /// A syspage goes away.
    Remove(Arc<Syspage>),
    /// Something may have been posted to the syspage of this number.
    Look(u32),
}

static INBOX: Once<Ring<Message>> = Once::new();

/// Makes the scanner reachable. Called once, at boot, before there are threads.
pub fn start() {
    INBOX.call_once(|| Ring::new(LIMIT * 4));
}

/// Leaves a message and rings the scanner's core.
pub(super) fn send(message: Message) {
    if let Some(inbox) = INBOX.get()
        && inbox.push(message).is_err()
    {
        log::error!("the scanner's inbox is full, which cannot be");
    }
    machine::wake_scanner(super::scanner_core());
}

struct Owned {
    syspage: Arc<Syspage>,
    consumer: Consumer,
    /// Its number is in `listed`.
    is_listed: bool,
}

impl Owned {
    #[inline]
    fn has_work(&self) -> bool {
        self.consumer.has_work(&self.syspage.parts().entries, self.syspage.in_flight())
    }

    /// Takes what is there, up to a batch; false when there was nothing.
    #[inline]
    fn visit(&mut self, serve: &mut impl FnMut(&Arc<Syspage>, &PostedCall) -> Served) -> bool {
        let counters = counters::here();
        counters.visits.add(1);
        let mut taken = 0;
        let Owned { syspage, consumer, .. } = self;
        let parts = syspage.parts();
        let head = consumer.head();
        let visit = |call: &PostedCall| {
            taken += 1;
            parts.control.set_head(call.head);
            syspage.count(usize::from(call.number));
            serve(syspage, call)
        };
        let done = consumer.visit(&parts.entries, syspage.in_flight(), BATCH, visit);
        if consumer.head() == head && taken == 0 {
            return false;
        }
        // The last ones may have been passed.
        parts.control.set_head(consumer.head());
        counters.hits.add(1);
        counters.posted.add(taken);
        if done > 0 {
            syspage.announce();
        }
        true
    }
}

impl Owned {
    /// Answers what waits for the entry before it and was cancelled meanwhile.
    #[cold]
    fn cancel_held(&mut self) {
        let Owned { syspage, consumer, .. } = self;
        let wanted = syspage.cancel_wanted();
        let mut is_any = false;
        while let Some(index) = consumer.take_held(wanted) {
            // In this order: whoever sees the answer sees that it was cancelled.
            syspage.want_no_cancel(index);
            syspage.parts().entries.complete(index, encode(Err(Errno::EINTR)));
            is_any = true;
        }
        if is_any {
            syspage.announce();
        }
    }
}

/// The scanner of one core.
pub struct Scanner {
    /// Cores whose threads may post; empty on cores that do not scan.
    cores: Vec<&'static AtomicU32>,
    owned: Vec<Option<Owned>>,
    /// Numbers of syspages to look at whether or not their thread is on a core.
    listed: Vec<u32>,
    /// A program lives on this core: users do not spin for it, but trap.
    is_shared: bool,
}

impl Scanner {
    /// The scanner of this core: it has nothing to do unless this is the core that scans.
    pub fn here() -> Scanner {
        let scans = CpuId::current() == super::scanner_core();
        let cores = machine::layout().application.iter().filter_map(CpuId::new);
        let cores = cores.filter(|_| scans).map(|core| ON_CORE.of(core));
        Scanner::of_cores(cores.collect())
    }

    /// One that looks at what is on these cores.
    pub(crate) fn of_cores(cores: Vec<&'static AtomicU32>) -> Scanner {
        Scanner { cores, owned: Vec::new(), listed: Vec::new(), is_shared: false }
    }

    fn of(owned: &mut [Option<Owned>], id: u32) -> Option<&mut Owned> {
        owned.get_mut(id as usize)?.as_mut()
    }

    /// Whether some thread that is on a core now could post.
    #[inline]
    pub fn is_watching(&self) -> bool {
        self.cores.iter().any(|id| id.load(Ordering::Relaxed) != 0)
    }

    /// One turn: has every new call served. False when there was none.
    #[inline]
    pub fn scan(&mut self, serve: &mut impl FnMut(&Arc<Syspage>, &PostedCall) -> Served) -> bool {
        let mut worked = false;
        for id in &self.cores {
            let id = id.load(Ordering::Acquire);
            if id == 0 {
                continue;
            }
            let Some(owned) = Self::of(&mut self.owned, id) else { continue };
            let control = &owned.syspage.parts().control;
            if !self.is_shared && control.is_parked() {
                control.set_parked(false);
            }
            worked |= owned.visit(serve);
            if owned.consumer.holds_any() && !owned.is_listed {
                owned.is_listed = true;
                self.listed.push(id);
            }
        }
        worked
    }

    /// Whether a turn would find something new of a thread that is on a core now.
    #[inline]
    pub fn glance(&self) -> bool {
        self.cores.iter().any(|id| {
            let owned = self.owned.get(id.load(Ordering::Acquire) as usize);
            owned.is_some_and(|owned| owned.as_ref().is_some_and(Owned::has_work))
        })
    }

    /// The part of a turn that is seldom needed: messages, and syspages whose threads are elsewhere.
    pub fn attend(&mut self, serve: &mut impl FnMut(&Arc<Syspage>, &PostedCall) -> Served) -> bool {
        let mut worked = false;
        if !self.cores.is_empty() {
            while let Some(message) = INBOX.get().and_then(Ring::pop) {
                worked = true;
                self.take(message);
            }
        }
        let Scanner { owned, listed, .. } = self;
        listed.retain(|&id| {
            let Some(owned) = Self::of(owned, id) else { return false };
            worked |= owned.visit(serve);
            if owned.consumer.holds_any() {
                owned.cancel_held();
            }
            owned.is_listed = owned.has_work() || owned.consumer.holds_any();
            owned.is_listed
        });
        worked
    }

    pub(super) fn take(&mut self, message: Message) {
        match message {
            Message::Add(syspage) => {
                let place = syspage.parts().id as usize;
                if self.owned.len() <= place {
                    self.owned.resize_with(place + 1, || None);
                }
                let new = Owned { syspage, consumer: Consumer::new(), is_listed: false };
                if let Some(owned) = self.owned.get_mut(place) {
                    *owned = Some(new);
                }
            }
            Message::Remove(syspage) => {
                let place = syspage.parts().id as usize;
                if let Some(mut owned) = self.owned.get_mut(place).and_then(Option::take) {
                    refuse_rest(&mut owned);
                }
                syspage.note_removed();
            }
            Message::Look(id) => {
                if let Some(owned) = Self::of(&mut self.owned, id) {
                    owned.syspage.answer_ring();
                    if !owned.is_listed {
                        owned.is_listed = true;
                        self.listed.push(id);
                    }
                }
            }
        }
    }

    /// Takes note whether programs live on this core. While they do, users that could post are told that
    /// it is parked.
    #[inline]
    pub fn set_shared(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
        if is_shared {
            self.tell_parked();
        }
    }

    fn tell_parked(&mut self) {
        for id in &self.cores {
            if let Some(owned) = Self::of(&mut self.owned, id.load(Ordering::Acquire)) {
                owned.syspage.set_parked();
            }
        }
    }

    /// Whether a turn would find something.
    pub fn has_work(&mut self) -> bool {
        if self.cores.is_empty() {
            return false;
        }
        let here = self.cores.iter().map(|id| id.load(Ordering::Acquire));
        let Scanner { owned, listed, .. } = self;
        here.chain(listed.iter().copied())
            .any(|id| Self::of(owned, id).is_some_and(|owned| owned.has_work()))
            || INBOX.get().is_some_and(|inbox| !inbox.is_empty())
    }

    /// This core parks: tells the users that could post, then looks once more. True when it had better
    /// not park.
    pub fn announce_parking(&mut self) -> bool {
        if self.cores.is_empty() {
            return false;
        }
        self.tell_parked();
        fence(Ordering::SeqCst);
        self.has_work()
    }
}

/// What was posted and not begun when the syspage went away is answered without being carried out.
fn refuse_rest(owned: &mut Owned) {
    let cancelled = encode(Err(Errno::EINTR));
    let Owned { syspage, consumer, .. } = owned;
    let entries = &syspage.parts().entries;
    consumer.visit(entries, syspage.in_flight(), usize::from(u8::MAX), |_| Served::Done(cancelled));
    // The visit may have taken more that wait for what is under way.
    while let Some(index) = consumer.take_held(u64::MAX) {
        entries.complete(index, cancelled);
    }
}
