//! The initramfs format: "newc" cpio archives, written and read.
//!
//! An archive is a sequence of records, each a 110-byte header of hexadecimal fields, the name and
//! the contents, both padded to four bytes; the record `TRAILER!!!` ends it. The reader is only for
//! looking into prepared root file systems: it takes nothing on trust and copies no contents.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::tree::{Content, Node, Tree, file_type};

const MAGIC: &[u8; 6] = b"070701";
const HEADER_BYTES: usize = 110;
const TRAILER: &[u8] = b"TRAILER!!!";
/// Longest name that the reader accepts, as Linux does.
const MAX_NAME: u32 = 4096;
/// Longest symbolic link that the reader accepts.
const MAX_LINK: u32 = 4096;

/// Why an archive cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CpioError {
    /// Not in the format.
    #[error("not a valid newc cpio archive: {0} at offset {1}")]
    Malformed(&'static str, u64),
    /// A file of 4 GiB or more does not fit the format.
    #[error("{0} is too large for an initramfs")]
    TooLarge(PathBuf),
    /// A host file that belongs into the archive cannot be read.
    #[error("cannot read {0}: {1}")]
    Source(PathBuf, io::Error),
    /// The archive itself cannot be read or written.
    #[error(transparent)]
    Archive(#[from] io::Error),
}

/// Writes the records of a tree, and at the end the trailer. Inode numbers begin with
/// `first_inode`, so that records can follow those of another archive.
pub fn write_tree(out: &mut impl Write, tree: &Tree, first_inode: u32) -> Result<(), CpioError> {
    let mut inode = first_inode;
    for (path, node) in tree.iter() {
        write_node(out, path, node, inode)?;
        inode = inode.wrapping_add(1);
    }
    write_header(out, TRAILER, &Node::file(0, ""), 0, 0, 1)?;
    Ok(())
}

fn write_node(out: &mut impl Write, path: &Path, node: &Node, inode: u32) -> Result<(), CpioError> {
    let name = path.strip_prefix("/").unwrap_or(path).as_os_str().as_bytes();
    let length = match &node.content {
        Content::Empty => 0,
        Content::Bytes(bytes) => bytes.len() as u64,
        Content::Host(_, length) => *length,
    };
    let length = u32::try_from(length).map_err(|_| CpioError::TooLarge(path.to_path_buf()))?;
    write_header(out, name, node, inode, length, if node.is_directory() { 2 } else { 1 })?;
    match &node.content {
        Content::Empty => {}
        Content::Bytes(bytes) => out.write_all(bytes)?,
        Content::Host(source, _) => copy_host_file(out, source, length)?,
    }
    pad(out, length as usize)?;
    Ok(())
}

fn write_header(
    out: &mut impl Write,
    name: &[u8],
    node: &Node,
    inode: u32,
    length: u32,
    links: u32,
) -> io::Result<()> {
    let mut header = Vec::with_capacity(HEADER_BYTES + name.len() + 4);
    header.extend_from_slice(MAGIC);
    let (major, minor) = node.device;
    let name_bytes = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
    let fields = [
        inode,
        node.mode,
        node.user,
        node.group,
        links,
        node.modified_s,
        length,
        0, // the device that holds the file: numbers of inodes are unique without it
        0,
        major,
        minor,
        name_bytes,
        0, // checksum, unused in this variant
    ];
    for field in fields {
        write!(header, "{field:08x}")?;
    }
    header.extend_from_slice(name);
    header.push(0);
    header.resize(header.len().next_multiple_of(4), 0);
    out.write_all(&header)
}

/// Copies exactly `length` bytes: a file that shrank since it was listed is filled up with zeros.
fn copy_host_file(out: &mut impl Write, source: &Path, length: u32) -> Result<(), CpioError> {
    let failed = |error| CpioError::Source(source.to_path_buf(), error);
    let file = File::open(source).map_err(failed)?;
    let copied = io::copy(&mut file.take(u64::from(length)), out).map_err(failed)?;
    io::copy(&mut io::repeat(0).take(u64::from(length) - copied), out)?;
    Ok(())
}

fn pad(out: &mut impl Write, length: usize) -> io::Result<()> {
    out.write_all(&[0; 3][..length.next_multiple_of(4) - length])
}

/// What is in an archive.
#[derive(Debug)]
pub struct Listing {
    /// The nodes; regular files without their contents.
    pub tree: Tree,
    /// Bytes before the trailer: further records can follow there.
    pub records_length: u64,
    /// An inode number greater than all in the archive.
    pub next_inode: u32,
}

/// Lists an uncompressed archive.
pub fn list(archive: &mut (impl Read + Seek)) -> Result<Listing, CpioError> {
    let total = archive.seek(SeekFrom::End(0))?;
    let mut listing = Listing { tree: Tree::default(), records_length: 0, next_inode: 1 };
    let mut offset = 0;
    loop {
        let malformed = |what| CpioError::Malformed(what, offset);
        archive.seek(SeekFrom::Start(offset))?;
        let mut header = [0; HEADER_BYTES];
        archive.read_exact(&mut header).map_err(|_| malformed("no complete header"))?;
        if !header.starts_with(MAGIC) && !header.starts_with(b"070702") {
            return Err(malformed(compression(&header).unwrap_or("no magic number")));
        }
        let mut fields = [0u32; 13];
        for (field, digits) in fields.iter_mut().zip(header[MAGIC.len()..].chunks_exact(8)) {
            *field = std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                .ok_or(malformed("a field is not hexadecimal"))?;
        }
        let [inode, mode, user, group, _, modified_s, length, _, _, major, minor, name_length, _] =
            fields;
        if name_length == 0 || name_length > MAX_NAME {
            return Err(malformed("a name is empty or too long"));
        }
        let mut name = vec![0; name_length as usize];
        archive.read_exact(&mut name).map_err(|_| malformed("no complete name"))?;
        if name.pop() != Some(0) || name.contains(&0) {
            return Err(malformed("a name does not end with its zero byte"));
        }
        if name == TRAILER {
            listing.records_length = offset;
            return Ok(listing);
        }
        let data = (offset + HEADER_BYTES as u64 + u64::from(name_length)).next_multiple_of(4);
        let end = data + u64::from(length);
        if end > total {
            return Err(malformed("contents end beyond the file"));
        }
        let content = if mode & file_type::MASK == file_type::SYMLINK {
            if length > MAX_LINK {
                return Err(malformed("a symbolic link is too long"));
            }
            let mut target = vec![0; length as usize];
            archive.seek(SeekFrom::Start(data))?;
            archive.read_exact(&mut target)?;
            Content::Bytes(target)
        } else {
            Content::Empty
        };
        let node = Node { mode, user, group, modified_s, device: (major, minor), content };
        let path = Path::new("/").join(PathBuf::from(std::ffi::OsString::from_vec(name)));
        listing.tree.insert(&path, node).map_err(|_| malformed("a path through a file"))?;
        listing.next_inode = listing.next_inode.max(inode.saturating_add(1));
        offset = end.next_multiple_of(4);
    }
}

/// Names the compression of a file that begins like this.
fn compression(header: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 4] = [
        (&[0x1f, 0x8b], "it is compressed (decompress it with gunzip first); no magic number"),
        (&[0xfd, b'7', b'z'], "it is compressed (decompress it with unxz first); no magic number"),
        (
            &[0x28, 0xb5, 0x2f],
            "it is compressed (decompress it with unzstd first); no magic number",
        ),
        (b"BZh", "it is compressed (decompress it with bunzip2 first); no magic number"),
    ];
    known.iter().find(|(magic, _)| header.starts_with(magic)).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn sample() -> Tree {
        let mut tree = Tree::default();
        tree.insert(Path::new("/etc/passwd"), Node::file(0o644, "root:x:0:0\n")).unwrap();
        tree.insert(Path::new("/bin"), Node::symlink("usr/bin")).unwrap();
        tree.insert(Path::new("/tmp"), Node::directory(0o1777)).unwrap();
        tree
    }

    fn archive() -> Vec<u8> {
        let mut bytes = Vec::new();
        write_tree(&mut bytes, &sample(), 1).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_listed() {
        let listing = list(&mut Cursor::new(archive())).unwrap();
        let paths: Vec<_> = listing.tree.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/bin", "/etc", "/etc/passwd", "/tmp"]);
        assert_eq!(listing.tree.at(Path::new("/bin")), sample().at(Path::new("/bin")));
        assert_eq!(listing.tree.at(Path::new("/tmp")).unwrap().mode, 0o041_777);
        assert_eq!(listing.next_inode, 5);
    }

    #[test]
    fn records_can_follow_those_of_another_archive() {
        let mut bytes = archive();
        let first = list(&mut Cursor::new(&bytes)).unwrap();
        bytes.truncate(first.records_length as usize);
        let mut more = Tree::default();
        more.insert(Path::new("/late"), Node::file(0o600, "x")).unwrap();
        write_tree(&mut bytes, &more, first.next_inode).unwrap();
        assert!(list(&mut Cursor::new(bytes)).unwrap().tree.at(Path::new("/late")).is_some());
    }

    #[test]
    fn every_truncation_is_an_error_and_never_a_panic() {
        let bytes = archive();
        let trailer = list(&mut Cursor::new(&bytes)).unwrap().records_length as usize;
        for length in 0..trailer + HEADER_BYTES {
            assert!(list(&mut Cursor::new(&bytes[..length])).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn every_flipped_byte_is_survived() {
        let bytes = archive();
        for index in 0..bytes.len() {
            for value in [0, b'f', 0xff] {
                let mut damaged = bytes.clone();
                damaged[index] = value;
                drop(list(&mut Cursor::new(damaged)));
            }
        }
    }

    #[test]
    fn a_compressed_archive_is_named_as_such() {
        let mut bytes = vec![0x1f, 0x8b];
        bytes.resize(200, 0);
        let error = list(&mut Cursor::new(bytes)).unwrap_err().to_string();
        assert!(error.contains("gunzip"), "{error}");
    }
}
