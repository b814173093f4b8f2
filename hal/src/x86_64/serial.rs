//! The first serial port (16550) as the log device: polled, write-only.

use super::cpu::{in8, out8};
use super::lock::SpinLock;

const PORT: u16 = 0x3f8;
const LINE_STATUS: u16 = PORT + 5;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
/// Tries before a byte is given up: a port that is absent or stuck must not stop the kernel.
const PATIENCE: u32 = 100_000;
/// Tries for the lock before bytes are written without it: longer than another core's longest message.
const LOCK_PATIENCE: u32 = 5_000_000;

static LOCK: SpinLock<()> = SpinLock::new(());

/// Sets 115200 baud, 8N1, FIFO on, interrupts off.
pub(super) fn set_up() {
    for (register, value) in
        [(1, 0x00), (3, 0x80), (0, 0x01), (1, 0x00), (3, 0x03), (2, 0xc7), (4, 0x03)]
    {
        // SAFETY: these ports belong to the serial port or to nothing.
        unsafe { out8(PORT + register, value) };
    }
}

/// Writes bytes, waiting for the port. Bytes of one call stay together.
pub(super) fn write(bytes: &[u8]) {
    // A panic while the lock is held must still be heard, so waiting has an end.
    let _guard = LOCK.lock_for(LOCK_PATIENCE);
    for &byte in bytes {
        if byte == b'\n' {
            put(b'\r');
        }
        put(byte);
    }
}

fn put(byte: u8) {
    for _ in 0..PATIENCE {
        // SAFETY: reads the state of the port.
        if unsafe { in8(LINE_STATUS) } & TRANSMITTER_EMPTY != 0 {
            break;
        }
    }
    // SAFETY: the port is the serial port's data register.
    unsafe { out8(PORT, byte) };
}
