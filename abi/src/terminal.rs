//! Terminals: termios, ioctl numbers. The window size is `console::WindowSize`.

pub use crate::console::WindowSize;
pub use names::*;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of control characters in the kernel's `struct termios`.
pub const CONTROL_CHARACTERS: usize = 19;

/// The kernel's `struct termios` (what `TCGETS` and `TCSETS` carry).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Termios {
    /// Input modes.
    pub input: u32,
    /// Output modes.
    pub output: u32,
    /// Control modes.
    pub control: u32,
    /// Local modes.
    pub local: u32,
    /// Line discipline.
    pub line: u8,
    /// Control characters.
    pub characters: [u8; CONTROL_CHARACTERS],
}

/// `struct termios2` (what `TCGETS2` and `TCSETS2` carry).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Termios2 {
    /// The part that is shared with `Termios`.
    pub basic: Termios,
    /// Input speed, in bits per second.
    pub input_speed: u32,
    /// Output speed, in bits per second.
    pub output_speed: u32,
}

/// Bits of the four mode words, indices of control characters and numbers of requests, named as in
/// the manual.
#[allow(missing_docs, reason = "the names are those of the manual")]
pub mod names {
    pub const IGNBRK: u32 = 0o1;
    pub const BRKINT: u32 = 0o2;
    pub const IGNPAR: u32 = 0o4;
    pub const PARMRK: u32 = 0o10;
    pub const INPCK: u32 = 0o20;
    pub const ISTRIP: u32 = 0o40;
    pub const INLCR: u32 = 0o100;
    pub const IGNCR: u32 = 0o200;
    pub const ICRNL: u32 = 0o400;
    pub const IUCLC: u32 = 0o1000;
    pub const IXON: u32 = 0o2000;
    pub const IXANY: u32 = 0o4000;
    pub const IXOFF: u32 = 0o10000;
    pub const IMAXBEL: u32 = 0o20000;
    pub const IUTF8: u32 = 0o40000;

    pub const OPOST: u32 = 0o1;
    pub const OLCUC: u32 = 0o2;
    pub const ONLCR: u32 = 0o4;
    pub const OCRNL: u32 = 0o10;
    pub const ONOCR: u32 = 0o20;
    pub const ONLRET: u32 = 0o40;
    pub const TABDLY: u32 = 0o14000;
    pub const XTABS: u32 = 0o14000;

    pub const B38400: u32 = 0o17;
    pub const CS8: u32 = 0o60;
    pub const CREAD: u32 = 0o200;
    pub const HUPCL: u32 = 0o2000;
    pub const CBAUD: u32 = 0o10017;

    pub const ISIG: u32 = 0o1;
    pub const ICANON: u32 = 0o2;
    pub const ECHO: u32 = 0o10;
    pub const ECHOE: u32 = 0o20;
    pub const ECHOK: u32 = 0o40;
    pub const ECHONL: u32 = 0o100;
    pub const NOFLSH: u32 = 0o200;
    pub const TOSTOP: u32 = 0o400;
    pub const ECHOCTL: u32 = 0o1000;
    pub const ECHOPRT: u32 = 0o2000;
    pub const ECHOKE: u32 = 0o4000;
    pub const FLUSHO: u32 = 0o10000;
    pub const PENDIN: u32 = 0o40000;
    pub const IEXTEN: u32 = 0o100000;
    pub const EXTPROC: u32 = 0o200000;

    pub const VINTR: usize = 0;
    pub const VQUIT: usize = 1;
    pub const VERASE: usize = 2;
    pub const VKILL: usize = 3;
    pub const VEOF: usize = 4;
    pub const VTIME: usize = 5;
    pub const VMIN: usize = 6;
    pub const VSWTC: usize = 7;
    pub const VSTART: usize = 8;
    pub const VSTOP: usize = 9;
    pub const VSUSP: usize = 10;
    pub const VEOL: usize = 11;
    pub const VREPRINT: usize = 12;
    pub const VDISCARD: usize = 13;
    pub const VWERASE: usize = 14;
    pub const VLNEXT: usize = 15;
    pub const VEOL2: usize = 16;

    pub const TCGETS: u32 = 0x5401;
    pub const TCSETS: u32 = 0x5402;
    pub const TCSETSW: u32 = 0x5403;
    pub const TCSETSF: u32 = 0x5404;
    pub const TCGETA: u32 = 0x5405;
    pub const TCSETA: u32 = 0x5406;
    pub const TCSETAW: u32 = 0x5407;
    pub const TCSETAF: u32 = 0x5408;
    pub const TCSBRK: u32 = 0x5409;
    pub const TCXONC: u32 = 0x540a;
    pub const TCFLSH: u32 = 0x540b;
    pub const TIOCEXCL: u32 = 0x540c;
    pub const TIOCNXCL: u32 = 0x540d;
    pub const TIOCSCTTY: u32 = 0x540e;
    pub const TIOCGPGRP: u32 = 0x540f;
    pub const TIOCSPGRP: u32 = 0x5410;
    pub const TIOCOUTQ: u32 = 0x5411;
    pub const TIOCSTI: u32 = 0x5412;
    pub const TIOCGWINSZ: u32 = 0x5413;
    pub const TIOCSWINSZ: u32 = 0x5414;
    pub const FIONREAD: u32 = 0x541b;
    pub const FIONBIO: u32 = 0x5421;
    pub const TIOCNOTTY: u32 = 0x5422;
    /// Switches packet mode of a pseudo-terminal's master.
    pub const TIOCPKT: u32 = 0x5420;
    /// Whether packet mode is on.
    pub const TIOCGPKT: u32 = 0x8004_5438;
    pub const TCSBRKP: u32 = 0x5425;
    pub const TIOCGSID: u32 = 0x5429;
    pub const TCGETS2: u32 = 0x802c_542a;
    pub const TCSETS2: u32 = 0x402c_542b;
    pub const TCSETSW2: u32 = 0x402c_542c;
    pub const TCSETSF2: u32 = 0x402c_542d;
    pub const TIOCGPTN: u32 = 0x8004_5430;
    pub const TIOCSPTLCK: u32 = 0x4004_5431;
    pub const TIOCGDEV: u32 = 0x8004_5432;
    pub const TIOCGPTLCK: u32 = 0x8004_5439;
    pub const TIOCGPTPEER: u32 = 0x5441;
    pub const FIONCLEX: u32 = 0x5450;
    pub const FIOCLEX: u32 = 0x5451;
    pub const FIOASYNC: u32 = 0x5452;
    pub const FIOQSIZE: u32 = 0x5460;

    pub const TCOOFF: u64 = 0;
    pub const TCOON: u64 = 1;
    pub const TCIOFF: u64 = 2;
    pub const TCION: u64 = 3;
    pub const TCIFLUSH: u64 = 0;
    pub const TCOFLUSH: u64 = 1;
    pub const TCIOFLUSH: u64 = 2;
}

/// `struct termio`, which older programs use: the lower halves of the flags, and eight characters.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OldTermios {
    /// Input, output, control and local flags.
    pub flags: [u16; 4],
    /// Line discipline.
    pub line: u8,
    /// Control characters.
    pub characters: [u8; 8],
    /// Always zero.
    pub padding: u8,
}

impl OldTermios {
    /// What fits of the settings.
    pub fn of(settings: &Termios) -> OldTermios {
        let Termios { input, output, control, local, line, characters } = *settings;
        let mut old = OldTermios {
            flags: [input as u16, output as u16, control as u16, local as u16],
            line,
            ..OldTermios::default()
        };
        old.characters.iter_mut().zip(characters).for_each(|(to, from)| *to = from);
        old
    }

    /// Changes what it holds of the settings.
    pub fn put_into(&self, settings: &mut Termios) {
        let [input, output, control, local] = self.flags;
        let low = |whole: &mut u32, part: u16| *whole = *whole & !0xffff | u32::from(part);
        low(&mut settings.input, input);
        low(&mut settings.output, output);
        low(&mut settings.control, control);
        low(&mut settings.local, local);
        settings.line = self.line;
        settings.characters.iter_mut().zip(self.characters).for_each(|(to, from)| *to = from);
    }
}

impl Termios {
    /// What Linux gives a fresh terminal: canonical input with echo and signals, CR to NL on input,
    /// NL to CR NL on output, 38400 bits per second, eight bits.
    pub const fn fresh() -> Termios {
        use names::*;
        Termios {
            input: ICRNL | IXON,
            output: OPOST | ONLCR,
            control: B38400 | CS8 | CREAD | HUPCL,
            local: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            line: 0,
            characters: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_size_of_linux() {
        assert_eq!(size_of::<Termios>(), 36);
        assert_eq!(size_of::<Termios2>(), 44);
        assert_eq!(size_of::<WindowSize>(), 8);
    }
}

/// First bytes of the packets that a master reads (`TIOCPKT_...`); 0 comes before output.
pub mod packet {
    /// Input was flushed.
    pub const FLUSH_READ: u8 = 1;
    /// Output was flushed.
    pub const FLUSH_WRITE: u8 = 2;
    /// Output is stopped.
    pub const STOP: u8 = 4;
    /// Output goes on.
    pub const START: u8 = 8;
}
