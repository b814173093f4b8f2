//! The host's io_uring, to compare with: NOP requests in batches.

use std::io;

use io_uring::{IoUring, opcode};

/// A ring, with a kernel thread that polls it or without.
pub struct Ring {
    ring: IoUring,
    is_polled: bool,
}

impl Ring {
    /// The kernel is entered for each batch.
    pub fn plain(depth: usize) -> io::Result<Ring> {
        let ring = IoUring::builder().setup_single_issuer().build(entries(depth))?;
        Ok(Ring { ring, is_polled: false })
    }

    /// A kernel thread on `processor` takes requests without a system call.
    pub fn polled(depth: usize, processor: usize) -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_sqpoll(2000)
            .setup_sqpoll_cpu(processor as u32)
            .build(entries(depth))?;
        Ok(Ring { ring, is_polled: true })
    }

    /// Submits a batch and waits for all its completions.
    pub fn nops(&mut self, count: usize) {
        self.submit(count, count);
        self.take(count);
    }

    /// Keeps `depth` requests under way until `count` were, and renews them by `chunk`: the kernel's
    /// thread works while completions are taken. Only for a polled ring.
    pub fn stream(&mut self, count: usize, depth: usize, chunk: usize) {
        self.submit(depth, 0);
        for _ in 0..(count - depth) / chunk {
            self.take(chunk);
            self.submit(chunk, 0);
        }
        self.take(depth);
    }

    fn submit(&mut self, count: usize, wait_for: usize) {
        let nop = opcode::Nop::new().build();
        let mut queue = self.ring.submission();
        for _ in 0..count {
            // SAFETY: a NOP refers to no memory.
            while unsafe { queue.push(&nop) }.is_err() {
                // The kernel's thread completes a request before it gives the room back.
                queue.sync();
            }
        }
        drop(queue);
        // With a polling thread the kernel is entered only when that sleeps.
        let wait_for = if self.is_polled { 0 } else { wait_for };
        self.ring.submit_and_wait(wait_for).expect("NOPs are accepted");
    }

    fn take(&mut self, count: usize) {
        let mut taken = 0;
        while taken < count {
            let mut completions = self.ring.completion();
            completions.sync();
            for completion in completions.take(count - taken) {
                assert_eq!(completion.result(), 0);
                taken += 1;
            }
        }
    }
}

fn entries(depth: usize) -> u32 {
    u32::try_from(depth).unwrap_or(u32::MAX)
}

/// The ring, or a word on standard error that the host has none of this kind.
pub fn available(kind: &str, ring: io::Result<Ring>) -> Option<Ring> {
    match ring {
        Ok(ring) => Some(ring),
        Err(error) => {
            eprintln!("posted: this host has no {kind} io_uring ({error}); its line is left out");
            None
        }
    }
}
