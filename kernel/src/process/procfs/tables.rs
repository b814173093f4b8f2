//! Tables in the root of `/proc` that tell of parts of the machine: memory by size of block, drivers of terminals,
//! and what there is none or nearly none of, with the headings that programs expect.

use alloc::vec::Vec;

use abi::Errno;
use base::memory::frame_counts;

use super::{Text, put};
use crate::machine;

type Generated = Result<Vec<u8>, Errno>;

/// Sizes of blocks that `/proc/buddyinfo` tells of: one page to 1024 pages.
const ORDERS: usize = 11;

/// Free memory by size of block, told as if it lay in blocks as large as possible.
pub(super) fn free_blocks() -> Generated {
    let mut text = Text::default();
    put!(text, "Node 0, zone   Normal ");
    let free = frame_counts().free;
    for order in 0..ORDERS {
        let is_largest = order == ORDERS - 1;
        let count = if is_largest { free >> order } else { free >> order & 1 };
        put!(text, "{count:6} ");
    }
    put!(text, "\n");
    Ok(text.0)
}

/// The one zone of memory there is.
pub(super) fn zones() -> Generated {
    let mut text = Text::default();
    let frames = frame_counts();
    let shared = fs::tmpfs::page_count();
    put!(text, "Node 0, zone   Normal\n  per-node stats\n");
    put!(text, "      nr_inactive_anon {shared}\n      nr_shmem     {shared}\n");
    put!(text, "  pages free     {}\n        boost    0\n", frames.free);
    let least = frames.total / 64;
    put!(text, "        min      {least}\n        low      {}\n", least + least / 4);
    put!(text, "        high     {}\n", least + least / 2);
    let total = frames.total;
    put!(text, "        spanned  {total}\n        present  {total}\n        managed  {total}\n");
    put!(text, "        cma      0\n        protection: (0, 0, 0, 0)\n");
    put!(text, "      nr_free_pages {}\n  pagesets\n", frames.free);
    put!(text, "  node_unreclaimable:  0\n  start_pfn:           0\n");
    Ok(text.0)
}

/// The heap keeps no named caches.
pub(super) fn caches() -> Generated {
    Ok(b"slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize> \
<objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata \
<active_slabs> <num_slabs> <sharedavail>\n"
        .to_vec())
}

/// What Linux does after interrupts is done by the loop of a core here, and not counted.
pub(super) fn after_interrupts() -> Generated {
    const NAMES: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    let cores: Vec<usize> = machine::layout().application.iter().collect();
    let mut text = Text::default();
    put!(text, "                ");
    for core in &cores {
        put!(text, "    CPU{core:<8}");
    }
    put!(text, "\n");
    for name in NAMES {
        put!(text, "{name:>12}:");
        for _ in &cores {
            put!(text, " {:10}", 0);
        }
        put!(text, "\n");
    }
    Ok(text.0)
}

/// Run queues by core; nothing is counted.
pub(super) fn run_queues() -> Generated {
    let mut text = Text::default();
    put!(text, "version 15\ntimestamp {}\n", base::time::now_ns() / 4_000_000);
    for core in machine::layout().application.iter() {
        put!(text, "cpu{core} 0 0 0 0 0 0 0 0 0\n");
    }
    Ok(text.0)
}

pub(super) fn consoles() -> Generated {
    Ok(b"hvc0                 -W- (EC  p  )  229:0\n".to_vec())
}

pub(super) fn formats_of_programs() -> Generated {
    Ok(b"0-0\tLinux           \t[kernel]\n".to_vec())
}

/// The drivers of terminals: names, numbers, kinds.
pub(super) fn terminal_drivers() -> Generated {
    Ok(b"/dev/tty             /dev/tty        5       0 system:/dev/tty
/dev/console         /dev/console    5       1 system:console
/dev/ptmx            /dev/ptmx       5       2 system
pty_slave            /dev/pts      136 0-1048575 pty:slave
pty_master           /dev/ptm      128 0-1048575 pty:master
"
    .to_vec())
}

/// Memory by mobility and size of block: all of it can move.
pub(super) fn kinds_of_pages() -> Generated {
    let mut text = Text::default();
    put!(text, "Page block order: 9\nPages per block:  512\n\n");
    put!(text, "Free pages count per migrate type at order ");
    for order in 0..ORDERS {
        put!(text, "{order:6} ");
    }
    put!(text, "\nNode    0, zone   Normal, type      Movable ");
    let free = frame_counts().free;
    for order in 0..ORDERS {
        let is_largest = order == ORDERS - 1;
        put!(text, "{:6} ", if is_largest { free >> order } else { free >> order & 1 });
    }
    put!(text, "\n");
    Ok(text.0)
}
