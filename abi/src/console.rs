//! The console channel: how the host tool and the kernel talk over one virtio-console port.
//!
//! Both directions carry frames: an eight-byte header, then `length` bytes of payload. One ordered
//! channel means that a program's last output always arrives before its exit status. Nothing here is
//! seen by programs.
//!
//! Host to kernel: `Start` once, then `Stdin`, `StdinEnd`, `WindowSize`, `Terminate`.
//! Kernel to host: `Stdout`, `Stderr`, `StdinCredit`, `Log`, and last `Exit`.
//!
//! Flow control: the host may send at most as many `Stdin` bytes as the kernel has granted by
//! `StdinCredit`; so an unread stdin never blocks a window-size change behind it. Output is bounded
//! by the virtqueue: the kernel waits while the host does not read.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of this protocol; the host sends it in `Start` and the kernel refuses any other.
pub const PROTOCOL_VERSION: u32 = 1;

/// Longest payload of one frame, in bytes, except `Start`, which may have `MAX_START` bytes.
pub const MAX_PAYLOAD: usize = 4096;

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
    /// Host to kernel: what to run. Payload: `StartHeader`, then `argument_count` NUL-terminated
    /// arguments, then `environment_count` NUL-terminated `K=V` strings, then the NUL-terminated
    /// working directory.
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
    /// Kernel to host: bytes of the program's standard output.
    Stdout = 17,
    /// Kernel to host: bytes of the program's standard error.
    Stderr = 18,
    /// Kernel to host: the host may send this many (u32) more `Stdin` bytes.
    StdinCredit = 19,
    /// Kernel to host: the program has ended. Payload: `ExitReport`.
    Exit = 20,
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
            17 => FrameKind::Stdout,
            18 => FrameKind::Stderr,
            19 => FrameKind::StdinCredit,
            20 => FrameKind::Exit,
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
    /// become the guest's console terminal; the others become plain byte streams.
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

/// How the program ended.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExitReport {
    /// One of the `EXIT_` constants.
    pub reason: u32,
    /// Exit status, signal number or `Errno` number, as `reason` says.
    pub value: u32,
}

/// The program called exit; `value` is its status (0 to 255).
pub const EXIT_STATUS: u32 = 0;
/// The program was killed; `value` is the signal.
pub const EXIT_SIGNAL: u32 = 1;
/// The program could not be started; `value` is the error number of execve.
pub const EXIT_NOT_STARTED: u32 = 2;
