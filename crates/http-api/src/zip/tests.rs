//! Archives are read back with a library.

use std::io::{Cursor, Read as _};

use domain::clock::Timestamp;
use proptest::prelude::*;
use zip::ZipArchive;

use super::directory::{CentralDirectory, ZipEntry};
use super::{ZipWriter, safe_name};

const NOON: i64 = 1_793_188_800_000_000;

fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut archive, mut out) = (ZipWriter::new(), Vec::new());
    for (name, content) in files {
        archive
            .add(name, Timestamp::from_micros(NOON), content, &mut out)
            .unwrap();
    }
    let mut ending = archive.finish().unwrap();
    while let Some(part) = ending.next_part().unwrap() {
        out.extend(part);
    }
    out
}

fn read(bytes: Vec<u8>) -> Vec<(String, Vec<u8>)> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
    (0..archive.len())
        .map(|index| {
            let mut file = archive.by_index(index).unwrap();
            let mut content = Vec::new();
            file.read_to_end(&mut content).unwrap();
            (file.name().unwrap().into_owned(), content)
        })
        .collect()
}

proptest! {
    #[test]
    fn files_are_restored(contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20)) {
        let files: Vec<_> = contents.into_iter().enumerate().map(|(n, content)| (format!("{n}.json"), content)).collect();
        prop_assert_eq!(read(archive(&files)), files);
    }

    #[test]
    fn names_are_harmless_and_short(text in ".{0,200}") {
        let name = safe_name(&text);
        prop_assert!(name.len() <= 100);
        prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'), "{}", name);
    }
}

#[test]
fn uuids_are_kept_and_paths_are_replaced() {
    let id = "0b9f7a52-6c1e-4f0e-9d3a-2a1b3c4d5e6f";
    assert_eq!(safe_name(id), id);
    assert_eq!(safe_name("../../settings"), "______settings");
}

#[test]
fn a_file_larger_than_all_buffers_is_restored() {
    let noise: Vec<u8> = (0..3_000_000_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2])
        .collect();
    let files = vec![("a".to_owned(), noise), ("b".to_owned(), b"{}".to_vec())];
    assert_eq!(read(archive(&files)), files);
}

#[test]
fn more_files_than_zip_without_zip64_supports_are_restored() {
    const EMPTY: [u8; 2] = [3, 0];
    let (mut directory, mut out) = (CentralDirectory::new(), Vec::new());
    let names: Vec<_> = (0..65_540).map(|n| format!("event_{n:06}")).collect();
    for name in &names {
        let entry = ZipEntry {
            name,
            at: 0x5d75_501d,
            crc: 0,
            compressed: 2,
            length: 0,
        };
        let start = out.len();
        out.resize(start + ZipEntry::header_length(name), 0);
        entry.write_header(&mut out[start..]);
        out.extend(EMPTY);
        directory.push(&entry).unwrap();
    }
    let mut ending = directory.finish().unwrap();
    while let Some(part) = ending.next_part().unwrap() {
        out.extend(part);
    }
    let mut found = ZipArchive::new(Cursor::new(out)).unwrap();
    assert_eq!(found.len(), names.len());
    let last = found.by_index(names.len() - 1).unwrap();
    assert_eq!(last.name().unwrap(), names[names.len() - 1]);
}
