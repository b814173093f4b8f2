//! Code that blocks, as a task: a fibre has a stack of its own, and gives its core back while it waits.
//!
//! ```text
//!  the task's poll --switch--> code on the fibre's stack -- `wait(future)`: pending --switch--> poll returns
//!        ^                                                                                          |
//!        +---------------------------------- the future's waker wakes the task ---------------------+
//! ```
//!
//! For libraries that cannot be written as futures. Handlers need none: they are futures. A fibre stays on its core, like
//! every task. Its stack has a guard page; a panic ends the fibre and nothing else. Stacks are kept for
//! the next fibre, and never given back.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::future::Future;
use core::pin::{Pin, pin};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use core::task::{Context, Poll, Waker};

use hal::{Contract, MAX_CPUS, Machine, PAGE_SIZE};

use super::spawn;
use crate::cpu::{CpuId, PerCpu};
use crate::memory::{self, OutOfMemory};
use crate::panic::{Panicked, catch};
use crate::sync::{self, Mutex, rank};

/// Most fibres that there may be at the same time.
const MOST: usize = 32;

/// The top of a stack that nobody uses.
struct Stack(*mut u8);

// SAFETY: a stack is memory; who has this value is the only one who uses it.
unsafe impl Send for Stack {}

struct Stacks {
    free: Vec<Stack>,
    made: usize,
}

static STACKS: Mutex<Stacks> = Mutex::new(&rank::EXECUTOR, Stacks { free: Vec::new(), made: 0 });

impl Stack {
    fn take() -> Result<Stack, OutOfMemory> {
        let mut stacks = STACKS.lock();
        if let Some(stack) = stacks.free.pop() {
            return Ok(stack);
        }
        if stacks.made >= MOST {
            return Err(OutOfMemory);
        }
        stacks.made += 1;
        drop(stacks);
        // Room to give it back without asking for memory.
        let mut room = Vec::new();
        room.try_reserve_exact(MOST).map_err(|_| OutOfMemory)?;
        let memory = memory::allocate_contiguous(Machine::STACK_SIZE / PAGE_SIZE)?;
        let top = Machine::map_stack(memory).ok_or(OutOfMemory)?;
        let mut stacks = STACKS.lock();
        if stacks.free.capacity() == 0 {
            stacks.free = room;
        }
        Ok(Stack(top))
    }

    fn give_back(self) {
        STACKS.lock().free.push(self);
    }
}

/// What fibre and poller tell each other. Only the core of the task touches it.
struct Control {
    /// Stack pointer of what is left on the fibre's stack.
    fibre: u64,
    /// Stack pointer of the poll that runs the fibre.
    poller: u64,
    poller_bounds: core::ops::Range<u64>,
    waker: Waker,
    code: Option<Box<dyn FnOnce() + Send>>,
    /// Set when the code has ended.
    ended: Option<Result<(), Panicked>>,
}

/// The fibre that each core runs.
static CURRENT: PerCpu<AtomicPtr<Control>> =
    PerCpu::new([const { AtomicPtr::new(null_mut()) }; MAX_CPUS]);

/// The task that a fibre is.
struct Fibre<E> {
    control: Box<UnsafeCell<Control>>,
    stack: Option<Stack>,
    on_end: Option<E>,
}

// SAFETY: the code and `on_end` may be sent, and nothing of what the code puts on its stack ever leaves the core on
// which it began: a task is polled on its core alone, and only `spawn` makes fibres.
unsafe impl<E: Send> Send for Fibre<E> {}

extern "C" fn begin(control: usize) -> ! {
    let control = core::ptr::with_exposed_provenance_mut::<Control>(control);
    // SAFETY: the poll that switched here keeps the control until the fibre has ended, and touches it only
    // while the fibre is not running.
    let code = unsafe { (*control).code.take() };
    let result = catch(|| {
        if let Some(code) = code {
            code();
        }
    });
    // SAFETY: as above.
    unsafe { (*control).ended = Some(result) };
    leave(control);
    // Nobody goes on with a fibre that has ended.
    Machine::power_off()
}

/// Goes back to the poll.
fn leave(control: *mut Control) {
    sync::assert_none_held();
    // SAFETY: the poll left its stack pointer just before it went on with this fibre, and no lock is held.
    unsafe {
        let (poller, bounds) = ((*control).poller, (*control).poller_bounds.clone());
        Machine::switch_stack(&raw mut (*control).fibre, poller, bounds);
    }
}

impl<E: FnOnce(Result<(), Panicked>) + Unpin> Future for Fibre<E> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let control = self.control.get();
        let Some(top) = self.stack.as_ref().map(|stack| stack.0.addr() as u64) else {
            return Poll::Ready(());
        };
        sync::assert_none_held();
        let before = CURRENT.here().swap(control, Ordering::Relaxed);
        // SAFETY: the fibre is not running, so the control is ours until the switch; its stack pointer was
        // prepared, or left by `leave` on this core.
        unsafe {
            (*control).waker.clone_from(context.waker());
            (*control).poller_bounds = Machine::stack_bounds();
            let bounds = top - Machine::STACK_SIZE as u64..top;
            Machine::switch_stack(&raw mut (*control).poller, (*control).fibre, bounds);
        }
        CURRENT.here().store(before, Ordering::Relaxed);
        // SAFETY: the fibre is not running.
        let Some(result) = (unsafe { (*control).ended.take() }) else { return Poll::Pending };
        if let Some(stack) = self.stack.take() {
            stack.give_back();
        }
        if let Some(on_end) = self.on_end.take() {
            on_end(result);
        }
        Poll::Ready(())
    }
}

/// Runs code that may block as a task of a core. `on_end` is called there when the code has ended or panicked.
///
/// # Errors
/// When there is no memory, or there are too many fibres.
pub fn spawn_blocking(
    core: CpuId,
    code: impl FnOnce() + Send + 'static,
    on_end: impl FnOnce(Result<(), Panicked>) + Send + Unpin + 'static,
) -> Result<(), OutOfMemory> {
    let stack = Stack::take()?;
    let mut control = Box::new(UnsafeCell::new(Control {
        fibre: 0,
        poller: 0,
        poller_bounds: 0..0,
        waker: Waker::noop().clone(),
        code: Some(Box::new(code)),
        ended: None,
    }));
    let address = control.get().expose_provenance();
    // SAFETY: nobody else has the stack; the control lives as long as the task, which ends after the fibre.
    control.get_mut().fibre = unsafe { Machine::prepare_stack(stack.0, begin, address) };
    spawn(core, Fibre { control, stack: Some(stack), on_end: Some(on_end) })
}

/// Waits for a future. The core does other things meanwhile.
///
/// # Panics
/// Outside of a fibre.
pub fn wait<F: Future>(future: F) -> F::Output {
    let control = CURRENT.here().load(Ordering::Relaxed);
    assert!(!control.is_null(), "only a fibre may wait on its stack");
    let mut future = pin!(future);
    loop {
        // SAFETY: the fibre runs, so the control is its own.
        let waker = unsafe { (*control).waker.clone() };
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        drop(waker);
        leave(control);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::task::{block_on_host, yield_now};
    use crate::time::sleep_for;
    use crate::wait::WaitQueue;
    use alloc::sync::Arc;
    use core::sync::atomic::AtomicU64;

    /// Runs code as a fibre to its end; how it ended.
    fn run(code: impl FnOnce() + Send + 'static) -> Result<(), Panicked> {
        let (ended, queue) =
            (Arc::new(Mutex::new(&rank::REMOTE_ANSWER, None)), Arc::new(WaitQueue::new()));
        let (told, woken) = (ended.clone(), queue.clone());
        spawn_blocking(CpuId::current(), code, move |result| {
            *told.lock() = Some(result);
            woken.wake_all();
        })
        .unwrap();
        block_on_host(async { queue.wait_until(|| *ended.lock()).await })
    }

    #[test]
    fn a_fibre_goes_on_where_it_waited() {
        let sum = Arc::new(AtomicU64::new(0));
        let inner = sum.clone();
        let result = run(move || {
            for step in 0..100 {
                let local = [step; 64];
                wait(yield_now());
                wait(sleep_for(1_000));
                inner.fetch_add(local.iter().sum::<u64>() / 64, Ordering::Relaxed);
            }
        });
        assert_eq!((result, sum.load(Ordering::Relaxed)), (Ok(()), 4950));
    }

    #[test]
    fn a_panic_ends_the_fibre_alone() {
        assert_eq!(run(|| panic!("on a fibre's stack")), Err(Panicked::Bug));
        let waits = || {
            wait(yield_now());
            panic!("after a wait");
        };
        assert_eq!(run(waits), Err(Panicked::Bug));
        assert_eq!(run(|| wait(yield_now())), Ok(()));
    }

    #[test]
    fn fibres_wait_side_by_side() {
        let turns = Arc::new(AtomicU64::new(0));
        let other = turns.clone();
        spawn_blocking(
            CpuId::current(),
            move || {
                while other.load(Ordering::Relaxed) < 10 {
                    other.fetch_add(1, Ordering::Relaxed);
                    wait(yield_now());
                }
            },
            |_| {},
        )
        .unwrap();
        let seen = turns.clone();
        let result = run(move || {
            while seen.load(Ordering::Relaxed) < 10 {
                wait(yield_now());
            }
        });
        assert_eq!(result, Ok(()));
    }
}
