//! The virtual machine: QEMU's command line, its start and its certain end.
//!
//! QEMU gets two sockets that it inherits: the console channel and the kernel's serial log. It runs
//! in a process group of its own, so that a terminal's Ctrl-C does not reach it, and it is killed by
//! the host's kernel when this tool ends in whatever way: a small launcher process arranges that and
//! then becomes QEMU.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::status::Unavailable;

/// Name of the hidden subcommand that becomes QEMU.
pub const LAUNCH_COMMAND: &str = "launch-machine";

/// Names another program to use as QEMU.
const QEMU_VARIABLE: &str = "FERRY_QEMU";
const QEMU: &str = "qemu-system-x86_64";

/// Send buffer of QEMU's end of the channel, in bytes: room for every output window at once.
const CHANNEL_BUFFER: usize = 1 << 20;

/// What to boot.
pub struct Machine<'a> {
    /// The kernel's ELF file.
    pub kernel: &'a Path,
    /// The initramfs.
    pub initramfs: &'a File,
    /// The kernel's command line.
    pub command_line: String,
    /// Number of cores.
    pub cpus: usize,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// A file of that size to be the memory, where somebody looks into it.
    pub memory: Option<&'a File>,
    /// Whether it is to run the same way each time.
    pub determinism: Option<&'a Determinism>,
    /// A plugin of QEMU with its options.
    pub plugin: Option<String>,
    /// Directories of this machine that the guest sees.
    pub shares: Vec<SharedDirectory>,
    /// Options of QEMU for its disks.
    pub disks: Vec<OsString>,
}

/// How a machine is made to run the same way each time: one thread runs all cores in turn, and time is counted
/// in instructions.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Determinism {
    /// What the machine's random numbers follow from.
    pub seed: u32,
    /// The date at its start, as `-rtc base` has it.
    pub date: String,
}

impl Determinism {
    /// The options of QEMU for it. One instruction takes 2^3 ns; when no core has anything to do, time goes on
    /// to the next timer at once.
    fn arguments(&self) -> [OsString; 8] {
        let date = format!("base={},clock=vm", self.date);
        [
            "-icount".into(),
            "shift=3,sleep=off".into(),
            "-seed".into(),
            self.seed.to_string().into(),
            "-rtc".into(),
            date.into(),
            "-name".into(),
            "ferry,debug-threads=on".into(),
        ]
    }
}

/// A value within an option of QEMU, which takes two commas for one that belongs to the value.
pub fn quoted(value: &OsStr) -> OsString {
    let mut quoted = OsString::new();
    for (index, part) in value.as_bytes().split(|&byte| byte == b',').enumerate() {
        quoted.push(if index > 0 { ",," } else { "" });
        quoted.push(OsStr::from_bytes(part));
    }
    quoted
}

/// A directory of this machine that the guest sees.
pub struct SharedDirectory {
    /// Where it is.
    pub path: PathBuf,
    /// By which the guest knows it.
    pub tag: String,
    /// QEMU itself refuses to change it.
    pub is_read_only: bool,
}

impl SharedDirectory {
    /// The options of QEMU for it.
    fn arguments(&self) -> [OsString; 4] {
        let mut server = OsString::from(format!("local,id={},security_model=none,", self.tag));
        server.push(if self.is_read_only { "readonly=on," } else { "" });
        // Inodes of several file systems of the host get numbers of their own.
        server.push("multidevs=remap,path=");
        server.push(quoted(self.path.as_os_str()));
        let device = format!("virtio-9p-device,fsdev={0},mount_tag={0}", self.tag);
        ["-fsdev".into(), server, "-device".into(), device.into()]
    }
}

/// A QEMU that runs. Dropping it kills QEMU and waits for its end.
pub struct Running {
    child: Child,
}

/// What connects a running machine with the tool.
pub struct Connections {
    /// The console channel.
    pub channel: UnixStream,
    /// The kernel's log, as the serial port sends it.
    pub serial: UnixStream,
    /// What QEMU itself has to say.
    pub messages: std::process::ChildStderr,
}

/// Starts QEMU.
pub fn start(machine: &Machine<'_>) -> Result<(Running, Connections)> {
    find_kernel(machine.kernel)?;
    let qemu = find_qemu()?;
    let (channel, guest_channel) = inherited_pair()?;
    let (serial, guest_serial) = inherited_pair()?;
    // Best effort: a smaller buffer still holds the windows of the protocol.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&guest_channel, CHANNEL_BUFFER);
    rustix::io::fcntl_setfd(machine.initramfs, FdFlags::empty())?;

    let mut command = Command::new(std::env::current_exe()?);
    command.arg(LAUNCH_COMMAND).arg(std::process::id().to_string()).arg("--").arg(&qemu);
    let pit = if machine.determinism.is_some() { "off" } else { "on" };
    let mut board = format!("microvm,rtc=on,pit={pit},isa-serial=on");
    if let Some(memory) = machine.memory {
        rustix::io::fcntl_setfd(memory, FdFlags::empty())?;
        let (number, size) = (memory.as_raw_fd(), machine.memory_mib);
        let object = format!(
            "memory-backend-file,id=ram,share=on,size={size}M,mem-path=/proc/self/fd/{number}"
        );
        command.args(["-object", &object]);
        board.push_str(",memory-backend=ram");
    }
    // With one thread, `pause` is what lets the next core run, and the kernel uses it where the processor does
    // not say that it is emulated.
    let (threads, model) = match machine.determinism {
        Some(_) => ("tcg,thread=single", "max,tcg-cpuid=off"),
        None => ("tcg,thread=multi", "max"),
    };
    command.args(["-M", &board, "-accel", threads]);
    command.args(["-cpu", model, "-smp", &machine.cpus.to_string()]);
    command.args(["-m", &format!("{}M", machine.memory_mib)]);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.arg("-kernel").arg(machine.kernel);
    command.args(["-initrd", &format!("/proc/self/fd/{}", machine.initramfs.as_raw_fd())]);
    command.args(["-append", &machine.command_line]);
    command.args(["-chardev", &format!("socket,id=log,fd={}", guest_serial.as_raw_fd())]);
    command.args(["-serial", "chardev:log"]);
    command.args(["-chardev", &format!("socket,id=console,fd={}", guest_channel.as_raw_fd())]);
    command.args(["-device", "virtio-serial-device,max_ports=1"]);
    command.args(["-device", "virtconsole,chardev=console,nr=0"]);
    if let Some(determinism) = machine.determinism {
        command.args(determinism.arguments());
    }
    for share in &machine.shares {
        command.args(share.arguments());
    }
    command.args(&machine.disks);
    if let Some(plugin) = &machine.plugin {
        command.args(["-plugin", plugin]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);

    let mut child = command.spawn().context("cannot start QEMU")?;
    let messages = child.stderr.take();
    for file in [Some(machine.initramfs), machine.memory].into_iter().flatten() {
        rustix::io::fcntl_setfd(file, FdFlags::CLOEXEC)?;
    }
    let running = Running { child };
    let messages = messages.context("QEMU has no standard error")?;
    Ok((running, Connections { channel, serial, messages }))
}

/// A pair of connected sockets: ours, which no child inherits, and one for QEMU.
fn inherited_pair() -> Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .context("cannot make a socket")?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
    Ok((UnixStream::from(ours), theirs))
}

/// An error that says what to do when there is no kernel.
pub fn find_kernel(kernel: &Path) -> Result<()> {
    if !kernel.is_file() {
        let kernel = kernel.display();
        let message = format!("there is no kernel at {kernel}; build it with ./ferry build");
        return Err(Unavailable(message).into());
    }
    Ok(())
}

/// The QEMU that runs machines; an error that says what to install when there is none.
pub fn find_qemu() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os(QEMU_VARIABLE) {
        return Ok(program.into());
    }
    crate::image::find_in_path(Path::new(QEMU)).ok_or_else(|| {
        let message = format!("{QEMU} is not in PATH; install the package qemu-system-x86");
        Unavailable(message).into()
    })
}

impl Running {
    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills QEMU; it needs nothing to be saved.
    pub fn kill(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        drop(self.child.wait());
    }
}

/// Arguments of the hidden subcommand.
#[derive(clap::Args)]
pub struct LaunchArguments {
    /// Process that must outlive QEMU.
    parent: i32,
    /// QEMU and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Binds this process to the life of its parent and becomes QEMU.
pub fn launch(arguments: &LaunchArguments) -> Result<u8> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
    if parent != Some(arguments.parent) {
        bail!("the parent has ended");
    }
    let [program, rest @ ..] = arguments.command.as_slice() else { bail!("no program given") };
    let error = Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("cannot run {}", Path::new(program).display()))
}
