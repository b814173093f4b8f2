//! Native asynchronous input and output: `io_setup`, `io_submit`, `io_getevents` and their kin.
//!
//! Reads, writes and syncs are carried out when they are submitted, as Linux does for files in its page
//! cache and for pipes; only polls stay behind, each as a task of its own. A context belongs to an address
//! space, is named by the address of a page there, and ends with the space.
//!
//! ```text
//! submitted --> done at once --------> completed --> taken by io_getevents
//!         \--> poll waits --ready--/
//!                   \--cancelled, context destroyed--> gone
//! ```

use core::future::poll_fn;
use core::mem;
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Poll;

use abi::Errno;
use abi::fs::{PollEvents, TransferFlags};
use abi::memory::Protection;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::heap::tree;
use base::sync::{Mutex, rank};
use base::task;
use base::time::with_deadline;
use base::wait::{Kind, Target, WaitQueue};
use fs::eventfd::EventCounter;
use fs::file::Transfer;
use fs::poll::PollTable;
use fs::{NodeKind, OpenFile};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::poll::{read_mask, read_timeout};
use super::transfer;
use crate::call::{Call, SysResult};
use crate::memory::{MapRequest, PAGE};
use crate::process::{Interrupted, system};
use crate::servers;
use crate::signal::with_mask;
use policy::route::Class;

/// More than this asks for more memory than a context can have.
const MOST_OF_ONE: u32 = 0x1000_0000 / 32 / 2;

/// `struct iocb`
#[derive(Clone, Copy, FromBytes)]
#[repr(C)]
struct Control {
    data: u64,
    key: u32,
    flags_of_transfer: u32,
    operation: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signalled: u32,
}

const KEY_OFFSET: u64 = 8;
/// `IOCB_FLAG_RESFD`
const TELLS_COUNTER: u32 = 1;
/// `IOCB_FLAG_IOPRIO`
const HAS_PRIORITY: u32 = 2;

/// `struct io_event`
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Event {
    data: u64,
    control: u64,
    result: i64,
    second: i64,
}

/// A poll that waits.
struct Waiting {
    control: u64,
    /// Told when it is taken out.
    end: Arc<WaitQueue>,
}

struct State {
    /// Polls that wait, by number.
    waiting: BTreeMap<u64, Waiting>,
    completed: VecDeque<Event>,
    next_id: u64,
    /// Requests that are being carried out or wait.
    active: usize,
}

/// A context.
struct Context {
    state: Mutex<State>,
    most: u32,
    is_ended: AtomicBool,
    /// Told of completed requests.
    completions: WaitQueue,
}

impl Context {
    /// Makes room for one request; `EAGAIN` when there is none.
    fn begin(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.active + state.completed.len() >= self.most as usize {
            return Err(Errno::EAGAIN);
        }
        state.active += 1;
        Ok(())
    }

    /// The request was refused.
    fn withdraw(&self) {
        self.state.lock().active -= 1;
    }

    /// The request is carried out. Its room was reserved with the context.
    fn complete(&self, event: Event, counter: Option<&Arc<OpenFile>>) {
        {
            let mut state = self.state.lock();
            state.active -= 1;
            state.completed.push_back(event);
        }
        self.completions.wake_all();
        if let Some(counter) = counter {
            let one = 1_u64.to_ne_bytes();
            // A counter that is full stays full.
            let _ = counter.file().write(0, &mut one.as_slice(), Transfer::PLAIN);
        }
    }

    fn is_waiting(&self, id: u64) -> bool {
        self.state.lock().waiting.contains_key(&id)
    }

    /// Takes a poll out; whether it still waited.
    fn take(&self, id: u64) -> bool {
        let taken = self.state.lock().waiting.remove(&id);
        if let Some(waiting) = &taken {
            waiting.end.wake_all();
        }
        taken.is_some()
    }

    fn end(&self) {
        if !self.is_ended.swap(true, Ordering::AcqRel) {
            system::REQUESTS.fetch_sub(u64::from(self.most), Ordering::Relaxed);
            let waiting = mem::take(&mut self.state.lock().waiting);
            waiting.values().for_each(|waiting| {
                waiting.end.wake_all();
            });
            self.completions.wake_all();
        }
    }
}

/// The contexts of an address space, by their addresses. They end with it.
struct Contexts {
    by_address: Mutex<BTreeMap<u64, Arc<Context>>>,
}

impl Drop for Contexts {
    fn drop(&mut self) {
        let contexts = mem::take(&mut *self.by_address.lock());
        for context in contexts.into_values() {
            context.end();
        }
    }
}

fn contexts(call: &Call) -> Arc<Contexts> {
    let make = || Contexts { by_address: Mutex::new(&rank::ASYNCHRONOUS, BTreeMap::new()) };
    call.thread.space().attached(make)
}

/// The context in argument 0; `EINVAL` when there is none.
fn find(call: &Call) -> Result<Arc<Context>, Errno> {
    let contexts = contexts(call);
    let known = contexts.by_address.lock();
    known.get(&call.argument(0)).cloned().ok_or(Errno::EINVAL)
}

/// `io_setup(requests, context)`
pub async fn io_setup(call: &Call) -> SysResult {
    let (most, place) = (call.unsigned(0), call.argument(1));
    let present: u64 = call.user().read_value(place).await?;
    if present != 0 || most == 0 || most > MOST_OF_ONE {
        return Err(Errno::EINVAL);
    }
    let limit = system::MOST_REQUESTS.load(Ordering::Relaxed);
    let wanted = u64::from(most);
    let reserve = |count: u64| count.checked_add(wanted).filter(|sum| *sum <= limit);
    system::REQUESTS
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve)
        .map_err(|_| Errno::EAGAIN)?;
    let context = Arc::new(Context {
        state: Mutex::new(
            &rank::ASYNCHRONOUS,
            State { waiting: BTreeMap::new(), completed: VecDeque::new(), next_id: 0, active: 0 },
        ),
        most,
        is_ended: AtomicBool::new(false),
        completions: WaitQueue::new(),
    });
    let result = settle(call, &context, place).await;
    if result.is_err() {
        context.end();
    }
    result
}

/// Gives a new context its memory, its address and its name in the caller's memory.
async fn settle(call: &Call, context: &Arc<Context>, place: u64) -> SysResult {
    {
        let mut room = VecDeque::new();
        room.try_reserve_exact(context.most as usize).map_err(|_| Errno::ENOMEM)?;
        context.state.lock().completed = room;
    }
    let space = call.thread.space();
    // The library looks at this page for a ring, finds none, and makes the calls.
    let change = space.begin_change().await;
    let address = space.map(MapRequest::anonymous(PAGE, Protection::READ))?;
    drop(change);
    if let Err(error) = call.user().write_value(place, &address).await {
        let _change = space.begin_change().await;
        space.unmap(address..address + PAGE)?;
        return Err(error);
    }
    let contexts = contexts(call);
    tree::insert(&mut contexts.by_address.lock(), address, context.clone());
    Ok(0)
}

/// `io_destroy(context)`
pub async fn io_destroy(call: &Call) -> SysResult {
    let address = call.argument(0);
    let contexts = contexts(call);
    let removed = contexts.by_address.lock().remove(&address);
    removed.ok_or(Errno::EINVAL)?.end();
    // The program may have unmapped the page itself.
    let change = call.thread.space().begin_change().await;
    let _ = change.space().unmap(address..address + PAGE);
    Ok(0)
}

/// `io_submit(context, count, controls)`
pub async fn io_submit(call: &Call) -> SysResult {
    let count = call.argument(1).cast_signed();
    if count < 0 {
        return Err(Errno::EINVAL);
    }
    let context = find(call)?;
    let count = count.unsigned_abs().min(u64::from(context.most));
    let mut done = 0;
    while done < count {
        let result = async {
            let at = call.argument(2).checked_add(done * 8).ok_or(Errno::EFAULT)?;
            let control: u64 = call.user().read_value(at).await?;
            submit_one(call, &context, control).await
        };
        match Box::pin(result).await {
            Ok(()) => done += 1,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        if call.thread.is_killed() {
            break;
        }
        task::yield_now().await;
    }
    Ok(done)
}

async fn submit_one(call: &Call, context: &Arc<Context>, address: u64) -> Result<(), Errno> {
    let control: Control = call.user().read_value(address).await?;
    if control.reserved != 0 || control.bytes.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    context.begin()?;
    let result = carry_out(call, context, &control, address).await;
    if result.is_err() {
        context.withdraw();
    }
    result
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const SYNC: u16 = 2;
const DATA_SYNC: u16 = 3;
const POLL: u16 = 5;
const READ_VECTORS: u16 = 7;
const WRITE_VECTORS: u16 = 8;

async fn carry_out(
    call: &Call,
    context: &Arc<Context>,
    control: &Control,
    address: u64,
) -> Result<(), Errno> {
    let descriptor = control.descriptor.cast_signed();
    let file = call.thread.file(descriptor)?;
    if file.is_path_only() {
        return Err(Errno::EBADF);
    }
    let counter = if control.flags & TELLS_COUNTER != 0 {
        let counter = call.thread.file(control.signalled.cast_signed())?;
        if !counter.file().as_any().is::<EventCounter>() {
            return Err(Errno::EINVAL);
        }
        Some(counter)
    } else {
        None
    };
    let key = address.checked_add(KEY_OFFSET).ok_or(Errno::EFAULT)?;
    call.user().write_value(key, &0_u32).await?;
    let result = match control.operation {
        READ | WRITE | READ_VECTORS | WRITE_VECTORS => transfer(call, &file, control).await?,
        SYNC | DATA_SYNC => {
            let is_plain = (control.buffer, control.bytes, control.offset) == (0, 0, 0)
                && control.flags_of_transfer == 0;
            let kind = file.inode().kind();
            if !is_plain || !matches!(kind, NodeKind::Regular | NodeKind::Directory) {
                return Err(Errno::EINVAL);
            }
            0
        }
        POLL => return start_poll(context, control, address, file, counter),
        _ => return Err(Errno::EINVAL),
    };
    let event = Event { data: control.data, control: address, result, second: 0 };
    context.complete(event, counter.as_ref());
    Ok(())
}

/// Reads or writes. What is wrong with the request is an error of the submission; what the file answers
/// is its result.
async fn transfer(call: &Call, file: &Arc<OpenFile>, control: &Control) -> Result<i64, Errno> {
    let flags = TransferFlags::from_bits(control.flags_of_transfer).ok_or(Errno::EOPNOTSUPP)?;
    if control.flags & HAS_PRIORITY != 0 && !(0..=0x7fff).contains(&control.priority) {
        return Err(Errno::EINVAL);
    }
    let writes = matches!(control.operation, WRITE | WRITE_VECTORS);
    let permitted = if writes { file.flags().writes() } else { file.flags().reads() };
    if !permitted {
        return Err(Errno::EBADF);
    }
    if file.inode().kind() == NodeKind::Directory {
        return Err(Errno::EINVAL);
    }
    let user = call.user();
    let vectors = match control.operation {
        READ_VECTORS | WRITE_VECTORS => user.read_io_vectors(control.buffer, control.bytes).await?,
        _ => {
            let address = control.buffer;
            alloc::vec![crate::memory::IoVector { address, length: control.bytes }]
        }
    };
    let offset = u64::try_from(control.offset).map_err(|_| Errno::EINVAL)?;
    let place = file.file().is_seekable().then_some(offset);
    let result = if writes {
        transfer::write_vectors_at(call, file, user.source_vector(vectors)?, place, flags).await
    } else {
        transfer::read_vectors_at(call, file, user.sink_vector(vectors)?, place, flags).await
    };
    Ok(match result {
        Ok(count) => count.cast_signed(),
        Err(Errno::ERESTARTSYS) => -i64::from(Errno::EINTR.number()),
        Err(error) => -i64::from(error.number()),
    })
}

fn start_poll(
    context: &Arc<Context>,
    control: &Control,
    address: u64,
    file: Arc<OpenFile>,
    counter: Option<Arc<OpenFile>>,
) -> Result<(), Errno> {
    let mask = u16::try_from(control.buffer).map_err(|_| Errno::EINVAL)?;
    if control.offset != 0 || control.bytes != 0 || control.flags_of_transfer != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = PollEvents::from_bits_truncate(mask as _) | PollEvents::ALWAYS;
    let end = Arc::new(WaitQueue::new());
    let id = {
        let mut state = context.state.lock();
        state.next_id += 1;
        let id = state.next_id;
        let waiting = Waiting { control: address, end: end.clone() };
        tree::insert(&mut state.waiting, id, waiting);
        id
    };
    let event = Event { data: control.data, control: address, result: 0, second: 0 };
    let watcher = watch(context.clone(), (id, end), file, wanted, event, counter);
    task::spawn(servers::of_class(Class::File).core(), watcher).map_err(|_| {
        context.take(id);
        Errno::ENOMEM
    })
}

/// The task of a poll.
async fn watch(
    context: Arc<Context>,
    (id, end): (u64, Arc<WaitQueue>),
    file: Arc<OpenFile>,
    wanted: PollEvents,
    event: Event,
    counter: Option<Arc<OpenFile>>,
) {
    let mut places = Vec::new();
    let mut cancelled = None;
    let ready = poll_fn(|task| {
        places.clear();
        cancelled.replace(end.register(task.waker()));
        let target = Target::Waker(task.waker().clone());
        let mut table = PollTable::new(Kind::Watcher, wanted, &target, &mut places);
        let ready = file.file().poll(wanted, Some(&mut table));
        if !context.is_waiting(id) {
            Poll::Ready(None)
        } else if ready.is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(Some(ready))
        }
    });
    let ready = ready.await;
    drop(places);
    drop(cancelled);
    if let Some(ready) = ready
        && context.take(id)
    {
        let result = i64::from(ready.bits());
        context.complete(Event { result, ..event }, counter.as_ref());
    }
}

/// `io_cancel(context, control, result)`
pub async fn io_cancel(call: &Call) -> SysResult {
    let control = call.argument(1);
    let at = control.checked_add(KEY_OFFSET).ok_or(Errno::EFAULT)?;
    let key: u32 = call.user().read_value(at).await?;
    if key != 0 {
        return Err(Errno::EINVAL);
    }
    let context = find(call)?;
    let found = {
        let state = context.state.lock();
        let mut waiting = state.waiting.iter();
        waiting.find(|(_, waiting)| waiting.control == control).map(|(id, _)| *id)
    };
    // Only polls wait; all else is done before anybody could cancel it.
    if !found.is_some_and(|id| context.take(id)) {
        return Err(Errno::EINVAL);
    }
    let data = call.user().read_value(control).await.unwrap_or(0);
    let result = -i64::from(Errno::ECANCELED.number());
    context.complete(Event { data, control, result, second: 0 }, None);
    Err(Errno::EINPROGRESS)
}

/// `io_getevents(context, least, most, events, timeout)`
pub async fn io_getevents(call: &Call) -> SysResult {
    let deadline_ns = read_timeout(call, call.argument(4)).await?;
    take_events(call, deadline_ns).await
}

/// `io_pgetevents(context, least, most, events, timeout, mask)`
pub async fn io_pgetevents(call: &Call) -> SysResult {
    let deadline_ns = read_timeout(call, call.argument(4)).await?;
    let mask = match call.argument(5) {
        0 => None,
        address => {
            let [set, size]: [u64; 2] = call.user().read_value(address).await?;
            read_mask(call, set, size).await?
        }
    };
    let wait = pin!(take_events(call, deadline_ns));
    with_mask(&call.thread, mask, wait).await
}

async fn take_events(call: &Call, deadline_ns: Option<u64>) -> SysResult {
    let (least, most) = (call.argument(1).cast_signed(), call.argument(2).cast_signed());
    let context = find(call)?;
    if least < 0 || least > most {
        return Err(Errno::EINVAL);
    }
    let (least, most) = (least.unsigned_abs(), most.unsigned_abs());
    let mut done = 0;
    loop {
        done += give_out(call, &context, done, most).await?;
        if done >= least || done >= most {
            return Ok(done);
        }
        let look = context.completions.wait_until(|| {
            let has_more = !context.state.lock().completed.is_empty();
            (has_more || context.is_ended.load(Ordering::Acquire)).then_some(())
        });
        let wait = call.thread.interruptible(with_deadline(look, deadline_ns));
        match Box::pin(wait).await {
            Ok(Ok(())) if context.is_ended.load(Ordering::Acquire) => return Ok(done),
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(done),
            Err(Interrupted) if done > 0 => return Ok(done),
            Err(Interrupted) => return Err(Errno::EINTR),
        }
    }
}

/// Writes what is completed behind the first `done` events; how many it was.
async fn give_out(call: &Call, context: &Context, done: u64, most: u64) -> Result<u64, Errno> {
    let mut given = 0;
    while done + given < most {
        let Some(event) = context.state.lock().completed.pop_front() else { break };
        let offset = (done + given).checked_mul(size_of::<Event>() as u64);
        let at = offset.and_then(|offset| call.argument(3).checked_add(offset));
        let result = match at {
            Some(at) => call.user().write_value(at, &event).await,
            None => Err(Errno::EFAULT),
        };
        if let Err(error) = result {
            context.state.lock().completed.push_front(event);
            if done + given == 0 {
                return Err(error);
            }
            break;
        }
        given += 1;
    }
    Ok(given)
}
