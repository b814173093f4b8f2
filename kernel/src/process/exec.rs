//! `execve` and `execveat`: a new program in an old process.
//!
//! Everything that can fail happens first: the file is found and checked, the new address space is
//! built beside the old one. Then the other threads of the process are made to end, and from there on
//! nothing can fail: the thread takes the leader's number, the new space, fresh signal handlers and the
//! credentials that the file gives, and its marked descriptors are closed.
//!
//! Left out: capabilities of files, `binfmt_misc`.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use abi::Errno;
use abi::fs::mount::MS_NOSUID;
use abi::fs::{AT_FDCWD, AtFlags, S_ISGID, S_ISUID};
use abi::signal::Signal;
use base::memory::Frame;
use base::sync::{Mutex, rank};
use base::user::{self, UserContext};
use fs::file::WriteDenial;
use fs::walk::{Lookup, resolve};
use fs::{Location, NodeKind};
use hal::UserContext as _;

use super::credentials::Credentials;
use super::process::{DUMPABLE, NOT_DUMPABLE};
use super::thread::Thread;
use super::{exit, table};
use crate::call::{Call, SysResult};
use crate::memory::{
    self, FileSource, LimitValues, LoadRequest, PageSource, ProgramFile, ProgramLookup, StringList,
};
use crate::posted;
use crate::process::Resource;

const PATH_LIMIT: usize = 4096;
/// Execution by the group, without which the set-group bit means something else.
const GROUP_EXECUTE: u32 = 0o010;
/// Personality bits that a program with new privileges must not inherit.
const PERSONALITY_CLEARED: u32 = 0x0040_0000 | 0x0020_0000 | 0x0010_0000 | 0x0004_0000;

/// The pages of a file that is executed, which keep it from being written while they are in use.
struct ExecutedFile {
    pages: Arc<FileSource>,
    _denial: WriteDenial,
}

impl PageSource for ExecutedFile {
    fn size(&self) -> u64 {
        self.pages.size()
    }

    fn page(&self, index: u64) -> Result<Frame, Errno> {
        self.pages.page(index)
    }

    fn pages_present(&self, first: u64, into: &mut [Option<Frame>]) {
        self.pages.pages_present(first, into);
    }

    fn device(&self) -> u64 {
        self.pages.device()
    }

    fn inode(&self) -> u64 {
        self.pages.inode()
    }

    fn identity(&self) -> u64 {
        self.pages.identity()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        self.pages.read_at(offset, into)
    }
}

/// Finds programs and their interpreters for one thread, and remembers where they were.
struct Finder<'a> {
    thread: &'a Thread,
    found: Mutex<Vec<(Vec<u8>, Location)>>,
}

impl Finder<'_> {
    fn new(thread: &Thread) -> Finder<'_> {
        Finder { thread, found: Mutex::new(&rank::THREAD, Vec::new()) }
    }

    fn resolve(
        &self,
        path: &[u8],
        start: Option<&Location>,
        follow: bool,
    ) -> Result<Location, Errno> {
        let (root, current) = self.thread.directory().places();
        let identity = self.thread.identity();
        let lookup = Lookup { root: &root, start: start.unwrap_or(&current), identity: &identity };
        resolve(lookup, path, follow)
    }

    /// Checks that the file may be executed and opens it for that.
    fn admit(&self, location: Location) -> Result<ProgramFile, Errno> {
        fs::open::check_executable(&location, &self.thread.identity())?;
        let denial = fs::file::deny_writes(&location.inode)?;
        let name = fs::mount::display_path(&location, &self.thread.directory().root());
        let pages = FileSource::of_inode(location.inode.clone());
        let source = Arc::new(ExecutedFile { pages, _denial: denial });
        self.found.lock().push((name.clone(), location));
        Ok(ProgramFile { source, name })
    }

    fn location_of(&self, file: &ProgramFile) -> Option<Location> {
        let found = self.found.lock();
        found.iter().rev().find(|(name, _)| *name == file.name).map(|(_, place)| place.clone())
    }

    /// The credentials after executing `file`, and whether it gains privilege.
    fn credentials(&self, file: &ProgramFile) -> (Credentials, bool) {
        let old = self.thread.credentials();
        let Some(location) = self.location_of(file) else { return old.after_exec(None, None) };
        if location.mount.flags() & MS_NOSUID != 0 {
            return old.after_exec(None, None);
        }
        let permissions = location.inode.permissions();
        let set_user = (permissions.mode & S_ISUID != 0).then_some(permissions.user);
        let group_bits = S_ISGID | GROUP_EXECUTE;
        let set_group = (permissions.mode & group_bits == group_bits).then_some(permissions.group);
        old.after_exec(set_user, set_group)
    }
}

impl ProgramLookup for Finder<'_> {
    async fn open(&self, path: &[u8]) -> Result<ProgramFile, Errno> {
        self.admit(self.resolve(path, None, true)?)
    }

    fn identity(&self, file: &ProgramFile) -> memory::Identity {
        let (credentials, is_secure) = self.credentials(file);
        memory::Identity {
            user: credentials.user.real,
            effective_user: credentials.user.effective,
            group: credentials.group.real,
            effective_group: credentials.group.effective,
            is_secure,
        }
    }
}

/// `execve(path, arguments, environment)`
pub async fn execve(call: &Call, context: &mut UserContext) -> SysResult {
    let path = call.user().read_string(call.argument(0), PATH_LIMIT).await?;
    execute(call, context, AT_FDCWD, path, [call.argument(1), call.argument(2)], AtFlags::empty())
        .await
}

/// `execveat(directory, path, arguments, environment, flags)`
pub async fn execveat(call: &Call, context: &mut UserContext) -> SysResult {
    let flags = AtFlags::from_bits(call.unsigned(4)).ok_or(Errno::EINVAL)?;
    if !(AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW).contains(flags) {
        return Err(Errno::EINVAL);
    }
    let path = call.user().read_string(call.argument(1), PATH_LIMIT).await?;
    let strings = [call.argument(2), call.argument(3)];
    execute(call, context, call.int(0), path, strings, flags).await
}

/// The file that is to be executed, and the path that its interpreter gets to see.
fn find(
    finder: &Finder<'_>,
    call: &Call,
    directory: i32,
    path: &[u8],
    flags: AtFlags,
) -> Result<(Location, Vec<u8>), Errno> {
    let follow = !flags.contains(AtFlags::SYMLINK_NOFOLLOW);
    if path.is_empty() && !flags.contains(AtFlags::EMPTY_PATH) {
        return Err(Errno::ENOENT);
    }
    let is_plain = directory == AT_FDCWD || path.first() == Some(&b'/');
    let (location, shown) = if is_plain && !path.is_empty() {
        (finder.resolve(path, None, follow)?, path.to_vec())
    } else if directory == AT_FDCWD {
        (call.thread.directory().current(), path.to_vec())
    } else {
        let start = call.thread.file(directory)?.location().clone();
        if path.is_empty() {
            (start, format!("/dev/fd/{directory}").into_bytes())
        } else {
            let mut shown = format!("/dev/fd/{directory}/").into_bytes();
            shown.extend_from_slice(path);
            (finder.resolve(path, Some(&start), follow)?, shown)
        }
    };
    if location.inode.kind() == NodeKind::Symlink {
        return Err(Errno::ELOOP);
    }
    Ok((location, shown))
}

async fn execute(
    call: &Call,
    context: &mut UserContext,
    directory: i32,
    path: Vec<u8>,
    strings: [u64; 2],
    flags: AtFlags,
) -> SysResult {
    let thread = &call.thread;
    let finder = Finder::new(thread);
    let (location, shown) = find(&finder, call, directory, &path, flags)?;
    let file = finder.admit(location)?;

    let user_memory = call.user();
    let limits = memory_limits(thread);
    let mut budget = memory::space_limit(limits.stack);
    let arguments = StringList::read(&user_memory, strings[0], &mut budget).await?;
    let environment = StringList::read(&user_memory, strings[1], &mut budget).await?;
    // The interpreter could not open a script through a descriptor that is about to be closed.
    let is_hidden = directory != AT_FDCWD
        && path.first() != Some(&b'/')
        && thread.files().close_on_exec(directory).unwrap_or(false);
    if is_hidden && is_script(&file)? {
        return Err(Errno::ENOENT);
    }
    let request = LoadRequest {
        file,
        path: shown.clone(),
        arguments,
        environment,
        limits,
        personality: thread.process.personality.load(Ordering::Relaxed),
    };
    let program = memory::load_program(request, &finder).await?;

    end_other_threads(thread).await?;
    posted::leave(thread).await;
    exit::release_memory(thread).await;
    let (credentials, is_secure) = finder.credentials(&program.file);
    let executable = finder.location_of(&program.file);
    become_program(thread, program.space, credentials, is_secure, executable, &shown);
    user::release(context);
    *context = UserContext::new(program.entry, program.stack_pointer);
    Ok(0)
}

fn is_script(file: &ProgramFile) -> Result<bool, Errno> {
    let mut start = [0; 2];
    let length = file.source.read_at(0, &mut start)?;
    Ok(length == 2 && start == *b"#!")
}

/// The limits that matter to an address space.
pub fn memory_limits(thread: &Thread) -> LimitValues {
    let limits = &thread.process.limits;
    LimitValues {
        address_space: limits.soft(Resource::AddressSpace),
        data: limits.soft(Resource::Data),
        stack: limits.soft(Resource::Stack),
        locked: limits.soft(Resource::LockedMemory),
    }
}

/// Makes this thread the only one of its process, with the process's number.
async fn end_other_threads(thread: &Arc<Thread>) -> Result<(), Errno> {
    let process = &thread.process;
    process.begin_exec(thread)?;
    let alone = process.thread_events.wait_until(|| (process.thread_count() == 1).then_some(()));
    if thread.killable(alone).await.is_err() {
        process.end_exec();
        return Err(Errno::EINTR);
    }
    let leader = process.pid.leader();
    if thread.tid() != leader {
        table::lock().rename_thread(thread, leader);
    }
    process.end_exec();
    Ok(())
}

/// The point of no return.
fn become_program(
    thread: &Arc<Thread>,
    space: Arc<memory::AddressSpace>,
    credentials: Credentials,
    is_secure: bool,
    executable: Option<Location>,
    path: &[u8],
) {
    let process = &thread.process;
    let old_space = thread.set_space(space);
    thread.open_vfork_gate();
    drop(old_space);

    let files = thread.files();
    // One is the thread's own, one is ours.
    if Arc::strong_count(&files) > 2 {
        match files.duplicate() {
            Ok(own) => drop(thread.set_files(Arc::new(own))),
            Err(errno) => log::warn!("execve keeps a shared file table: {errno}"),
        }
    }
    drop(files);
    thread.files().close_for_exec();

    process.signals.after_exec();
    thread.signals.after_exec();
    process.exit_signal.store(Signal::SIGCHLD.number(), Ordering::Relaxed);
    process.has_executed.store(true, Ordering::Relaxed);
    process.set_executable(executable);
    process.dumpable.store(if is_secure { NOT_DUMPABLE } else { DUMPABLE }, Ordering::Relaxed);
    if is_secure {
        thread.parent_death_signal.store(0, Ordering::Relaxed);
        process.personality.fetch_and(!PERSONALITY_CLEARED, Ordering::Relaxed);
    }
    thread.set_credentials(credentials);
    thread.robust_list.store(0, Ordering::Relaxed);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    thread.set_name(name);
}

/// Starts a program as a child of the first process: finds `path` as the superuser sees it, loads it,
/// and makes its process. The caller starts the thread with the registers by `run_user::start`.
///
/// # Errors
/// Those of `execve`.
pub async fn spawn(
    path: &[u8],
    arguments: StringList,
    environment: StringList,
    files: Arc<super::FileTable>,
    directory: Arc<super::DirectoryContext>,
) -> Result<(Arc<Thread>, UserContext), Errno> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    // The thread exists first, with nothing to run, so that one way of finding programs serves both.
    let thread = super::first::spawn(super::first::Parts {
        files,
        directory,
        name: super::thread::short_name(name),
    })?;
    match load_first(&thread, path, arguments, environment).await {
        Ok(context) => Ok((thread, context)),
        Err(errno) => {
            exit::discard(thread);
            Err(errno)
        }
    }
}

async fn load_first(
    thread: &Arc<Thread>,
    path: &[u8],
    arguments: StringList,
    environment: StringList,
) -> Result<UserContext, Errno> {
    let finder = Finder::new(thread);
    let file = finder.admit(finder.resolve(path, None, true)?)?;
    let request = LoadRequest {
        file,
        path: path.to_vec(),
        arguments,
        environment,
        limits: memory_limits(thread),
        personality: 0,
    };
    let program = memory::load_program(request, &finder).await?;
    drop(thread.set_space(program.space));
    thread.process.set_executable(finder.location_of(&program.file));
    Ok(UserContext::new(program.entry, program.stack_pointer))
}

/// The path of the program file as a process with `thread`'s root sees it.
pub fn executable_path(thread: &Thread) -> Option<String> {
    let location = thread.process.executable()?;
    let path = fs::mount::display_path(&location, &thread.directory().root());
    Some(String::from_utf8_lossy(&path).into_owned())
}
