//! The caller's terminal: raw while a program of the guest has it, and restored in every case.

use std::os::fd::BorrowedFd;

use abi::console::WindowSize;
use rustix::termios::{self, OptionalActions, Termios};

/// Numbers of the standard descriptors that are terminals, bit n for descriptor n.
pub fn mask() -> u32 {
    let descriptors = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let mut mask = 0;
    for (bit, descriptor) in descriptors.into_iter().enumerate() {
        if termios::isatty(descriptor) {
            mask |= 1 << bit;
        }
    }
    mask
}

/// A terminal among the standard descriptors, the one for input first.
pub fn any() -> Option<BorrowedFd<'static>> {
    [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]
        .into_iter()
        .find(|descriptor| termios::isatty(descriptor))
}

/// The size of the caller's terminal; zeros when there is none.
pub fn window() -> WindowSize {
    let size = any().and_then(|terminal| termios::tcgetwinsize(terminal).ok());
    size.map_or(WindowSize::default(), |size| WindowSize {
        rows: size.ws_row,
        columns: size.ws_col,
        width_pixels: size.ws_xpixel,
        height_pixels: size.ws_ypixel,
    })
}

/// Whether this process may read from its terminal without being stopped.
pub fn in_foreground() -> bool {
    termios::tcgetpgrp(rustix::stdio::stdin())
        .is_ok_and(|foreground| foreground == rustix::process::getpgrp())
}

/// A terminal in raw mode; dropping it restores the mode before.
pub struct RawMode {
    saved: Termios,
}

impl RawMode {
    /// Makes standard input raw when it is a terminal and ours to read.
    pub fn enter() -> Option<RawMode> {
        if !termios::isatty(rustix::stdio::stdin()) || !in_foreground() {
            return None;
        }
        let mode = RawMode { saved: termios::tcgetattr(rustix::stdio::stdin()).ok()? };
        mode.apply();
        Some(mode)
    }

    /// Makes it raw again, for somebody may have changed it while we were stopped.
    pub fn apply(&self) {
        let mut raw = self.saved.clone();
        raw.make_raw();
        // A terminal that is gone needs no mode; here and below.
        let _ = termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw);
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.saved);
    }
}
