//! Instructions, features and control registers of one core.
//!
//! `FEATURES` is filled once by core 0 before any other core runs, and read-only afterwards.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::xsave;

pub(super) const MSR_EFER: u32 = 0xc000_0080;
pub(super) const MSR_STAR: u32 = 0xc000_0081;
pub(super) const MSR_LSTAR: u32 = 0xc000_0082;
pub(super) const MSR_SFMASK: u32 = 0xc000_0084;
pub(super) const MSR_FS_BASE: u32 = 0xc000_0100;
pub(super) const MSR_GS_BASE: u32 = 0xc000_0101;
pub(super) const MSR_KERNEL_GS_BASE: u32 = 0xc000_0102;
const MSR_TSC_AUX: u32 = 0xc000_0103;
pub(super) const MSR_APIC_BASE: u32 = 0x1b;

/// x87, SSE, AVX, and the three parts of AVX-512.
const COMPONENTS_WANTED: u64 = 0b1110_0111;
/// Rights by protection keys (PKRU).
const COMPONENT_KEYS: u32 = 9;

/// What the processors have. All cores are taken to be alike.
pub(super) struct Features {
    pub(super) fsgsbase: AtomicBool,
    pub(super) gigabyte_pages: AtomicBool,
    pub(super) x2apic: AtomicBool,
    pub(super) xsave: AtomicBool,
    xsaveopt: AtomicBool,
    smep: AtomicBool,
    pub(super) smap: AtomicBool,
    umip: AtomicBool,
    pub(super) pku: AtomicBool,
    rdtscp: AtomicBool,
    rdrand: AtomicBool,
    rdseed: AtomicBool,
    /// QEMU's emulator: `pause` and device registers are slow, and the APIC's bus runs at 1 GHz.
    pub(super) is_emulated: AtomicBool,
    components: AtomicU32,
    /// Where PKRU lies in a saved state; 0 when it is not part of it.
    keys_offset: AtomicUsize,
    mxcsr_mask: AtomicU32,
    state_size: AtomicUsize,
}

const fn no() -> AtomicBool {
    AtomicBool::new(false)
}

pub(super) static FEATURES: Features = Features {
    fsgsbase: no(),
    gigabyte_pages: no(),
    x2apic: no(),
    xsave: no(),
    xsaveopt: no(),
    smep: no(),
    smap: no(),
    umip: no(),
    pku: no(),
    rdtscp: no(),
    rdrand: no(),
    rdseed: no(),
    is_emulated: no(),
    components: AtomicU32::new(3),
    keys_offset: AtomicUsize::new(0),
    mxcsr_mask: AtomicU32::new(0),
    state_size: AtomicUsize::new(xsave::LEAST_SIZE),
};

impl Features {
    /// Components of the floating-point state that are switched on.
    pub(super) fn components(&self) -> u64 {
        u64::from(self.components.load(Relaxed))
    }

    /// What a state after reset depends on.
    pub(super) fn reset_values(&self) -> xsave::ResetValues {
        let offset = self.keys_offset.load(Relaxed);
        xsave::ResetValues {
            mxcsr_mask: self.mxcsr_mask(),
            keys_offset: (offset != 0).then_some(offset),
        }
    }

    /// Bytes of floating-point state in the standard format.
    pub(super) fn state_size(&self) -> usize {
        self.state_size.load(Relaxed)
    }

    /// Valid bits of MXCSR.
    pub(super) fn mxcsr_mask(&self) -> u32 {
        self.mxcsr_mask.load(Relaxed)
    }
}

fn cpuid(leaf: u32, part: u32) -> CpuidResult {
    __cpuid_count(leaf, part)
}

/// Asks the processor what it has. Core 0, once, before `set_up`.
pub(super) fn detect() {
    let features = &FEATURES;
    let set =
        |flag: &AtomicBool, register: u32, bit: u32| flag.store(register >> bit & 1 != 0, Relaxed);
    let last = __cpuid(0).eax;
    let basic = cpuid(1, 0);
    set(&features.x2apic, basic.ecx, 21);
    set(&features.xsave, basic.ecx, 26);
    set(&features.rdrand, basic.ecx, 30);
    if last >= 7 {
        let extended = cpuid(7, 0);
        set(&features.fsgsbase, extended.ebx, 0);
        set(&features.smep, extended.ebx, 7);
        set(&features.rdseed, extended.ebx, 18);
        set(&features.smap, extended.ebx, 20);
        set(&features.umip, extended.ecx, 2);
        set(&features.pku, extended.ecx, 3);
    }
    if __cpuid(0x8000_0000).eax >= 0x8000_0001 {
        let more = cpuid(0x8000_0001, 0);
        set(&features.gigabyte_pages, more.edx, 26);
        set(&features.rdtscp, more.edx, 27);
    }
    if features.xsave.load(Relaxed) && last >= 0xd {
        set(&features.xsaveopt, cpuid(0xd, 1).eax, 0);
        let wanted = COMPONENTS_WANTED as u32 & cpuid(0xd, 0).eax;
        // AVX-512 has three parts that only go together, and only with AVX.
        let wanted = if wanted & 0xe4 == 0xe4 { wanted } else { wanted & 7 };
        let has_keys = features.pku.load(Relaxed) && cpuid(0xd, 0).eax >> COMPONENT_KEYS & 1 != 0;
        if has_keys {
            features.keys_offset.store(cpuid(0xd, COMPONENT_KEYS).ebx as usize, Relaxed);
        }
        features.components.store(wanted | 3 | u32::from(has_keys) << COMPONENT_KEYS, Relaxed);
    } else {
        features.xsave.store(false, Relaxed);
    }
    // Keys that are not a thread's own would be everybody's.
    if features.keys_offset.load(Relaxed) == 0 {
        features.pku.store(false, Relaxed);
    }
    let emulated = basic.ecx >> 31 & 1 != 0 && {
        let vendor = __cpuid(0x4000_0000);
        let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        [vendor.ebx, vendor.ecx, vendor.edx] == [word(b"TCGT"), word(b"CGTC"), word(b"GTCG")]
    };
    features.is_emulated.store(emulated, Relaxed);
}

/// Switches on everything that protects the kernel or that user programs may use. Every core, once;
/// `number` is the core's.
pub(super) fn set_up(number: usize) {
    let features = &FEATURES;
    // SAFETY: only bits that the processor has, according to CPUID, are set; none changes how the
    // kernel's own code or data is reached.
    unsafe {
        write_msr(MSR_EFER, read_msr(MSR_EFER) | 1 << 11 | 1);
        let mut cr0: u64;
        asm!("mov {}, cr0", out(reg) cr0, options(nomem, nostack, preserves_flags));
        // Set: monitor coprocessor, numeric errors, write protection, alignment mask. Clear: emulation,
        // task switched, cache off.
        cr0 = (cr0 | 1 << 1 | 1 << 5 | 1 << 16 | 1 << 18) & !(1 << 2 | 1 << 3 | 3 << 29);
        asm!("mov cr0, {}", in(reg) cr0, options(nomem, nostack, preserves_flags));
        let mut cr4: u64;
        asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags));
        // Global pages, FXSAVE, SSE exceptions.
        cr4 |= 1 << 7 | 1 << 9 | 1 << 10;
        for (feature, bit) in [
            (&features.umip, 11),
            (&features.fsgsbase, 16),
            (&features.xsave, 18),
            (&features.smep, 20),
            (&features.smap, 21),
            (&features.pku, 22),
        ] {
            if feature.load(Relaxed) {
                cr4 |= 1 << bit;
            }
        }
        asm!("mov cr4, {}", in(reg) cr4, options(nomem, nostack, preserves_flags));
        if features.xsave.load(Relaxed) {
            asm!("xsetbv", in("ecx") 0, in("eax") features.components() as u32, in("edx") 0,
                options(nomem, nostack, preserves_flags));
        }
        if features.pku.load(Relaxed) {
            asm!("wrpkru", in("eax") xsave::KEYS_AT_RESET, in("ecx") 0, in("edx") 0,
                options(nomem, nostack, preserves_flags));
        }
        if features.rdtscp.load(Relaxed) {
            // What RDTSCP and RDPID give: on Linux, the core's number.
            write_msr(MSR_TSC_AUX, number as u64);
        }
        asm!("fninit", options(nomem, nostack, preserves_flags));
    }
}

/// Finds the size of the floating-point state and the valid bits of MXCSR. Core 0, after `set_up`.
pub(super) fn measure_state() {
    #[repr(C, align(64))]
    struct Area([u8; xsave::LEAST_SIZE]);
    let mut area = Area([0; xsave::LEAST_SIZE]);
    // SAFETY: FXSAVE writes 512 bytes to a 16-byte aligned area of 576.
    unsafe { asm!("fxsave64 [{}]", in(reg) &raw mut area, options(nostack, preserves_flags)) };
    let mask = xsave::mxcsr_mask(&area.0);
    FEATURES.mxcsr_mask.store(if mask == 0 { 0xffbf } else { mask }, Relaxed);
    if FEATURES.xsave.load(Relaxed) {
        let size = cpuid(0xd, 0).ebx as usize;
        FEATURES.state_size.store(size.clamp(xsave::LEAST_SIZE, xsave::MOST_SIZE), Relaxed);
    }
}

/// Saves the core's floating-point state.
///
/// # Safety
/// `area` is 64-byte aligned and `FEATURES.state_size()` bytes long.
pub(super) unsafe fn save_state(area: *mut u8) {
    // SAFETY: the area is as the caller promises; the instructions exist according to CPUID.
    unsafe {
        if FEATURES.xsaveopt.load(Relaxed) {
            asm!("xsaveopt64 [{}]", in(reg) area, in("eax") -1, in("edx") -1,
                options(nostack, preserves_flags));
        } else if FEATURES.xsave.load(Relaxed) {
            asm!("xsave64 [{}]", in(reg) area, in("eax") -1, in("edx") -1,
                options(nostack, preserves_flags));
        } else {
            asm!("fxsave64 [{}]", in(reg) area, options(nostack, preserves_flags));
        }
    }
}

/// Loads a floating-point state.
///
/// # Safety
/// As `save_state`, and the area holds a state that was saved, reset or found valid.
pub(super) unsafe fn load_state(area: *const u8) {
    // SAFETY: the area is as the caller promises, so neither instruction faults.
    unsafe {
        if FEATURES.xsave.load(Relaxed) {
            asm!("xrstor64 [{}]", in(reg) area, in("eax") -1, in("edx") -1,
                options(nostack, preserves_flags, readonly));
        } else {
            asm!("fxrstor64 [{}]", in(reg) area, options(nostack, preserves_flags, readonly));
        }
    }
}

/// # Safety
/// The register exists.
pub(super) unsafe fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// # Safety
/// The register exists, takes the value, and the value keeps the kernel running.
pub(super) unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// Base of FS, which only user mode uses.
pub(super) fn fs_base() -> u64 {
    let value: u64;
    // SAFETY: RDFSBASE is switched on when CPUID has it; the MSR always exists.
    unsafe {
        if FEATURES.fsgsbase.load(Relaxed) {
            asm!("rdfsbase {}", out(reg) value, options(nomem, nostack, preserves_flags));
        } else {
            value = read_msr(MSR_FS_BASE);
        }
    }
    value
}

/// Sets the base of FS. A non-canonical address is cut to a canonical one.
pub(super) fn set_fs_base(value: u64) {
    let value = canonical(value);
    // SAFETY: the address is canonical, so neither way faults; the kernel does not use FS.
    unsafe {
        if FEATURES.fsgsbase.load(Relaxed) {
            asm!("wrfsbase {}", in(reg) value, options(nomem, nostack, preserves_flags));
        } else {
            write_msr(MSR_FS_BASE, value);
        }
    }
}

/// Base of GS in user mode; while the kernel runs it lies in the shadow register.
pub(super) fn user_gs_base() -> u64 {
    // SAFETY: the MSR exists in long mode.
    unsafe { read_msr(MSR_KERNEL_GS_BASE) }
}

/// Sets it. A non-canonical address is cut to a canonical one.
pub(super) fn set_user_gs_base(value: u64) {
    // SAFETY: the address is canonical; the kernel itself only uses the other base.
    unsafe { write_msr(MSR_KERNEL_GS_BASE, canonical(value)) }
}

fn canonical(address: u64) -> u64 {
    ((address << 16) as i64 >> 16) as u64
}

/// The cycle counter.
#[inline]
pub(super) fn cycles() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter.
    unsafe {
        asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Spends a moment. `pause` makes QEMU's emulator leave its translated code, which takes longer than
/// what is waited for; there a handful of plain instructions does.
#[inline]
pub(super) fn relax() {
    if FEATURES.is_emulated.load(Relaxed) {
        // SAFETY: does nothing.
        unsafe { asm!("nop", "nop", "nop", "nop", options(nomem, nostack, preserves_flags)) };
    } else {
        core::hint::spin_loop();
    }
}

/// Entropy from the processor.
pub(super) fn random() -> Option<u64> {
    /// Intel's guidance: more failures in a row mean a broken generator.
    const ATTEMPTS: u32 = 10;
    for _ in 0..ATTEMPTS {
        let value: u64;
        let filled: u8;
        // SAFETY: the instruction exists according to CPUID.
        unsafe {
            if FEATURES.rdseed.load(Relaxed) {
                asm!("rdseed {}", "setc {}", out(reg) value, out(reg_byte) filled,
                    options(nomem, nostack));
            } else if FEATURES.rdrand.load(Relaxed) {
                asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) filled,
                    options(nomem, nostack));
            } else {
                return None;
            }
        }
        if filled != 0 {
            return Some(value);
        }
    }
    None
}

/// # Safety
/// Writing the port does no harm.
pub(super) unsafe fn out8(port: u16, value: u8) {
    // SAFETY: the caller's promise.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// # Safety
/// Reading the port does no harm.
pub(super) unsafe fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: the caller's promise.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

/// # Safety
/// Writing the port does no harm.
pub(super) unsafe fn out16(port: u16, value: u16) {
    // SAFETY: the caller's promise.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags)) };
}

/// Stops the core until an interrupt comes, with interrupts off: for ever, but for those that cannot
/// be masked.
pub(super) fn halt() -> ! {
    loop {
        // SAFETY: stops the core.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
