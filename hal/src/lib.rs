//! hal
