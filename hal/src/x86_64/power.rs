//! Switching the machine off.

use super::acpi::SleepRegister;
use super::cpu::{self, out8, out16};
use super::lock::SpinLock;
use super::{paging, time};

/// How, once known. Memory registers are mapped already.
static METHOD: SpinLock<Option<Method>> = SpinLock::new(None);

#[derive(Clone, Copy)]
enum Method {
    Port { port: u16, wide: bool, value: u16 },
    Memory { register: usize, value: u8 },
}

/// Remembers the way that ACPI tells.
pub(super) fn set_up(register: Option<SleepRegister>) {
    *METHOD.lock() = register.map(|register| match register {
        SleepRegister::Port { port, wide, value } => Method::Port { port, wide, value },
        SleepRegister::Memory { address, value } => {
            Method::Memory { register: paging::map_device(address, 1).expose_provenance(), value }
        }
    });
}

/// Switches off by ACPI, else resets (which ends QEMU with `-no-reboot`), else halts for ever.
pub(super) fn power_off() -> ! {
    /// A panic may have come while the lock was held.
    const TRIES: u32 = 10_000;
    const PATIENCE_US: u64 = 200_000;
    let method = METHOD.lock_for(TRIES).and_then(|method| *method);
    // SAFETY: nothing runs afterwards, so whatever the registers do is what is wanted.
    unsafe {
        match method {
            Some(Method::Port { port, wide: true, value }) => out16(port, value),
            Some(Method::Port { port, value, .. }) => out8(port, value as u8),
            Some(Method::Memory { register, value }) => {
                core::ptr::with_exposed_provenance_mut::<u8>(register).write_volatile(value);
            }
            None => {}
        }
        if method.is_some() {
            time::delay_us(PATIENCE_US);
        }
        // The keyboard controller's reset line, then an exception without a handler.
        out8(0x64, 0xfe);
        time::delay_us(PATIENCE_US);
        let nothing: [u8; 10] = [0; 10];
        core::arch::asm!("lidt [{}]", "ud2", in(reg) &nothing, options(nostack));
    }
    cpu::halt()
}
