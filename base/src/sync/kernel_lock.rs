//! A lock around a part of the kernel: one of those of `scheme`, with a seat for every core.

use core::marker::PhantomData;

use super::clh::ClhLock;
use super::mcs::McsLock;
use super::scheme::SpinLock;
use super::{LockClass, TicketLock, order, rank};
use crate::cpu::{CpuId, MAX_CPUS};

/// A lock around a part of the kernel, of one of the kinds.
pub struct KernelLock {
    kind: Kind,
}

#[allow(clippy::large_enum_variant, reason = "there are a few of them, all static")]
enum Kind {
    Ticket(TicketLock),
    Clh(ClhLock<MAX_CPUS>),
    Mcs(McsLock<MAX_CPUS>),
}

/// Their rank: nothing is held when one of them is asked for.
static CLASS: &LockClass = &rank::KERNEL;

impl KernelLock {
    /// A free ticket lock.
    pub const fn ticket() -> KernelLock {
        KernelLock { kind: Kind::Ticket(TicketLock::new()) }
    }

    /// A free CLH lock.
    pub const fn clh() -> KernelLock {
        KernelLock { kind: Kind::Clh(ClhLock::new()) }
    }

    /// A free MCS lock.
    pub const fn mcs() -> KernelLock {
        KernelLock { kind: Kind::Mcs(McsLock::new()) }
    }

    /// Waits for the lock. Panics in checked builds when this core holds any lock.
    #[inline]
    #[track_caller]
    pub fn hold(&self) -> Hold<'_> {
        order::acquire(CLASS, false);
        let seat = CpuId::current().index();
        match &self.kind {
            Kind::Ticket(lock) => lock.acquire(seat),
            Kind::Clh(lock) => SpinLock::acquire(lock, seat),
            Kind::Mcs(lock) => SpinLock::acquire(lock, seat),
        }
        Hold { lock: self, seat, not_send: PhantomData }
    }
}

/// A `KernelLock` is held until this is dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct Hold<'a> {
    lock: &'a KernelLock,
    seat: usize,
    /// It belongs to its core.
    not_send: PhantomData<*const ()>,
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        match &self.lock.kind {
            Kind::Ticket(lock) => SpinLock::release(lock, self.seat),
            Kind::Clh(lock) => lock.release(self.seat),
            Kind::Mcs(lock) => lock.release(self.seat),
        }
        order::release(CLASS);
    }
}
