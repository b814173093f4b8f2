//! Loading a program: from a file and its arguments to an address space that is ready to run.
//!
//! The new space is complete before the old one is given up, so every error can still be returned to
//! the caller of `execve`; after `load_program` nothing can fail. Scripts are followed to their
//! interpreter here, and a dynamic program's interpreter is placed beside it.

use abi::Errno;
use abi::memory::{ADDR_NO_RANDOMIZE, aux};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::task;
use core::future::Future;
use hal::UserContext as _;

use super::area::Object;
use super::elf::{self, PROGRAM_HEADER_SIZE, Program};
use super::image::{self, Placed};
use super::layout::{Layout, PAGE, page_ceil, page_floor};
use super::script::{self, START_SIZE};
use super::sites::Sites;
use super::source::PageSource;
use super::space::{AddressSpace, LimitValues, ProgramRegions};
use super::stack::{self, StackContents};
use super::strings::{StringList, space_limit};
use super::vdso;

/// Most interpreters in a row (a script whose interpreter is a script, and so on), as on Linux.
const MOST_INTERPRETERS: usize = 5;
/// Ticks per second that `times` and `/proc` count in.
const TICKS_PER_SECOND: u64 = 100;
/// Most bytes that a program which gains privilege leaves for its stack, whatever the limit says.
const SECURE_STACK_ROOM: u64 = 8 << 20;
/// Bytes that a signal frame needs besides the floating-point state, rounded up.
const SIGNAL_FRAME_BYTES: u64 = 1536;
/// Bytes of strings that are written before others have the core.
const TURN: usize = 1 << 17;

/// A file that may be executed, as found by the process server, which has checked the right to.
#[derive(Clone)]
pub struct ProgramFile {
    /// Its contents.
    pub source: Arc<dyn PageSource>,
    /// Its path, for `/proc/PID/maps`.
    pub name: Vec<u8>,
}

/// Who the program will run as; depends on the file when that changes identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Real user.
    pub user: u32,
    /// Effective user.
    pub effective_user: u32,
    /// Real group.
    pub group: u32,
    /// Effective group.
    pub effective_group: u32,
    /// The program gains privilege, so its libraries must not trust the environment, and its caller
    /// does not choose where its parts lie.
    pub is_secure: bool,
}

/// What the process server does for a program that is loaded.
pub trait ProgramLookup: Sync {
    /// Finds a file and checks that it may be executed: interpreters of scripts and of programs.
    fn open(&self, path: &[u8]) -> impl Future<Output = Result<ProgramFile, Errno>> + Send;

    /// Who `file`, which is the one that is executed in the end, will run as.
    fn identity(&self, file: &ProgramFile) -> Identity;
}

/// What to load and how.
pub struct LoadRequest {
    /// The file.
    pub file: ProgramFile,
    /// The path by which it was asked for; becomes the script's argument and `AT_EXECFN`.
    pub path: Vec<u8>,
    /// Arguments; an empty list becomes one empty string.
    pub arguments: StringList,
    /// Environment.
    pub environment: StringList,
    /// Limits of the process.
    pub limits: LimitValues,
    /// Personality of the process.
    pub personality: u32,
    /// The program's calls are to be posted: its system-call instructions may be patched.
    pub is_to_post: bool,
}

/// A program that is ready to run.
pub struct LoadedProgram {
    /// Its memory.
    pub space: Arc<AddressSpace>,
    /// Where it starts: the interpreter's entry if it has one.
    pub entry: u64,
    /// Its stack pointer.
    pub stack_pointer: u64,
    /// The file that is executed in the end (for a script, its interpreter).
    pub file: ProgramFile,
}

/// Builds the address space of a program.
///
/// # Errors
/// `ENOEXEC` when the file is no program, `ELOOP` with too many interpreters, `E2BIG`, `ENOMEM`, `EIO`,
/// `ELIBBAD` when the interpreter is no program, and whatever `lookup` returns.
pub async fn load_program(
    mut request: LoadRequest,
    lookup: &impl ProgramLookup,
) -> Result<LoadedProgram, Errno> {
    if request.arguments.is_empty() {
        request.arguments.push(b"")?;
    }
    let mut start = [0; START_SIZE];
    let mut depth = 0;
    // AT_EXECFN stays the path that was asked for, while the script's path is handed on.
    let executed = request.path.clone();
    let length = loop {
        check_size(&request)?;
        let length = request.file.source.read_at(0, &mut start)?;
        let known = start.get(..length).unwrap_or_default();
        let Some(line) = script::parse(known)? else { break length };
        depth += 1;
        if depth > MOST_INTERPRETERS {
            return Err(Errno::ELOOP);
        }
        request.arguments = request
            .arguments
            .for_interpreter(line.interpreter, line.argument, &request.path)
            .await?;
        let interpreter = line.interpreter.to_vec();
        request.file = lookup.open(&interpreter).await?;
        request.path = interpreter;
    };
    let known = start.get(..length).unwrap_or_default();
    let program = elf::read_program(request.file.source.as_ref(), known)?;
    let interpreter = match &program.interpreter {
        Some(path) => {
            let file = lookup.open(path).await?;
            let mut start = [0; START_SIZE];
            let length = file.source.read_at(0, &mut start)?;
            let known = start.get(..length).unwrap_or_default();
            let read = elf::read_program(file.source.as_ref(), known);
            let interpreter = read.map_err(|error| match error {
                Errno::ENOEXEC => Errno::ELIBBAD,
                other => other,
            })?;
            Some((file, interpreter))
        }
        None => None,
    };
    let identity = lookup.identity(&request.file);
    build(request, &executed, program, interpreter, identity).await
}

fn check_size(request: &LoadRequest) -> Result<(), Errno> {
    let used = request.arguments.stack_bytes() + request.environment.stack_bytes();
    if used > space_limit(request.limits.stack) { Err(Errno::E2BIG) } else { Ok(()) }
}

async fn build(
    request: LoadRequest,
    executed: &[u8],
    program: Program,
    interpreter: Option<(ProgramFile, Program)>,
    identity: Identity,
) -> Result<LoadedProgram, Errno> {
    let mut random = || {
        let mut bytes = [0; 8];
        base::random::fill(&mut bytes);
        u64::from_le_bytes(bytes)
    };
    let is_random = identity.is_secure || request.personality & ADDR_NO_RANDOMIZE == 0;
    let stack_room = match identity.is_secure {
        true => request.limits.stack.min(SECURE_STACK_ROOM),
        false => request.limits.stack,
    };
    let layout = Layout::choose(is_random.then_some(&mut random as &mut _), stack_room);
    let space = AddressSpace::new(layout, request.limits)?;

    let object = |file: &ProgramFile| {
        Arc::new(Object { source: file.source.clone(), name: file.name.clone() })
    };
    let placed = image::place(&space, &object(&request.file), &program, layout.dynamic_base)?;
    let vdso_address = vdso::map(&space)?;
    if request.is_to_post {
        Sites::install(&space);
    }
    let interpreter = match &interpreter {
        Some((file, program)) => {
            let extent = program.extent();
            let length = extent.end - extent.start + program.alignment - PAGE;
            let room = space.lock().find_room(0, length, false).ok_or(Errno::ENOMEM)?;
            let base = page_ceil(room).ok_or(Errno::ENOMEM)?.next_multiple_of(program.alignment);
            Some(image::place(&space, &object(file), program, base)?)
        }
        None => None,
    };
    let heap = page_ceil(placed.end).ok_or(Errno::ENOEXEC)?.saturating_add(layout.break_gap);
    space.start_heap(heap);

    let auxiliary = auxiliary(&program, &placed, interpreter.as_ref(), identity, vdso_address);
    let mut seed = [0; 16];
    base::random::fill(&mut seed);
    let shift = if is_random { u64::from(seed[0] ^ seed[8]) * 16 } else { 0 };
    let built = stack::build(
        layout.stack_top - shift,
        &StackContents {
            arguments: &request.arguments,
            environment: &request.environment,
            file_name: executed,
            platform: abi::arch::x86_64::MACHINE.as_bytes(),
            random: seed,
            auxiliary: &auxiliary,
        },
    )
    .await?;
    let used = layout.stack_top - page_floor(built.pointer);
    space.add_stack(layout.stack_top, used, program.is_stack_executable)?;
    for (piece, address) in built.bytes.chunks(TURN).zip((built.pointer..).step_by(TURN)) {
        if address != built.pointer {
            task::yield_now().await;
        }
        space.write_now(address, piece)?;
    }
    space.set_regions(ProgramRegions {
        code: placed.code.clone(),
        data: placed.data.clone(),
        stack_start: built.pointer,
        arguments: built.arguments,
        environment: built.environment,
    });
    Ok(LoadedProgram {
        entry: interpreter.map_or(placed.entry, |interpreter| interpreter.entry),
        stack_pointer: built.pointer,
        space,
        file: request.file,
    })
}

/// The auxiliary vector but for what points into the stack. Keys without a value here are left out.
fn auxiliary(
    program: &Program,
    placed: &Placed,
    interpreter: Option<&Placed>,
    identity: Identity,
    vdso_address: Option<u64>,
) -> Vec<(u64, u64)> {
    let fpu = <hal::Machine as hal::Contract>::Context::fpu_size() as u64;
    let mut vector = Vec::with_capacity(20);
    if let Some(address) = vdso_address {
        vector.push((aux::SYSINFO_EHDR, address));
    }
    vector.extend([
        (aux::HWCAP, vdso::processor_features()),
        (aux::HWCAP2, 0),
        (aux::PAGESZ, PAGE),
        (aux::CLKTCK, TICKS_PER_SECOND),
        (aux::PHDR, placed.headers),
        (aux::PHENT, PROGRAM_HEADER_SIZE),
        (aux::PHNUM, program.header_count),
        (aux::BASE, interpreter.map_or(0, |interpreter| interpreter.bias)),
        (aux::FLAGS, 0),
        (aux::ENTRY, placed.entry),
        (aux::UID, u64::from(identity.user)),
        (aux::EUID, u64::from(identity.effective_user)),
        (aux::GID, u64::from(identity.group)),
        (aux::EGID, u64::from(identity.effective_group)),
        (aux::SECURE, u64::from(identity.is_secure)),
        (aux::MINSIGSTKSZ, fpu + SIGNAL_FRAME_BYTES),
    ]);
    vector
}
