//! The peer: Debian's cloud kernel, fetched as a package and unpacked, not installed.
//!
//! Linux is told the rate of the time stamp counter, which under emulation is the host's. By itself it
//! would measure it against the emulated PIT in the first milliseconds, which fails whenever the host is
//! busy just then; microvm has nothing else to measure against, and without a rate that boot hangs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::boot::{self, Running};
use crate::machine::find_qemu;

/// The package that depends on the newest cloud kernel.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// The measurement of the time stamp counter never takes longer than this.
const DEADLINE: Duration = Duration::from_secs(20);

/// What Linux does against attacks through the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mitigations {
    /// Nothing, which makes it the harder peer.
    Off,
    /// What it does by itself.
    Defaults,
}

/// One boot of the peer.
pub struct Boot<'a> {
    /// Its root file system.
    pub initramfs: &'a Path,
    /// What it does against attacks.
    pub mitigations: Mitigations,
    /// More words for the kernel's command line.
    pub words: &'a str,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_mib: u32,
    /// A plugin of QEMU with its options.
    pub plugin: Option<String>,
}

/// A Linux kernel to boot.
pub struct Peer {
    kernel: PathBuf,
    /// Rate of the time stamp counter of this host.
    tsc_khz: u32,
}

impl Peer {
    /// The kernel in `cache`, fetched there if it is missing. `program` is the guest program, which
    /// also measures this host's time stamp counter.
    pub fn fetch(cache: &Path, program: &Path) -> Result<Peer> {
        let tsc_khz = measure_tsc_khz(program)?;
        if let Some(kernel) = unpacked_kernel(cache) {
            return Ok(Peer { kernel, tsc_khz });
        }
        eprintln!("ferry bench: fetching Debian's {PACKAGE}, the peer, into {}", cache.display());
        std::fs::create_dir_all(cache)?;
        let image = kernel_package()?;
        shell(Command::new("apt-get").args(["-qq", "download", &image]).current_dir(cache))?;
        for entry in std::fs::read_dir(cache)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                shell(Command::new("dpkg-deb").arg("-x").arg(&path).arg(cache))?;
                std::fs::remove_file(&path)?;
            }
        }
        let kernel = unpacked_kernel(cache).with_context(|| {
            format!("the package {image} has no /boot/vmlinuz-* (looked in {})", cache.display())
        })?;
        Ok(Peer { kernel, tsc_khz })
    }

    /// Starts QEMU with Linux in it; what Linux prints on its serial port is the output.
    pub fn start(&self, boot: &Boot<'_>, deadline: Duration) -> Result<Running> {
        let mitigations = match boot.mitigations {
            Mitigations::Off => "mitigations=off",
            Mitigations::Defaults => "",
        };
        let append = format!(
            "console=ttyS0 quiet loglevel=0 panic=-1 {mitigations} tsc=reliable \
             tsc_early_khz={} {}",
            self.tsc_khz, boot.words
        );
        let mut command = Command::new(find_qemu()?);
        command
            .args(["-M", "microvm,rtc=on,pit=on,isa-serial=on", "-accel", "tcg,thread=multi"])
            .args(["-cpu", "max", "-smp", &boot.cpus.to_string()])
            .args(["-m", &format!("{}M", boot.memory_mib)])
            .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(boot.initramfs)
            .args(["-append", &append]);
        if let Some(plugin) = &boot.plugin {
            command.args(["-plugin", plugin]);
        }
        Running::start(&mut command, "Linux in QEMU", deadline)
    }

    /// The kernel's file.
    pub fn kernel(&self) -> &Path {
        &self.kernel
    }
}

fn measure_tsc_khz(program: &Path) -> Result<u32> {
    let mut command = Command::new(program);
    let run = boot::run(command.arg("tsc-khz"), "the measurement of the TSC", DEADLINE)?;
    let text = run.output.trim();
    text.parse().with_context(|| format!("{text:?} is no rate of a time stamp counter, in kHz"))
}

/// Name of the package that really holds the newest cloud kernel.
fn kernel_package() -> Result<String> {
    let output = Command::new("apt-cache")
        .args(["depends", PACKAGE])
        .output()
        .context("cannot run apt-cache: the peer is a Debian package")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    match found.map(str::trim).find(|name| name.starts_with("linux-image-")) {
        Some(name) => Ok(name.to_owned()),
        None => bail!("apt-cache does not know {PACKAGE}: run `apt-get update` and try again"),
    }
}

fn unpacked_kernel(cache: &Path) -> Option<PathBuf> {
    let mut kernels: Vec<PathBuf> = std::fs::read_dir(cache.join("boot"))
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
        })
        .collect();
    kernels.sort();
    kernels.pop()
}

fn shell(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
