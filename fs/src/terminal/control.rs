//! Job control and the `ioctl` requests of terminals.

use super::*;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of input that a request takes; `ENOTTY` for requests that terminals do not know.
pub fn input_size(request: u32) -> Result<usize, Errno> {
    Ok(match request {
        TCSETS | TCSETSW | TCSETSF => size_of::<Termios>(),
        TCSETA | TCSETAW | TCSETAF => size_of::<OldTermios>(),
        TCSETS2 | TCSETSW2 | TCSETSF2 => size_of::<Termios2>(),
        TIOCSWINSZ => size_of::<WindowSize>(),
        TIOCSPGRP | TIOCSPTLCK => 4,
        TIOCSTI => 1,
        TCGETS | TCGETS2 | TCGETA | TCSBRK | TCSBRKP | TCXONC | TCFLSH | TIOCEXCL | TIOCNXCL
        | TIOCSCTTY | TIOCGPGRP | TIOCOUTQ | TIOCGWINSZ | FIONREAD | TIOCNOTTY | TIOCGSID
        | TIOCGDEV => 0,
        _ => return Err(Errno::ENOTTY),
    })
}

fn decode<T: FromBytes>(input: &[u8]) -> Result<T, Errno> {
    T::read_from_bytes(input).map_err(|_| Errno::EINVAL)
}

fn number(value: i32) -> IoctlAnswer {
    IoctlAnswer::bytes(&value.to_ne_bytes())
}

impl Terminal {
    /// Whether this is the terminal of the caller's session.
    fn controls(&self, member: &dyn JobControl) -> bool {
        member
            .controlling_terminal()
            .is_some_and(|terminal| core::ptr::eq(Arc::as_ptr(&terminal), self))
    }

    /// Lets a process in the foreground pass. One in the background gets the signal and starts
    /// again, `EIO` when that would be in vain. Who blocks or ignores `SIGTTOU` passes.
    pub(super) fn check_foreground(&self, caller: &dyn Caller, signal: u8) -> Result<(), Errno> {
        let foreground = self.foreground();
        let Some(member) = member(caller) else { return Ok(()) };
        let group = member.process_group();
        if foreground == 0 || foreground == group || !self.controls(member) {
            return Ok(());
        }
        if member.blocks_or_ignores(signal) {
            return if signal == SIGTTIN { Err(Errno::EIO) } else { Ok(()) };
        }
        if member.is_group_orphaned() {
            return Err(Errno::EIO);
        }
        member.signal_group(group, signal);
        Err(Errno::ERESTARTSYS)
    }

    /// Becomes the terminal of the caller's session if both are free.
    pub(super) fn control_if_free(&self, caller: &dyn Caller) {
        let Some(member) = member(caller) else { return };
        if member.is_session_leader() && member.controlling_terminal().is_none() {
            let is_ours = {
                let mut state = self.state.lock();
                let is_free = state.session == 0;
                if is_free {
                    state.session = member.session();
                    state.foreground = member.process_group();
                }
                is_free
            };
            if is_ours {
                member.set_controlling_terminal(self.me.upgrade());
            }
        }
    }

    fn set_controlling(&self, caller: &dyn Caller, steal: bool) -> Result<(), Errno> {
        let member = member(caller).ok_or(Errno::EPERM)?;
        let (session, group) = (member.session(), member.process_group());
        let is_leader = member.is_session_leader();
        if is_leader && self.session() == session {
            return Ok(());
        }
        if !is_leader || member.controlling_terminal().is_some() {
            return Err(Errno::EPERM);
        }
        let may_steal = steal && caller.identity().is_capable(Capability::Administer);
        let robbed = {
            let mut state = self.state.lock();
            if state.session != 0 && !may_steal {
                return Err(Errno::EPERM);
            }
            state.foreground = group;
            core::mem::replace(&mut state.session, session)
        };
        if robbed != 0 {
            member.take_terminal_from(robbed);
        }
        member.set_controlling_terminal(self.me.upgrade());
        Ok(())
    }

    fn set_foreground(&self, caller: &dyn Caller, group: i32) -> Result<(), Errno> {
        let member = member(caller).ok_or(Errno::ENOTTY)?;
        if !self.controls(member) || self.session() != member.session() {
            return Err(Errno::ENOTTY);
        }
        if group < 0 {
            return Err(Errno::EINVAL);
        }
        let session = member.session_of_group(group).ok_or(Errno::ESRCH)?;
        if session != member.session() {
            return Err(Errno::EPERM);
        }
        self.state.lock().foreground = group;
        Ok(())
    }

    fn give_up(&self, caller: &dyn Caller) -> Result<(), Errno> {
        let member = member(caller).ok_or(Errno::ENOTTY)?;
        if !self.controls(member) {
            return Err(Errno::ENOTTY);
        }
        // Its leader gives it up for the whole session, a member for itself and its children.
        if member.is_session_leader() {
            let foreground = self.leave_session();
            member.set_controlling_terminal(None);
            if foreground > 0 {
                member.signal_group(foreground, SIGHUP);
                member.signal_group(foreground, SIGCONT);
            }
        } else {
            member.leave_terminal();
        }
        Ok(())
    }

    /// Carries out a request that `input_size` knows. `is_slave` is false for the master's side, which
    /// may ask about a terminal that does not control it.
    pub(super) fn control(
        &self,
        caller: &dyn Caller,
        request: u32,
        argument: u64,
        input: &[u8],
        is_slave: bool,
    ) -> Result<IoctlAnswer, Errno> {
        if self.state.lock().is_hung_up && is_slave {
            return Err(Errno::EIO);
        }
        let changes = matches!(
            request,
            TCSETS
                | TCSETA
                | TCSETAW
                | TCSETAF
                | TCSETSW
                | TCSETSF
                | TCSETS2
                | TCSETSW2
                | TCSETSF2
                | TCSBRK
                | TCSBRKP
                | TCXONC
                | TCFLSH
                | TIOCSPGRP
        );
        if changes && is_slave {
            self.check_foreground(caller, SIGTTOU)?;
        }
        match request {
            TCGETS => {
                let settings = self.state.lock().discipline.settings;
                return Ok(IoctlAnswer::bytes(settings.basic.as_bytes()));
            }
            TCGETS2 => {
                let settings = self.state.lock().discipline.settings;
                return Ok(IoctlAnswer::bytes(settings.as_bytes()));
            }
            TCGETA => {
                let settings = self.state.lock().discipline.settings.basic;
                return Ok(IoctlAnswer::bytes(OldTermios::of(&settings).as_bytes()));
            }
            TCSETA | TCSETAW | TCSETAF => {
                let old: OldTermios = decode(input)?;
                let mut state = self.state.lock();
                let mut settings = state.discipline.settings;
                old.put_into(&mut settings.basic);
                state.discipline.set(settings);
                self.settings_changed(&mut state.discipline, request == TCSETAF);
            }
            TCSETS | TCSETSW | TCSETSF => {
                let basic: Termios = decode(input)?;
                let mut state = self.state.lock();
                let settings = Termios2 { basic, ..state.discipline.settings };
                state.discipline.set(settings);
                self.settings_changed(&mut state.discipline, request == TCSETSF);
            }
            TCSETS2 | TCSETSW2 | TCSETSF2 => {
                let settings: Termios2 = decode(input)?;
                let mut state = self.state.lock();
                state.discipline.set(settings);
                self.settings_changed(&mut state.discipline, request == TCSETSF2);
            }
            // Output is on its way as soon as it is written, and there is no line to break.
            TCSBRK | TCSBRKP => {}
            TCXONC => {
                let mut state = self.state.lock();
                match argument {
                    TCOOFF => {
                        state.discipline.is_stopped = true;
                        Terminal::note_packet(&mut state, packet::STOP, packet::START);
                    }
                    TCOON => {
                        state.discipline.is_stopped = false;
                        Terminal::note_packet(&mut state, packet::START, packet::STOP);
                    }
                    TCIOFF | TCION => {}
                    _ => return Err(Errno::EINVAL),
                }
            }
            TCFLSH => self.flush(argument)?,
            TIOCEXCL => self.state.lock().is_exclusive = true,
            TIOCNXCL => self.state.lock().is_exclusive = false,
            TIOCSCTTY => self.set_controlling(caller, argument == 1)?,
            TIOCNOTTY => self.give_up(caller)?,
            TIOCGPGRP | TIOCGSID => {
                if is_slave && !member(caller).is_some_and(|member| self.controls(member)) {
                    return Err(Errno::ENOTTY);
                }
                let state = self.state.lock();
                if request == TIOCGPGRP {
                    return Ok(number(state.foreground));
                }
                let session = state.session;
                return if session > 0 { Ok(number(session)) } else { Err(Errno::ENOTTY) };
            }
            TIOCSPGRP => self.set_foreground(caller, decode(input)?)?,
            TIOCOUTQ => {
                let length = self.state.lock().discipline.output_length();
                return Ok(number(i32::try_from(length).unwrap_or(i32::MAX)));
            }
            FIONREAD => {
                let length = self.state.lock().discipline.readable();
                return Ok(number(i32::try_from(length).unwrap_or(i32::MAX)));
            }
            TIOCGWINSZ => {
                let window = self.state.lock().window;
                return Ok(IoctlAnswer::bytes(window.as_bytes()));
            }
            TIOCSWINSZ => self.set_window(decode(input)?),
            TIOCGDEV => {
                let device = u32::try_from(self.device).unwrap_or(0);
                return Ok(IoctlAnswer::bytes(&device.to_ne_bytes()));
            }
            // Faking input is refused, as Linux does by default.
            TIOCSTI => return Err(Errno::EIO),
            _ => return Err(Errno::ENOTTY),
        }
        self.wake_everybody();
        Ok(IoctlAnswer::default())
    }

    fn settings_changed(&self, discipline: &mut Discipline, flush: bool) {
        if flush {
            discipline.flush_input();
        }
    }

    fn flush(&self, what: u64) -> Result<(), Errno> {
        let mut state = self.state.lock();
        match what {
            TCIFLUSH => state.discipline.flush_input(),
            TCOFLUSH => state.discipline.flush_output(),
            TCIOFLUSH => {
                state.discipline.flush_input();
                state.discipline.flush_output();
            }
            _ => return Err(Errno::EINVAL),
        }
        let told = match what {
            TCIFLUSH => packet::FLUSH_READ,
            TCOFLUSH => packet::FLUSH_WRITE,
            _ => packet::FLUSH_READ | packet::FLUSH_WRITE,
        };
        Terminal::note_packet(&mut state, told, 0);
        drop(state);
        self.sent.wake_all();
        Ok(())
    }
}
