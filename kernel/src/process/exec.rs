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
use abi::fs::fanotify::FileEvents;
use abi::fs::mount::MS_NOSUID;
use abi::fs::notify::Events;
use abi::fs::{AT_FDCWD, AtFlags, S_ISGID, S_ISUID};
use abi::signal::Signal;
use base::memory::Frame;
use base::sync::{Mutex, rank};
use base::user::{self, UserContext};
use fs::file::WriteDenial;
use fs::metadata::{InodeId, Wanted};
use fs::walk::{Lookup, resolve};
use fs::{Location, NodeKind, notify, pending};
use hal::UserContext as _;

use super::credentials::{Credentials, SetIds};
use super::file_table::Closed;
use super::thread::Thread;
use super::{exit, questions, table, tracing};
use crate::call::{Call, SysResult};
use crate::memory::{
    self, AddressSpace, FileSource, LimitValues, LoadRequest, PageSource, ProgramFile,
    ProgramLookup, StringList,
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

    fn content(&self) -> InodeId {
        self.pages.content()
    }

    fn identity(&self) -> u64 {
        self.pages.identity()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        self.pages.read_at(offset, into)
    }
}

/// Finds programs and their interpreters for one thread, remembers where they were, and decides once
/// what the one that is executed in the end may do.
struct Finder<'a> {
    thread: &'a Thread,
    /// Nobody else can change the root of the program, and nobody with fewer rights traces it.
    may_gain: bool,
    state: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    /// What was opened, and where: a file is known by what was opened, never by its name.
    files: Vec<(Arc<dyn PageSource>, Location)>,
    /// Some of the files may be executed by the caller and not read.
    has_unreadable: bool,
    decision: Option<Decision>,
}

/// Credentials and file of the program that is executed in the end.
#[derive(Clone)]
struct Decision {
    credentials: Arc<Credentials>,
    /// The program gains privilege (`AT_SECURE`).
    is_secure: bool,
    executable: Option<Location>,
}

impl Finder<'_> {
    fn new(thread: &Thread, may_gain: bool) -> Finder<'_> {
        Finder { thread, may_gain, state: Mutex::new(&rank::THREAD, Found::default()) }
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

    /// Asks those who want to decide what may be executed. A file that may not be anyway is not asked about.
    async fn ask(&self, location: &Location) -> Result<(), Errno> {
        let events = FileEvents::OPEN_EXEC_PERM | FileEvents::OPEN_PERM;
        match fs::open::check_executable(location, &self.thread.identity()) {
            Ok(()) => questions::ask(self.thread, location, events).await,
            Err(_) => Ok(()),
        }
    }

    /// Tells those who watch the files that they were opened, read and closed. Files of a program that could not be
    /// loaded are told of by nobody.
    fn tell_opened(&self) {
        if !notify::is_anybody_listening() {
            return;
        }
        let files = self.state.lock().files.clone();
        for (_, location) in &files {
            for events in [Events::OPEN | Events::OPEN_EXEC, Events::ACCESS, Events::CLOSE_NOWRITE]
            {
                notify::event_at(location, events);
            }
        }
    }

    /// Checks that the file may be executed and opens it for that.
    fn admit(&self, location: Location) -> Result<ProgramFile, Errno> {
        let identity = self.thread.identity();
        fs::open::check_executable(&location, &identity)?;
        let denial = fs::file::deny_writes(&location.inode)?;
        let name = fs::mount::display_path(&location, &self.thread.directory().root());
        let pages = FileSource::of_inode(location.inode.clone());
        let source: Arc<dyn PageSource> = Arc::new(ExecutedFile { pages, _denial: denial });
        let is_readable = fs::tree::check(&location.inode, &identity, Wanted::READ).is_ok();
        let mut found = self.state.lock();
        found.has_unreadable |= !is_readable;
        found.files.push((source.clone(), location));
        Ok(ProgramFile { source, name })
    }

    /// Whoever the program in `file` will run as.
    fn decide(&self, file: &ProgramFile) -> Decision {
        let executable = self.location_of(file);
        let set_ids = executable.as_ref().map_or(SetIds::default(), set_ids);
        let (credentials, is_secure) = self.thread.credentials().after_exec(set_ids, self.may_gain);
        let credentials = Arc::new(credentials);
        let decision = Decision { credentials, is_secure, executable };
        self.state.lock().decision = Some(decision.clone());
        decision
    }

    fn location_of(&self, file: &ProgramFile) -> Option<Location> {
        let found = self.state.lock();
        let opened = found.files.iter().find(|(source, _)| Arc::ptr_eq(source, &file.source));
        opened.map(|(_, location)| location.clone())
    }

    /// What was decided when the program was loaded.
    fn decision(&self) -> Option<Decision> {
        self.state.lock().decision.clone()
    }

    /// Whether others of the program's user may look into it.
    fn is_dumpable(&self, credentials: &Credentials) -> bool {
        credentials.user.effective == credentials.user.real
            && credentials.group.effective == credentials.group.real
            && !self.state.lock().has_unreadable
            && !self.thread.credentials().hides_from(credentials)
    }
}

/// The ids that a program file gives to who executes it.
fn set_ids(location: &Location) -> SetIds {
    if location.mount.flags() & MS_NOSUID != 0 {
        return SetIds::default();
    }
    let permissions = location.inode.permissions();
    let group_bits = S_ISGID | GROUP_EXECUTE;
    SetIds {
        user: (permissions.mode & S_ISUID != 0).then_some(permissions.user),
        group: (permissions.mode & group_bits == group_bits).then_some(permissions.group),
    }
}

impl ProgramLookup for Finder<'_> {
    async fn open(&self, path: &[u8]) -> Result<ProgramFile, Errno> {
        let location = self.resolve(path, None, true)?;
        self.ask(&location).await?;
        self.admit(location)
    }

    fn identity(&self, file: &ProgramFile) -> memory::Identity {
        let Decision { credentials, is_secure, .. } = self.decide(file);
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
    let directory_context = thread.directory();
    let mut own = 0;
    thread.process.for_each_thread(|other| {
        own += usize::from(Arc::ptr_eq(&other.directory(), &directory_context));
    });
    let alone = directory_context.begin_execution(own);
    let finder = Finder::new(thread, alone.is_some() && !tracing::is_by_lesser(thread));
    let (location, shown) = find(&finder, call, directory, &path, flags)?;
    finder.ask(&location).await?;
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
        is_to_post: posted::is_for_all(),
    };
    let program = memory::load_program(request, &finder).await?;
    finder.tell_opened();

    let decision = finder.decision().ok_or(Errno::ENOEXEC)?;
    program.space.set_dumpable(finder.is_dumpable(&decision.credentials));

    end_other_threads(thread).await?;
    own_files(thread).await?;
    posted::leave(thread).await;
    drop(user_memory);
    // The loop that runs the thread keeps the space that it ran in.
    exit::release_memory(thread, 1).await;
    become_program(thread, program.space, decision, &shown);
    // Whoever sees an end of these files finds the new program.
    exit::close_in_turns(&thread.files(), Closed::ByExec).await;
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

/// Gives the thread a file table that it shares with nobody.
async fn own_files(thread: &Arc<Thread>) -> Result<(), Errno> {
    let files = thread.files();
    // One is the thread's own, one is ours.
    if Arc::strong_count(&files) > 2 {
        let own = files.duplicate_in_turns(u32::MAX).await?;
        drop(thread.set_files(Arc::new(own)));
    }
    Ok(())
}

/// The point of no return. What belongs to the old program is gone before the new one's memory and
/// credentials can be seen, and those are replaced in one step.
fn become_program(thread: &Arc<Thread>, space: Arc<AddressSpace>, decision: Decision, path: &[u8]) {
    let Decision { credentials, is_secure, executable } = decision;
    let process = &thread.process;
    process.signals.after_exec();
    thread.signals.after_exec();
    process.exit_signal.store(Signal::SIGCHLD.number(), Ordering::Relaxed);
    process.executions.fetch_add(1, Ordering::Relaxed);
    process.has_executed.store(true, Ordering::Relaxed);
    let gains = thread.credentials().hides_from(&credentials);
    if is_secure || gains {
        thread.parent_death_signal.store(0, Ordering::Relaxed);
    }
    if is_secure {
        process.personality.fetch_and(!PERSONALITY_CLEARED, Ordering::Relaxed);
    }
    thread.robust_list.store(0, Ordering::Relaxed);
    thread.sequence.forget();
    thread.has_left_locks.store(false, Ordering::Relaxed);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let old_space = thread.become_program(space, credentials, name);
    if gains {
        tracing::after_gain(thread);
    }
    process.set_executable(executable);
    thread.open_vfork_gate();
    drop(old_space);
}

/// Starts a program as a child of the first process: finds `path` as the superuser sees it, loads it,
/// and makes its process. The caller starts the thread with the registers by `process::start`.
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
    let load = || load_once(thread, path, arguments.clone(), environment.clone());
    match load().await {
        Err(Errno::EIOCBQUEUED) => pending::resume_future(load).await,
        result => result,
    }
}

async fn load_once(
    thread: &Arc<Thread>,
    path: &[u8],
    arguments: StringList,
    environment: StringList,
) -> Result<UserContext, Errno> {
    let finder = Finder::new(thread, true);
    let file = finder.admit(finder.resolve(path, None, true)?)?;
    let request = LoadRequest {
        file,
        path: path.to_vec(),
        arguments,
        environment,
        limits: memory_limits(thread),
        personality: 0,
        is_to_post: posted::is_for_all(),
    };
    let program = memory::load_program(request, &finder).await?;
    drop(thread.set_space(program.space));
    thread.process.set_executable(finder.decision().and_then(|decision| decision.executable));
    Ok(UserContext::new(program.entry, program.stack_pointer))
}

/// The path of the program file as a process with `thread`'s root sees it.
pub fn executable_path(thread: &Thread) -> Option<String> {
    let location = thread.process.executable()?;
    let path = fs::mount::display_path(&location, &thread.directory().root());
    Some(String::from_utf8_lossy(&path).into_owned())
}
