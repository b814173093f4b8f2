//! Disks that refuse writes, and what is left of the volume on them.

use super::tests::{check, disk_of, image, make, mounted, read, write};
use super::*;
use crate::inode::{AttributeChange, Inode, NewContent, NewNode};
use crate::pending::{Attempts, complete};
use base::task::block_on_host;

/// The error of making a file.
async fn refusal(root: &Arc<dyn Inode>, name: &[u8]) -> Option<Errno> {
    let new = NewNode { content: NewContent::Regular, mode: 0o644, user: 0, group: 0 };
    complete(|| root.create(name, &new)).await.err()
}

async fn fsync(file: &Arc<dyn Inode>) -> Result<(), Errno> {
    complete(|| file.sync()).await
}

#[test]
fn a_disk_that_takes_no_writes_leaves_the_volume_to_be_read() {
    let path = image("frozen", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let (kept, lost) = (
            make(&root, "kept", NewContent::Regular).await,
            make(&root, "lost", NewContent::Regular).await,
        );
        write(&kept, 0, b"kept").await;
        fsync(&kept).await.unwrap();
        *disk.writes_left.lock().unwrap() = 0;
        write(&lost, 0, b"lost").await;
        assert_eq!(fsync(&lost).await, Err(Errno::EIO));
        kept.drop_cached(0..1);
        assert_eq!(read(&kept, 0, 9).await, b"kept");
        // Even when the disk is well again.
        *disk.writes_left.lock().unwrap() = usize::MAX;
        assert_eq!(refusal(&root, b"new").await, Some(Errno::EROFS));
        let mut source = b"more".as_slice();
        assert_eq!(complete(|| lost.write_at(0, &mut source)).await, Err(Errno::EROFS));
        let unlinked = complete(|| root.unlink(b"kept", kept.id())).await;
        assert_eq!(unlinked, Err(Errno::EROFS));
        // Told before: no second time, but each file once.
        assert_eq!((fsync(&lost).await, lost.lost_write().unwrap().count), (Ok(()), 1));
        assert_eq!(fsync(&kept).await, Err(Errno::EIO));
        assert_eq!((fsync(&kept).await, kept.lost_write().unwrap().count), (Ok(()), 1));
        kept.drop_cached(0..1);
        assert_eq!(read(&kept, 0, 9).await, b"kept");
        assert_eq!(complete(|| file_system.set_read_only(true)).await, Ok(()));
        assert_eq!(complete(|| file_system.set_read_only(false)).await, Err(Errno::EROFS));
        drop((root, kept, lost));
        assert!(complete(|| file_system.close()).await.is_err());
        let again = mounted(&disk).await;
        let kept = complete(|| again.root().lookup(b"kept")).await.unwrap();
        assert_eq!(read(&kept, 0, 9).await, b"kept");
        assert_eq!(refusal(&again.root(), b"new").await, None);
        drop(kept);
        complete(|| again.close()).await.unwrap();
    });
    check(path, &disk);
}

#[test]
fn a_disk_that_cannot_flush_is_believed_no_more() {
    let path = image("unflushed", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        *disk.cannot_flush.lock().unwrap() = true;
        assert_eq!(fsync(&file).await, Err(Errno::EIO));
        *disk.cannot_flush.lock().unwrap() = false;
        assert_eq!(refusal(&root, b"new").await, Some(Errno::EROFS));
        drop((root, file));
        assert!(complete(|| file_system.close()).await.is_err());
    });
    std::fs::remove_file(path).unwrap();
}

#[test]
fn blocks_that_were_freed_get_no_data_before_that_is_committed() {
    let path = image("freed", 16);
    let disk = disk_of(&path);
    let pattern = [0xa7; 4096];
    // Where the pattern is on the disk.
    let place = || disk.content().windows(4096).position(|bytes| bytes == pattern);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let old = make(&root, "old", NewContent::Regular).await;
        write(&old, 0, &pattern).await;
        fsync(&old).await.unwrap();
        let first = place().unwrap();
        complete(|| root.unlink(b"old", old.id())).await.unwrap();
        drop(old);
        *disk.cannot_flush.lock().unwrap() = true;
        let new = make(&root, "new", NewContent::Regular).await;
        write(&new, 0, &[0x5b; 65536]).await;
        assert_eq!(fsync(&new).await, Err(Errno::EIO));
        assert_eq!(place(), Some(first));
        drop((root, new));
        assert!(complete(|| file_system.close()).await.is_err());
    });
    std::fs::remove_file(path).unwrap();
}

/// Attributes are changed outside of the crate's handles, and each commit takes a part of the journal.
#[test]
fn a_journal_that_is_full_is_emptied_whatever_comes_next() {
    let path = image("wraps", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let mut files = Vec::new();
        for index in 0..300 {
            files.push(make(&root, &alloc::format!("file-{index}"), NewContent::Regular).await);
        }
        // More blocks than the journal of 1,024 has.
        for round in 0..400_u32 {
            let file = &files[round as usize % files.len()];
            let change =
                AttributeChange { mode: Some(round & 0o777), ..AttributeChange::default() };
            complete(|| file.set_attributes(&change)).await.unwrap();
            assert_eq!(fsync(file).await, Ok(()));
        }
        // Without a commit between: more than one transaction may have.
        for round in 0..3 {
            for file in &files {
                let change = AttributeChange { mode: Some(round), ..AttributeChange::default() };
                complete(|| file.set_attributes(&change)).await.unwrap();
            }
        }
        drop((root, files));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}

/// What somebody else waited for says nothing about what was written after it.
#[test]
fn fsync_is_answered_by_a_flush_that_came_after_it() {
    let path = image("two-fsyncs", 16);
    let disk = disk_of(&path);
    block_on_host(async {
        let file_system = mounted(&disk).await;
        let root = file_system.root();
        let file = make(&root, "file", NewContent::Regular).await;
        write(&file, 0, b"first").await;
        assert_eq!(file.sync(), Err(Errno::EIOCBQUEUED));
        let mut slow = Attempts::new();
        slow.wait().await.unwrap();
        // The answer is there, and its caller does not come for it.
        write(&file, 0, b"later").await;
        let (_, flushes) = disk.counts();
        fsync(&file).await.unwrap();
        assert!(disk.counts().1 > flushes);
        assert_eq!(slow.during(|| file.sync()), Ok(()));
        drop((root, file));
        complete(|| file_system.close()).await.unwrap();
    });
    check(path, &disk);
}
