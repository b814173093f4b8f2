//! The boot sequence.
//!
//! Core 0: memory and log, options, servers, devices, the other cores, the root file system, process
//! 1; then its loop. Every other core goes straight to its loop.

use base::task;
use hal::{Contract, Machine};
use policy::choice::Wanted;
use policy::place::{CoreSet, Layout, Wishes};

use crate::{
    core_loop, devices, init, locks, machine, options, posted, process, run_user, servers, stages,
    trace,
};

/// The kernel's first Rust function, on core 0 with one stack and no memory allocator.
pub fn main() -> ! {
    base::logging::start(log::LevelFilter::Warn);
    let boot_info = Machine::boot_info();
    let options = options::parse(boot_info.command_line, |word| {
        log::error!("cannot use {word:?} on the kernel command line; it is ignored");
    });
    base::logging::start(options.log);
    machine::set(choose_layout(boot_info.cpu_count, &options), options.path);
    if !locks::set(options.locks) {
        log::error!(
            "this kernel was built without lock schemes: {} is ignored",
            options.locks.name()
        );
    }
    process::hand_in(run_user::start);
    let is_traced = options.trace != 0 && trace::start(options.trace, options.events);
    if options.trace != 0 && !is_traced {
        log::error!("no memory for rings of {} records: nothing is traced", options.trace);
    }
    stages::start(options.stages, is_traced);
    if stages::is_traced() {
        let layout = machine::layout();
        trace::roles(layout.application.0, layout.kernel.0, layout.interrupt.0);
    }
    servers::start();
    posted::start();
    if !devices::start() {
        log::error!("there is no console device: programs have no streams and nobody to report to");
    }
    let started = Machine::start_cores(core_main);
    if started < boot_info.cpu_count {
        // The layout counts on every core, and a server on a lost core would never answer.
        log::error!("only {started} of {} cores started", boot_info.cpu_count);
        Machine::power_off();
    }
    log::info!("{started} cores, {:?}, path {:?}", machine::layout(), options.path);
    crate::time::publish();
    if task::spawn(machine::device_core(), init::run()).is_err() {
        log::error!("no memory for process 1");
        Machine::power_off();
    }
    core_loop::run()
}

fn choose_layout(cpu_count: usize, options: &options::Options) -> Layout {
    let is_shared = options.path == Wanted::Auto;
    Layout::choose(cpu_count, options.cores, is_shared).unwrap_or_else(|error| {
        log::error!("the core lists cannot be used with {cpu_count} cores: {error:?}; ignored");
        let all = CoreSet::first(cpu_count);
        let every = Layout { application: all, kernel: all, interrupt: all };
        Layout::choose(cpu_count, Wishes::default(), is_shared).unwrap_or(every)
    })
}

fn core_main(_core: usize) -> ! {
    core_loop::run()
}
