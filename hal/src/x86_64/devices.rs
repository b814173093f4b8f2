//! virtio-mmio devices: those that ACPI describes and those that the command line names,
//! `virtio_mmio.device=SIZE@ADDRESS:LINE`.

use crate::contract::{MmioDevice, PhysAddr};

const MOST_DEVICES: usize = 32;
const NONE: MmioDevice = MmioDevice { base: PhysAddr(0), size: 0, line: 0 };

pub(crate) struct List {
    list: [MmioDevice; MOST_DEVICES],
    count: usize,
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { list: [NONE; MOST_DEVICES], count: 0 }
    }

    /// Takes the devices from a command line; words that make no sense are passed over.
    pub(crate) fn read(&mut self, command_line: &str) {
        let words = command_line.split_ascii_whitespace();
        let values = words.filter_map(|word| word.strip_prefix("virtio_mmio.device="));
        values.filter_map(parse).for_each(|device| self.push(device));
    }

    /// Appends a device; one that is known already, or one too many, is passed over.
    pub(crate) fn push(&mut self, device: MmioDevice) {
        if self.as_slice().iter().all(|known| known.base != device.base)
            && let Some(slot) = self.list.get_mut(self.count)
        {
            *slot = device;
            self.count += 1;
        }
    }

    pub(crate) fn as_slice(&self) -> &[MmioDevice] {
        &self.list[..self.count]
    }
}

fn parse(value: &str) -> Option<MmioDevice> {
    let (size, rest) = value.split_once('@')?;
    let mut rest = rest.split(':');
    let base = number(rest.next()?)?;
    let line = number(rest.next()?)?;
    let size = match size.strip_suffix(['K', 'k']) {
        Some(kilobytes) => number(kilobytes)?.checked_mul(1024)?,
        None => number(size)?,
    };
    Some(MmioDevice {
        base: PhysAddr(base),
        size: usize::try_from(size).ok()?,
        line: u32::try_from(line).ok()?,
    })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(command_line: &str) -> Vec<(u64, usize, u32)> {
        let mut list = List::new();
        list.read(command_line);
        let devices = list.as_slice().iter();
        devices.map(|device| (device.base.0, device.size, device.line)).collect()
    }

    #[test]
    fn devices_are_found_among_other_words() {
        let found = read("a=b virtio_mmio.device=512@0xfeb00e00:12 virtio_mmio.device=4K@4096:5:3");
        assert_eq!(found, [(0xfeb0_0e00, 512, 12), (4096, 4096, 5)]);
    }

    #[test]
    fn nonsense_is_passed_over() {
        for value in [
            "",
            "@",
            "512@",
            "512@1",
            "x@1:2",
            "512@0x:2",
            "512@1:99999999999",
            "99999999999999999999K@1:1",
        ] {
            assert_eq!(read(&format!("virtio_mmio.device={value}")), [], "{value}");
        }
    }

    #[test]
    fn the_same_device_counts_once() {
        assert_eq!(read("virtio_mmio.device=1@2:3 virtio_mmio.device=1@2:4").len(), 1);
    }
}
