//! The little of the protobuf wire format that writing needs: numbers, texts and messages within messages.

/// A message that is being written.
#[derive(Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
}

const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    /// An empty message.
    pub fn new() -> Message {
        Message::default()
    }

    /// Adds a number (`uint64`, `uint32`, `int32` of positive values, or an enumeration).
    pub fn number(mut self, field: u32, value: u64) -> Message {
        self.key(field, VARINT);
        self.varint(value);
        self
    }

    /// Adds a `string`.
    pub fn text(self, field: u32, text: &str) -> Message {
        self.delimited(field, text.as_bytes())
    }

    /// Adds a message.
    pub fn message(self, field: u32, message: &Message) -> Message {
        self.delimited(field, &message.bytes)
    }

    /// The message as it goes into a file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn delimited(mut self, field: u32, bytes: &[u8]) -> Message {
        self.key(field, LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.bytes.extend(bytes);
        self
    }

    fn key(&mut self, field: u32, wire_type: u64) {
        self.varint(u64::from(field) << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification_come_out() {
        // protobuf.dev, "Encoding": field 1 is 150; field 2 is "testing"; field 3 is the first message.
        let number = Message::new().number(1, 150);
        assert_eq!(number.bytes(), [0x08, 0x96, 0x01]);
        let text = Message::new().text(2, "testing");
        assert_eq!(text.bytes(), b"\x12\x07testing");
        assert_eq!(Message::new().message(3, &number).bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }
}
