//! The checks.

extern crate alloc;

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hal::{Contract, Machine, Pending, PhysAddr, Trap, UserContext};

use crate::{say, space, user};

type Context = <Machine as Contract>::Context;

const SIGILL: u8 = 4;
const SIGTRAP: u8 = 5;
const SIGBUS: u8 = 7;
const SIGFPE: u8 = 8;
const SIGSEGV: u8 = 11;

fn thread(entry: u64) -> Context {
    Context::new(entry, space::STACK_TOP - 64)
}

fn enter(context: &mut Context) -> Trap {
    // SAFETY: the context is ours alone, and the checks' address space is loaded.
    unsafe { Machine::enter_user(context) }
}

/// Until it traps by something else than an interrupt.
fn run(context: &mut Context) -> Trap {
    loop {
        let trap = enter(context);
        if trap != Trap::Interrupt {
            return trap;
        }
    }
}

/// Runs everything; a failed check panics.
pub fn all() {
    let initramfs = Machine::boot_info().initramfs;
    if !initramfs.is_empty() {
        let sum = initramfs.iter().fold(0u64, |sum, byte| sum + u64::from(*byte));
        say!("selftest: the bytes of the initramfs add up to {sum}");
    }
    let root = space::new();
    // SAFETY: prepared, and never freed.
    unsafe { Machine::load_root(root) };
    calls();
    faults();
    hostile();
    floating_point();
    timer();
    device_line();
    cores(root);
    if Machine::boot_info().command_line.contains("selftest.idle") {
        idle();
    }
    if Machine::boot_info().command_line.contains("selftest.overflow") {
        say!("selftest: overflow {}", overflow(1));
    }
}

fn calls() {
    let mut context = thread(user!(user_calls));
    for number in 0..100 {
        assert_eq!(run(&mut context), Trap::SystemCall);
        assert_eq!(context.instruction_pointer(), user!(user_calls) + 2);
        if number > 0 {
            assert_eq!(context.call_number(), number - 1);
        }
        context.set_return_value(number as u64);
    }
    context.restart_call(7);
    assert_eq!(run(&mut context), Trap::SystemCall);
    assert_eq!(context.call_number(), 7);
    say!("selftest: calls ok, {} ns each", measure(&mut context));
}

/// Nanoseconds per trap and return, the best of several runs.
fn measure(context: &mut Context) -> u64 {
    const CALLS: u64 = 200_000;
    let mut best = u64::MAX;
    for _ in 0..5 {
        let start = Machine::cycles();
        for _ in 0..CALLS {
            if enter(context) == Trap::SystemCall {
                context.set_return_value(0);
            }
        }
        best = best.min(Machine::cycles() - start);
    }
    best * 1_000_000_000 / Machine::cycles_per_second() / CALLS
}

fn faults() {
    let fault = |entry, signal, code, address| {
        match run(&mut thread(entry)) {
            Trap::Fault { signal: s, code: c, address: a, .. } => {
                assert_eq!((s, c, a.0), (signal, code, address), "at {entry:#x}");
            }
            other => panic!("{other:?} at {entry:#x}"),
        };
    };
    fault(user!(user_divide), SIGFPE, 1, user!(user_divide) + 2);
    fault(user!(user_undefined), SIGILL, 2, user!(user_undefined));
    fault(user!(user_breakpoint), SIGTRAP, 0x80, 0);
    fault(user!(user_step), SIGTRAP, 2, user!(user_stepped));
    fault(user!(user_halt), SIGSEGV, 0x80, 0);
    fault(user!(user_old_call), SIGSEGV, 0x80, 0);
    fault(user!(user_read_odd), SIGSEGV, 0x80, 0);
    fault(user!(user_x87_divide), SIGFPE, 3, user!(user_x87_divide) + 14);
    let mut context = thread(user!(user_misaligned));
    match run(&mut context) {
        Trap::Fault { signal: SIGBUS, code: 1, .. } => {}
        // QEMU's emulator neither checks alignment nor raises SSE exceptions.
        other => say!("selftest: no alignment check: {other:?}"),
    }
    match run(&mut thread(user!(user_sse_divide))) {
        Trap::Fault { signal: SIGFPE, code: 3, vector: 19, .. } => {}
        other => say!("selftest: no SSE exceptions: {other:?}"),
    }
    for (entry, address, write, execute, present) in [
        (user!(user_read_null), 0, false, false, false),
        (user!(user_write_code), space::CODE, true, false, true),
        (user!(user_write_kernel), 0xffff_8000_0020_0000, true, false, true),
        (user!(user_jump_data), space::DATA, false, true, true),
    ] {
        let expected = Trap::PageFault {
            address: hal::VirtAddr(address),
            write,
            execute,
            present,
            by_key: false,
        };
        assert_eq!(run(&mut thread(entry)), expected);
    }
    say!("selftest: faults ok");
}

/// Any register content ends in a trap, never in a fault of the kernel.
fn hostile() {
    let odd = [
        0,
        1,
        space::CODE,
        user!(user_calls),
        user!(user_spin) + 1,
        0x7fff_ffff_efff,
        0x7fff_ffff_fffe,
        0x7fff_ffff_ffff,
        0x8000_0000_0000,
        0xffff_7fff_ffff_ffff,
        0xffff_8000_0000_0000,
        0xffff_ffff_8020_4000,
        u64::MAX - 1,
        u64::MAX,
    ];
    let mut context = thread(user!(user_calls));
    let sane = context.general_registers();
    let mut state = 1u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..20_000 {
        let mut registers = [0; 18];
        for register in &mut registers {
            let value = random();
            *register =
                if value & 3 == 0 { random() } else { odd[(value >> 8) as usize % odd.len()] };
        }
        context.set_general_registers(&registers);
        Machine::set_timer(Some(Machine::cycles() + Machine::cycles_per_second() / 5000));
        enter(&mut context);
        if round % 3 == 0 {
            // After a system call the short way back must bear it too.
            context.set_general_registers(&sane);
            enter(&mut context);
            context.set_instruction_pointer(odd[random() as usize % odd.len()]);
            context.set_stack_pointer(random());
            enter(&mut context);
        }
    }
    Machine::set_timer(None);
    Machine::take_pending();
    say!("selftest: hostile registers ok");
}

/// Whether programs may set segment bases themselves.
fn has_bases() -> bool {
    core::arch::x86_64::__cpuid(0).eax >= 7 && core::arch::x86_64::__cpuid(7).ebx & 1 != 0
}

fn keeper(value: u64) -> Context {
    let mut context =
        if has_bases() { thread(user!(user_keep)) } else { thread(user!(user_keep_plain)) };
    context.set_c_argument(0, value);
    context.set_thread_pointer(value);
    context
}

fn floating_point() {
    let mut contexts = [keeper(0x1111), keeper(0x2222), keeper(0x3333)];
    for round in 0..300 {
        let context = &mut contexts[round % 7 % 3];
        assert_eq!(run(context), Trap::SystemCall, "round {round}");
        if round % 5 == 0 {
            Machine::release_fpu(context);
            assert_eq!(run(&mut context.duplicate()), Trap::SystemCall);
        }
    }
    let [mut context, ..] = contexts;
    Machine::release_fpu(&mut context);
    assert_eq!(context.thread_pointer(), 0x1111);
    let mut state = alloc::vec![0; Context::fpu_size()];
    context.read_fpu(&mut state);
    assert_eq!(state[160..168], 0x1111u64.to_le_bytes(), "xmm0 in the saved state");
    assert!(context.write_fpu(&state));
    assert_eq!(run(&mut context), Trap::SystemCall);
    Machine::release_fpu(&mut context);
    let mut refused = 0;
    for byte in 0..state.len() {
        let before = state[byte];
        state[byte] = 0xff;
        if context.write_fpu(&state) {
            // Whatever is taken must load without a fault.
            enter(&mut context);
            Machine::release_fpu(&mut context);
        } else {
            refused += 1;
        }
        state[byte] = before;
    }
    assert!(refused >= 64, "the header was not checked");
    let mut others = [thread(user!(user_calls)), thread(user!(user_calls))];
    let start = Machine::cycles();
    for round in 0..10_000 {
        run(&mut others[round % 2]);
    }
    let ns = (Machine::cycles() - start) * 100_000 / Machine::cycles_per_second();
    say!("selftest: floating point ok, {} bytes, {ns} ns per change of threads", state.len());
}

fn timer() {
    let hz = Machine::cycles_per_second();
    let mut late = 0;
    for us in [50, 1000, 20_000] {
        let deadline = Machine::cycles() + hz / 1_000_000 * us;
        Machine::set_timer(Some(deadline));
        let mut pending = Pending::default();
        while !pending.timer {
            Machine::wait_for_interrupt();
            pending = Machine::take_pending();
        }
        let now = Machine::cycles();
        assert!(now >= deadline);
        late = late.max((now - deadline) * 1_000_000 / hz);
    }
    let mut context = thread(user!(user_spin));
    let start = Machine::cycles();
    Machine::set_timer(Some(start + hz / 1000));
    assert_eq!(enter(&mut context), Trap::Interrupt);
    assert!(Machine::take_pending().timer);
    Machine::set_timer(Some(0));
    Machine::wait_for_interrupt();
    assert!(Machine::take_pending().timer, "a time that has passed fires at once");
    say!("selftest: timer ok, at most {late} us late");
}

/// The serial port's own line: its transmitter is empty, so it interrupts once allowed to.
fn device_line() {
    const LINE: u32 = 4;
    Machine::enable_line(LINE, 0);
    // SAFETY: the port's interrupt-enable register; the log does not use it.
    unsafe { core::arch::asm!("out dx, al", in("dx") 0x3f9_u16, in("al") 2_u8) };
    // SAFETY: the modem-control register opens the line.
    unsafe { core::arch::asm!("out dx, al", in("dx") 0x3fc_u16, in("al") 0xb_u8) };
    Machine::set_timer(Some(Machine::cycles() + Machine::cycles_per_second() / 10));
    Machine::wait_for_interrupt();
    let pending = Machine::take_pending();
    // SAFETY: as above.
    unsafe { core::arch::asm!("out dx, al", in("dx") 0x3f9_u16, in("al") 0_u8) };
    Machine::set_timer(None);
    Machine::take_pending();
    assert!(pending.device, "{pending:?}");
    say!("selftest: device line ok");
}

/// Waits ten seconds; the host can see what that costs.
fn idle() {
    // The other cores spin in user mode; the next interrupt lets them wait.
    (1..Machine::boot_info().cpu_count).for_each(Machine::send_ipi);
    Machine::set_timer(Some(Machine::cycles() + 10 * Machine::cycles_per_second()));
    let mut waits = 0;
    while !Machine::take_pending().timer {
        Machine::wait_for_interrupt();
        waits += 1;
    }
    say!("selftest: idle for 10 s, {waits} wake-ups");
}

static ROOT: AtomicU64 = AtomicU64::new(0);
static READY: AtomicUsize = AtomicUsize::new(0);
static PINGS: AtomicU64 = AtomicU64::new(0);
static SLOWEST: AtomicU64 = AtomicU64::new(0);

fn cores(root: PhysAddr) {
    ROOT.store(root.0, Ordering::Relaxed);
    let expected = Machine::boot_info().cpu_count;
    let start = Machine::cycles();
    let count = Machine::start_cores(other_core);
    let us = (Machine::cycles() - start) * 1_000_000 / Machine::cycles_per_second();
    assert_eq!(count, expected);
    if count == 1 {
        return;
    }
    wait_for("cores", || READY.load(Ordering::Acquire) == count - 1);
    // They spin in user mode now; an interrupt each brings them out, again and again.
    for round in 1..=100 {
        for cpu in 1..count {
            Machine::send_ipi(cpu);
        }
        wait_for("answers", || PINGS.load(Ordering::Acquire) >= round * (count as u64 - 1));
    }
    let slowest = SLOWEST.load(Ordering::Relaxed);
    say!("selftest: {count} cores ok, started in {us} us, {slowest} ns per call with all at it");
    if Machine::boot_info().command_line.contains("selftest.starve") {
        starve();
    }
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let end = Machine::cycles() + 10 * Machine::cycles_per_second();
    while !done() {
        assert!(Machine::cycles() < end, "{what} did not come");
        Machine::relax();
    }
}

fn other_core(cpu: usize) -> ! {
    assert_eq!(Machine::cpu_id(), cpu);
    // SAFETY: prepared, and never freed.
    unsafe { Machine::load_root(PhysAddr(ROOT.load(Ordering::Relaxed))) };
    let mut context = keeper(cpu as u64);
    for _ in 0..1000 {
        assert_eq!(run(&mut context), Trap::SystemCall);
    }
    let ns = measure(&mut thread(user!(user_calls)));
    SLOWEST.fetch_max(ns, Ordering::Relaxed);
    READY.fetch_add(1, Ordering::Release);
    let mut context = thread(user!(user_spin));
    for round in 0.. {
        if round % 2 == 0 {
            assert_eq!(enter(&mut context), Trap::Interrupt);
        } else {
            Machine::wait_for_interrupt();
        }
        if Machine::take_pending().ipi {
            PINGS.fetch_add(1, Ordering::Release);
        }
    }
    Machine::power_off()
}

/// How much slower a core's calls are while it shares the host with one that spins.
fn starve() {
    let mut context = thread(user!(user_calls));
    let start = Machine::cycles();
    for _ in 0..50_000_000_u64 {
        Machine::relax();
    }
    let ns = (Machine::cycles() - start) * 20 / Machine::cycles_per_second();
    say!("selftest: {ns} ns per relax, {} ns per call", measure(&mut context));
}

#[allow(unconditional_recursion, reason = "the stack is to overflow")]
fn overflow(depth: u64) -> u64 {
    let mut page = [depth; 64];
    core::hint::black_box(&mut page);
    overflow(depth + 1) + page[3]
}
