//! Bare metal.
