//! The line discipline: what happens between the keys and the program, without locks or waiting.
//!
//! Input is one queue of bytes. Lines that are complete are marked by their ends; what lies behind
//! the last end is being edited. Without `ICANON` the marks are not used. Output is a queue of bytes
//! that the other side takes.
//!
//! Left out: `PARMRK` and parity (there is no line), delays of old hardware other than tabs,
//! `ECHOPRT`, upper-case terminals.

use abi::terminal::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use base::io::{Sink, Source};

/// Most bytes of input that wait for a reader.
pub const INPUT_LIMIT: usize = 4096;
/// Most bytes of output that wait for the other side.
pub const OUTPUT_LIMIT: usize = 16384;

const SIGINT: u8 = 2;
const SIGQUIT: u8 = 3;
const SIGTSTP: u8 = 20;

/// The end of a line in the input queue.
#[derive(Clone, Copy, Debug)]
struct LineEnd {
    /// Bytes up to here, counted from the beginning of time, are in the line or before it.
    at: u64,
}

/// State of a line discipline.
pub struct Discipline {
    pub settings: Termios2,
    input: VecDeque<u8>,
    /// Bytes that have left `input` since the beginning of time.
    taken: u64,
    ends: VecDeque<LineEnd>,
    output: VecDeque<u8>,
    column: usize,
    /// Column at which the line that is edited began.
    edit_column: usize,
    literal_next: bool,
    /// Output is held back (`^S`, `TCOOFF`).
    pub is_stopped: bool,
}

impl Discipline {
    pub fn new() -> Discipline {
        Discipline {
            settings: Termios2 { basic: Termios::fresh(), input_speed: 38400, output_speed: 38400 },
            input: VecDeque::new(),
            taken: 0,
            ends: VecDeque::new(),
            output: VecDeque::new(),
            column: 0,
            edit_column: 0,
            literal_next: false,
            is_stopped: false,
        }
    }

    fn input_mode(&self, bit: u32) -> bool {
        self.settings.basic.input & bit != 0
    }

    fn local_mode(&self, bit: u32) -> bool {
        self.settings.basic.local & bit != 0
    }

    fn character(&self, index: usize) -> u8 {
        self.settings.basic.characters.get(index).copied().unwrap_or(0)
    }

    /// Whether a byte is a control character that is switched on.
    fn is_character(&self, byte: u8, index: usize) -> bool {
        byte != 0 && byte == self.character(index)
    }

    pub fn is_canonical(&self) -> bool {
        self.local_mode(ICANON)
    }

    /// Bytes of the input that belong to complete lines.
    fn committed(&self) -> usize {
        self.ends.back().map_or(0, |end| {
            usize::try_from(end.at.saturating_sub(self.taken)).unwrap_or(0).min(self.input.len())
        })
    }

    fn edited(&self) -> usize {
        self.input.len() - self.committed()
    }

    /// Changes the settings. Without `ICANON` all input can be read as it is; on the way back what
    /// is there counts as a line.
    pub fn set(&mut self, settings: Termios2) {
        let was_canonical = self.is_canonical();
        self.settings = settings;
        match (was_canonical, self.is_canonical()) {
            (true, false) => self.ends.clear(),
            (false, true) if !self.input.is_empty() => self.commit(),
            _ => {}
        }
        if !self.input_mode(IXON) {
            self.is_stopped = false;
        }
    }

    fn commit(&mut self) {
        self.ends.push_back(LineEnd { at: self.taken + self.input.len() as u64 });
    }

    /// How many bytes of input can be taken without losing one. While a line is edited there is
    /// always room for one more, so that a full line can still be edited and ended.
    pub fn input_room(&self) -> usize {
        if !self.is_canonical() {
            return INPUT_LIMIT.saturating_sub(self.input.len());
        }
        let room = (INPUT_LIMIT - 1).saturating_sub(self.input.len());
        if self.ends.is_empty() { room.max(1) } else { room }
    }

    /// Takes one byte from the line. Gives the signal that it means, if it means one.
    pub fn receive(&mut self, byte: u8) -> Option<u8> {
        let mut byte = if self.input_mode(ISTRIP) { byte & 0x7f } else { byte };
        if self.literal_next {
            self.literal_next = false;
            self.store(byte);
            return None;
        }
        let is_extended = self.local_mode(IEXTEN);
        if self.local_mode(ISIG) {
            let signals = [(VINTR, SIGINT), (VQUIT, SIGQUIT), (VSUSP, SIGTSTP)];
            for (index, signal) in signals {
                if self.is_character(byte, index) {
                    self.signal_typed(byte);
                    return Some(signal);
                }
            }
        }
        if self.input_mode(IXON) {
            if self.is_character(byte, VSTART) {
                self.is_stopped = false;
                return None;
            }
            if self.is_character(byte, VSTOP) {
                self.is_stopped = true;
                return None;
            }
            if self.is_stopped && self.input_mode(IXANY) {
                self.is_stopped = false;
            }
        }
        match byte {
            b'\r' if self.input_mode(IGNCR) => return None,
            b'\r' if self.input_mode(ICRNL) => byte = b'\n',
            b'\n' if self.input_mode(INLCR) => byte = b'\r',
            _ => {}
        }
        if !self.is_canonical() {
            self.store(byte);
            return None;
        }
        if self.is_character(byte, VERASE) {
            self.erase_one();
        } else if self.is_character(byte, VKILL) {
            self.kill_line(byte);
        } else if is_extended && self.is_character(byte, VWERASE) {
            self.erase_word();
        } else if is_extended && self.is_character(byte, VREPRINT) {
            self.reprint(byte);
        } else if is_extended && self.is_character(byte, VLNEXT) {
            self.literal_next = true;
            if self.local_mode(ECHO) && self.local_mode(ECHOCTL) {
                self.put_raw(b"^\x08");
            }
        } else if self.is_character(byte, VEOF) {
            self.commit();
        } else if byte == b'\n'
            || self.is_character(byte, VEOL)
            || (is_extended && self.is_character(byte, VEOL2))
        {
            // A full queue still takes the end of the line.
            self.input.push_back(byte);
            if self.local_mode(ECHO) || (byte == b'\n' && self.local_mode(ECHONL)) {
                self.echo(byte);
            }
            self.commit();
        } else {
            self.store(byte);
        }
        None
    }

    fn store(&mut self, byte: u8) {
        let limit = if self.is_canonical() { INPUT_LIMIT - 1 } else { INPUT_LIMIT };
        if self.input.len() >= limit {
            if self.input_mode(IMAXBEL) {
                self.put_raw(b"\x07");
            }
            return;
        }
        if self.edited() == 0 {
            self.edit_column = self.column;
        }
        self.input.push_back(byte);
        if self.local_mode(ECHO) {
            self.echo(byte);
        }
    }

    fn signal_typed(&mut self, byte: u8) {
        if !self.local_mode(NOFLSH) {
            self.flush_input();
            self.output.clear();
        }
        self.is_stopped = false;
        if self.local_mode(ECHO) {
            self.echo(byte);
        }
    }

    fn echo(&mut self, byte: u8) {
        let is_control = byte < 0x20 && byte != b'\t' && byte != b'\n';
        if self.local_mode(ECHOCTL) && (is_control || byte == 0x7f) {
            self.put_raw(&[b'^', byte ^ 0x40]);
        } else {
            self.put_processed(byte);
        }
    }

    /// Columns that the echo of a byte takes (tabs aside).
    fn width(&self, byte: u8) -> usize {
        let is_control = byte < 0x20 || byte == 0x7f;
        match byte {
            0x80..=0xbf if self.input_mode(IUTF8) => 0,
            _ if is_control && self.local_mode(ECHOCTL) => 2,
            _ if is_control => 0,
            _ => 1,
        }
    }

    fn column_after(&self, bytes: impl Iterator<Item = u8>) -> usize {
        bytes.fold(self.edit_column, |column, byte| match byte {
            b'\t' => (column / 8 + 1) * 8,
            _ => column + self.width(byte),
        })
    }

    /// Takes the last character off the line that is edited. False when there is none.
    fn remove_last(&mut self) -> bool {
        if self.edited() == 0 {
            return false;
        }
        let mut removed = self.input.pop_back();
        while self.input_mode(IUTF8)
            && removed.is_some_and(|byte| byte & 0xc0 == 0x80)
            && self.edited() > 0
        {
            removed = self.input.pop_back();
        }
        true
    }

    /// Moves the cursor back to where it stands after what is left of the line, with blanks behind.
    fn rub_out(&mut self, from_column: usize) {
        let left = self.column_after(self.input.range(self.committed()..).copied());
        for _ in left..from_column {
            self.put_raw(b"\x08 \x08");
        }
        self.column = left;
    }

    fn edit_end_column(&self) -> usize {
        self.column_after(self.input.range(self.committed()..).copied())
    }

    fn erase_one(&mut self) {
        let before = self.edit_end_column();
        if !self.remove_last() || !self.local_mode(ECHO) {
            return;
        }
        if self.local_mode(ECHOE) {
            self.rub_out(before);
        } else {
            self.echo(self.character(VERASE));
        }
    }

    fn erase_word(&mut self) {
        let before = self.edit_end_column();
        let mut seen_word = false;
        while self.edited() > 0 {
            let is_word = self
                .input
                .back()
                .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80);
            if seen_word && !is_word {
                break;
            }
            seen_word |= is_word;
            self.remove_last();
        }
        if self.local_mode(ECHO) && self.local_mode(ECHOE) {
            self.rub_out(before);
        }
    }

    fn kill_line(&mut self, byte: u8) {
        let before = self.edit_end_column();
        let kept = self.committed();
        self.input.truncate(kept);
        if !self.local_mode(ECHO) {
            return;
        }
        if self.local_mode(ECHOKE) && self.local_mode(ECHOE) {
            self.rub_out(before);
        } else {
            self.echo(byte);
            if self.local_mode(ECHOK) {
                self.put_processed(b'\n');
            }
        }
    }

    fn reprint(&mut self, byte: u8) {
        if !self.local_mode(ECHO) {
            return;
        }
        self.echo(byte);
        self.put_processed(b'\n');
        self.edit_column = self.column;
        let line: Vec<u8> = self.input.range(self.committed()..).copied().collect();
        for byte in line {
            self.echo(byte);
        }
    }

    fn put_raw(&mut self, bytes: &[u8]) {
        if self.output.len() + bytes.len() <= OUTPUT_LIMIT + 64 {
            self.output.extend(bytes);
            self.column += bytes.len();
        }
    }

    /// Puts one byte out as the output modes say.
    fn put_processed(&mut self, byte: u8) {
        let modes = self.settings.basic.output;
        if modes & OPOST == 0 {
            self.output.push_back(byte);
            return;
        }
        match byte {
            b'\n' => {
                if modes & ONLRET != 0 {
                    self.column = 0;
                }
                if modes & ONLCR != 0 {
                    self.output.push_back(b'\r');
                    self.column = 0;
                }
                self.output.push_back(b'\n');
            }
            b'\r' if modes & ONOCR != 0 && self.column == 0 => {}
            b'\r' if modes & OCRNL != 0 => {
                if modes & ONLRET != 0 {
                    self.column = 0;
                }
                self.output.push_back(b'\n');
            }
            b'\r' => {
                self.column = 0;
                self.output.push_back(b'\r');
            }
            b'\t' => {
                let spaces = 8 - self.column % 8;
                if modes & TABDLY == XTABS {
                    self.output.extend(core::iter::repeat_n(b' ', spaces));
                } else {
                    self.output.push_back(b'\t');
                }
                self.column += spaces;
            }
            0x08 => {
                self.column = self.column.saturating_sub(1);
                self.output.push_back(byte);
            }
            _ => {
                let is_visible = byte >= 0x20 && byte != 0x7f;
                if is_visible && !(self.input_mode(IUTF8) && byte & 0xc0 == 0x80) {
                    self.column += 1;
                }
                self.output.push_back(byte);
            }
        }
    }

    /// Whether a program may write now.
    pub fn has_output_room(&self) -> bool {
        self.output.len() < OUTPUT_LIMIT && !self.is_stopped
    }

    /// Takes what a program writes, as long as there is room.
    pub fn write(&mut self, source: &mut dyn Source) -> usize {
        let mut part = [0u8; 256];
        let mut done = 0;
        while self.has_output_room() {
            let wanted = source.remaining().min(part.len());
            let Some(into) = part.get_mut(..wanted).filter(|into| !into.is_empty()) else { break };
            let count = source.read(into);
            let bytes = part.get(..count).unwrap_or(&[]);
            if self.settings.basic.output & OPOST == 0 {
                self.output.extend(bytes);
            } else {
                for &byte in bytes {
                    self.put_processed(byte);
                }
            }
            done += count;
            if count < wanted {
                break;
            }
        }
        done
    }

    /// Whether there is output for the other side.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty() && !self.is_stopped
    }

    /// Bytes of output that the other side has not taken.
    pub fn output_length(&self) -> usize {
        self.output.len()
    }

    /// The other side takes output.
    pub fn take_output(&mut self, sink: &mut dyn Sink) -> usize {
        if self.is_stopped {
            return 0;
        }
        move_out(&mut self.output, usize::MAX, sink)
    }

    pub fn flush_input(&mut self) {
        self.taken += self.input.len() as u64;
        self.input.clear();
        self.ends.clear();
        self.literal_next = false;
    }

    pub fn flush_output(&mut self) {
        self.output.clear();
    }

    /// Bytes that a read could get now.
    pub fn readable(&self) -> usize {
        if self.is_canonical() { self.committed() } else { self.input.len() }
    }

    /// Whether a read would not wait, as `poll` sees it.
    pub fn is_readable(&self) -> bool {
        if self.is_canonical() {
            return !self.ends.is_empty();
        }
        let minimum = match (self.character(VTIME), self.character(VMIN)) {
            (0, minimum) => usize::from(minimum).max(1),
            _ => 1,
        };
        self.input.len() >= minimum
    }

    /// How long a read may wait for the next byte, in nanoseconds.
    pub fn read_timeout_ns(&self) -> Option<u64> {
        let tenths = u64::from(self.character(VTIME));
        let applies = !self.is_canonical()
            && tenths > 0
            && (self.character(VMIN) == 0 || !self.input.is_empty());
        if applies { Some(tenths * 100_000_000) } else { None }
    }

    /// A program reads. `None` when it has to wait.
    pub fn read(&mut self, sink: &mut dyn Sink, at_once: bool) -> Option<usize> {
        if self.is_canonical() {
            let end = *self.ends.front()?;
            let length = usize::try_from(end.at.saturating_sub(self.taken)).unwrap_or(0);
            let count = move_out(&mut self.input, length, sink);
            self.taken += count as u64;
            if count == length {
                self.ends.pop_front();
            }
            return Some(count);
        }
        let minimum = usize::from(self.character(VMIN));
        let waits_for = minimum.min(sink.remaining());
        let is_enough = match (minimum, self.character(VTIME)) {
            (0, 0) => true,
            (0, _) => !self.input.is_empty(),
            _ => self.input.len() >= waits_for,
        };
        if !is_enough && !(at_once && (!self.input.is_empty() || minimum == 0)) {
            return None;
        }
        let count = move_out(&mut self.input, usize::MAX, sink);
        self.taken += count as u64;
        Some(count)
    }
}

/// Moves up to `limit` bytes from a queue to a sink.
fn move_out(queue: &mut VecDeque<u8>, limit: usize, sink: &mut dyn Sink) -> usize {
    let mut done = 0;
    loop {
        let (front, _) = queue.as_slices();
        let wanted = front.len().min(limit - done).min(sink.remaining());
        let Some(bytes) = front.get(..wanted).filter(|bytes| !bytes.is_empty()) else {
            return done;
        };
        let count = sink.write(bytes);
        queue.drain(..count);
        done += count;
        if count < wanted {
            return done;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(discipline: &mut Discipline, text: &[u8]) -> Vec<u8> {
        text.iter().filter_map(|&byte| discipline.receive(byte)).collect()
    }

    fn read(discipline: &mut Discipline, limit: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; limit];
        let mut sink: &mut [u8] = &mut buffer;
        let count = discipline.read(&mut sink, false)?;
        buffer.truncate(count);
        Some(buffer)
    }

    fn shown(discipline: &mut Discipline) -> Vec<u8> {
        let mut buffer = [0; 256];
        let mut sink: &mut [u8] = &mut buffer;
        let count = discipline.take_output(&mut sink);
        buffer[..count].to_vec()
    }

    #[test]
    fn a_line_is_read_when_it_is_complete() {
        let mut tty = Discipline::new();
        typed(&mut tty, b"ab");
        assert_eq!(read(&mut tty, 10), None);
        typed(&mut tty, b"c\rnext\n");
        assert_eq!(read(&mut tty, 2).unwrap(), b"ab");
        assert_eq!(read(&mut tty, 10).unwrap(), b"c\n", "one read gets one line at most");
        assert_eq!(read(&mut tty, 10).unwrap(), b"next\n");
        assert_eq!(shown(&mut tty), b"abc\r\nnext\r\n");
    }

    #[test]
    fn erase_kill_and_word_erase_edit_the_line() {
        let mut tty = Discipline::new();
        typed(&mut tty, b"wrong\x15one twp\x7fo three\x17\n");
        assert_eq!(read(&mut tty, 80).unwrap(), b"one two \n");
    }

    #[test]
    fn erasing_shows_blanks_for_every_column() {
        let mut tty = Discipline::new();
        typed(&mut tty, b"a\x01\x7f\x7f\x7f");
        assert_eq!(shown(&mut tty), b"a^A\x08 \x08\x08 \x08\x08 \x08");
    }

    #[test]
    fn end_of_file_gives_the_line_without_a_newline_and_then_nothing() {
        let mut tty = Discipline::new();
        typed(&mut tty, b"ab\x04\x04");
        assert_eq!(read(&mut tty, 10).unwrap(), b"ab");
        assert_eq!(read(&mut tty, 10).unwrap(), b"");
        assert_eq!(read(&mut tty, 10), None);
    }

    #[test]
    fn control_characters_are_signals_and_flush() {
        let mut tty = Discipline::new();
        assert_eq!(typed(&mut tty, b"junk\x03ok\n"), [SIGINT]);
        assert_eq!(read(&mut tty, 10).unwrap(), b"ok\n");
        tty.settings.basic.local &= !ISIG;
        assert_eq!(typed(&mut tty, b"\x03\n"), []);
        assert_eq!(read(&mut tty, 10).unwrap(), b"\x03\n");
    }

    #[test]
    fn literal_next_takes_the_meaning_away() {
        let mut tty = Discipline::new();
        assert_eq!(typed(&mut tty, b"a\x16\x03\n"), []);
        assert_eq!(read(&mut tty, 10).unwrap(), b"a\x03\n");
    }

    #[test]
    fn raw_reads_wait_for_the_minimum() {
        let mut tty = Discipline::new();
        let mut settings = tty.settings;
        settings.basic.local &= !(ICANON | ECHO);
        settings.basic.characters[VMIN] = 3;
        tty.set(settings);
        typed(&mut tty, b"ab");
        assert_eq!(read(&mut tty, 10), None);
        assert_eq!(read(&mut tty, 2).unwrap(), b"ab", "nobody waits for more than was asked for");
        typed(&mut tty, b"xyz");
        assert_eq!(read(&mut tty, 10).unwrap(), b"xyz");
        settings.basic.characters[VMIN] = 0;
        tty.set(settings);
        assert_eq!(read(&mut tty, 10).unwrap(), b"");
    }

    #[test]
    fn stopped_output_is_held_back() {
        let mut tty = Discipline::new();
        typed(&mut tty, b"\x13");
        let mut text: &[u8] = b"x";
        assert_eq!(tty.write(&mut text), 0);
        typed(&mut tty, b"\x11");
        assert_eq!(tty.write(&mut text), 1);
        assert_eq!(shown(&mut tty), b"x");
    }

    #[test]
    fn leaving_canonical_mode_makes_the_edited_line_readable() {
        let mut tty = Discipline::new();
        typed(&mut tty, b"ab");
        let mut settings = tty.settings;
        settings.basic.local &= !ICANON;
        tty.set(settings);
        assert_eq!(read(&mut tty, 10).unwrap(), b"ab");
    }

    #[test]
    fn a_full_line_still_ends() {
        let mut tty = Discipline::new();
        typed(&mut tty, &[b'x'; INPUT_LIMIT + 50]);
        typed(&mut tty, b"\n");
        let line = read(&mut tty, 2 * INPUT_LIMIT).unwrap();
        assert_eq!((line.len(), line.last()), (INPUT_LIMIT, Some(&b'\n')));
    }
}
