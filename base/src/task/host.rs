//! Running futures in host tests.

use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::Future;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};

use hal::{Contract, Machine};

use super::{park, ring_doorbell, run_ready};
use crate::cpu::CpuId;
use crate::time;

struct Notice {
    core: CpuId,
    woken: AtomicBool,
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        ring_doorbell(self.core);
    }
}

/// Runs a future to its end on this thread, which plays a core meanwhile: it polls that core's ready
/// tasks, expires its timers, and parks when there is nothing to do.
pub fn block_on_host<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let notice = Arc::new(Notice { core: CpuId::current(), woken: AtomicBool::new(true) });
    let waker = Waker::from(notice.clone());
    loop {
        if notice.woken.swap(false, Ordering::SeqCst)
            && let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker))
        {
            return result;
        }
        let worked = run_ready();
        time::expire_if_due();
        if !worked {
            park(|| notice.woken.load(Ordering::SeqCst));
            if Machine::take_pending().timer {
                time::expire();
            }
        }
    }
}
