//! What differs between architectures in the Linux ABI, as plain data.

pub mod x86_64;
