//! Tries the floor on the machine: built by `base/build-selftest.sh`, started by QEMU. Prints one line
//! per check and per measurement and `selftest: passed` at the end, then switches off.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

hal::entry!(bare::main);

mod bare {
    use alloc::boxed::Box;
    use alloc::sync::Arc;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use base::cpu::CpuId;
    use base::memory::{Frame, PageRights, PageTable, ShareMode, VirtAddr, frame_counts};
    use base::task::{TaskPool, spawn, yield_now};
    use base::wait::WaitQueue;
    use base::{heap, logging, panic, task, time};
    use hal::{Contract, Machine};

    macro_rules! say {
        ($($argument:tt)*) => { logging::line(format_args!($($argument)*)) };
    }

    /// Runs this core; `main_done` ends the machine.
    fn run_core() -> ! {
        let mut idle_since_ns = time::now_ns();
        loop {
            let worked = task::run_ready();
            time::expire_if_due();
            if worked {
                idle_since_ns = time::now_ns();
            } else if time::now_ns() - idle_since_ns > SPIN_NS.load(Ordering::Relaxed) as u64 {
                task::park(|| false);
                if Machine::take_pending().timer {
                    time::expire();
                }
                idle_since_ns = time::now_ns();
            } else {
                base::cpu::relax();
            }
        }
    }

    /// How long cores spin before they park.
    static SPIN_NS: AtomicUsize = AtomicUsize::new(0);

    fn other_core(_core: usize) -> ! {
        base::start_core();
        run_core()
    }

    pub fn main() -> ! {
        base::start();
        let started = Machine::start_cores(other_core);
        say!("selftest: {started} cores, {:?}", frame_counts());
        let checks = async move {
            all(started).await;
            say!("selftest: passed");
            Machine::power_off()
        };
        if spawn(CpuId::FIRST, checks).is_err() {
            say!("selftest: no memory for the checks");
            Machine::power_off();
        }
        run_core()
    }

    /// Nanoseconds per turn of `work`, the best of five rounds.
    fn measure(turns: u64, mut work: impl FnMut()) -> u64 {
        (0..5)
            .map(|_| {
                let start_ns = time::now_ns();
                (0..turns).for_each(|_| work());
                (time::now_ns() - start_ns) / turns
            })
            .min()
            .unwrap_or(0)
    }

    async fn all(cores: usize) {
        contain_panics().await;
        memory();
        tables();
        calls();
        timers().await;
        if let Some(other) = CpuId::new(1).filter(|_| cores > 1) {
            for spin_ns in [0, 10_000_000] {
                SPIN_NS.store(spin_ns, Ordering::Relaxed);
                latency(other, spin_ns).await;
            }
            everything_between_cores(other).await;
        }
        say!("selftest: {:?}, heap {} pages", task::task_counts(), heap::page_count());
    }

    async fn contain_panics() {
        let caught = panic::catch(|| {
            let numbers = [1, 2, 3];
            numbers.iter().position(|number| *number == 4).expect("this panic is wanted")
        });
        assert!(caught.is_err());
        let ended = Arc::new(AtomicBool::new(false));
        let hook = ended.clone();
        let bad = async { panic!("this one too") };
        assert!(
            task::spawn_with_hook(CpuId::current(), bad, move || hook
                .store(true, Ordering::Relaxed))
            .is_ok()
        );
        while !ended.load(Ordering::Relaxed) {
            yield_now().await;
        }
        say!("selftest: panics are contained");
        let ns = measure(1000, || assert!(panic::catch(|| 1).is_ok()));
        say!("selftest: catch without panic {ns} ns");
    }

    fn memory() {
        let before = frame_counts();
        let (Ok(first), Ok(second)) = (Frame::zeroed(), Frame::zeroed()) else {
            return say!("selftest: no memory");
        };
        say!("selftest: zero a page {} ns", measure(2000, || first.zero(0, 4096)));
        say!("selftest: copy a page {} ns", measure(2000, || second.copy_from(&first)));
        let mut buffer = vec![0_u8; 4096];
        say!("selftest: read a page {} ns", measure(2000, || first.read(0, &mut buffer)));
        let other = vec![7_u8; 4096];
        say!("selftest: memcpy of a page {} ns", measure(2000, || buffer.copy_from_slice(&other)));
        say!("selftest: memset of a page {} ns", measure(2000, || buffer.fill(3)));
        assert!(buffer.iter().all(|byte| *byte == 3));
        let frame = || drop(Frame::uninitialised());
        say!("selftest: take and free a frame {} ns", measure(2000, frame));
        let small = || drop(core::hint::black_box(Box::new([0_u64; 8])));
        say!("selftest: allocate and free 64 bytes {} ns", measure(2000, small));
        let large = || drop(core::hint::black_box(Vec::<u8>::with_capacity(9000)));
        say!("selftest: allocate and free 9000 bytes {} ns", measure(500, large));
        drop((first, second));
        assert_eq!(frame_counts().total, before.total);
    }

    fn tables() {
        let rights = PageRights { write: true, execute: false, user: true, hidden: false };
        let Ok(mut table) = PageTable::new() else { return say!("selftest: no memory") };
        let mut number = 0;
        let page = |number: u64| VirtAddr(0x40_0000 + number * 4096);
        let ns = measure(1000, || {
            if let Ok(frame) = Frame::zeroed() {
                let _ = table.map(page(number), frame, rights);
            }
            number += 1;
        });
        say!("selftest: zero and map a page {ns} ns");
        let range = page(0)..page(number);
        let start_ns = time::now_ns();
        if let Ok(mut child) = PageTable::new() {
            let shared = table.share_range(&mut child, range.clone(), ShareMode::CopyOnWrite, 1);
            assert!(shared.1.is_ok());
        }
        say!("selftest: fork and drop, per page {} ns", (time::now_ns() - start_ns) / number);
        let mut buffer = vec![0; 4096];
        say!(
            "selftest: copy 4096 user bytes out {} ns",
            measure(1000, || assert_eq!(table.copy_out(page(1), &mut buffer), 4096))
        );
        let mut few = [0; 8];
        say!(
            "selftest: copy 8 user bytes out {} ns",
            measure(1000, || assert_eq!(table.copy_out(page(1), &mut few), 8))
        );
        let start_ns = time::now_ns();
        assert_eq!(table.unmap_range(range) as u64, number);
        say!("selftest: unmap and free, per page {} ns", (time::now_ns() - start_ns) / number);
    }

    fn calls() {
        let mut pool = TaskPool::new(16);
        let counter = Arc::new(AtomicUsize::new(0));
        let ns = measure(2000, || {
            let counter = counter.clone();
            let work = || async move {
                counter.fetch_add(1, Ordering::Relaxed);
            };
            assert_eq!(pool.submit(work), Ok(true));
        });
        say!("selftest: submit to a pool {ns} ns");
        say!(
            "selftest: read the clock {} ns",
            measure(2000, || {
                core::hint::black_box(time::now_ns());
            })
        );
    }

    async fn timers() {
        let mut worst_ns = 0;
        for _ in 0..20 {
            let deadline_ns = time::now_ns() + 1_000_000;
            time::sleep_until(deadline_ns).await;
            worst_ns = worst_ns.max(time::now_ns() - deadline_ns);
        }
        say!("selftest: timers are late by {worst_ns} ns at most");
    }

    struct Side {
        queue: WaitQueue,
        round: AtomicUsize,
    }

    impl Side {
        fn new() -> Side {
            Side { queue: WaitQueue::new(), round: AtomicUsize::new(0) }
        }

        fn set(&self, round: usize) {
            self.round.store(round, Ordering::Release);
            self.queue.wake_one();
        }

        async fn reach(&self, round: usize) {
            let reached = || (self.round.load(Ordering::Acquire) >= round).then_some(());
            self.queue.wait_until(reached).await;
        }
    }

    async fn latency(other: CpuId, spin_ns: usize) {
        const ROUNDS: usize = 500;
        let sides = Arc::new((Side::new(), Side::new()));
        let theirs = sides.clone();
        let partner = async move {
            for round in 1..=ROUNDS {
                theirs.0.reach(round).await;
                theirs.1.set(round);
            }
        };
        if spawn(other, partner).is_err() {
            return say!("selftest: no memory");
        }
        let mut best_ns = u64::MAX;
        let start_ns = time::now_ns();
        for round in 1..=ROUNDS {
            let start_ns = time::now_ns();
            sides.0.set(round);
            sides.1.reach(round).await;
            best_ns = best_ns.min(time::now_ns() - start_ns);
        }
        let mean_ns = (time::now_ns() - start_ns) / ROUNDS as u64;
        say!("selftest: wake there and back, spin {spin_ns} ns: best {best_ns}, mean {mean_ns} ns");
    }

    /// Tasks of both cores that allocate, wait for each other and end.
    async fn everything_between_cores(other: CpuId) {
        const TASKS: usize = 200;
        let before = (frame_counts().free, heap::page_count());
        let ended = Arc::new(Side::new());
        for number in 0..TASKS {
            let core = if number % 2 == 0 { other } else { CpuId::FIRST };
            let ended = ended.clone();
            let work = async move {
                let mut kept = Vec::new();
                for round in 0..20 {
                    kept.push((vec![round as u8; 10 + number * 20], Frame::zeroed()));
                    if round % 4 == 0 {
                        kept.clear();
                        time::sleep_for(100_000).await;
                    }
                    yield_now().await;
                }
                let done = ended.round.fetch_add(1, Ordering::AcqRel) + 1;
                if done == TASKS {
                    ended.queue.wake_all();
                }
            };
            assert!(spawn(core, work).is_ok());
        }
        ended.reach(TASKS).await;
        let after = (frame_counts().free, heap::page_count());
        say!(
            "selftest: {TASKS} tasks on two cores ended; free frames and heap pages {before:?}, then {after:?}"
        );
    }
}
