//! `ferry run --trace FILE`: takes the kernel's records out of the guest's memory while it runs.
//!
//! The memory is a file without a name that QEMU maps and this reads. The kernel says where its rings
//! are; from then on a thread takes what is there every few milliseconds, so neither side needs more
//! room however long the run is. What finds no room in a ring is counted, not awaited. The last records of
//! each core are kept at hand, for the report of a kernel that dies. `ferry top` sees the same records.

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

use super::top::Top;

/// Time between two looks at rings that were empty.
const PAUSE: Duration = Duration::from_millis(2);

/// Records of each core that the report of a panic shows.
const SHOWN: usize = 8;

/// The last records of each core, in the order in which they were written.
pub type LastRecords = Vec<VecDeque<Record>>;

/// What became of a trace.
#[derive(Default)]
pub struct Recorded {
    /// The last records of each core.
    pub last: LastRecords,
    /// Records that the file has.
    pub records: u64,
    /// Records that found no room in a ring.
    pub lost: u64,
}

/// A trace that is being recorded.
pub struct Tracer {
    path: Option<PathBuf>,
    top: Option<Top>,
    scheme: LockScheme,
    memory: Arc<File>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Recorded>>>,
}

impl Tracer {
    /// Makes the guest's memory and the file of the trace, if there is to be one.
    pub fn prepare(
        path: Option<&Path>,
        memory_mib: u64,
        scheme: LockScheme,
        top: Option<Top>,
    ) -> Result<Tracer> {
        let memory = rustix::fs::memfd_create("ferry-memory", rustix::fs::MemfdFlags::CLOEXEC)
            .context("cannot get memory for the machine")?;
        let memory = File::from(memory);
        memory.set_len(memory_mib << 20).context("cannot get memory for the machine")?;
        if let Some(path) = path {
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Tracer {
            path: path.map(Path::to_path_buf),
            top,
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
        let (path, scheme, top) = (self.path.clone(), self.scheme, self.top.take());
        self.thread = Some(std::thread::spawn(move || {
            let target = Target { path: path.as_deref(), scheme, top };
            let drained = drain(&memory, &rings, target, &is_over);
            match path {
                Some(path) => {
                    drained.with_context(|| format!("the trace {} is not complete", path.display()))
                }
                None => drained,
            }
        }));
    }

    /// The machine is gone: takes what is left.
    ///
    /// # Errors
    ///
    /// Where the trace is not complete: the file has what was taken before.
    pub fn finish(self) -> Result<Recorded> {
        self.is_over.store(true, Ordering::Release);
        match self.thread {
            Some(thread) => thread.join().unwrap_or_else(|_| bail!("the trace's thread panicked")),
            None => match self.path {
                Some(path) => {
                    bail!("the kernel did not say where its trace is; {} is empty", path.display())
                }
                None => bail!("the kernel did not say where its records are: nothing to show"),
            },
        }
    }
}

/// Where records go.
struct Target<'a> {
    /// The file of the trace.
    path: Option<&'a Path>,
    scheme: LockScheme,
    top: Option<Top>,
}

/// What takes records: a file, a view, or both.
struct Taker {
    writer: Option<Writer<BufWriter<File>>>,
    top: Option<Top>,
}

impl Taker {
    fn push(&mut self, core: u8, record: &Record) -> Result<()> {
        if let Some(top) = &mut self.top {
            top.add(record);
        }
        match &mut self.writer {
            Some(writer) => Ok(writer.push(core, record)?),
            None => Ok(()),
        }
    }

    fn lose(&mut self, core: u8, count: u64) -> Result<()> {
        if let Some(top) = &mut self.top {
            top.lose(count);
        }
        match &mut self.writer {
            Some(writer) => Ok(writer.lose(core, count)?),
            None => Ok(()),
        }
    }
}

/// Moves records from the rings to their target until the machine is gone and nothing is left.
fn drain(
    memory: &File,
    rings: &Rings,
    Target { path, scheme, top }: Target<'_>,
    is_over: &AtomicBool,
) -> Result<Recorded> {
    let header = Header {
        cores: u8::try_from(rings.cores)?,
        overwrites: false,
        origin: Origin::Recorded,
        ticks_per_second: rings.ticks_per_second,
        began_unix_ns: rings.began_unix_ns,
        scheme,
    };
    let writer = match path {
        Some(path) => Some(Writer::new(BufWriter::new(File::create(path)?), &header)?),
        None => None,
    };
    let mut taker = Taker { writer, top };
    if let Some(top) = &mut taker.top {
        top.begin();
    }
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
            is_any |= ring.take(memory, &mut taker, core as u8)?;
        }
        if let Some(top) = &mut taker.top {
            top.show_if_due(header.cores, header.ticks_per_second, is_last);
        }
        if is_last {
            break;
        }
        if !is_any {
            std::thread::sleep(PAUSE);
        }
    }
    if let Some(writer) = taker.writer {
        writer.finish()?;
    }
    Ok(Recorded {
        records: ends.iter().map(|ring| ring.taken).sum(),
        lost: ends.iter().map(|ring| ring.lost).sum(),
        last: ends.into_iter().map(|ring| ring.last).collect(),
    })
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
    fn take(&mut self, memory: &File, taker: &mut Taker, core: u8) -> Result<bool> {
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
            taker.push(core, &record)?;
            if self.last.len() == SHOWN {
                self.last.pop_front();
            }
            self.last.push_back(record);
            self.taken += 1;
        }
        memory.write_all_at(&self.taken.to_le_bytes(), self.address + TAIL as u64)?;
        let lost = self.counter(memory, LOST)?;
        if lost != self.lost {
            taker.lose(core, lost.wrapping_sub(self.lost))?;
            self.lost = lost;
        }
        Ok(count > 0)
    }
}
