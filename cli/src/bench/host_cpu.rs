//! How much of the host's processors a virtual machine takes.
//!
//! What counts is the time of QEMU, all its threads, in the middle of a time in which the guest does
//! nothing: starting and ending the machine are not in it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use procfs::process::{Process, all_processes};

/// The guest has gone to sleep after this time.
const SETTLE: Duration = Duration::from_secs(1);
/// How long is looked.
const WINDOW: Duration = Duration::from_secs(8);

/// Share of one processor that the machine which `command` has started takes, in percent.
pub fn share_of_machine(command: u32) -> Result<f64> {
    std::thread::sleep(SETTLE);
    let machine = machine_of(command)?;
    let start = Instant::now();
    let before = processor_time(&machine)?;
    std::thread::sleep(WINDOW);
    let used = processor_time(&machine)?.saturating_sub(before);
    Ok(used.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0)
}

/// The last in the line of descendants: the tool starts QEMU, which starts nobody.
fn machine_of(command: u32) -> Result<Process> {
    let mut last = i32::try_from(command)?;
    while let Some(child) = child_of(last)? {
        last = child;
    }
    Process::new(last).with_context(|| format!("the machine, process {last}, has ended"))
}

fn child_of(parent: i32) -> Result<Option<i32>> {
    // Processes end while one looks; those are nobody's children any more.
    let known = all_processes().context("cannot read /proc")?.flatten();
    let mut children = known.filter_map(|process| process.stat().ok());
    Ok(children.find(|process| process.ppid == parent).map(|process| process.pid))
}

fn processor_time(process: &Process) -> Result<Duration> {
    let status = process.stat().with_context(|| {
        format!("the machine, process {}, ended while it was observed", process.pid)
    })?;
    let ticks = (status.utime + status.stime) as f64;
    Ok(Duration::from_secs_f64(ticks / procfs::ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_machine_is_the_last_in_line() {
        let script = "sh -c 'sleep 20; true' & wait";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        // While the shells start, whoever was last may have ended by now.
        let sleeps = |process: &Process| process.stat().is_ok_and(|stat| stat.comm == "sleep");
        let deadline = Instant::now() + Duration::from_secs(10);
        let machine = loop {
            if let Some(machine) = machine_of(child.id()).ok().filter(sleeps) {
                break machine;
            }
            assert!(Instant::now() < deadline, "nobody sleeps");
            std::thread::sleep(Duration::from_millis(5));
        };
        let parent = machine.stat().unwrap().ppid;
        // Without its child the shell would end by itself.
        for process in [parent, machine.pid] {
            let id = rustix::process::Pid::from_raw(process).unwrap();
            rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn who_computes_takes_time() {
        let own = Process::myself().unwrap();
        let before = processor_time(&own).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while processor_time(&own).unwrap() < before + Duration::from_millis(30) {
            assert!(Instant::now() < deadline, "no time was counted");
        }
    }
}
