//! Builds the kernel image: with Debian's compiler, because that one carries the sources of `core`
//! and `alloc`, which are compiled with unwinding tables so that a panic in a handler can be caught.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The target that the kernel is compiled for.
const TARGET: &str = "x86_64-unknown-none";

/// Flags of the compiler that make a freestanding, statically linked, unwindable kernel.
const COMPILER_FLAGS: &[&str] = &[
    "-Clinker=ld.lld",
    "-Clinker-flavor=ld.lld",
    "-Clink-arg=-Thal/src/x86_64/link.ld",
    "-Clink-arg=--no-dynamic-linker",
    "-Clink-arg=--eh-frame-hdr",
    "-Crelocation-model=static",
    "-Ccode-model=kernel",
    "-Cforce-frame-pointers=yes",
    "-Cpanic=unwind",
    "-Cforce-unwind-tables=yes",
];

/// What the kernel that users run is built with beyond its profile, which it shares with the tools: as
/// one piece, because a call passes through four crates on its way, mostly in functions of a few
/// instructions.
const RELEASE_SETTINGS: &[(&str, &str)] =
    &[("CARGO_PROFILE_RELEASE_LTO", "thin"), ("CARGO_PROFILE_RELEASE_INCREMENTAL", "false")];

/// Where the kernel of a profile lies once it is built.
pub fn path(root: &Path, profile: &str) -> PathBuf {
    root.join("target/kernel").join(TARGET).join(profile).join("ferry-kernel")
}

/// Builds the kernel with `profile` (`release` or `checked`); output of the compiler goes to stderr.
pub fn build(root: &Path, profile: &str, quiet: bool) -> Result<PathBuf> {
    let compiler = tool("FERRY_KERNEL_RUSTC", "/usr/bin/rustc");
    let cargo = tool("FERRY_KERNEL_CARGO", "/usr/bin/cargo");
    let settings = if profile == "release" { RELEASE_SETTINGS } else { &[] };
    let status = Command::new(&cargo)
        .current_dir(root)
        .args(["build", "--package", "kernel", "--bin", "ferry-kernel", "--target", TARGET])
        .args(["-Zbuild-std=core,alloc,compiler_builtins"])
        .args(["-Zbuild-std-features=compiler-builtins-mem"])
        .args(["--target-dir", "target/kernel", "--profile", profile])
        .args(quiet.then_some("--quiet"))
        .envs(settings.iter().copied())
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTC", &compiler)
        .env("RUSTFLAGS", COMPILER_FLAGS.join(" "))
        // Set by an outer cargo for its own tool chain; they would mislead this one.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env_remove("RUSTC_WRAPPER")
        .status()
        .with_context(|| {
            format!("cannot run {cargo}: install the packages rustc-web cargo-web rust-web-src lld")
        })?;
    if !status.success() {
        bail!("the kernel does not build ({status})");
    }
    Ok(path(root, profile))
}

/// A tool of the kernel's tool chain: from the environment, else Debian's.
fn tool(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_string())
}
