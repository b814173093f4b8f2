//! ext4 on a disk, through crate `rsext4`.
//!
//! ```text
//!  Inode method ─> `remote` ─ task: `Volume::run(operation)` ─> queue ─> fibre: operation(&mut Ext4) ─> disk
//!                                      answer <────────────────────────────────┘
//! ```
//!
//! The crate blocks and wants to be alone, so each mount has one fibre, which carries out one operation after
//! the other. Names, attributes and pages above it are those of `remote`, believed for ever, as nobody else
//! changes the disk. What was changed is committed to the journal when somebody asks for it (`fsync`, `sync`), every few
//! seconds, and at the end.
//!
//! A file whose last name is gone stays until nobody holds it; the crate's list of orphans has it meanwhile, so
//! that it goes even when the machine stops. After a panic in the crate its state is not to be trusted: every
//! further operation answers `EIO`, and the disk is left as the journal has it.

mod extra;
#[cfg(test)]
mod extra_tests;
mod io;
mod journal;
#[cfg(test)]
mod journal_tests;
mod mend;
mod operations;
#[cfg(test)]
mod tests;
mod times;

use crate::block::BlockDevice;
use crate::metadata::{InodeId, Metadata, NodeKind, Permissions, Timestamp};
use crate::remote::server::Attributes;
use abi::Errno;
use abi::fs::make_device;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use base::cpu::CpuId;
use base::heap::tree;
use base::panic::catch;
use base::sync::{Mutex, Once, rank};
use base::task::fibre;
use base::time;
use base::wait::WaitQueue;
use core::sync::atomic::{AtomicU64, Ordering};
use extra::{remove_hidden, remove_nameless};
use io::{DiskIo, Random, WallClock};
use journal::Journal;
use rsext4::{
    DirectoryEntryType, Ext4, Ext4Error, Ext4ErrorKind, FileExtentState, FileExtentTarget,
    InodeInfo, InodeNumber, MountOptions, MountServices, MountedServices, NoopObserver,
};
use times::{FixedTime, Times};

type Mounted = Ext4<DiskIo, MountedServices<Random, NoopObserver>>;
type Work = Box<dyn FnOnce(&mut Mounted) + Send>;

/// For how long a change may stay in memory, in nanoseconds.
const COMMIT_AFTER_NS: u64 = 5_000_000_000;

fn errno(error: Ext4Error) -> Errno {
    use Ext4ErrorKind::*;
    match error.kind() {
        NotFound => Errno::ENOENT,
        AlreadyExists => Errno::EEXIST,
        NotDirectory => Errno::ENOTDIR,
        IsDirectory => Errno::EISDIR,
        NotEmpty => Errno::ENOTEMPTY,
        NoSpace => Errno::ENOSPC,
        NoMemory => Errno::ENOMEM,
        QuotaExceeded => Errno::EDQUOT,
        TooManyLinks => Errno::EMLINK,
        ReadOnly | JournalAborted => Errno::EROFS,
        PermissionDenied => Errno::EPERM,
        Busy => Errno::EBUSY,
        InvalidInput => Errno::EINVAL,
        Overflow | FileTooLarge => Errno::EFBIG,
        Unsupported => Errno::EOPNOTSUPP,
        // What is on the disk is not what it should be, or cannot be read or written.
        _ => Errno::EIO,
    }
}

/// What the fibre is to do.
struct Queue {
    work: VecDeque<Work>,
    /// Nobody asks any more.
    is_closed: bool,
    /// Nothing is carried out any more.
    has_ended: bool,
    /// The crate has panicked.
    has_failed: bool,
    /// Numbers of the file system after the last operation, as `Volume::statistics` gives them.
    statistics: [u64; 5],
}

struct Shared {
    queue: Mutex<Queue>,
    /// Woken when there is work.
    work: WaitQueue,
    /// Woken when the fibre has ended.
    end: WaitQueue,
}

/// Who holds an inode.
struct Holding {
    count: usize,
    has_no_name: bool,
    /// Number of its hidden name, while it has no other.
    nameless: Option<u64>,
}

/// A mounted ext4.
pub struct Volume {
    shared: Arc<Shared>,
    device: u64,
    held: Mutex<BTreeMap<u32, Holding>>,
    /// Counts hidden names.
    nameless: AtomicU64,
    /// What the crate's clock shows.
    clock: Arc<FixedTime>,
    times: Once<Times>,
    journal: Arc<Journal>,
    disk: Arc<BlockDevice>,
}

/// An inode that somebody holds.
pub struct Held {
    volume: Arc<Volume>,
    number: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.volume.let_go(self.number);
    }
}

/// Where the result of an operation arrives; an operation that was dropped is `EIO`.
struct Reply<R> {
    place: Arc<Place<R>>,
    is_set: bool,
}

struct Place<R> {
    result: Mutex<Option<Result<R, Errno>>>,
    queue: WaitQueue,
}

impl<R> Reply<R> {
    fn set(mut self, result: Result<R, Errno>) {
        self.is_set = true;
        *self.place.result.lock() = Some(result);
        self.place.queue.wake_all();
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        if !self.is_set {
            *self.place.result.lock() = Some(Err(Errno::EIO));
            self.place.queue.wake_all();
        }
    }
}

fn place<R>() -> (Arc<Place<R>>, Reply<R>) {
    let result = Mutex::new(&rank::REMOTE_ANSWER, None);
    let place = Arc::new(Place { result, queue: WaitQueue::new() });
    (place.clone(), Reply { place, is_set: false })
}

async fn answer<R>(place: Arc<Place<R>>) -> Result<R, Errno> {
    place.queue.wait_until(|| place.result.lock().take()).await
}

/// How an ext4 is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Nothing is written but what the journal still has to.
    pub is_read_only: bool,
    /// The core whose loop carries it.
    pub core: CpuId,
}

impl Volume {
    /// Mounts the ext4 of a disk; gives it and its root.
    ///
    /// # Errors
    /// `EINVAL` when there is no ext4 that can be used, `EIO` when the disk fails or what is on it makes no sense; `ENOMEM`.
    pub async fn mount(
        device: Arc<BlockDevice>,
        terms: Terms,
    ) -> Result<(Arc<Volume>, Held, Attributes), Errno> {
        let queue = Queue {
            work: VecDeque::new(),
            is_closed: false,
            has_ended: false,
            has_failed: false,
            statistics: [4096, 0, 0, 0, 0],
        };
        let shared = Arc::new(Shared {
            queue: Mutex::new(&rank::REMOTE_FILES, queue),
            work: WaitQueue::new(),
            end: WaitQueue::new(),
        });
        let (mounted, reply) = place();
        let (inner, ending, number) = (shared.clone(), shared.clone(), device.number());
        let is_disk_read_only = device.disk().0.geometry().is_read_only;
        let options = MountOptions {
            readonly: terms.is_read_only,
            replay_journal: !is_disk_read_only,
            block_validity: true,
        };
        // Where the superblock has its magic number.
        let magic = device.read(1024 + 56, 2).await?;
        if magic != rsext4::EXT4_SUPER_MAGIC.to_le_bytes() {
            return Err(Errno::EINVAL);
        }
        device.claim()?;
        let (claimed, claimed_too) = (device.clone(), device.clone());
        let (journal, disk) = (Arc::new(Journal::default()), device.clone());
        let io = DiskIo::new(device.clone(), journal.clone());
        let clock = Arc::new(FixedTime::default());
        let (peeked, shown) = (io.clone(), clock.clone());
        let begin = move || serve(&inner, (device, io), options, shown, reply);
        let spawned = fibre::spawn_blocking(terms.core, begin, move |_| {
            // Who waits for the end may want the disk next.
            claimed.release();
            ending.has_ended();
        });
        if spawned.is_err() {
            claimed_too.release();
            return Err(Errno::ENOMEM);
        }
        answer(mounted).await?;
        let held = Mutex::new(&rank::REMOTE_FILES, BTreeMap::new());
        let nameless = AtomicU64::new(0);
        let times = Once::new();
        let device = number;
        let volume = Volume { shared, device, held, nameless, clock, times, journal, disk };
        let volume = Arc::new(volume);
        let known = volume.clone();
        let (root, attributes) = volume
            .run_holding(move |mounted| {
                known.times.call_once(|| Times::new(peeked));
                mounted.inode(mounted.root_inode()).map_err(errno)
            })
            .await?;
        if attributes.metadata.kind != NodeKind::Directory {
            return Err(Errno::EIO);
        }
        Ok((volume, root, attributes))
    }

    /// Has the fibre carry out an operation.
    ///
    /// # Errors
    /// Those of the operation; `EIO` when the crate panicked, in this operation or before, or the volume is closed.
    async fn run<R: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Mounted) -> Result<R, Errno> + Send + 'static,
    ) -> Result<R, Errno> {
        let (place, reply) = place();
        let (journal, disk) = (self.journal.clone(), self.disk.clone());
        let work = move |mounted: &mut Mounted| {
            let result = operation(mounted);
            journal.look_after(mounted, &disk);
            reply.set(result);
        };
        self.shared.push(Box::new(work))?;
        answer(place).await
    }

    /// As `run`, for an operation that finds an inode, which is held from then on.
    async fn run_holding(
        self: &Arc<Volume>,
        operation: impl FnOnce(&mut Mounted) -> Result<InodeInfo, Errno> + Send + 'static,
    ) -> Result<(Held, Attributes), Errno> {
        let volume = self.clone();
        self.run(move |mounted| {
            let info = operation(mounted)?;
            let attributes = volume.attributes_of(&info)?;
            // Before the next operation, which may take its last name.
            Ok((volume.hold(info.number.raw()), attributes))
        })
        .await
    }

    /// Attributes of an inode, with exact times. On the fibre alone.
    fn attributes_of(&self, info: &InodeInfo) -> Result<Attributes, Errno> {
        let mut attributes = attributes_of(info, self.device)?;
        self.make_exact(info.number.raw(), &mut attributes.metadata);
        if self.is_nameless(info.number.raw()) {
            attributes.metadata.links = 0;
        }
        Ok(attributes)
    }

    fn hold(self: &Arc<Volume>, number: u32) -> Held {
        let mut held = self.held.lock();
        match held.get_mut(&number) {
            Some(holding) => holding.count += 1,
            None => {
                let holding = Holding { count: 1, has_no_name: false, nameless: None };
                tree::insert(&mut held, number, holding);
            }
        }
        drop(held);
        Held { volume: self.clone(), number }
    }

    /// Holds an inode that is held once more.
    pub(crate) fn again(self: &Arc<Volume>, file: &Held) -> Result<Held, Errno> {
        Ok(self.hold(file.number))
    }

    fn let_go(&self, number: u32) {
        let mut held = self.held.lock();
        let Some(holding) = held.get_mut(&number) else { return };
        holding.count -= 1;
        if holding.count > 0 {
            return;
        }
        let (has_no_name, nameless) = (holding.has_no_name, holding.nameless);
        held.remove(&number);
        drop(held);
        if let Some(index) = nameless {
            // A volume that has ended leaves it to the next mount.
            let _ = self.shared.push(Box::new(move |mounted| remove_nameless(mounted, index)));
        } else if has_no_name {
            // A volume that has ended leaves it to the list of orphans.
            let _ = self.shared.push(Box::new(move |mounted| reap(mounted, number)));
        }
    }

    /// The last name of an inode is gone: it goes now, or when nobody holds it.
    fn lost_its_name(&self, mounted: &mut Mounted, number: u32) {
        let mut held = self.held.lock();
        match held.get_mut(&number) {
            Some(holding) => holding.has_no_name = true,
            None => {
                drop(held);
                reap(mounted, number);
            }
        }
    }

    /// A number for a hidden name.
    fn next_nameless(&self) -> u64 {
        self.nameless.fetch_add(1, Ordering::Relaxed)
    }

    /// An inode has been made that has no name, or a hidden one, and will be held.
    fn has_no_name(&self, number: u32, nameless: Option<u64>) {
        let mut held = self.held.lock();
        let holding = Holding { count: 0, has_no_name: nameless.is_none(), nameless };
        tree::insert(&mut held, number, holding);
    }

    /// The hidden name of an inode that is about to get another one.
    fn take_nameless(&self, number: u32) -> Option<u64> {
        self.held.lock().get_mut(&number)?.nameless.take()
    }

    /// Whether an inode has a hidden name alone.
    fn is_nameless(&self, number: u32) -> bool {
        self.held.lock().get(&number).is_some_and(|holding| holding.nameless.is_some())
    }

    /// An inode keeps its hidden name.
    fn keep_nameless(&self, number: u32, index: u64) {
        if let Some(holding) = self.held.lock().get_mut(&number) {
            holding.nameless = Some(index);
        }
    }

    /// Writes everything and ends. Nothing can be asked for afterwards.
    ///
    /// # Errors
    /// `EIO` when it was not all written.
    pub async fn close(&self) -> Result<(), Errno> {
        // Who still holds a file without a name has it no more.
        let mut nameless = Vec::new();
        let mut hidden = Vec::new();
        for (number, holding) in self.held.lock().iter_mut() {
            if holding.has_no_name && nameless.try_reserve(1).is_ok() {
                nameless.push(*number);
                holding.has_no_name = false;
            }
            if holding.nameless.is_some() && hidden.try_reserve(1).is_ok() {
                hidden.extend(holding.nameless.take());
            }
        }
        if !hidden.is_empty() {
            let remove_all = move |mounted: &mut Mounted| {
                hidden.into_iter().for_each(|index| remove_nameless(mounted, index));
            };
            let _ = self.shared.push(Box::new(remove_all));
        }
        if !nameless.is_empty() {
            let reap_all = move |mounted: &mut Mounted| {
                nameless.into_iter().for_each(|number| reap(mounted, number));
            };
            let _ = self.shared.push(Box::new(reap_all));
        }
        self.shared.close();
        self.shared.end.wait_until(|| self.shared.queue.lock().has_ended.then_some(())).await;
        if self.shared.queue.lock().has_failed { Err(Errno::EIO) } else { Ok(()) }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn push(&self, work: Work) -> Result<(), Errno> {
        let mut queue = self.queue.lock();
        if queue.is_closed || queue.has_ended || queue.has_failed {
            return Err(Errno::EIO);
        }
        queue.work.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        queue.work.push_back(work);
        drop(queue);
        self.work.wake_all();
        Ok(())
    }

    fn close(&self) {
        self.queue.lock().is_closed = true;
        self.work.wake_all();
    }

    /// The crate has panicked, or could not write everything.
    fn has_failed(&self) {
        self.queue.lock().has_failed = true;
    }

    fn has_ended(&self) {
        let mut queue = self.queue.lock();
        queue.has_ended = true;
        let left = core::mem::take(&mut queue.work);
        drop(queue);
        drop(left);
        self.end.wake_all();
    }

    /// The next work; `None` when there will be none.
    fn next(&self) -> Option<Option<Work>> {
        let mut queue = self.queue.lock();
        if queue.has_failed {
            return Some(None);
        }
        match queue.work.pop_front() {
            Some(work) => Some(Some(work)),
            None => queue.is_closed.then_some(None),
        }
    }
}

/// The fibre of a mount.
fn serve(
    shared: &Shared,
    (device, io): (Arc<BlockDevice>, DiskIo),
    options: MountOptions,
    clock: Arc<FixedTime>,
    reply: Reply<()>,
) {
    let services = MountServices::new(WallClock(clock.clone()), Random, NoopObserver);
    let (fuel, journal) = (io.clone(), io.journal());
    let io = io.with_places();
    let mut mounted: Mounted = match Ext4::mount(io, services, options) {
        Ok(mounted) => mounted,
        Err(error) => {
            log::warn!("ext4 on {}: {error}", device.name());
            let is_foreign = matches!(
                error.kind(),
                Ext4ErrorKind::InvalidMagic
                    | Ext4ErrorKind::BadSuperblock
                    | Ext4ErrorKind::UnsupportedFeature
            );
            reply.set(Err(if is_foreign { Errno::EINVAL } else { errno(error) }));
            return;
        }
    };
    if !options.readonly && catch(|| remove_hidden(&mut mounted)).is_err() {
        reply.set(Err(Errno::EIO));
        core::mem::forget(mounted);
        return;
    }
    // Perhaps by removing what was hidden.
    journal.freed();
    shared.queue.lock().statistics = numbers_of(&mounted);
    reply.set(Ok(()));
    let mut commit_at_ns = None;
    loop {
        let work = shared.work.wait_until(|| shared.next());
        let work = match fibre::wait(time::with_deadline(work, commit_at_ns)) {
            Ok(Some(work)) => work,
            Ok(None) => break,
            Err(_) => {
                commit_at_ns = None;
                let journal = journal.clone();
                Box::new(move |mounted: &mut Mounted| {
                    if let Err(error) = journal.commit(mounted) {
                        log::error!("ext4: changes cannot be committed: {error:?}");
                    }
                })
            }
        };
        if !options.readonly && commit_at_ns.is_none() {
            commit_at_ns = Some(time::now_ns().saturating_add(COMMIT_AFTER_NS));
        }
        fuel.refill();
        let outcome = catch(|| {
            journal.keep_room(&mut mounted);
            work(&mut mounted);
            journal.look_after(&mut mounted, &device);
            numbers_of(&mounted)
        });
        clock.release();
        if let Ok(numbers) = outcome {
            let before = core::mem::replace(&mut shared.queue.lock().statistics, numbers);
            if numbers[FREE_BLOCKS] > before[FREE_BLOCKS] {
                journal.freed();
            }
        } else {
            log::error!("ext4 on {}: the file system is used no more", device.name());
            shared.has_failed();
        }
        device.written_elsewhere();
    }
    if shared.queue.lock().has_failed {
        // Its drop might write what makes no sense.
        core::mem::forget(mounted);
        return;
    }
    fuel.refill();
    if journal.is_lost() {
        shared.has_failed();
    } else if let Err(error) = journal.unmount(&mut mounted) {
        log::error!("ext4 on {}: not everything could be written: {error}", device.name());
        shared.has_failed();
    }
    device.written_elsewhere();
}

/// Where the number of free blocks stands.
const FREE_BLOCKS: usize = 2;

fn numbers_of(mounted: &Mounted) -> [u64; 5] {
    let numbers = mounted.statfs();
    [
        numbers.block_size,
        numbers.total_blocks,
        numbers.free_blocks,
        numbers.total_inodes.into(),
        numbers.free_inodes.into(),
    ]
}

/// Gives back an inode without names.
fn reap(mounted: &mut Mounted, number: u32) {
    let result = InodeNumber::new(number).and_then(|number| {
        give_back_reserved(mounted, number);
        mounted.reap_unlinked_inode(number)
    });
    if let Err(error) = result {
        log::error!("ext4: inode {number} cannot be given back: {error}");
    }
}

/// Cuts a file to nothing that has blocks that were reserved and never written: the crate leaves those marked as
/// used when it gives the inode back.
fn give_back_reserved(mounted: &mut Mounted, number: InodeNumber) {
    let Ok(info) = mounted.inode(number) else { return };
    if info.file_type() != DirectoryEntryType::RegularFile || info.blocks == 0 {
        return;
    }
    let target = FileExtentTarget::Data;
    let is_reserved_behind = info.blocks.saturating_mul(512) > info.size;
    let is_reserved = is_reserved_behind
        || mounted.inode_extents(number, 0, info.size, target, usize::MAX).is_ok_and(|map| {
            map.extents.iter().any(|extent| extent.state == FileExtentState::Unwritten)
        });
    if !is_reserved {
        return;
    }
    let cut = match info.size {
        // One that is empty already is not cut.
        0 => mounted.truncate_inode(number, 1).and_then(|()| mounted.truncate_inode(number, 0)),
        _ => mounted.truncate_inode(number, 0),
    };
    if let Err(error) = cut {
        log::warn!("ext4: inode {number:?} keeps reserved blocks: {error}");
    }
}

fn kind_of(kind: DirectoryEntryType) -> Option<NodeKind> {
    Some(match kind {
        DirectoryEntryType::RegularFile => NodeKind::Regular,
        DirectoryEntryType::Directory => NodeKind::Directory,
        DirectoryEntryType::CharacterDevice => NodeKind::CharacterDevice,
        DirectoryEntryType::BlockDevice => NodeKind::BlockDevice,
        DirectoryEntryType::Fifo => NodeKind::Fifo,
        DirectoryEntryType::Socket => NodeKind::Socket,
        DirectoryEntryType::Symlink => NodeKind::Symlink,
        DirectoryEntryType::Unknown => return None,
    })
}

fn attributes_of(info: &InodeInfo, device: u64) -> Result<Attributes, Errno> {
    let number = info.number.as_u64();
    // The crate gives seconds, as the 32 bits with a sign that they are.
    let time = |seconds: u32| Timestamp { seconds: seconds.cast_signed().into(), nanoseconds: 0 };
    let metadata = Metadata {
        id: InodeId { device, number },
        kind: kind_of(info.file_type()).ok_or(Errno::EIO)?,
        permissions: Permissions {
            mode: u32::from(info.mode) & 0o7777,
            user: info.uid,
            group: info.gid,
        },
        links: info.links.into(),
        size: if i64::try_from(info.size).is_ok() { info.size } else { return Err(Errno::EIO) },
        blocks: info.blocks,
        block_size: 4096,
        represented_device: info
            .device_number
            .map_or(0, |number| make_device(number.major(), number.minor())),
        accessed: time(info.atime),
        modified: time(info.mtime),
        changed: time(info.ctime),
        born: time(info.btime),
    };
    Ok(Attributes { number, metadata })
}
