//! Pseudo-terminals: a terminal whose line is another file, the master.
//!
//! Opening `/dev/ptmx` makes a pair; the slave appears as a number in `/dev/pts`, a tmpfs that calls
//! itself devpts, and disappears when the master is closed.

use super::*;
use crate::file::{OpenFile, PathFile};
use crate::inode::{NewContent, NewNode};
use crate::mount::{Location, Mount};
use crate::notify;
use abi::fs::make_device;
use abi::fs::notify::Events;
use alloc::collections::BTreeMap;
use alloc::format;
use base::heap::tree;

/// Major number of slaves.
pub const SLAVE_MAJOR: u32 = 136;
/// Most pseudo-terminals at a time.
const LIMIT: u32 = 4096;

/// All pairs by number.
static PAIRS: Mutex<BTreeMap<u32, Weak<Terminal>>> = Mutex::new(&rank::PAIRS, BTreeMap::new());
static HOME: Once<Arc<Mount>> = Once::new();

/// Says where slaves appear: the mount of devpts. Once, when the kernel starts.
pub fn set_home(mount: Arc<Mount>) {
    // There is one devpts; a second call would name the same.
    let _ = HOME.set(mount);
}

/// The master's side of a pseudo-terminal.
pub struct PtyMaster {
    terminal: Arc<Terminal>,
    number: u32,
}

/// Opens `/dev/ptmx`: makes a pair. `ENOSPC` when there are too many.
pub fn open_ptmx(caller: &dyn Caller) -> Result<Arc<dyn File>, Errno> {
    let (number, terminal) = {
        let mut pairs = PAIRS.lock();
        let number = (0..LIMIT).find(|number| !pairs.contains_key(number)).ok_or(Errno::ENOSPC)?;
        let terminal = Terminal::make(make_device(SLAVE_MAJOR, number), true);
        tree::insert(&mut pairs, number, Arc::downgrade(&terminal));
        (number, terminal)
    };
    // From here on, dropping the master gives the number back.
    let master = Arc::new(PtyMaster { terminal, number });
    if let Some(home) = HOME.get() {
        let identity = caller.identity();
        let new = NewNode {
            content: NewContent::CharacterDevice(make_device(SLAVE_MAJOR, number)),
            mode: 0o620,
            user: identity.user,
            group: TERMINAL_GROUP,
        };
        home.root().create(format!("{number}").as_bytes(), &new)?;
    }
    Ok(master)
}

/// The group `tty` of Debian, which owns slaves.
const TERMINAL_GROUP: u32 = 5;

/// Opens a slave by number. `ENXIO` when there is no such pair.
pub fn open_slave(
    number: u32,
    flags: OpenFlags,
    caller: &dyn Caller,
) -> Result<Arc<dyn File>, Errno> {
    let terminal = PAIRS.lock().get(&number).and_then(Weak::upgrade).ok_or(Errno::ENXIO)?;
    terminal.open(flags, caller, true)
}

impl PtyMaster {
    /// Reads one packet, if the master reads packets and there is one: what happened, or 0 and output.
    fn read_packet(&self, sink: &mut dyn Sink) -> Option<usize> {
        let told = {
            let mut state = self.terminal.state.lock();
            let packet = state.packet.as_mut()?;
            let told = core::mem::take(packet);
            if told == 0 && !state.discipline.has_output() {
                return None;
            }
            told
        };
        let mut count = sink.write(&[told]);
        if told == 0 && count > 0 {
            count += self.terminal.take_output(sink);
        }
        Some(count)
    }

    /// Opens the slave, wherever devpts is seen: no permission is asked for (`TIOCGPTPEER`).
    fn open_peer(&self, flags: u64, caller: &dyn Caller) -> Result<Arc<OpenFile>, Errno> {
        let home = HOME.get().ok_or(Errno::EIO)?;
        let inode = home.root().lookup(format!("{}", self.number).as_bytes())?;
        let flags = u32::try_from(flags).map_err(|_| Errno::EINVAL)?;
        let flags = OpenFlags::from_bits_truncate(flags);
        let file: Arc<dyn File> = if flags.contains(OpenFlags::PATH) {
            Arc::new(PathFile)
        } else if flags.contains(OpenFlags::DIRECT) {
            return Err(Errno::EINVAL);
        } else {
            self.terminal.open(flags, caller, true)?
        };
        let location = Location { mount: home.clone(), inode: inode.clone() };
        let opened = OpenFile::new(file, location, flags)?;
        notify::event(&inode, Events::OPEN);
        Ok(opened)
    }
}

impl File for PtyMaster {
    fn read(&self, _: u64, sink: &mut dyn Sink, _: Transfer) -> Result<usize, Errno> {
        if sink.remaining() == 0 {
            return Ok(0);
        }
        if let Some(count) = self.read_packet(sink) {
            return Ok(count);
        }
        let count = self.terminal.take_output(sink);
        if count > 0 {
            return Ok(count);
        }
        let state = self.terminal.state.lock();
        if state.discipline.has_output() {
            return Ok(0);
        }
        let is_gone = state.was_open && state.openings == 0;
        Err(if is_gone { Errno::EIO } else { Errno::EAGAIN })
    }

    fn write(&self, _: u64, source: &mut dyn Source, _: Transfer) -> Result<usize, Errno> {
        let mut part = [0u8; 256];
        let mut done = 0;
        // Looked at once in each turn: who reads makes room meanwhile.
        let mut is_full = false;
        while source.remaining() > 0 {
            let wanted = source.remaining().min(part.len()).min(self.terminal.input_room());
            if wanted == 0 {
                is_full = true;
                break;
            }
            let count = part.get_mut(..wanted).map_or(0, |into| source.read(into));
            done += self.terminal.receive(part.get(..count).unwrap_or(&[]));
            if count < wanted {
                break;
            }
        }
        if done == 0 && is_full { Err(Errno::EAGAIN) } else { Ok(done) }
    }

    fn poll(&self, events: PollEvents, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.terminal.output_ready);
            table.register_for(&self.terminal.input_room, PollEvents::WRITABLE);
        }
        let state = self.terminal.state.lock();
        let mut ready = PollEvents::empty();
        if state.discipline.has_output() {
            ready |= PollEvents::READABLE;
        }
        if state.packet.is_some_and(|told| told != 0) {
            ready |= PollEvents::READABLE | PollEvents::PRI;
        }
        if state.was_open && state.openings == 0 {
            ready |= PollEvents::HUP;
        }
        if state.discipline.input_room() > 0 {
            ready |= PollEvents::WRITABLE;
        }
        ready & (events | PollEvents::ALWAYS)
    }

    fn ioctl_input(&self, request: u32) -> Result<usize, Errno> {
        match request {
            TIOCGPTN | TIOCGPTLCK | TIOCGPTPEER | TIOCGPKT => Ok(0),
            TIOCPKT => Ok(size_of::<i32>()),
            _ => control::input_size(request),
        }
    }

    fn ioctl(
        &self,
        caller: &dyn Caller,
        request: u32,
        argument: u64,
        input: &[u8],
    ) -> Result<IoctlAnswer, Errno> {
        match request {
            TIOCGPTN => Ok(IoctlAnswer::bytes(&self.number.to_ne_bytes())),
            TIOCGPTLCK => {
                let is_locked = i32::from(self.terminal.state.lock().is_locked);
                Ok(IoctlAnswer::bytes(&is_locked.to_ne_bytes()))
            }
            TIOCSPTLCK => {
                self.terminal.state.lock().is_locked = input.iter().any(|&byte| byte != 0);
                Ok(IoctlAnswer::default())
            }
            TIOCPKT => {
                let is_on = input.iter().any(|&byte| byte != 0);
                let mut state = self.terminal.state.lock();
                state.packet = is_on.then(|| state.packet.unwrap_or(0));
                Ok(IoctlAnswer::default())
            }
            TIOCGPKT => {
                let is_on = i32::from(self.terminal.state.lock().packet.is_some());
                Ok(IoctlAnswer::bytes(&is_on.to_ne_bytes()))
            }
            TIOCGPTPEER => {
                let opened = Some(self.open_peer(argument, caller)?);
                Ok(IoctlAnswer { opened, ..IoctlAnswer::default() })
            }
            FIONREAD => {
                let length = self.terminal.state.lock().discipline.output_length();
                let length = i32::try_from(length).unwrap_or(i32::MAX);
                Ok(IoctlAnswer::bytes(&length.to_ne_bytes()))
            }
            _ => self.terminal.control(caller, request, argument, input, false),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for PtyMaster {
    fn drop(&mut self) {
        self.terminal.hang_up();
        if let Some(home) = HOME.get() {
            let name = format!("{}", self.number);
            if let Ok(inode) = home.root().lookup(name.as_bytes()) {
                // It was there a moment ago and nobody else removes it; if so it is gone all the same.
                let _ = home.root().unlink(name.as_bytes(), inode.id());
            }
        }
        PAIRS.lock().remove(&self.number);
    }
}
