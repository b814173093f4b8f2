//! The console channel: how the host tool and the kernel talk over one virtio-console port.
//!
//! Both directions carry frames: an eight-byte header, then `length` bytes of payload. One ordered
//! channel means that a program's last output always arrives before its exit status. Nothing here is
//! seen by programs.
//!
//! Host to kernel: `Start` once, then `Stdin`, `StdinEnd`, `OutputCredit`, `OutputClosed`,
//! `WindowSize`, `Terminate`. Kernel to host: `Stdout`, `Stderr`, `Terminal`, `StdinCredit`,
//! `Stages`, `Counters`, and last `Exit`. A receiver ignores kinds that it does not know.
//!
//! Flow control, both ways, so that no stream blocks another:
//! - the host sends at most as many `Stdin` bytes as the kernel has granted by `StdinCredit`;
//! - of each output stream at most `OUTPUT_WINDOW` frames are unanswered: the kernel starts with that
//!   many credits per stream, pays one per frame, and gets them back by `OutputCredit` when the host
//!   has passed the bytes on. QEMU's console port *drops* what its back end cannot take at once;
//!   this window keeps the back end from ever being full.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of this protocol; the host sends it in `Start` and the kernel refuses any other.
pub const PROTOCOL_VERSION: u32 = 1;

/// Longest payload of one frame, in bytes, except `Start`, which may have `MAX_START` bytes.
pub const MAX_PAYLOAD: usize = 4096;

/// Output frames of one stream that may be on their way, not yet answered by `OutputCredit`.
pub const OUTPUT_WINDOW: u32 = 8;

/// Longest payload of a `Start` frame, in bytes (arguments and environment of the program).
pub const MAX_START: usize = 1 << 21;

/// The header of a frame, little-endian.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FrameHeader {
    /// A `FrameKind`.
    pub kind: u32,
    /// Payload bytes that follow.
    pub length: u32,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FrameKind {
    /// Host to kernel: what to run. Payload: `StartHeader`, then NUL-terminated strings: the path
    /// of the program (as for execve; no search), the working directory, `argument_count`
    /// arguments (the first is the program's name as it was typed), `environment_count` strings
    /// `K=V`.
    Start = 1,
    /// Host to kernel: bytes for the program's standard input.
    Stdin = 2,
    /// Host to kernel: standard input has ended. No payload.
    StdinEnd = 3,
    /// Host to kernel: `WindowSize` of the terminal.
    WindowSize = 4,
    /// Host to kernel: stop now (timeout, interrupt of the tool). Payload: u32 signal number that
    /// is sent to the program's session.
    Terminate = 5,
    /// Host to kernel: `OutputCredit`, frames of an output stream that have been passed on.
    OutputCredit = 6,
    /// Host to kernel: `OutputClosed`, nobody reads this output stream any more.
    OutputClosed = 7,
    /// Kernel to host: bytes of the program's standard output.
    Stdout = 17,
    /// Kernel to host: bytes of the program's standard error.
    Stderr = 18,
    /// Kernel to host: the host may send this many (u32) more `Stdin` bytes.
    StdinCredit = 19,
    /// Kernel to host: the program has ended. Payload: `ExitReport`.
    Exit = 20,
    /// Kernel to host: what the guest's console terminal shows (output of programs that write to
    /// it, and echo). The host writes it to whichever of its descriptors is a terminal.
    Terminal = 21,
    /// Kernel to host: what a core did during the run. Payload: `CoreCounters`. One frame per core,
    /// just before `Exit`.
    Counters = 22,
    /// Kernel to host: where the time of one kind of call went. Payload: `StageTotals`. One frame per
    /// kind of call, before `Counters`, if the kernel was asked to time the stages.
    Stages = 23,
    /// Kernel to host: where the rings of trace records are. Payload: `trace::ring::Rings`. Once, before the
    /// program starts, if calls are traced.
    Trace = 24,
}

impl FrameKind {
    /// The kind with this number, if there is one.
    pub const fn from_number(number: u32) -> Option<FrameKind> {
        Some(match number {
            1 => FrameKind::Start,
            2 => FrameKind::Stdin,
            3 => FrameKind::StdinEnd,
            4 => FrameKind::WindowSize,
            5 => FrameKind::Terminate,
            6 => FrameKind::OutputCredit,
            7 => FrameKind::OutputClosed,
            17 => FrameKind::Stdout,
            18 => FrameKind::Stderr,
            19 => FrameKind::StdinCredit,
            20 => FrameKind::Exit,
            21 => FrameKind::Terminal,
            22 => FrameKind::Counters,
            23 => FrameKind::Stages,
            24 => FrameKind::Trace,
            _ => return None,
        })
    }
}

/// Fixed part of a `Start` frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StartHeader {
    /// `PROTOCOL_VERSION`.
    pub version: u32,
    /// Bit n is set when the host's file descriptor n (0 to 2) is a terminal. Those descriptors
    /// become the guest's console terminal (`Terminal` frames; `Stdin` frames feed it when bit 0 is
    /// set); the others become plain byte streams (`Stdin`, `Stdout`, `Stderr`).
    pub terminals: u32,
    /// Number of arguments, the program's name included.
    pub argument_count: u32,
    /// Number of environment strings.
    pub environment_count: u32,
    /// Size of the terminal, if there is one.
    pub window: WindowSize,
}

/// Size of a terminal, laid out as Linux's `struct winsize`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct WindowSize {
    /// Rows, in characters.
    pub rows: u16,
    /// Columns, in characters.
    pub columns: u16,
    /// Width, in pixels (0 when unknown).
    pub width_pixels: u16,
    /// Height, in pixels (0 when unknown).
    pub height_pixels: u16,
}

/// Payload of `OutputCredit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OutputCredit {
    /// Which stream: the number of its frame kind (`Stdout`, `Stderr` or `Terminal`).
    pub stream: u32,
    /// Frames that have been passed on.
    pub frames: u32,
}

/// Payload of `OutputClosed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OutputClosed {
    /// Which stream: the number of its frame kind (`Stdout`, `Stderr` or `Terminal`).
    pub stream: u32,
    /// The error number that later writes to the stream get; `EPIPE` comes with `SIGPIPE`.
    pub error: u32,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExitReport {
    /// One of the `EXIT_` constants.
    pub reason: u32,
    /// Exit status, signal number or `Errno` number, as `reason` says.
    pub value: u32,
}

/// Names of the counters of a core, in the order of `CoreCounters::values`.
pub const CORE_COUNTERS: [&str; 10] = [
    "traps",
    "local",
    "remote",
    "posted",
    "doorbells",
    "interrupts",
    "switches",
    "parks",
    "visits",
    "hits",
];

/// What a core did since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CoreCounters {
    /// Index of the core.
    pub core: u32,
    /// 0.
    pub reserved: u32,
    /// How often each of `CORE_COUNTERS` happened.
    pub values: [u64; CORE_COUNTERS.len()],
}

/// How a call was carried, in `StageTotals`.
pub mod call_way {
    /// Carried out on the caller's core.
    pub const LOCAL: usize = 0;
    /// Trapped and sent to another core.
    pub const REMOTE: usize = 1;
    /// Posted.
    pub const POSTED: usize = 2;
    /// How many there are.
    pub const COUNT: usize = 3;
    /// Their names.
    pub const NAMES: [&str; COUNT] = ["local", "remote", "posted"];
}

/// Where the time of one kind of call went since boot, in nanoseconds, all calls together. A stage that
/// cannot be told is 0: the kernel does not see a posted call come and go, nor what lies before the
/// trap and behind the return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StageTotals {
    /// Number of the call.
    pub number: u32,
    /// One of `call_way`.
    pub way: u32,
    /// How many calls.
    pub calls: u64,
    /// From the trap to the request's being sent.
    pub enter_ns: u64,
    /// Until another core took it.
    pub fly_in_ns: u64,
    /// Until it was carried out, waits included.
    pub handle_ns: u64,
    /// Until the caller's core saw the answer.
    pub fly_out_ns: u64,
}

/// The program called exit; `value` is its status (0 to 255).
pub const EXIT_STATUS: u32 = 0;
/// The program was killed; `value` is the signal.
pub const EXIT_SIGNAL: u32 = 1;
/// The program could not be started; `value` is the error number of execve.
pub const EXIT_NOT_STARTED: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_kinds_agree() {
        for number in 0..64 {
            if let Some(kind) = FrameKind::from_number(number) {
                assert_eq!(kind as u32, number);
            }
        }
    }

    #[test]
    fn the_wire_layout_is_fixed() {
        let header = FrameHeader { kind: FrameKind::Stdout as u32, length: 3 };
        assert_eq!(header.as_bytes(), [17, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(size_of::<StartHeader>(), 24);
        assert_eq!(size_of::<ExitReport>(), 8);
        assert_eq!(size_of::<CoreCounters>(), 88);
        assert_eq!(size_of::<StageTotals>(), 48);
    }
}
