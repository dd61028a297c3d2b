//! The central directory at the end of an archive: kept compressed until then, and written in chunks.

use std::io::{self, Read as _, Write as _};

use chrono::{Datelike as _, Timelike as _};
use domain::clock::Timestamp;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// Bytes of a local header, without the file name.
const LOCAL_HEADER_BYTES: usize = 30;
/// Bytes of one stored entry, without the name: the name's length, and the numbers of `ZipEntry`.
const PACKED_ENTRY_BYTES: usize = 1 + 4 * 4;
/// Approximate size of a chunk.
const CHUNK_BYTES: usize = 64 * 1024;
/// Marks a number that a zip64 field contains instead.
const ZIP64_MARKER: u32 = u32::MAX;
/// Version 2.0 supports deflate; 4.5 supports zip64.
const VERSION_DEFLATE: u16 = 20;
const VERSION_ZIP64: u16 = 45;
const METHOD_DEFLATE: u16 = 8;
/// Created on Unix, so that the permissions apply: a regular file, `rw-r--r--`.
const VERSION_MADE_BY: u16 = (3 << 8) | VERSION_ZIP64;
const PERMISSIONS: u32 = 0o100_644 << 16;

/// One file of the archive.
pub(super) struct ZipEntry<'a> {
    pub(super) name: &'a str,
    /// Date and time in the DOS format.
    pub(super) at: u32,
    pub(super) crc: u32,
    pub(super) compressed: u32,
    pub(super) length: u32,
}

impl ZipEntry<'_> {
    /// Bytes of the local header.
    pub(super) fn header_length(name: &str) -> usize {
        LOCAL_HEADER_BYTES + name.len()
    }

    /// Writes the local header over `place`, which has its exact length.
    pub(super) fn write_header(&self, place: &mut [u8]) {
        let mut header = Vec::with_capacity(place.len());
        header.extend(*b"PK\x03\x04");
        self.common(VERSION_DEFLATE, &mut header);
        put_u16(&mut header, 0);
        header.extend(self.name.as_bytes());
        place.copy_from_slice(&header);
    }

    /// Writes the fields that the local header and the directory share, up to the length of the name.
    fn common(&self, version: u16, out: &mut Vec<u8>) {
        put_u16(out, version);
        put_u16(out, 0);
        put_u16(out, METHOD_DEFLATE);
        put_u32(out, self.at);
        put_u32(out, self.crc);
        put_u32(out, self.compressed);
        put_u32(out, self.length);
        put_u16(out, u16::try_from(self.name.len()).unwrap_or(u16::MAX));
    }

    /// Writes the directory entry of a file that starts at `offset`.
    fn write_entry(&self, offset: u64, out: &mut Vec<u8>) {
        let (short, is_far) = clamp(offset);
        out.extend(*b"PK\x01\x02");
        put_u16(out, VERSION_MADE_BY);
        self.common(
            if is_far {
                VERSION_ZIP64
            } else {
                VERSION_DEFLATE
            },
            out,
        );
        // The lengths of extra field and comment, the disk number, and the internal attributes.
        put_u16(out, if is_far { 12 } else { 0 });
        for _ in 0..3 {
            put_u16(out, 0);
        }
        put_u32(out, PERMISSIONS);
        put_u32(out, short);
        out.extend(self.name.as_bytes());
        if is_far {
            put_u16(out, 1);
            put_u16(out, 8);
            put_u64(out, offset);
        }
    }
}

/// The files added so far.
pub(super) struct CentralDirectory {
    kept: DeflateEncoder<Vec<u8>>,
    count: u64,
}

impl CentralDirectory {
    pub(super) fn new() -> Self {
        Self {
            kept: DeflateEncoder::new(Vec::new(), Compression::fast()),
            count: 0,
        }
    }

    pub(super) fn push(&mut self, entry: &ZipEntry<'_>) -> io::Result<()> {
        let length = u8::try_from(entry.name.len()).map_err(io::Error::other)?;
        self.kept.write_all(&[length])?;
        for number in [entry.at, entry.crc, entry.compressed, entry.length] {
            self.kept.write_all(&number.to_le_bytes())?;
        }
        self.kept.write_all(entry.name.as_bytes())?;
        self.count += 1;
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<ArchiveTail> {
        Ok(ArchiveTail {
            kept: DeflateDecoder::new(io::Cursor::new(self.kept.finish()?)),
            left: self.count,
            count: self.count,
            offset: 0,
            size: 0,
            is_over: false,
        })
    }
}

/// The rest of an archive after the last file.
pub(crate) struct ArchiveTail {
    kept: DeflateDecoder<io::Cursor<Vec<u8>>>,
    left: u64,
    count: u64,
    /// The offset of the next file; after the last one, of the directory.
    offset: u64,
    /// Bytes of the directory written so far.
    size: u64,
    is_over: bool,
}

impl ArchiveTail {
    /// The next chunk; `None` after the last one.
    pub(crate) fn next_part(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.is_over {
            return Ok(None);
        }
        let mut part = Vec::with_capacity(CHUNK_BYTES + 512);
        while self.left > 0 && part.len() < CHUNK_BYTES {
            self.write_next(&mut part)?;
        }
        self.size += part.len() as u64;
        if self.left == 0 {
            self.write_end(&mut part);
            self.is_over = true;
        }
        Ok(Some(part))
    }

    fn write_next(&mut self, part: &mut Vec<u8>) -> io::Result<()> {
        let (mut kept, mut name) = ([0; PACKED_ENTRY_BYTES], [0; u8::MAX as usize]);
        self.kept.read_exact(&mut kept)?;
        let name = &mut name[..usize::from(kept[0])];
        self.kept.read_exact(name)?;
        let number =
            |at: usize| u32::from_le_bytes([kept[at], kept[at + 1], kept[at + 2], kept[at + 3]]);
        let entry = ZipEntry {
            name: std::str::from_utf8(name).map_err(io::Error::other)?,
            at: number(1),
            crc: number(5),
            compressed: number(9),
            length: number(13),
        };
        entry.write_entry(self.offset, part);
        self.offset += ZipEntry::header_length(entry.name) as u64 + u64::from(entry.compressed);
        self.left -= 1;
        Ok(())
    }

    /// Writes the end records; the zip64 records only where they are needed.
    fn write_end(&self, part: &mut Vec<u8>) {
        let (offset, is_far) = clamp(self.offset);
        let (size, is_long) = clamp(self.size);
        let few = u16::try_from(self.count)
            .ok()
            .filter(|count| *count != u16::MAX);
        if is_far || is_long || few.is_none() {
            self.write_zip64_end(part);
        }
        part.extend(*b"PK\x05\x06");
        put_u32(part, 0);
        for _ in 0..2 {
            put_u16(part, few.unwrap_or(u16::MAX));
        }
        put_u32(part, size);
        put_u32(part, offset);
        put_u16(part, 0);
    }

    fn write_zip64_end(&self, part: &mut Vec<u8>) {
        part.extend(*b"PK\x06\x06");
        // The length of this record after this field.
        put_u64(part, 44);
        put_u16(part, VERSION_MADE_BY);
        put_u16(part, VERSION_ZIP64);
        put_u64(part, 0);
        for number in [self.count, self.count, self.size, self.offset] {
            put_u64(part, number);
        }
        part.extend(*b"PK\x06\x07");
        put_u32(part, 0);
        put_u64(part, self.offset + self.size);
        put_u32(part, 1);
    }
}

/// The number, or the marker if it needs zip64, and whether it does.
fn clamp(number: u64) -> (u32, bool) {
    match u32::try_from(number) {
        Ok(number) if number != ZIP64_MARKER => (number, false),
        _ => (ZIP64_MARKER, true),
    }
}

/// The nearest time in the DOS format: steps of two seconds, from 1980 to 2107.
pub(super) fn dos_time(at: Timestamp) -> u32 {
    let at = at.to_utc();
    match u32::try_from(at.year() - 1980) {
        Ok(year @ 0..=127) => packed(
            (year, at.month(), at.day()),
            (at.hour(), at.minute(), at.second() / 2),
        ),
        Ok(_) => packed((127, 12, 31), (23, 59, 29)),
        Err(_) => packed((0, 1, 1), (0, 0, 0)),
    }
}

/// `year` counts from 1980; `second` is halved.
fn packed((year, month, day): (u32, u32, u32), (hour, minute, second): (u32, u32, u32)) -> u32 {
    let date = (year << 9) | (month << 5) | day;
    let time = (hour << 11) | (minute << 5) | second;
    (date << 16) | time
}

fn put_u16(out: &mut Vec<u8>, number: u16) {
    out.extend(number.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend(number.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_beyond_four_gibibytes_is_in_the_extra_field() {
        let entry = ZipEntry {
            name: "a",
            at: 0,
            crc: 1,
            compressed: 2,
            length: 3,
        };
        let (mut near, mut far) = (Vec::new(), Vec::new());
        entry.write_entry(u64::from(ZIP64_MARKER) - 1, &mut near);
        entry.write_entry(u64::from(ZIP64_MARKER), &mut far);
        assert_eq!(near.len() + 12, far.len());
        assert_eq!(far[42..46], [0xff; 4]);
        assert_eq!(far[47..51], [1, 0, 8, 0]);
        assert_eq!(far[51..], u64::from(ZIP64_MARKER).to_le_bytes());
    }

    #[test]
    fn times_outside_of_the_dos_range_are_clamped() {
        let at = |text: &str| dos_time(Timestamp::new(text.parse().unwrap()));
        assert_eq!(at("2026-11-21T10:00:59Z"), 0x5d75_501d);
        assert_eq!(at("1970-01-01T00:00:00Z"), at("1980-01-01T00:00:00Z"));
        assert_eq!(at("9999-01-01T00:00:00Z"), at("2107-12-31T23:59:59Z"));
    }
}
