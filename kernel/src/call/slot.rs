//! Where the answer to a remote call arrives, and how results look in registers.

use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll};

use abi::Errno;
use base::answer::AnswerSlot;
use base::{task, time};

use super::SysResult;
use crate::trace::Served;

/// Looks at the slot between two looks at anything else.
const SPIN_TURNS: usize = 64;

/// The answer to a call that found no room where it was sent: it has not begun, and is carried out on its
/// caller's core. Users never see it.
pub const AT_HOME: Errno = match Errno::from_number(601) {
    Some(errno) => errno,
    None => Errno::EAGAIN,
};

/// Where the answer to a thread's remote call arrives. On a line of its own: both cores write to it, and the
/// caller to what lies beside.
#[derive(Default)]
#[repr(align(64))]
pub struct CallSlot {
    answer: AnswerSlot,
    /// What the core left that carried the call out, when calls are recorded: stamps, ticks of waiting,
    /// its number.
    served: [AtomicU64; 4],
    /// How often somebody spun for an answer.
    #[cfg(test)]
    spins: AtomicU64,
}

impl CallSlot {
    /// A slot with no call under way.
    pub fn new() -> CallSlot {
        CallSlot::default()
    }

    /// A call is about to be sent.
    pub fn begin(&self) {
        self.answer.begin();
    }

    /// What the core that carried the call out knows of it; before `complete`.
    pub fn note_served(&self, served: Served) {
        let values = [served.taken, served.handled, served.waited, served.core as u64];
        for (cell, value) in self.served.iter().zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// What was noted of the call whose answer was taken last.
    pub fn served(&self) -> Served {
        let [taken, handled, waited, core] =
            core::array::from_fn(|index| self.served[index].load(Ordering::Relaxed));
        Served { taken, handled, waited, core: core as usize }
    }

    /// The server's answer. Called once per submitted call.
    pub fn complete(&self, result: SysResult) {
        self.answer.complete(encode(result));
    }

    /// The answer, if it comes while the core has nothing better to do.
    pub fn answer_soon(&self) -> Option<SysResult> {
        self.spin_for_answer().map(decode)
    }

    /// The answer; the caller has looked for it as long as it would spin (`answer_soon`).
    pub fn poll_answer(&self, context: &Context<'_>) -> Poll<SysResult> {
        self.answer.poll(context).map(decode)
    }

    /// Looks for the answer until the core has something better to do or has spun long enough.
    fn spin_for_answer(&self) -> Option<u64> {
        #[cfg(test)]
        self.spins.fetch_add(1, Ordering::Relaxed);
        let mut deadline_ns = None;
        loop {
            for _ in 0..SPIN_TURNS {
                if let Some(value) = self.answer.take() {
                    return Some(value);
                }
                base::cpu::relax();
            }
            if task::has_ready() {
                return None;
            }
            let now_ns = time::now_ns();
            if now_ns >= *deadline_ns.get_or_insert(now_ns + policy::park::MAX_ANSWER_SPIN_NS) {
                return None;
            }
        }
    }
}

/// The register value of a result: a small negative number for an error, as Linux has it.
pub fn encode(result: SysResult) -> u64 {
    match result {
        Ok(value) => value,
        Err(errno) => errno.to_return_value().cast_unsigned(),
    }
}

/// The result that a register value stands for.
pub fn decode(value: u64) -> SysResult {
    match Errno::from_return_value(value) {
        Some(errno) => Err(errno),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use core::task::Waker;

    use super::*;

    /// A call that blocks costs its caller one spin, however often its task is polled.
    #[test]
    fn a_caller_spins_once_for_a_call() {
        let slot = CallSlot::new();
        slot.begin();
        assert_eq!(slot.answer_soon(), None);
        let context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(slot.poll_answer(&context).is_pending());
        }
        slot.complete(Ok(7));
        assert_eq!(slot.poll_answer(&context), Poll::Ready(Ok(7)));
        assert_eq!(slot.spins.load(Ordering::Relaxed), 1);
    }
}
