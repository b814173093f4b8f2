//! Servers: the serial executors of requests, one per class, and where each of them runs.
//!
//! A server is a bounded queue of requests and a pool of handler futures. It belongs to one kernel
//! core, whose loop takes its requests in turn and polls each handler right away: a call that
//! finishes at the first poll costs no allocation and no second queue. A handler that has to wait
//! stays behind as an ordinary task of that core while the next request runs. Which core that is can
//! change (`machine::move_server`): what is queued goes along, and a handler that waits ends where it
//! began.
//!
//! A handler that panics fails its own call with `EIO`; its future is dropped with all it holds, the
//! restart is counted, and the server goes on with the next request.

pub mod file;
pub mod ipc;
pub mod memory;
pub mod network;
pub mod other;
pub mod process;
pub mod signal;
pub mod time;

use alloc::sync::Arc;

use abi::Errno;
use base::cpu::CpuId;
use base::panic::catch;
use base::ring::Ring;
use base::sync::Once;
use base::user::UserContext;
use policy::route::{self, CLASS_COUNT, CLASSES, Class};
use policy::table::number;

use crate::call::{Call, encode};
use crate::memory::AddressSpace;
use crate::process::Thread;
use crate::{locks, machine};

/// Requests that may wait in front of one server. A caller that finds the queue full yields and
/// tries again.
const QUEUE_CAPACITY: usize = 256;

/// A remote call in a server's queue.
pub struct Request {
    /// The call; its thread's slot takes the answer.
    pub call: Call,
}

/// A serial executor of the requests of one class.
pub struct Server {
    /// Which calls it carries out.
    pub class: Class,
    queue: Ring<Request>,
}

static SERVERS: Once<[Server; CLASS_COUNT]> = Once::new();

/// Creates the servers. Called once, at boot.
pub fn start() {
    SERVERS.call_once(|| CLASSES.map(|class| Server { class, queue: Ring::new(QUEUE_CAPACITY) }));
}

/// All servers, by class.
pub fn all() -> &'static [Server] {
    SERVERS.get().map_or(&[], |servers| servers.as_slice())
}

/// The server of a call.
pub fn of_call(number: usize) -> &'static Server {
    of_class(route::route(number).map_or(Class::Other, |row| row.class))
}

/// The server of a class.
#[inline]
pub fn of_class(class: Class) -> &'static Server {
    &all()[class as usize]
}

/// The answer of a call that needs no handler that could wait: one that only reads what the caller's
/// thread has, or asks for little of what is there. `None` for every other call, and whenever it is not
/// that simple; nothing has happened then. `space` is the caller's address space, for who has it.
#[inline]
pub fn answer_at_once(
    number: usize,
    arguments: &[u64; 6],
    thread: &Arc<Thread>,
    space: Option<&AddressSpace>,
) -> Option<u64> {
    match number {
        number::getppid
        | number::getpid
        | number::gettid
        | number::getuid
        | number::geteuid
        | number::getgid
        | number::getegid => {
            Some(locks::during(number, thread.number(), || identity(number, thread)))
        }
        // Listeners want to know who reads and writes, and may have to be asked.
        number::read | number::write | number::pread64 | number::pwrite64
            if fs::notify::fanotify::is_used() =>
        {
            None
        }
        number::read
        | number::write
        | number::lseek
        | number::fstat
        | number::clock_gettime
        | number::pread64
        | number::pwrite64
        | number::poll
        | number::select
        | number::rt_sigaction
        | number::rt_sigprocmask
        | number::tgkill
        | number::pselect6
        | number::futex
        | number::epoll_wait
        | number::stat
        | number::lstat
        | number::newfstatat
        | number::access
        | number::faccessat
        | number::readlink
        | number::readlinkat
        | number::fcntl => {
            let act = |space: &AddressSpace| match number {
                number::read => file::read_at_once(thread, space, arguments),
                number::write => file::write_at_once(thread, space, arguments),
                number::lseek => file::seek_at_once(thread, arguments),
                number::fstat => file::status_at_once(thread, space, arguments),
                number::pread64 => file::pread_at_once(thread, space, arguments),
                number::pwrite64 => file::pwrite_at_once(thread, space, arguments),
                number::poll => file::poll_at_once(thread, space, arguments),
                number::select => file::select_at_once(thread, space, arguments),
                number::rt_sigaction => signal::action_at_once(thread, space, arguments),
                number::rt_sigprocmask => signal::mask_at_once(thread, space, arguments),
                number::tgkill => signal::raise_at_once(thread, arguments),
                number::pselect6 => file::pselect_at_once(thread, space, arguments),
                number::futex => ipc::wake_at_once(space, arguments),
                number::epoll_wait => file::epoll_wait_at_once(thread, space, arguments),
                number::clock_gettime => time::clock_at_once(thread, space, arguments),
                _ => file::look_at_once(thread, number, arguments),
            };
            let step = || catch(|| space.map_or_else(|| act(&thread.space()), act));
            let answer = locks::during(number, thread.number(), step).ok().flatten();
            // What needs I/O first needs a handler, which may wait.
            answer.filter(|value| *value != encode(Err(Errno::EIOCBQUEUED)))
        }
        _ => None,
    }
}

/// Carries out a call that changes the caller's own control flow, if that needs no handler that could wait;
/// it sets the registers. False for every other call, and whenever it is not that simple; then it can still
/// be carried out.
#[inline]
pub fn go_on_at_once(
    number: usize,
    thread: &Arc<Thread>,
    context: &mut UserContext,
    space: &AddressSpace,
) -> bool {
    let step = || catch(|| crate::signal::restore_frame_at_once(thread, context, space));
    number == number::rt_sigreturn && locks::during(number, thread.number(), step).unwrap_or(false)
}

/// The answer of one of the calls that tell who the caller is.
#[inline(always)]
fn identity(number: usize, thread: &Thread) -> u64 {
    u64::from(match number {
        number::getppid => return thread.process.parent_pid().to_value(),
        number::getpid => return thread.process.pid.to_value(),
        number::gettid => return thread.tid().to_value(),
        number::getuid => thread.credentials().user.real,
        number::geteuid => thread.credentials().user.effective,
        number::getgid => thread.credentials().group.real,
        _ => thread.credentials().group.effective,
    })
}

impl Server {
    /// The core that carries this server.
    pub fn core(&self) -> CpuId {
        machine::server_core(self.class)
    }

    /// Puts a request into the queue and wakes the server's core if it is parked. Gives the request
    /// back when the queue is full.
    pub fn submit(&self, request: Request) -> Result<(), Request> {
        self.queue.push(request)?;
        machine::call_server(self.class);
        Ok(())
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next request, if there is one.
    pub fn take(&self) -> Option<Request> {
        self.queue.pop()
    }
}
