//! The kernel's global allocator.
