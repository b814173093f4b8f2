//! Terminals: the console and the slave sides of pseudo-terminals.
//!
//! A terminal stands between programs and a line. Programs open it (`Terminal::open`); the line's
//! side (the console channel, or a pseudo-terminal's master) calls `receive` with what was typed and
//! takes what is shown with `take_output`, woken through `output_ready`.
//!
//! One lock guards the line discipline, the window size, and the session; signals are sent when it is
//! released. Settings change at once, since output is processed when it is written; who wants to change them when
//! what was written is out waits for a line that takes time (`wait_until_sent`).

mod control;
mod discipline;
mod job_control;
mod pty;
#[cfg(test)]
mod tests;

pub use job_control::{JobControl, Processes, Recipient, controlling, set_processes};
pub use pty::{PtyMaster, open_ptmx, open_slave, set_home};

use crate::file::{File, IoctlAnswer, Transfer};
use crate::identity::Caller;
use crate::poll::PollTable;
use abi::Errno;
use abi::capability::Capability;
use abi::fs::{OpenFlags, PollEvents};
use abi::terminal::*;
use alloc::sync::{Arc, Weak};
use base::io::{Sink, Source};
use base::sync::{Mutex, Once, rank};
use base::wait::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};
use discipline::Discipline;
use job_control::{member, send_signal};

pub(crate) const SIGHUP: u8 = 1;
const SIGCONT: u8 = 18;
const SIGTTIN: u8 = 21;
const SIGTTOU: u8 = 22;
const SIGWINCH: u8 = 28;

struct State {
    discipline: Discipline,
    window: WindowSize,
    session: i32,
    foreground: i32,
    /// The line is gone: reads give nothing, writes fail.
    is_hung_up: bool,
    is_exclusive: bool,
    /// Programs that have it open.
    openings: usize,
    /// Somebody had it open once.
    was_open: bool,
    /// Not yet unlocked by the master's owner.
    is_locked: bool,
    /// The master reads packets: what it has not been told yet (`TIOCPKT_...`).
    packet: Option<u8>,
}

/// A terminal.
pub struct Terminal {
    me: Weak<Terminal>,
    device: u64,
    state: Mutex<State>,
    readable: WaitQueue,
    writable: WaitQueue,
    output_ready: WaitQueue,
    input_room: WaitQueue,
    /// Its line takes time.
    has_slow_line: AtomicBool,
    /// Something is under way on such a line.
    is_sending: AtomicBool,
    /// Woken when what was under way has arrived.
    sent: WaitQueue,
}

impl Terminal {
    /// A terminal with this device number.
    pub fn new(device: u64) -> Arc<Terminal> {
        Terminal::make(device, false)
    }

    fn make(device: u64, is_locked: bool) -> Arc<Terminal> {
        let state = State {
            discipline: Discipline::new(),
            window: WindowSize::default(),
            session: 0,
            foreground: 0,
            is_hung_up: false,
            is_exclusive: false,
            openings: 0,
            was_open: false,
            is_locked,
            packet: None,
        };
        Arc::new_cyclic(|me| Terminal {
            me: me.clone(),
            device,
            state: Mutex::new(&rank::TERMINAL, state),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
            output_ready: WaitQueue::new(),
            input_room: WaitQueue::new(),
            has_slow_line: AtomicBool::new(false),
            is_sending: AtomicBool::new(false),
            sent: WaitQueue::new(),
        })
    }

    /// Its line takes time: programs can wait until their output has arrived.
    pub fn set_slow_line(&self) {
        self.has_slow_line.store(true, Ordering::Release);
    }

    /// Output is about to be taken for a line that takes time: it is under way until `all_sent`.
    pub fn begin_sending(&self) {
        self.is_sending.store(true, Ordering::Release);
    }

    /// All that was taken has arrived.
    pub fn all_sent(&self) {
        self.is_sending.store(false, Ordering::Release);
        self.sent.wake_all();
    }

    /// Waits until nothing that was written is under way (`tcdrain`). At once for a pseudo-terminal, whose line is the
    /// program at its other side.
    pub async fn wait_until_sent(&self) {
        if !self.has_slow_line.load(Ordering::Acquire) {
            return;
        }
        let is_sent = || {
            // Output that is stopped counts.
            let has_output = self.state.lock().discipline.output_length() > 0;
            (!has_output && !self.is_sending.load(Ordering::Acquire)).then_some(())
        };
        self.sent.wait_until(is_sent).await;
    }

    /// Its device number.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// The line brings bytes; how many there was room for. Signals that they mean are sent.
    pub fn receive(&self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(&byte) = bytes.get(taken) {
            let (signal, group) = {
                let mut state = self.state.lock();
                if state.discipline.input_room() == 0 {
                    break;
                }
                (state.discipline.receive(byte), state.foreground)
            };
            taken += 1;
            if let Some(signal) = signal {
                send_signal(Recipient::Group(group), signal);
            }
        }
        if taken > 0 {
            self.readable.wake_all();
            self.output_ready.wake_all();
            self.writable.wake_all();
        }
        taken
    }

    /// Room for input from the line; `input_room_queue` is woken when it grows.
    pub fn input_room(&self) -> usize {
        self.state.lock().discipline.input_room()
    }

    /// Woken when programs have read input.
    pub fn input_room_queue(&self) -> &WaitQueue {
        &self.input_room
    }

    /// The line takes output; how many bytes.
    pub fn take_output(&self, sink: &mut dyn Sink) -> usize {
        let count = self.state.lock().discipline.take_output(sink);
        if count > 0 {
            self.writable.wake_all();
        }
        count
    }

    /// Whether there is output for the line; `output_ready` is woken when there may be.
    pub fn has_output(&self) -> bool {
        self.state.lock().discipline.has_output()
    }

    /// Woken when there may be output for the line.
    pub fn output_ready(&self) -> &WaitQueue {
        &self.output_ready
    }

    /// The window has another size: programs in the foreground are told.
    pub fn set_window(&self, window: WindowSize) {
        let group = {
            let mut state = self.state.lock();
            if state.window == window {
                return;
            }
            state.window = window;
            state.foreground
        };
        send_signal(Recipient::Group(group), SIGWINCH);
    }

    /// Makes it the terminal of a session, with a group in the foreground. The session's side is the
    /// caller's to set.
    pub fn enter_session(&self, session: i32, foreground: i32) {
        let mut state = self.state.lock();
        state.session = session;
        state.foreground = foreground;
    }

    /// The session has given the terminal up. Gives the group that was in the foreground.
    pub fn leave_session(&self) -> i32 {
        let mut state = self.state.lock();
        state.session = 0;
        core::mem::take(&mut state.foreground)
    }

    /// The process group in the foreground; 0 when there is none.
    pub fn foreground(&self) -> i32 {
        self.state.lock().foreground
    }

    /// The session; 0 when there is none.
    pub fn session(&self) -> i32 {
        self.state.lock().session
    }

    /// The line is gone. The leader of the session is told at once, the foreground when the leader ends.
    pub fn hang_up(&self) {
        let leader = {
            let mut state = self.state.lock();
            state.is_hung_up = true;
            state.discipline.flush_input();
            state.discipline.flush_output();
            Recipient::Leader(state.session)
        };
        send_signal(leader, SIGHUP);
        send_signal(leader, SIGCONT);
        self.wake_everybody();
    }

    /// The master is told, if it reads packets; what is told stands for the opposite no more.
    fn note_packet(state: &mut State, told: u8, no_more: u8) {
        if let Some(packet) = &mut state.packet {
            *packet = *packet & !no_more | told;
        }
    }

    fn wake_everybody(&self) {
        self.readable.wake_all();
        self.writable.wake_all();
        self.output_ready.wake_all();
        self.input_room.wake_all();
        self.sent.wake_all();
    }

    /// The terminal that a file is open on; `None` for other files, and for a master.
    pub fn of(file: &dyn File) -> Option<&Arc<Terminal>> {
        file.as_any().downcast_ref().map(|opened: &TerminalFile| &opened.terminal)
    }

    /// Opens it for a program. A session leader without a terminal gets it as its own when
    /// `may_control` and `O_NOCTTY` is not given.
    pub fn open(
        self: &Arc<Terminal>,
        flags: OpenFlags,
        caller: &dyn Caller,
        may_control: bool,
    ) -> Result<Arc<dyn File>, Errno> {
        {
            let mut state = self.state.lock();
            if state.is_locked || state.is_hung_up {
                return Err(Errno::EIO);
            }
            if state.is_exclusive
                && state.openings > 0
                && !caller.identity().is_capable(Capability::Administer)
            {
                return Err(Errno::EBUSY);
            }
            state.openings += 1;
            state.was_open = true;
        }
        let opened = Arc::new(TerminalFile { terminal: self.clone() });
        if may_control && !flags.contains(OpenFlags::NOCTTY) && flags.bits() & 3 != 1 {
            self.control_if_free(caller);
        }
        Ok(opened)
    }
}

/// A program's opening of a terminal.
pub struct TerminalFile {
    terminal: Arc<Terminal>,
}

impl File for TerminalFile {
    fn read(&self, _: u64, sink: &mut dyn Sink, transfer: Transfer) -> Result<usize, Errno> {
        let terminal = &self.terminal;
        if sink.remaining() == 0 {
            return Ok(0);
        }
        let mut state = terminal.state.lock();
        if state.is_hung_up {
            return Ok(0);
        }
        if transfer.expired && state.discipline.readable() == 0 {
            return Ok(0);
        }
        let at_once = transfer.expired || transfer.nonblocking;
        let count = state.discipline.read(sink, at_once);
        drop(state);
        terminal.input_room.wake_all();
        count.ok_or(Errno::EAGAIN)
    }

    fn write(&self, _: u64, source: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        let terminal = &self.terminal;
        let mut state = terminal.state.lock();
        if state.is_hung_up {
            return Err(Errno::EIO);
        }
        if source.remaining() == 0 {
            return Ok(0);
        }
        if !state.discipline.has_output_room() {
            return Err(Errno::EAGAIN);
        }
        let count = state.discipline.write(source);
        drop(state);
        terminal.output_ready.wake_all();
        Ok(count)
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        let terminal = &self.terminal;
        if let Some(table) = table {
            table.register(&terminal.readable);
            table.register_for(&terminal.writable, PollEvents::WRITABLE);
        }
        let state = terminal.state.lock();
        let mut ready = PollEvents::empty();
        if state.is_hung_up {
            ready |=
                PollEvents::HUP | PollEvents::READABLE | PollEvents::WRITABLE | PollEvents::ERR;
        }
        if state.discipline.is_readable() {
            ready |= PollEvents::READABLE;
        }
        if state.discipline.has_output_room() {
            ready |= PollEvents::WRITABLE;
        }
        ready & (events | PollEvents::ALWAYS)
    }

    fn is_guarded(&self) -> bool {
        true
    }

    fn admit(&self, caller: &dyn Caller, writes: bool) -> Result<(), Errno> {
        if writes {
            let tells = self.terminal.state.lock().discipline.settings.basic.local & TOSTOP != 0;
            return if tells { self.terminal.check_foreground(caller, SIGTTOU) } else { Ok(()) };
        }
        self.terminal.check_foreground(caller, SIGTTIN)
    }

    fn read_timeout_ns(&self) -> Option<u64> {
        self.terminal.state.lock().discipline.read_timeout_ns()
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        control::input_size(request)
    }

    fn ioctl(
        &self,
        caller: &dyn Caller,
        request: u32,
        argument: u64,
        input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        self.terminal.control(caller, request, argument, input, true)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for TerminalFile {
    fn drop(&mut self) {
        self.terminal.state.lock().openings -= 1;
        self.terminal.output_ready.wake_all();
    }
}
