//! The only file that looks at the architecture.

#[cfg(all(target_os = "none", target_arch = "x86_64"))]
#[path = "x86_64/mod.rs"]
mod chosen;

#[cfg(not(target_os = "none"))]
#[path = "hosted/mod.rs"]
mod chosen;

/// The machine that this build is for.
pub use chosen::Machine;

/// Controls of the hosted machine, for tests.
#[cfg(not(target_os = "none"))]
pub use chosen::control as hosted;
