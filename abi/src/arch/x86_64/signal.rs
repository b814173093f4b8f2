//! The signal frame of Linux on x86-64, as plain data.
//!
//! ```text
//!  high   ... interrupted stack, red zone of 128 bytes
//!         floating-point state (XSAVE, standard format), aligned to 64, closed by a magic word
//!         SignalFrame, at 8 modulo 16, so that the handler sees the stack of a C call
//!  low
//! ```

use crate::signal::{AlternateStack, RawSignalInfo, SignalSet};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes below the stack pointer that a leaf function may use.
pub const RED_ZONE: u64 = 128;
/// The stack pointer at a function's first instruction is 8 less than a multiple of this.
pub const FRAME_ALIGNMENT: u64 = 16;
/// Alignment of the floating-point state.
pub const FPU_ALIGNMENT: u64 = 64;
/// Selector of user code in a frame.
pub const USER_CODE_SELECTOR: u16 = 0x33;
/// Selector of user data in a frame.
pub const USER_DATA_SELECTOR: u16 = 0x2b;
/// Direction flag: clear when a handler starts.
pub const FLAG_DIRECTION: u64 = 1 << 10;
/// Resume flag: clear when a handler starts.
pub const FLAG_RESUME: u64 = 1 << 16;
/// Trap flag: clear when a handler starts.
pub const FLAG_TRAP: u64 = 1 << 8;

/// `uc_flags`: the floating-point state is in XSAVE format.
pub const UC_FP_XSTATE: u64 = 1;
/// `uc_flags`: the stack selector is saved.
pub const UC_SIGCONTEXT_SS: u64 = 2;
/// `uc_flags`: the stack selector is restored as it stands.
pub const UC_STRICT_RESTORE_SS: u64 = 4;

/// Marks the software bytes of an extended floating-point state.
pub const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
/// Closes an extended floating-point state.
pub const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
/// Bytes of the magic word after the state.
pub const FP_XSTATE_MAGIC2_SIZE: usize = 4;
/// Bytes of the legacy (FXSAVE) part.
pub const FXSAVE_SIZE: usize = 512;
/// Where the software bytes lie in the legacy part.
pub const SOFTWARE_BYTES_OFFSET: usize = 464;
/// Bytes of the XSAVE header after the legacy part; its first word tells which parts are in use.
pub const XSAVE_HEADER_SIZE: usize = 64;
/// x87 and SSE in the word of parts.
pub const LEGACY_FEATURES: u64 = 3;

/// Position of a register in [`SignalContext::registers`].
pub mod register {
    /// First argument.
    pub const RDI: usize = 8;
    /// Second argument.
    pub const RSI: usize = 9;
    /// Third argument.
    pub const RDX: usize = 12;
    /// Return value; the number of vector registers used at a call of a variadic function.
    pub const RAX: usize = 13;
    /// Stack pointer.
    pub const RSP: usize = 15;
    /// Program counter.
    pub const RIP: usize = 16;
    /// Flags.
    pub const FLAGS: usize = 17;
}

/// `struct sigcontext`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SignalContext {
    /// r8-r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags.
    pub registers: [u64; 18],
    /// Code selector.
    pub cs: u16,
    /// Unused.
    pub gs: u16,
    /// Unused.
    pub fs: u16,
    /// Stack selector.
    pub ss: u16,
    /// Error code of the last fault.
    pub error: u64,
    /// Vector of the last fault.
    pub trap_number: u64,
    /// First word of the signal mask.
    pub old_mask: u64,
    /// Address of the last page fault.
    pub fault_address: u64,
    /// Address of the floating-point state; 0 for none.
    pub fpu_state: u64,
    /// Unused.
    pub reserved: [u64; 8],
}

/// `struct ucontext` of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UserContextRecord {
    /// `UC_…`.
    pub flags: u64,
    /// Unused.
    pub link: u64,
    /// The alternate stack at the time of the signal.
    pub stack: AlternateStack,
    /// Registers.
    pub machine: SignalContext,
    /// The mask that the handler's return puts back.
    pub mask: SignalSet,
}

/// `struct rt_sigframe`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SignalFrame {
    /// Where the handler returns to: the restorer.
    pub return_address: u64,
    /// Third argument of the handler.
    pub context: UserContextRecord,
    /// Second argument of the handler.
    pub info: RawSignalInfo,
}

/// `struct _fpx_sw_bytes`: the software bytes of the legacy part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FpuSoftwareBytes {
    /// `FP_XSTATE_MAGIC1`.
    pub magic: u32,
    /// Bytes of the state and the closing magic word.
    pub extended_size: u32,
    /// Parts that are in the state.
    pub features: u64,
    /// Bytes of the state.
    pub state_size: u32,
    /// Unused.
    pub padding: [u32; 7],
}

const _: () = assert!(size_of::<SignalContext>() == 256);
const _: () = assert!(size_of::<UserContextRecord>() == 304);
const _: () = assert!(size_of::<SignalFrame>() == 440);
const _: () = assert!(size_of::<FpuSoftwareBytes>() == 48);
