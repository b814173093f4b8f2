//! `SpaceGuard`: the lock of an address space, and what was taken out under it.
//!
//! An area that is unmapped may hold the last reference to a file, and closing a file takes locks that
//! come before the lock of a space. So areas that refer to anything are kept in the space until the
//! guard ends, which unlocks first and lets go of them then.

use alloc::vec::Vec;
use base::sync::MutexGuard;
use core::mem;
use core::ops::{Deref, DerefMut};

use super::area::Area;
use super::space::Inner;

/// Exclusive access to what the space lock guards.
pub(super) struct SpaceGuard<'a> {
    /// Declared before `removed`, so it is dropped before it.
    inner: MutexGuard<'a, Inner>,
    removed: Vec<(u64, Area)>,
}

impl<'a> SpaceGuard<'a> {
    pub(super) fn new(inner: MutexGuard<'a, Inner>) -> SpaceGuard<'a> {
        SpaceGuard { inner, removed: Vec::new() }
    }
}

impl Drop for SpaceGuard<'_> {
    fn drop(&mut self) {
        self.removed = mem::take(&mut self.inner.removed);
    }
}

impl Deref for SpaceGuard<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for SpaceGuard<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}
