//! A small runtime: many tasks on one thread.
//!
//! Tasks post calls while they are polled; after each round the runtime makes the kernel look once.
//! One receiver takes what is done and wakes the tasks that wait for it. When nothing is ready the thread sleeps
//! in `ferry_wait`, until a call is done, a timer is due, or another thread wakes a task.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::posted::Posted;
use crate::raw::operations::{Word, wait_on, wake_word};
use crate::ring::Ring;

/// Sleeps are this short where the thread cannot both wait for calls and be woken by other threads.
const BLIND_SLEEP: Duration = Duration::from_millis(1);
/// The task that `block_on` waits for.
const MAIN: u64 = 0;

/// Values of the word on which the runtime's thread sleeps.
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// What wakers on all threads share with the runtime.
struct Shared {
    /// Tasks to poll, each at most once.
    ready: Mutex<VecDeque<u64>>,
    word: Arc<AtomicU32>,
    /// The runtime posted its wait on the word, so waking takes a call.
    is_word_watched: AtomicBool,
    thread: Thread,
}

struct TaskWaker {
    task: u64,
    is_queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = &self.shared;
        shared.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.task);
        if shared.word.swap(AWAKE, Ordering::SeqCst) == ASLEEP {
            if shared.is_word_watched.load(Ordering::SeqCst) {
                wake_word(&shared.word);
            }
            shared.thread.unpark();
        }
    }
}

struct Task {
    future: LocalFuture,
    waker: Arc<TaskWaker>,
}

/// Runs tasks on the thread that made it.
pub struct Runtime {
    inner: Rc<Inner>,
}

struct Inner {
    ring: Rc<Ring>,
    shared: Arc<Shared>,
    /// Tasks that are not being polled now.
    tasks: RefCell<HashMap<u64, Task>>,
    /// Tasks that were cancelled while they were polled.
    cancelled: RefCell<Vec<u64>>,
    next_task: Cell<u64>,
    timers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    next_timer: Cell<u64>,
    /// The posted wait on the word.
    watch: RefCell<Option<Posted<Word>>>,
}

thread_local! {
    static RUNNING: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

fn running() -> Option<Rc<Inner>> {
    RUNNING.try_with(|running| running.borrow().clone()).ok().flatten()
}

/// Makes a runtime this thread's current one while it is alive.
struct Entered {
    before: Option<Rc<Inner>>,
    ring: Rc<Ring>,
    had_receiver: bool,
}

impl Entered {
    fn new(inner: &Rc<Inner>) -> Entered {
        let before = RUNNING.with(|running| running.replace(Some(inner.clone())));
        let had_receiver = inner.ring.set_receiver(true);
        Entered { before, ring: inner.ring.clone(), had_receiver }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.ring.set_receiver(self.had_receiver);
        self.ring.submit();
        RUNNING.with(|running| *running.borrow_mut() = self.before.take());
    }
}

impl Runtime {
    /// A runtime for this thread.
    pub fn new() -> Runtime {
        let shared = Arc::new(Shared {
            ready: Mutex::default(),
            word: Arc::new(AtomicU32::new(AWAKE)),
            is_word_watched: AtomicBool::new(false),
            thread: thread::current(),
        });
        let inner = Inner {
            ring: Ring::current(),
            shared,
            tasks: RefCell::default(),
            cancelled: RefCell::default(),
            next_task: Cell::new(MAIN + 1),
            timers: RefCell::default(),
            next_timer: Cell::new(0),
            watch: RefCell::new(None),
        };
        Runtime { inner: Rc::new(inner) }
    }

    /// Runs a future, and all tasks meanwhile, until its output is there. Tasks that are left go on
    /// in the next call, or end with the runtime. A task may not call this of its own runtime.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _entered = Entered::new(&self.inner);
        let mut future = pin!(future);
        let main = self.inner.waker(MAIN);
        main.clone().wake();
        loop {
            // Whatever ends the round, a panic too, those behind it are still ready.
            let mut round = Round { inner: &self.inner, tasks: self.inner.take_ready() };
            while let Some(task) = round.tasks.pop_front() {
                if task != MAIN {
                    self.inner.poll_task(task);
                    continue;
                }
                main.is_queued.store(false, Ordering::Release);
                let waker = Waker::from(main.clone());
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    return output;
                }
            }
            drop(round);
            self.inner.ring.submit();
            self.inner.receive();
        }
    }

    /// Adds a task, which runs while this thread is in [`block_on`](Runtime::block_on).
    pub fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.inner.spawn(future)
    }
}

/// The tasks that were ready when a round began and have not been polled in it.
struct Round<'a> {
    inner: &'a Inner,
    tasks: VecDeque<u64>,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if !self.tasks.is_empty() {
            self.inner.put_back(mem::take(&mut self.tasks));
        }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Runtime::new()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Tasks may hold handles of one another, and their ends may wake others.
        let tasks = mem::take(&mut *self.inner.tasks.borrow_mut());
        drop(tasks);
        self.inner.watch.borrow_mut().take();
    }
}

impl Inner {
    fn waker(&self, task: u64) -> Arc<TaskWaker> {
        let is_queued = AtomicBool::new(false);
        Arc::new(TaskWaker { task, is_queued, shared: self.shared.clone() })
    }

    fn take_ready(&self) -> VecDeque<u64> {
        mem::take(&mut *self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tasks that were taken and not polled stay the first ones.
    fn put_back(&self, mut tasks: VecDeque<u64>) {
        // The main future of a call that has ended is nobody's.
        tasks.retain(|task| *task != MAIN);
        let mut ready = self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.append(&mut ready);
        *ready = tasks;
    }

    fn is_idle(&self) -> bool {
        self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn poll_task(&self, id: u64) {
        // Out of the table meanwhile: it may spawn and cancel tasks.
        let Some(mut task) = self.tasks.borrow_mut().remove(&id) else { return };
        task.waker.is_queued.store(false, Ordering::Release);
        let waker = Waker::from(task.waker.clone());
        let polled = task.future.as_mut().poll(&mut Context::from_waker(&waker));
        let was_cancelled = {
            let mut cancelled = self.cancelled.borrow_mut();
            let count = cancelled.len();
            cancelled.retain(|other| *other != id);
            cancelled.len() != count
        };
        if polled.is_pending() && !was_cancelled {
            self.tasks.borrow_mut().insert(id, task);
        }
    }

    fn spawn<F: Future + 'static>(self: &Rc<Self>, future: F) -> JoinHandle<F::Output> {
        let id = self.next_task.get();
        self.next_task.set(id + 1);
        let outcome = Rc::new(RefCell::new(Outcome { output: None, is_over: false, waker: None }));
        // Whatever ends the task, also its being dropped, ends the outcome.
        let completion = Completion(outcome.clone());
        let future = Box::pin(async move {
            let output = future.await;
            completion.0.borrow_mut().output = Some(output);
        });
        let waker = self.waker(id);
        self.tasks.borrow_mut().insert(id, Task { future, waker: waker.clone() });
        waker.wake();
        JoinHandle { task: id, runtime: Rc::downgrade(self), outcome }
    }

    /// Wakes whom calls and timers wake; sleeps before, when nothing is ready.
    fn receive(&self) {
        self.ring.receive();
        self.wake_timers();
        if !self.is_idle() {
            return;
        }
        self.shared.word.store(ASLEEP, Ordering::SeqCst);
        if self.is_idle() {
            self.sleep();
        }
        self.shared.word.store(AWAKE, Ordering::SeqCst);
        self.ring.receive();
        self.wake_timers();
    }

    fn sleep(&self) {
        let due = self.timers.borrow().keys().next().map(|(due, _)| *due);
        let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
        if !self.ring.has_flights() {
            match timeout {
                Some(timeout) => thread::park_timeout(timeout),
                None => thread::park(),
            }
            return;
        }
        // The wait on the word is one more call under way, which other threads end.
        let mut watch = self.watch.borrow_mut();
        if watch.as_mut().is_none_or(Posted::has_ended) {
            *watch = None;
            if self.ring.can_post(&wait_on(&self.shared.word, ASLEEP).call) {
                self.shared.is_word_watched.store(true, Ordering::SeqCst);
                *watch = Some(wait_on(&self.shared.word, ASLEEP).post());
            }
        }
        let timeout = match watch.as_ref().is_some_and(Posted::is_under_way) {
            true => timeout,
            false => Some(timeout.map_or(BLIND_SLEEP, |timeout| timeout.min(BLIND_SLEEP))),
        };
        drop(watch);
        self.ring.submit();
        self.ring.wait_any(timeout);
    }

    fn wake_timers(&self) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = Instant::now();
        let due = {
            let mut timers = self.timers.borrow_mut();
            let later = timers.split_off(&(now, u64::MAX));
            mem::replace(&mut *timers, later)
        };
        due.into_values().for_each(Waker::wake);
    }
}

// --- Tasks ---

/// The task was cancelled, or ended with its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the task was cancelled before it had an output")
    }
}

impl std::error::Error for Cancelled {}

struct Outcome<T> {
    output: Option<T>,
    is_over: bool,
    waker: Option<Waker>,
}

struct Completion<T>(Rc<RefCell<Outcome<T>>>);

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        let waker = {
            let mut outcome = self.0.borrow_mut();
            outcome.is_over = true;
            outcome.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A task, and a future of its output. Dropping it leaves the task running.
pub struct JoinHandle<T> {
    task: u64,
    runtime: std::rc::Weak<Inner>,
    outcome: Rc<RefCell<Outcome<T>>>,
}

impl<T> JoinHandle<T> {
    /// Whether the task is over.
    pub fn is_finished(&self) -> bool {
        self.outcome.borrow().is_over
    }

    /// Ends the task: its future is dropped, and with it the calls that it waits for.
    pub fn cancel(&self) {
        let Some(runtime) = self.runtime.upgrade() else { return };
        if self.is_finished() {
            return;
        }
        let task = runtime.tasks.borrow_mut().remove(&self.task);
        if task.is_none() {
            runtime.cancelled.borrow_mut().push(self.task);
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.outcome.borrow_mut();
        match outcome.output.take() {
            Some(output) => Poll::Ready(Ok(output)),
            None if outcome.is_over => Poll::Ready(Err(Cancelled)),
            None => {
                outcome.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Adds a task to the runtime that runs the caller. Outside of one the task is cancelled at once.
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    match running() {
        Some(runtime) => runtime.spawn(future),
        None => JoinHandle {
            task: MAIN,
            runtime: std::rc::Weak::new(),
            outcome: Rc::new(RefCell::new(Outcome { output: None, is_over: true, waker: None })),
        },
    }
}

// --- Futures ---

/// Waits for a time. Outside of a [`Runtime`] it is polled again and again until it is over.
pub fn sleep(duration: Duration) -> impl Future<Output = ()> {
    let end = Instant::now().checked_add(duration);
    let mut timer = Timer(None);
    poll_fn(move |context| {
        // A time beyond all times never comes.
        let Some(end) = end else { return Poll::Pending };
        if Instant::now() >= end {
            return Poll::Ready(());
        }
        match running() {
            Some(runtime) => timer.set(&runtime, end, context.waker()),
            None => context.waker().wake_by_ref(),
        }
        Poll::Pending
    })
}

/// An entry in a runtime's timers, which goes away with it.
struct Timer(Option<(std::rc::Weak<Inner>, (Instant, u64))>);

impl Timer {
    fn set(&mut self, runtime: &Rc<Inner>, end: Instant, waker: &Waker) {
        let key = match &self.0 {
            Some((_, key)) => *key,
            None => {
                let serial = runtime.next_timer.get();
                runtime.next_timer.set(serial + 1);
                (end, serial)
            }
        };
        runtime.timers.borrow_mut().insert(key, waker.clone());
        self.0 = Some((Rc::downgrade(runtime), key));
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some((runtime, key)) = self.0.take()
            && let Some(runtime) = runtime.upgrade()
        {
            runtime.timers.borrow_mut().remove(&key);
        }
    }
}

/// A future did not end in time. It was dropped, which cancels its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

impl std::fmt::Display for TimedOut {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("it did not end in time")
    }
}

impl std::error::Error for TimedOut {}

impl From<TimedOut> for std::io::Error {
    fn from(late: TimedOut) -> Self {
        std::io::Error::new(std::io::ErrorKind::TimedOut, late)
    }
}

/// Waits for a future, for at most a time.
pub async fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Result<F::Output, TimedOut> {
    let mut future = pin!(future.into_future());
    let mut end = pin!(sleep(duration));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => end.as_mut().poll(context).map(|()| Err(TimedOut)),
    })
    .await
}

/// Waits for two futures at the same time.
pub async fn join<A: IntoFuture, B: IntoFuture>(first: A, second: B) -> (A::Output, B::Output) {
    let (mut first, mut second) = (pin!(first.into_future()), pin!(second.into_future()));
    let (mut first_output, mut second_output) = (None, None);
    poll_fn(move |context| {
        if first_output.is_none()
            && let Poll::Ready(output) = first.as_mut().poll(context)
        {
            first_output = Some(output);
        }
        if second_output.is_none()
            && let Poll::Ready(output) = second.as_mut().poll(context)
        {
            second_output = Some(output);
        }
        match (first_output.take(), second_output.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (first, second) => {
                (first_output, second_output) = (first, second);
                Poll::Pending
            }
        }
    })
    .await
}

/// Waits for many futures at the same time; their outputs are in the order of the futures.
pub async fn join_all<F: IntoFuture>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    enum Part<F: Future> {
        Running(Pin<Box<F>>),
        Done(F::Output),
    }
    let mut parts: Vec<Part<F::IntoFuture>> =
        futures.into_iter().map(|future| Part::Running(Box::pin(future.into_future()))).collect();
    poll_fn(|context| {
        let mut all_done = true;
        for part in &mut parts {
            if let Part::Running(future) = part {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *part = Part::Done(output),
                    Poll::Pending => all_done = false,
                }
            }
        }
        if all_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let output = |part| match part {
        Part::Done(output) => Some(output),
        Part::Running(_) => None,
    };
    parts.into_iter().filter_map(output).collect()
}
