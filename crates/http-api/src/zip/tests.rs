//! Archives are read back with a library.

use std::io::{Cursor, Read as _};

use domain::clock::Timestamp;
use proptest::prelude::*;
use zip::ZipArchive;

use super::{ZipStream, safe_name};

const NOON: i64 = 1_793_188_800_000_000;

fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut archive, mut out) = (ZipStream::new(), Vec::new());
    for (name, content) in files {
        let at = Timestamp::from_micros(NOON);
        archive.add(name, at, content).unwrap();
        out.extend(archive.take());
    }
    out.extend(archive.finish().unwrap());
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
    let names = (0..65_540).map(|n| format!("event_{n:06}"));
    let files: Vec<_> = names.map(|name| (name, Vec::new())).collect();
    let mut found = ZipArchive::new(Cursor::new(archive(&files))).unwrap();
    assert_eq!(found.len(), files.len());
    let last = found.by_index(files.len() - 1).unwrap();
    assert_eq!(last.name().unwrap(), files[files.len() - 1].0);
}

#[test]
fn times_are_kept_within_the_range_of_the_format() {
    for (time, year) in [
        ("1970-01-01T00:00:00Z", 1980),
        ("2026-11-21T10:00:59Z", 2026),
        ("9999-01-01T00:00:00Z", 2106),
    ] {
        let mut archive = ZipStream::new();
        let at = Timestamp::new(time.parse().unwrap());
        archive.add("a", at, b"{}").unwrap();
        let bytes = archive.finish().unwrap();
        let mut found = ZipArchive::new(Cursor::new(bytes)).unwrap();
        let file = found.by_index(0).unwrap();
        assert_eq!(file.last_modified().unwrap().year(), year, "{time}");
        assert_eq!(file.unix_mode(), Some(0o100_644));
    }
}
