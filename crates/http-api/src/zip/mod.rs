//! Writes zip archives as a stream: finished bytes are handed on, and only a directory entry is kept of each file.
//!
//! Not by a library: known ones keep hundreds of bytes of every file until the end, in structures for archives that are
//! edited later. Here it is the directory entry, compressed: about 40 bytes.
//!
//! The format is PKWARE's APPNOTE 6.3.10: sections 4.3.7 (local header), 4.3.12 (directory), 4.3.14 to 4.3.16 (end records),
//! and 4.5.3 (zip64, for more than 65 534 files or 4 GiB).

mod directory;
mod name;
#[cfg(test)]
mod tests;

use std::io;

use domain::clock::Timestamp;
use flate2::{Compress, Compression, FlushCompress, Status};

pub(crate) use directory::ArchiveTail;
use directory::{CentralDirectory, ZipEntry};
pub(crate) use name::safe_name;

/// Bytes reserved for the compressor's output at a time.
const OUTPUT_RESERVE_BYTES: usize = 32 * 1024;

/// An archive that is being written.
pub(crate) struct ZipWriter {
    compressor: Compress,
    directory: CentralDirectory,
}

impl ZipWriter {
    pub(crate) fn new() -> Self {
        Self {
            compressor: Compress::new(Compression::default(), false),
            directory: CentralDirectory::new(),
        }
    }

    /// Appends a file to `out`. Names are ASCII and have at most 255 bytes: see [`safe_name`].
    pub(crate) fn add(
        &mut self,
        name: &str,
        at: Timestamp,
        content: &[u8],
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let start = out.len();
        // The lengths are known afterwards: the header is written over reserved space.
        out.resize(start + ZipEntry::header_length(name), 0);
        let content_start = out.len();
        self.compress(content, out)?;
        let entry = ZipEntry {
            name,
            at: directory::dos_time(at),
            crc: crc32fast::hash(content),
            compressed: u32::try_from(out.len() - content_start).map_err(too_large)?,
            length: u32::try_from(content.len()).map_err(too_large)?,
        };
        entry.write_header(&mut out[start..content_start]);
        self.directory.push(&entry)
    }

    fn compress(&mut self, content: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.compressor.reset();
        loop {
            out.reserve(OUTPUT_RESERVE_BYTES);
            let read = usize::try_from(self.compressor.total_in()).map_err(io::Error::other)?;
            let status =
                self.compressor
                    .compress_vec(&content[read..], out, FlushCompress::Finish)?;
            if status == Status::StreamEnd {
                return Ok(());
            }
        }
    }

    /// Returns what follows the last file: the directory, in chunks.
    pub(crate) fn finish(self) -> io::Result<ArchiveTail> {
        self.directory.finish()
    }
}
