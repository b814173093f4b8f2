//! `ptrace`: requests of tracers.

use abi::Errno;
use abi::process::{ARCH_GET_FS, ARCH_GET_GS, ARCH_SET_FS, ARCH_SET_GS};
use abi::ptrace::{
    CallInfo, SequenceConfiguration, USER_DEBUG_AT, USER_SIZE, UserRegisters, option, register_set,
    request,
};
use abi::signal::{RawSignalInfo, Signal, SignalSet};
use alloc::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

use crate::call::{Call, SysResult};
use crate::memory::{USER_END, UserMemory};
use crate::process::tracing::{self, Kind, Mode, TraceState, TraceStop, registers};
use crate::process::{Thread, Tid, table};
use crate::signal::{self, SignalInfo};

/// Bytes of a word.
const WORD: u64 = 8;
/// Bytes of the state that `fxsave` stores.
const LEGACY_SIZE: usize = 512;
/// `AUDIT_ARCH_X86_64`
const ARCHITECTURE: u32 = 0xc000_003e;
/// Largest number of an error.
const LARGEST_ERROR: u64 = 4095;
/// Bytes of a signal mask.
const MASK_SIZE: u64 = 8;

/// `ptrace(request, pid, address, data)`
pub(super) async fn ptrace(call: &Call) -> SysResult {
    let (wanted, number) = (call.int(0), call.int(1));
    if wanted == request::TRACEME {
        tracing::begin_by_parent(&call.thread)?;
        return Ok(0);
    }
    let target = table::thread_or_init(Tid(number)).ok_or(Errno::ESRCH)?;
    match wanted {
        request::ATTACH => attach(call, &target, None),
        request::SEIZE => attach(call, &target, Some(call.argument(3))),
        _ => {
            let tracee = mine(call, target)?;
            carry_out(call, wanted, &tracee).await
        }
    }
}

/// The thread, if the caller traces it; `ESRCH`.
fn mine(call: &Call, thread: Arc<Thread>) -> Result<Arc<Thread>, Errno> {
    let is_mine = thread.tracing.lock().is_traced_by(&call.thread);
    if is_mine { Ok(thread) } else { Err(Errno::ESRCH) }
}

/// Begins to trace; `options` are those of a thread that is seized.
fn attach(call: &Call, target: &Arc<Thread>, options: Option<u64>) -> SysResult {
    if let Some(options) = options
        && (call.argument(2) != 0 || options & !u64::from(option::ALL) != 0)
    {
        return Err(Errno::EIO);
    }
    if Arc::ptr_eq(&target.process, call.process()) {
        return Err(Errno::EPERM);
    }
    if target.process.main_thread().is_none() || target.signals.must_exit() {
        return Err(Errno::EPERM);
    }
    let known = options.unwrap_or(0) as u32;
    tracing::begin(&call.thread, target, options.is_some(), known)?;
    if options.is_none() {
        let stop = SignalInfo::kill(Signal::SIGSTOP, 0, 0);
        let _ = signal::send_to_thread(target, stop);
    }
    Ok(0)
}

/// Works with the tracee while it stands; `ESRCH` when it does not.
fn with_stop<T>(
    tracee: &Thread,
    act: impl FnOnce(&mut TraceStop) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut state = tracee.tracing.lock();
    if !state.is_ready() {
        return Err(Errno::ESRCH);
    }
    act(state.stop.as_mut().ok_or(Errno::ESRCH)?)
}

async fn carry_out(call: &Call, wanted: i32, tracee: &Arc<Thread>) -> SysResult {
    let (address, data) = (call.argument(2), call.argument(3));
    let user = call.user();
    match wanted {
        request::KILL => {
            let kill = SignalInfo::kill(Signal::SIGKILL, call.process().pid.0, 0);
            let _ = signal::send_to_thread(tracee, kill);
            return Ok(0);
        }
        request::INTERRUPT => {
            if !tracee.tracing.is_seized() {
                return Err(Errno::EIO);
            }
            tracee.signals.want_trap();
            tracee.kick();
            return Ok(0);
        }
        _ => with_stop(tracee, |_| Ok(()))?,
    }
    match wanted {
        request::CONT => go_on(tracee, Mode::Free, data),
        request::SYSCALL => go_on(tracee, Mode::Calls, data),
        request::SINGLESTEP => go_on(tracee, Mode::Step, data),
        request::SYSEMU => go_on(tracee, Mode::Emulation, data),
        request::SYSEMU_SINGLESTEP => go_on(tracee, Mode::EmulationStep, data),
        request::DETACH => {
            let signal = signal_of(data)?;
            tracing::end(tracee, Some(signal));
            Ok(0)
        }
        request::LISTEN => tracee.tracing.lock().listen().map(|()| 0),
        request::PEEKTEXT | request::PEEKDATA => {
            let memory = UserMemory::new(tracee.space());
            let word: u64 = memory.read_value(address).await.map_err(|_| Errno::EIO)?;
            user.write_value(data, &word).await?;
            Ok(0)
        }
        request::POKETEXT | request::POKEDATA => {
            let memory = UserMemory::new(tracee.space());
            memory.write_forcibly(address, &data.to_ne_bytes()).await.map_err(|_| Errno::EIO)?;
            Ok(0)
        }
        request::PEEKUSER => {
            let word = peek_user(tracee, address)?;
            user.write_value(data, &word).await?;
            Ok(0)
        }
        request::POKEUSER => poke_user(tracee, address, data),
        request::SETOPTIONS => {
            if data & !u64::from(option::ALL) != 0 {
                return Err(Errno::EINVAL);
            }
            tracee.tracing.lock().options = data as u32;
            Ok(0)
        }
        request::GETEVENTMSG => {
            let message = tracee.tracing.lock().message;
            user.write_value(data, &message).await?;
            Ok(0)
        }
        request::GETSIGINFO => {
            let info = with_stop(tracee, |stop| stop.info.ok_or(Errno::EINVAL))?;
            user.write_bytes(data, info.encode().as_bytes()).await?;
            Ok(0)
        }
        request::SETSIGINFO => {
            let raw: RawSignalInfo = user.read_value(data).await?;
            with_stop(tracee, |stop| {
                let present = stop.info.ok_or(Errno::EINVAL)?;
                let signal = Signal::new(raw.signal).unwrap_or(present.signal);
                stop.info = Some(SignalInfo::decode(signal, &raw));
                Ok(0)
            })
        }
        request::PEEKSIGINFO => peek_signals(call, tracee).await,
        request::GETSIGMASK | request::SETSIGMASK if address != MASK_SIZE => Err(Errno::EINVAL),
        request::GETSIGMASK => {
            user.write_value(data, &tracee.signals.blocked().0).await?;
            Ok(0)
        }
        request::SETSIGMASK => {
            let mask = SignalSet(user.read_value(data).await?);
            signal::set_mask(tracee, mask.without(SignalSet::UNBLOCKABLE));
            Ok(0)
        }
        request::GET_SYSCALL_INFO => call_info(call, tracee).await,
        request::GET_RSEQ_CONFIGURATION => {
            let (address_of_record, signature) = tracing::sequence_of(tracee);
            let record = SequenceConfiguration {
                address: address_of_record,
                size: if address_of_record == 0 { 0 } else { 32 },
                signature,
                ..SequenceConfiguration::default()
            };
            let bytes = record.as_bytes();
            let length = bytes.len().min(usize::try_from(address).unwrap_or(usize::MAX));
            user.write_bytes(data, bytes.get(..length).unwrap_or(bytes)).await?;
            Ok(bytes.len() as u64)
        }
        request::ARCH_PRCTL => arch_prctl(call, tracee).await,
        _ => register_requests(call, wanted, tracee).await,
    }
}

/// `PTRACE_PEEKSIGINFO`: copies of pending signals in the order in which they came, as many as the arguments say and there
/// are. What has been copied counts even if the rest finds no memory.
async fn peek_signals(call: &Call, tracee: &Thread) -> SysResult {
    /// Signals for the whole process.
    const SHARED: u32 = 1;
    let user = call.user();
    // `struct ptrace_peeksiginfo_args`: where to begin; flags and how many.
    let [start, flags_and_count]: [u64; 2] = user.read_value(call.argument(2)).await?;
    let (flags, count) = (flags_and_count as u32, (flags_and_count >> 32) as u32);
    let count = i32::try_from(count).map_err(|_| Errno::EINVAL)?;
    if flags & !SHARED != 0 {
        return Err(Errno::EINVAL);
    }
    let mut at = call.argument(3);
    for index in 0..u64::from(count.unsigned_abs()) {
        let place = usize::try_from(start.saturating_add(index)).unwrap_or(usize::MAX);
        let info = match flags & SHARED {
            0 => tracee.signals.pending_at(place),
            _ => tracee.process.signals.pending_at(place),
        };
        let Some(info) = info else { return Ok(index) };
        let raw = info.encode();
        if let Err(error) = user.write_bytes(at, raw.as_bytes()).await {
            return if index == 0 { Err(error) } else { Ok(index) };
        }
        at += size_of::<RawSignalInfo>() as u64;
    }
    Ok(u64::from(count.unsigned_abs()))
}

/// Requests that move whole sets of registers.
async fn register_requests(call: &Call, wanted: i32, tracee: &Thread) -> SysResult {
    let (address, data) = (call.argument(2), call.argument(3));
    let user = call.user();
    match wanted {
        request::GETREGS => {
            let registers = with_stop(tracee, |stop| Ok(stop.registers))?;
            user.write_bytes(data, registers.as_bytes()).await?;
            Ok(0)
        }
        request::SETREGS => {
            let new: UserRegisters = user.read_value(data).await?;
            with_stop(tracee, |stop| set_registers(stop, new))
        }
        request::GETFPREGS => {
            let bytes = floating_point(tracee, LEGACY_SIZE)?;
            user.write_bytes(data, &bytes).await?;
            Ok(0)
        }
        request::SETFPREGS => {
            let bytes = user.read_vector(data, LEGACY_SIZE).await?;
            set_floating_point(tracee, &bytes)
        }
        request::GETREGSET | request::SETREGSET => {
            let base: u64 = user.read_value(data).await?;
            let length: u64 = user.read_value(data + WORD).await?;
            let is_write = wanted == request::SETREGSET;
            let moved = register_set(call, tracee, (address, is_write), (base, length)).await?;
            user.write_value(data + WORD, &moved).await?;
            Ok(0)
        }
        _ => Err(Errno::EIO),
    }
}

/// Moves a set of registers between the tracee and the buffer; how many bytes.
async fn register_set(
    call: &Call,
    tracee: &Thread,
    (set, is_write): (u64, bool),
    (base, length): (u64, u64),
) -> SysResult {
    let user = call.user();
    let whole = match set {
        register_set::GENERAL => size_of::<UserRegisters>(),
        register_set::FLOATING_POINT => LEGACY_SIZE,
        register_set::EXTENDED => with_stop(tracee, |stop| Ok(stop.fpu.len()))?,
        _ => return Err(Errno::EINVAL),
    };
    if !length.is_multiple_of(WORD) {
        return Err(Errno::EINVAL);
    }
    let size = whole.min(usize::try_from(length).unwrap_or(whole));
    if is_write {
        let bytes = user.read_vector(base, size).await?;
        if set == register_set::GENERAL {
            with_stop(tracee, |stop| {
                let mut new = stop.registers;
                if let Some(start) = new.as_mut_bytes().get_mut(..size) {
                    start.copy_from_slice(&bytes);
                }
                set_registers(stop, new)
            })?;
        } else {
            if set == register_set::EXTENDED && size < whole {
                return Err(Errno::EFAULT);
            }
            set_floating_point(tracee, &bytes)?;
        }
    } else {
        let bytes = match set {
            register_set::GENERAL => {
                with_stop(tracee, |stop| Ok(stop.registers.as_bytes().to_vec()))?
            }
            _ => floating_point(tracee, whole)?,
        };
        user.write_bytes(base, bytes.get(..size).unwrap_or(&bytes)).await?;
    }
    Ok(size as u64)
}

fn set_registers(stop: &mut TraceStop, new: UserRegisters) -> SysResult {
    registers::check(&new)?;
    stop.registers = new;
    stop.is_changed = true;
    Ok(0)
}

/// The first bytes of the floating-point state.
fn floating_point(tracee: &Thread, size: usize) -> Result<alloc::vec::Vec<u8>, Errno> {
    with_stop(tracee, |stop| Ok(stop.fpu.get(..size).unwrap_or(&stop.fpu).to_vec()))
}

/// Changes the first bytes of the floating-point state; the machine checks it when the tracee goes on.
fn set_floating_point(tracee: &Thread, bytes: &[u8]) -> SysResult {
    /// x87 and SSE, in the header of an extended state.
    const LEGACY: u64 = 3;
    with_stop(tracee, |stop| {
        let start = stop.fpu.get_mut(..bytes.len()).ok_or(Errno::EINVAL)?;
        start.copy_from_slice(bytes);
        let is_whole = bytes.len() > LEGACY_SIZE;
        if let Some(header) = stop.fpu.get_mut(LEGACY_SIZE..LEGACY_SIZE + 8)
            && !is_whole
        {
            let present = u64::read_from_bytes(&*header).unwrap_or(0);
            header.copy_from_slice(&(present | LEGACY).to_ne_bytes());
        }
        stop.is_fpu_changed = true;
        Ok(0)
    })
}

/// The signal that a tracee is to go on with; `EIO`.
fn signal_of(data: u64) -> Result<i32, Errno> {
    match i32::try_from(data) {
        Ok(0) => Ok(0),
        Ok(signal) if Signal::new(signal).is_some() => Ok(signal),
        _ => Err(Errno::EIO),
    }
}

fn go_on(tracee: &Thread, mode: Mode, data: u64) -> SysResult {
    let signal = signal_of(data)?;
    if tracee.tracing.lock().resume(mode, signal) {
        tracee.signals.wake();
    }
    Ok(0)
}

/// Which word of `struct user` an address names; `EIO`.
fn user_word(address: u64) -> Result<usize, Errno> {
    if !address.is_multiple_of(WORD) || address >= USER_SIZE {
        return Err(Errno::EIO);
    }
    usize::try_from(address / WORD).map_err(|_| Errno::EIO)
}

/// Words of the debug registers.
fn debug_index(word: usize) -> Option<usize> {
    let first = (USER_DEBUG_AT / WORD) as usize;
    word.checked_sub(first).filter(|index| *index < 8)
}

fn peek_user(tracee: &Thread, address: u64) -> Result<u64, Errno> {
    let word = user_word(address)?;
    let state = tracee.tracing.lock();
    let stop = state.stop.as_ref().ok_or(Errno::ESRCH)?;
    let words: &[u64; WORDS] = zerocopy::transmute_ref!(&stop.registers);
    if let Some(value) = words.get(word) {
        return Ok(*value);
    }
    Ok(debug_index(word).and_then(|index| state.debug.get(index).copied()).unwrap_or(0))
}

/// Words of the general registers.
const WORDS: usize = size_of::<UserRegisters>() / 8;

fn poke_user(tracee: &Thread, address: u64, data: u64) -> SysResult {
    let word = user_word(address)?;
    if word < WORDS {
        return with_stop(tracee, |stop| {
            let mut new = stop.registers;
            let words: &mut [u64; WORDS] = zerocopy::transmute_mut!(&mut new);
            if let Some(place) = words.get_mut(word) {
                *place = data;
            }
            set_registers(stop, new)
        });
    }
    let index = debug_index(word).ok_or(Errno::EIO)?;
    set_debug(&mut tracee.tracing.lock(), index, data)
}

/// Keeps a debug register: 0 to 3 are addresses of the program, 4 and 5 are none.
fn set_debug(state: &mut TraceState, index: usize, value: u64) -> SysResult {
    match index {
        0..=3 if value >= USER_END => return Err(Errno::EINVAL),
        4 | 5 => return Err(Errno::EIO),
        _ => {}
    }
    if let Some(place) = state.debug.get_mut(index) {
        *place = value;
    }
    Ok(0)
}

/// What call the tracee stopped for.
async fn call_info(call: &Call, tracee: &Thread) -> SysResult {
    let (kind, registers) = with_stop(tracee, |stop| Ok((stop.kind, stop.registers)))?;
    let mut record = CallInfo {
        architecture: ARCHITECTURE,
        instruction_pointer: registers.rip,
        stack_pointer: registers.rsp,
        ..CallInfo::default()
    };
    let mut size = core::mem::offset_of!(CallInfo, values);
    match kind {
        Kind::Entry => {
            record.kind = 1;
            let UserRegisters { rdi, rsi, rdx, r10, r8, r9, .. } = registers;
            record.values = [registers.call, rdi, rsi, rdx, r10, r8, r9];
            size += size_of_val(&record.values);
        }
        Kind::Exit => {
            record.kind = 2;
            let is_error = registers.rax >= LARGEST_ERROR.wrapping_neg();
            record.values[0] = registers.rax;
            record.values[1] = u64::from(is_error);
            size += 9;
        }
        _ => {}
    }
    let bytes = record.as_bytes();
    let wanted = usize::try_from(call.argument(2)).unwrap_or(usize::MAX).min(size);
    call.user().write_bytes(call.argument(3), bytes.get(..wanted).unwrap_or(bytes)).await?;
    Ok(size as u64)
}

/// As `arch_prctl` of the tracee would.
async fn arch_prctl(call: &Call, tracee: &Thread) -> SysResult {
    let (address, kind) = (call.argument(2), call.int(3));
    let registers = with_stop(tracee, |stop| Ok(stop.registers))?;
    match kind {
        ARCH_GET_FS => call.user().write_value(address, &registers.fs_base).await?,
        ARCH_GET_GS => call.user().write_value(address, &registers.gs_base).await?,
        ARCH_SET_FS | ARCH_SET_GS if address >= USER_END => return Err(Errno::EPERM),
        ARCH_SET_FS => {
            let new = UserRegisters { fs_base: address, ..registers };
            with_stop(tracee, |stop| set_registers(stop, new))?;
        }
        ARCH_SET_GS => {
            let new = UserRegisters { gs_base: address, ..registers };
            with_stop(tracee, |stop| set_registers(stop, new))?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
