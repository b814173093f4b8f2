//! The crate on a real kernel: plain Linux first, then Ferry. What needs calls to be under way is for
//! kernels that post them; there, `FERRY_LIBRARY_TEST=1` says that this is one.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ferry::{
    Cancelled, Runtime, TimedOut, close, create, is_available, join, join_all, nanosleep, open,
    parent_id, read, read_at, sleep, spawn, sync, timeout, write, write_at,
};

const SHORT: Duration = Duration::from_millis(20);
const EINTR: i32 = 4;

fn pipe() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let (reader, writer) = io::pipe().unwrap();
    (Arc::new(reader.into()), Arc::new(writer.into()))
}

fn path(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("ferry-{name}-{}", std::process::id()))
}

#[test]
fn availability_is_what_the_kernel_offers() {
    if let Ok(expected) = std::env::var("FERRY_LIBRARY_TEST") {
        assert_eq!(is_available(), expected == "1");
    }
    assert_eq!(is_available(), thread::spawn(is_available).join().unwrap());
}

#[test]
fn single_calls_answer() {
    for _ in 0..1000 {
        assert_eq!(parent_id().call(), std::os::unix::process::parent_id());
    }
    nanosleep(Duration::from_millis(1)).call().unwrap();
}

#[test]
fn files_are_made_written_and_read() {
    let path = path("files");
    let file = create(&path).call().unwrap();
    let (length, buffer) = write(&file, b"hello".to_vec()).post().wait();
    assert_eq!((length.unwrap(), buffer.as_slice()), (5, b"hello".as_slice()));
    assert_eq!(write_at(&file, b"j".to_vec(), 0).call().0.unwrap(), 1);
    sync(&file).call().unwrap();
    close(Arc::into_inner(file).unwrap()).call().unwrap();

    let file = open(&path).post().wait().unwrap();
    let (length, buffer) = read(&file, vec![0; 10]).call();
    assert_eq!((length.unwrap(), &buffer[..5]), (5, b"jello".as_slice()));
    let (length, buffer) = read_at(&file, vec![0; 3], 1).call();
    assert_eq!((length.unwrap(), buffer.as_slice()), (3, b"ell".as_slice()));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn errors_are_those_of_the_kernel() {
    assert_eq!(open("/no/such/file").call().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(open("a\0b").call().unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let (reader, _writer) = pipe();
    assert!(write(&reader, vec![1]).post().wait().0.is_err());
}

#[test]
fn many_posted_calls_come_back() {
    let (reader, writer) = pipe();
    let posted: Vec<_> = (0..300).map(|byte| write(&writer, vec![byte as u8]).post()).collect();
    for posted in posted {
        assert_eq!(posted.wait().0.unwrap(), 1);
    }
    let (length, mut bytes) = read(&reader, vec![0; 300]).call();
    assert_eq!(length.unwrap(), 300);
    // In some order.
    bytes.sort_unstable();
    let mut expected: Vec<_> = (0..300).map(|byte| byte as u8).collect();
    expected.sort_unstable();
    assert_eq!(bytes, expected);
}

#[test]
fn chains_keep_their_order() {
    let (reader, writer) = pipe();
    for _ in 0..50 {
        let mut first = write(&writer, vec![0]).post();
        let mut second = write(&writer, vec![1]).post_after(&mut first);
        let third = write(&writer, vec![2]).post_after(&mut second);
        assert_eq!(third.wait().0.unwrap(), 1);
        assert_eq!(read(&reader, vec![9; 3]).call().1, [0, 1, 2]);
    }
}

#[test]
fn the_runtime_runs_tasks() {
    let runtime = Runtime::new();
    let begin = Instant::now();
    let outputs = runtime.block_on(async {
        let tasks = (0..50).map(|task| {
            spawn(async move {
                sleep(Duration::from_millis(task % 5)).await;
                assert_eq!(parent_id().await, std::os::unix::process::parent_id());
                task
            })
        });
        join_all(tasks).await
    });
    assert!(outputs.into_iter().eq((0..50).map(Ok)));
    assert!(begin.elapsed() >= Duration::from_millis(4));
    let (left, right) = runtime.block_on(join(parent_id(), async { 5 }));
    assert_eq!((left, right), (parent_id().call(), 5));
}

#[test]
fn threads_wake_tasks() {
    let runtime = Runtime::new();
    for round in 0..20 {
        let (sender, receiver) = std::sync::mpsc::channel::<std::task::Waker>();
        let thread = thread::spawn(move || {
            let waker = receiver.recv().unwrap();
            thread::sleep(Duration::from_millis(round % 3));
            waker.wake();
        });
        let mut is_first = true;
        runtime.block_on(std::future::poll_fn(|context| {
            if !std::mem::take(&mut is_first) {
                return std::task::Poll::Ready(());
            }
            sender.send(context.waker().clone()).unwrap();
            std::task::Poll::Pending
        }));
        thread.join().unwrap();
    }
}

#[test]
fn a_call_that_waits_stops_nobody() {
    if !is_available() {
        return;
    }
    let (reader, writer) = pipe();
    let mut waiting = read(&reader, vec![0; 1]).post();
    for _ in 0..300 {
        assert_eq!(parent_id().post().wait(), std::os::unix::process::parent_id());
    }
    assert!(!waiting.is_done());
    write(&writer, vec![8]).call().0.unwrap();
    assert_eq!(waiting.wait().1, [8]);
}

#[test]
fn timeouts_and_drops_end_calls() {
    if !is_available() {
        return;
    }
    let (reader, writer) = pipe();
    let runtime = Runtime::new();
    for _ in 0..20 {
        let late = runtime.block_on(timeout(Duration::from_millis(2), read(&reader, vec![0; 1])));
        assert!(matches!(late, Err(TimedOut)));
        drop(read(&reader, vec![0; 1]).post());
        let mut cancelled = read(&reader, vec![0; 1]).post();
        cancelled.cancel();
        assert_eq!(cancelled.wait().0.unwrap_err().raw_os_error(), Some(EINTR));
    }
    let task = runtime.spawn({
        let reader = reader.clone();
        async move { read(&reader, vec![0; 1]).await }
    });
    runtime.block_on(sleep(SHORT));
    task.cancel();
    assert!(matches!(runtime.block_on(task), Err(Cancelled)));
    // None of them is left to take this byte.
    write(&writer, vec![8]).call().0.unwrap();
    assert_eq!(read(&reader, vec![0; 1]).call().1, [8]);
}

#[test]
fn threads_wake_tasks_while_calls_wait() {
    if !is_available() {
        return;
    }
    let (reader, _writer) = pipe();
    let _waiting = read(&reader, vec![0; 1]).post();
    threads_wake_tasks();
}

#[test]
fn threads_end_with_calls_under_way() {
    if !is_available() {
        return;
    }
    let (reader, writer) = pipe();
    for _ in 0..20 {
        let reader = reader.clone();
        thread::spawn(move || {
            for _ in 0..5 {
                std::mem::forget(read(&reader, vec![0; 1]).post());
            }
            let _dropped = read(&reader, vec![0; 1]).post();
        })
        .join()
        .unwrap();
    }
    // The kernel ends the forgotten ones when their thread is gone.
    write(&writer, vec![8]).call().0.unwrap();
    assert_eq!(read(&reader, vec![0; 1]).call().1, [8]);
}
