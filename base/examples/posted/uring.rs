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
        let nop = opcode::Nop::new().build();
        let mut queue = self.ring.submission();
        for _ in 0..count {
            // SAFETY: a NOP refers to no memory.
            while unsafe { queue.push(&nop) }.is_err() {
                // The kernel's thread completes the last batch before it gives the room back.
                queue.sync();
            }
        }
        drop(queue);
        if self.is_polled {
            // Enters the kernel only when its thread sleeps.
            self.ring.submit().expect("NOPs are accepted");
        } else {
            self.ring.submit_and_wait(count).expect("NOPs are accepted");
        }
        let mut taken = 0;
        while taken < count {
            let mut completions = self.ring.completion();
            completions.sync();
            for completion in completions {
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
