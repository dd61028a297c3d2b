//! Zip archives that are written as a stream: finished bytes are handed on, and only the names, sizes and checksums of the
//! files are kept, for the directory at the end.

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use domain::clock::Timestamp;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};
use rawzip::time::UtcDateTime;
use rawzip::{CompressionMethod, DataDescriptorOutput, ZipArchiveWriter};

/// Further characters of a file's name are cut.
const MAX_NAME_CHARS: usize = 100;
/// Times that the format can express, in seconds since 1970: from 1980 to 2106.
const MIN_FILE_SECONDS: i64 = 315_532_800;
const MAX_FILE_SECONDS: i64 = u32::MAX as i64;
/// `rw-r--r--`.
const PERMISSIONS: u32 = 0o100_644;

pub(crate) struct ZipStream {
    archive: ZipArchiveWriter<UnsentArchive>,
    /// Keeps its buffers from file to file.
    encoder: DeflateEncoder<Vec<u8>>,
    unsent: UnsentArchive,
}

/// The bytes of an archive that were not taken yet.
#[derive(Clone, Default)]
struct UnsentArchive(Arc<Mutex<Vec<u8>>>);

impl UnsentArchive {
    fn take(&self) -> Vec<u8> {
        take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for UnsentArchive {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut unsent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unsent.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ZipStream {
    pub(crate) fn new() -> Self {
        let unsent = UnsentArchive::default();
        Self {
            archive: ZipArchiveWriter::new(unsent.clone()),
            encoder: DeflateEncoder::new(Vec::new(), Compression::default()),
            unsent,
        }
    }

    pub(crate) fn add(&mut self, name: &str, at: Timestamp, content: &[u8]) -> io::Result<()> {
        self.encoder.write_all(content)?;
        let packed = self.encoder.reset(Vec::new())?;
        let mut crc = Crc::new();
        crc.update(content);
        let seconds = at.to_utc().timestamp();
        let file = self.archive.new_file(name);
        let (mut file, _) = file
            .compression_method(CompressionMethod::DEFLATE)
            .last_modified(UtcDateTime::from_unix(
                seconds.clamp(MIN_FILE_SECONDS, MAX_FILE_SECONDS),
            ))
            .unix_permissions(PERMISSIONS)
            .start()
            .map_err(io::Error::other)?;
        file.write_all(&packed)?;
        let sizes = DataDescriptorOutput::new(crc.sum(), content.len() as u64);
        file.finish(sizes).map_err(io::Error::other)?;
        Ok(())
    }

    /// Takes what was written since the last call.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.unsent.take()
    }

    /// Writes the directory, and takes what was written since the last call.
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        self.archive.finish().map_err(io::Error::other)?;
        Ok(self.unsent.take())
    }
}

/// Replaces all characters but ASCII letters, digits, `-` and `_` with `_`. Names contain event ids, which agent
/// servers choose, and some programs follow `../` or `C:` when they unpack.
pub(crate) fn safe_name(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    text.chars()
        .take(MAX_NAME_CHARS)
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}
