//! How much there has to be for a kernel to run: the size of what is booted, and the least memory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use object::read::elf::{ElfFile64, ProgramHeader};

/// Bytes of a mebibyte.
const MIB: f64 = 1_048_576.0;
/// Memory that is enough for either kernel.
pub const ENOUGH_MIB: u32 = 512;
/// No machine has less; `ferry run` refuses it.
const TOO_LITTLE_MIB: u32 = 15;

/// `image`, the kernel and its root file system as they are booted, in MiB, and its parts. A kernel that
/// is an ELF file has symbols in it, which are not loaded: how much is.
pub fn image_size(kernel: &Path, initramfs: &Path) -> Result<Vec<(String, f64)>> {
    let size = |path: &Path| -> Result<f64> {
        let file = std::fs::metadata(path).with_context(|| format!("no {}", path.display()))?;
        Ok(file.len() as f64 / MIB)
    };
    let parts = [size(kernel)?, size(initramfs)?];
    let mut figures = vec![
        ("image".to_owned(), parts[0] + parts[1]),
        ("image.kernel".to_owned(), parts[0]),
        ("image.initramfs".to_owned(), parts[1]),
    ];
    let bytes = std::fs::read(kernel)?;
    if let Ok(elf) = ElfFile64::<object::Endianness>::parse(bytes.as_slice()) {
        let endian = elf.endian();
        let headers = elf.elf_program_headers().iter();
        let loaded = headers.filter(|header| header.p_type(endian) == object::elf::PT_LOAD);
        let loaded: u64 = loaded.map(|header| header.p_filesz(endian)).sum();
        figures.push(("image.kernel_loaded".to_owned(), loaded as f64 / MIB));
    }
    Ok(figures)
}

/// The least memory, in MiB, with which `works` says that it works; it is given the time left. An error
/// when it does not work with plenty, or when the time is over.
pub fn least_memory(
    deadline: Duration,
    mut works: impl FnMut(u32, Duration) -> Result<()>,
) -> Result<u32> {
    let start = Instant::now();
    works(ENOUGH_MIB, deadline).with_context(|| format!("even with {ENOUGH_MIB} MiB"))?;
    let (mut too_little, mut enough) = (TOO_LITTLE_MIB, ENOUGH_MIB);
    while enough - too_little > 1 {
        let left = deadline.saturating_sub(start.elapsed());
        if left.is_zero() {
            let seconds = deadline.as_secs();
            bail!("after {seconds} s all that is known is that {enough} MiB are enough");
        }
        let middle = too_little + (enough - too_little) / 2;
        match works(middle, left) {
            Ok(()) => enough = middle,
            Err(_) => too_little = middle,
        }
    }
    Ok(enough)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at_least(bound: u32) -> impl FnMut(u32, Duration) -> Result<()> {
        move |mib, _| if mib >= bound { Ok(()) } else { bail!("out of memory") }
    }

    #[test]
    fn the_least_memory_is_found_to_the_mebibyte() {
        for bound in [1, 16, 17, 99, 256, 511, 512] {
            assert_eq!(least_memory(HOUR, at_least(bound)).unwrap(), bound.max(16));
        }
    }

    #[test]
    fn what_never_works_and_what_takes_too_long_are_errors() {
        assert!(least_memory(HOUR, at_least(513)).is_err());
        assert!(least_memory(Duration::ZERO, at_least(16)).is_err());
    }

    #[test]
    fn an_image_is_its_kernel_and_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let files = directory.path().join("files");
        std::fs::write(&files, vec![0; 1 << 20]).unwrap();
        let kernel = std::env::current_exe().unwrap();
        let figures = image_size(&kernel, &files).unwrap();
        let of = |name: &str| figures.iter().find(|(known, _)| known == name).unwrap().1;
        assert_eq!(of("image"), of("image.kernel") + 1.0);
        assert!(of("image.kernel_loaded") > 0.0 && of("image.kernel_loaded") < of("image.kernel"));
    }
}
