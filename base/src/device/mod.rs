//! What drivers offer, and what they are built on. Drivers, file systems and network meet here and
//! nowhere else.

use core::task::Waker;

use crate::wait::Registration;

/// A stream of bytes in both directions that never waits, such as a port of the console.
pub trait ByteChannel: Send + Sync {
    /// Hands bytes to the device; how many it took. 0 when it is full.
    fn send(&self, bytes: &[u8]) -> usize;

    /// Takes bytes that arrived; how many. 0 when there are none.
    fn receive(&self, into: &mut [u8]) -> usize;

    /// Looks at the device without waiting for its interrupt. True when bytes can be received or the
    /// device has taken bytes since the last look.
    fn poll(&self) -> bool;

    /// Wakes `waker` whenever bytes arrive or the device has taken some, until dropped.
    fn watch(&self, waker: &Waker) -> Registration;
}
