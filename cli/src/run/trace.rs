//! `ferry run --trace FILE`: takes the kernel's records out of the guest's memory while it runs.
//!
//! The memory is a file without a name that QEMU maps and this reads. The kernel says where its rings
//! are; from then on a thread takes what is there every few milliseconds, so neither side needs more
//! room however long the run is. What finds no room in a ring is counted, not awaited. The last records of
//! each core are kept at hand, for the report of a kernel that dies.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use abi::trace::ring::{HEAD, LOST, RECORDS, Rings, TAIL};
use abi::trace::{Header, LockScheme, Origin, RECORD_BYTES, Record, words_of};
use anyhow::{Context, Result, bail};
use trace::Writer;

/// Time between two looks at rings that were empty.
const PAUSE: Duration = Duration::from_millis(2);

/// Records of each core that the report of a panic shows.
const SHOWN: usize = 8;

/// The last records of each core, in the order in which they were written.
pub type LastRecords = Vec<VecDeque<Record>>;

/// A trace that is being recorded.
pub struct Tracer {
    path: PathBuf,
    scheme: LockScheme,
    memory: Arc<File>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<LastRecords>>>,
}

impl Tracer {
    /// Makes the guest's memory and the file of the trace.
    pub fn prepare(path: &Path, memory_mib: u64, scheme: LockScheme) -> Result<Tracer> {
        let memory = rustix::fs::memfd_create("ferry-memory", rustix::fs::MemfdFlags::CLOEXEC)
            .context("cannot get memory for the machine")?;
        let memory = File::from(memory);
        memory.set_len(memory_mib << 20).context("cannot get memory for the machine")?;
        File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Tracer {
            path: path.to_path_buf(),
            scheme,
            memory: Arc::new(memory),
            is_over: Arc::new(AtomicBool::new(false)),
            thread: None,
        })
    }

    /// The guest's memory.
    pub fn memory(&self) -> &File {
        &self.memory
    }

    /// The kernel has said where its rings are.
    pub fn begin(&mut self, rings: Rings) {
        let (memory, is_over) = (self.memory.clone(), self.is_over.clone());
        let (path, scheme) = (self.path.clone(), self.scheme);
        self.thread = Some(std::thread::spawn(move || {
            drain(&memory, &rings, scheme, &path, &is_over)
                .with_context(|| format!("the trace {} is not complete", path.display()))
        }));
    }

    /// The machine is gone: takes what is left. The last records of each core.
    pub fn finish(self) -> Result<LastRecords> {
        self.is_over.store(true, Ordering::Release);
        match self.thread {
            Some(thread) => thread.join().unwrap_or_else(|_| bail!("the trace's thread panicked")),
            None => {
                bail!("the kernel did not say where its trace is; {} is empty", self.path.display())
            }
        }
    }
}

/// Moves records from the rings to the file until the machine is gone and nothing is left.
fn drain(
    memory: &File,
    rings: &Rings,
    scheme: LockScheme,
    path: &Path,
    is_over: &AtomicBool,
) -> Result<LastRecords> {
    let header = Header {
        cores: u8::try_from(rings.cores)?,
        overwrites: false,
        origin: Origin::Recorded,
        ticks_per_second: rings.ticks_per_second,
        began_unix_ns: rings.began_unix_ns,
        scheme,
    };
    let file = File::create(path)?;
    let mut writer = Writer::new(BufWriter::new(file), &header)?;
    let count = (rings.cores as usize).min(rings.addresses.len());
    let capacity = u64::from(rings.capacity);
    let mut ends: Vec<Ring> = rings.addresses[..count]
        .iter()
        .map(|address| Ring {
            address: *address,
            capacity,
            taken: 0,
            lost: 0,
            last: VecDeque::with_capacity(SHOWN),
        })
        .collect();
    loop {
        // In this order: what was written before the end is seen after it.
        let is_last = is_over.load(Ordering::Acquire);
        let mut is_any = false;
        for (core, ring) in ends.iter_mut().enumerate() {
            is_any |= ring.take(memory, &mut writer, core as u8)?;
        }
        if is_last {
            break;
        }
        if !is_any {
            std::thread::sleep(PAUSE);
        }
    }
    writer.finish()?;
    Ok(ends.into_iter().map(|ring| ring.last).collect())
}

/// Records as lines of a report, for people.
pub fn describe(records: &LastRecords) -> String {
    let name = |number: u16| policy::route::name(usize::from(number)).to_string();
    let mut text = String::new();
    for (core, records) in records.iter().enumerate().filter(|(_, records)| !records.is_empty()) {
        text.push_str(&format!("last records of core {core}:\n"));
        for record in records {
            text.push_str(&format!("  {}\n", trace::text::line(record, &name)));
        }
    }
    text
}

/// The reading end of a ring.
struct Ring {
    address: u64,
    capacity: u64,
    taken: u64,
    lost: u64,
    last: VecDeque<Record>,
}

impl Ring {
    fn counter(&self, memory: &File, offset: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, self.address + offset as u64)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Takes what is there; false when there was nothing.
    fn take<W: std::io::Write>(
        &mut self,
        memory: &File,
        writer: &mut Writer<W>,
        core: u8,
    ) -> Result<bool> {
        let count = self.counter(memory, HEAD)?.wrapping_sub(self.taken);
        if count > self.capacity {
            bail!(
                "the ring of core {core} says that it has {count} records, with room for {}",
                self.capacity
            );
        }
        let mut bytes = [0; RECORD_BYTES];
        for _ in 0..count {
            let place = RECORDS as u64 + self.taken % self.capacity * RECORD_BYTES as u64;
            memory.read_exact_at(&mut bytes, self.address + place)?;
            let record = Record::decode(&words_of(&bytes))
                .map_err(|error| anyhow::anyhow!("core {core}, record {}: {error}", self.taken))?;
            writer.push(core, &record)?;
            if self.last.len() == SHOWN {
                self.last.pop_front();
            }
            self.last.push_back(record);
            self.taken += 1;
        }
        memory.write_all_at(&self.taken.to_le_bytes(), self.address + TAIL as u64)?;
        let lost = self.counter(memory, LOST)?;
        if lost != self.lost {
            writer.lose(core, lost.wrapping_sub(self.lost))?;
            self.lost = lost;
        }
        Ok(count > 0)
    }
}
