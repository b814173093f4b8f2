//! The kernel image. Everything is in the library; this names the function that the machine starts.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

hal::entry!(kernel::boot::main);
