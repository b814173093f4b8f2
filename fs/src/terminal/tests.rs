//! Terminals and pseudo-terminals without processes.

use super::*;
use crate::identity::NoCaller;
use alloc::vec::Vec;

fn put(file: &Arc<dyn File>, bytes: &[u8]) -> Result<usize, Errno> {
    let mut source = bytes;
    file.write(0, &mut source, Transfer::PLAIN)
}

fn take(file: &Arc<dyn File>, limit: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; limit];
    let mut sink: &mut [u8] = &mut buffer;
    let count = file.read(0, &mut sink, Transfer::PLAIN)?;
    buffer.truncate(count);
    Ok(buffer)
}

fn control(file: &Arc<dyn File>, request: u32, input: &[u8]) -> Result<IoctlAnswer, Errno> {
    assert_eq!(file.ioctl_input(request)?, input.len());
    file.ioctl(&NoCaller, request, 0, input)
}

fn pair() -> (Arc<dyn File>, Arc<dyn File>) {
    let master = open_ptmx(&NoCaller).unwrap();
    let number = control(&master, TIOCGPTN, &[]).unwrap().output;
    let number = u32::from_ne_bytes(number.try_into().unwrap());
    assert_eq!(open_slave(number, OpenFlags::RDWR, &NoCaller).err(), Some(Errno::EIO), "locked");
    control(&master, TIOCSPTLCK, &0i32.to_ne_bytes()).unwrap();
    let slave = open_slave(number, OpenFlags::RDWR, &NoCaller).unwrap();
    (master, slave)
}

#[test]
fn what_the_master_types_the_slave_reads_and_the_other_way_round() {
    let (master, slave) = pair();
    assert_eq!(put(&master, b"typed\r"), Ok(6));
    assert_eq!(take(&slave, 100).unwrap(), b"typed\n");
    assert_eq!(take(&master, 100).unwrap(), b"typed\r\n", "the echo");
    put(&slave, b"shown\n").unwrap();
    assert_eq!(take(&master, 100).unwrap(), b"shown\r\n");
    assert_eq!(take(&master, 100), Err(Errno::EAGAIN));
}

#[test]
fn a_flood_of_lines_is_held_back_and_nothing_is_lost() {
    let (master, slave) = pair();
    let text: Vec<u8> = (0..2000).flat_map(|n| format!("line number {n}\n").into_bytes()).collect();
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < text.len() {
        match put(&master, &text[sent..]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        while take(&master, 1000).is_ok() {}
        while let Ok(line) = take(&slave, 1000) {
            got.extend(line);
        }
    }
    assert!(got == text);
}

#[test]
fn the_end_of_one_side_is_seen_on_the_other() {
    let (master, slave) = pair();
    put(&slave, b"last").unwrap();
    drop(slave);
    assert_eq!(take(&master, 100).unwrap(), b"last");
    assert_eq!(take(&master, 100), Err(Errno::EIO));
    let (master, slave) = pair();
    drop(master);
    assert_eq!(take(&slave, 100).unwrap(), b"");
    assert_eq!(put(&slave, b"x"), Err(Errno::EIO));
    assert!(slave.poll(PollEvents::READABLE, None).contains(PollEvents::HUP));
}

#[test]
fn settings_are_those_of_linux_and_change() {
    let (master, slave) = pair();
    let mut settings = control(&slave, TCGETS, &[]).unwrap().output;
    assert_eq!(settings.len(), 36);
    assert_eq!(settings[..4], (ICRNL | IXON).to_ne_bytes());
    settings[12..16].copy_from_slice(&0u32.to_ne_bytes());
    control(&slave, TCSETS, &settings).unwrap();
    put(&master, b"raw").unwrap();
    assert_eq!(take(&slave, 100).unwrap(), b"raw");
    let size = WindowSize { rows: 3, columns: 4, ..WindowSize::default() };
    let bytes = [3, 0, 4, 0, 0, 0, 0, 0];
    control(&master, TIOCSWINSZ, &bytes).unwrap();
    assert_eq!(control(&slave, TIOCGWINSZ, &[]).unwrap().output, bytes);
    assert_eq!(Terminal::of(&*slave).unwrap().state.lock().window, size);
    assert_eq!(slave.ioctl_input(0x1234), Err(Errno::ENOTTY));
}
