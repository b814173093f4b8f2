//! Pipes without processes: order, room, atomic writes, ends that go.

use super::*;
use alloc::vec::Vec;

fn ends() -> (Arc<OpenFile>, Arc<OpenFile>) {
    pipe(OpenFlags::empty(), &Identity::kernel()).unwrap()
}

fn put(file: &OpenFile, bytes: &[u8]) -> Result<usize, Errno> {
    let mut source = bytes;
    file.write(&mut source, Transfer::PLAIN)
}

fn take(file: &OpenFile, limit: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; limit];
    let mut sink: &mut [u8] = &mut buffer;
    let count = file.read(&mut sink, Transfer::PLAIN)?;
    buffer.truncate(count);
    Ok(buffer)
}

#[test]
fn megabytes_pass_in_odd_pieces() {
    let (reader, writer) = ends();
    let text: Vec<u8> = (0..1_000_000u32).map(|index| ((index * 31) >> 3) as u8).collect();
    let (mut written, mut got) = (0, Vec::new());
    while got.len() < text.len() {
        let end = (written / 30_011 + 1) * 30_011;
        match put(&writer, &text[written..end.min(text.len())]) {
            Ok(count) => {
                assert!(count > 0 || written == text.len(), "a write that takes nothing says why");
                written += count;
            }
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        match take(&reader, 7777) {
            Ok(bytes) => got.extend(bytes),
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
    }
    assert!(got == text);
}

#[test]
fn a_pipe_holds_its_capacity() {
    let (reader, writer) = ends();
    assert_eq!(put(&writer, &[1; 70_000]), Ok(65_536));
    assert_eq!(put(&writer, b"x"), Err(Errno::EAGAIN));
    assert_eq!(take(&reader, 4096).unwrap().len(), 4096);
    assert_eq!(put(&writer, b"x"), Ok(1));
}

#[test]
fn small_writes_are_whole_or_not_at_all() {
    let (reader, writer) = ends();
    for _ in 0..16 {
        assert_eq!(put(&writer, &[1; 4000]), Ok(4000));
    }
    assert_eq!(put(&writer, &[2; 200]), Err(Errno::EAGAIN), "96 bytes are left in the last page");
    assert_eq!(put(&writer, &[2; 96]), Ok(96));
    assert_eq!(take(&reader, 100_000).unwrap().len(), 64_096);
}

#[test]
fn packets_stay_apart() {
    let (reader, writer) = pipe(OpenFlags::DIRECT, &Identity::kernel()).unwrap();
    put(&writer, b"first").unwrap();
    put(&writer, b"second").unwrap();
    assert_eq!(take(&reader, 3).unwrap(), b"fir");
    assert_eq!(take(&reader, 100).unwrap(), b"second", "the rest of a packet is lost");
}

#[test]
fn an_end_that_goes_is_noticed() {
    let (reader, writer) = ends();
    put(&writer, b"last").unwrap();
    let ready = reader.file().poll(PollEvents::READABLE, None);
    assert_eq!(ready, PollEvents::READABLE);
    drop(writer);
    assert!(reader.file().poll(PollEvents::READABLE, None).contains(PollEvents::HUP));
    assert_eq!(take(&reader, 10).unwrap(), b"last");
    assert_eq!(take(&reader, 10).unwrap(), b"");
    let (reader, writer) = ends();
    drop(reader);
    assert_eq!(put(&writer, b"x"), Err(Errno::EPIPE));
    assert!(writer.file().poll(PollEvents::WRITABLE, None).contains(PollEvents::ERR));
}

#[test]
fn a_fifo_waits_for_its_other_end() {
    let fifo = Pipe::for_fifo();
    let nonblocking = OpenFlags::WRONLY | OpenFlags::NONBLOCK;
    assert_eq!(fifo.open_fifo(nonblocking).err(), Some(Errno::ENXIO));
    let reader = fifo.open_fifo(OpenFlags::RDONLY).unwrap();
    assert_eq!(reader.finish_open(OpenFlags::RDONLY, None), Ok(false));
    let writer = fifo.open_fifo(OpenFlags::WRONLY).unwrap();
    assert_eq!(writer.finish_open(OpenFlags::WRONLY, None), Ok(true));
    drop(writer);
    assert_eq!(reader.finish_open(OpenFlags::RDONLY, None), Ok(true), "one came and went");
}

#[test]
fn a_reader_that_did_not_wait_is_not_hung_up_on() {
    let fifo = Pipe::for_fifo();
    let reader = fifo.open_fifo(OpenFlags::RDONLY | OpenFlags::NONBLOCK).unwrap();
    assert_eq!(reader.poll(PollEvents::READABLE, None), PollEvents::empty());
    drop(fifo.open_fifo(OpenFlags::WRONLY).unwrap());
    assert_eq!(reader.poll(PollEvents::READABLE, None), PollEvents::HUP);
}

#[test]
fn capacity_changes_within_reason() {
    let (reader, writer) = ends();
    let end = writer.file().as_any().downcast_ref::<PipeEnd>().unwrap();
    assert_eq!(end.set_capacity(100_000, false), Ok(131_072));
    assert_eq!(end.set_capacity(0, false), Ok(4096));
    assert_eq!(end.set_capacity(1 << 33, true), Err(Errno::EINVAL));
    assert_eq!(end.set_capacity(1 << 21, false), Err(Errno::EPERM));
    assert_eq!(end.set_capacity(1 << 21, true), Ok(1 << 21));
    put(&writer, &[0; 20_000]).unwrap();
    assert_eq!(end.set_capacity(4096, false), Err(Errno::EBUSY));
    drop(reader);
}

#[test]
fn a_pipe_opened_once_more_does_not_wait_for_writers() {
    let (reader, writer) = ends();
    put(&writer, b"left").unwrap();
    drop(writer);
    let again = reader.inode().open(OpenFlags::RDONLY, &Identity::kernel()).unwrap().unwrap();
    assert_eq!(again.finish_open(OpenFlags::RDONLY, None), Ok(true));
    let mut buffer = [0; 10];
    let mut sink: &mut [u8] = &mut buffer;
    assert_eq!(again.read(0, &mut sink, Transfer::PLAIN), Ok(4));
    assert!(again.poll(PollEvents::READABLE, None).contains(PollEvents::HUP));
}
