//! Large files, in both directions, through the proxy and the service: as they come, and without anybody keeping them.

use std::fs;

use acceptance::print_line;
use acceptance::stub::traffic::{is_intact, piece};
use serde_json::{Value, json};

use crate::ProxyBench;

/// Bytes by which the service's memory may grow at most, however large a file is.
const MAX_GROWTH_BYTES: u64 = 32 << 20;
const MIB: u64 = 1 << 20;

/// How large: what is promised to operators, or as `cargo xtask soak --transfer-mib` says.
fn size() -> u64 {
    let wished = acceptance::agent_server::variable_of("TRANSFER_MIB");
    let wished = wished.map(|text| text.parse::<u64>().expect("TRANSFER_MIB is a number"));
    wished.unwrap_or(1024) * MIB
}

/// The most memory that a process ever had, in bytes.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap() * 1024
}

/// There and back.
pub(crate) async fn there_and_back(bench: &ProxyBench) {
    let size = size();
    let service = bench.service.pid();
    let key = format!("X-Session-API-Key: {}\r\n", bench.key);
    let before = peak(service);
    let started = std::time::Instant::now();

    let mut connection = bench.proxy.connect().await;
    let request = format!("POST {}/api/file/upload?path=/workspace/large", bench.path);
    let headers = format!("{key}Content-Length: {size}\r\n");
    connection.begin(&request, &headers).await;
    let mut sent = 0;
    while sent < size {
        let piece = piece(sent, size - sent);
        connection.send(&piece).await;
        sent += piece.len() as u64;
    }
    let head = connection.head().await;
    let mut answer = Vec::new();
    connection
        .body(&head, |piece| answer.extend_from_slice(piece))
        .await;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    assert_eq!(
        (head.status, answer),
        (200, json!({"size": size, "is_intact": true}))
    );
    let uploaded = started.elapsed();

    // On the same connection.
    let request = format!("GET {}/api/file/download/bytes/{size}", bench.path);
    connection.begin(&request, &key).await;
    let head = connection.head().await;
    assert_eq!(head.status, 200, "{head:?}");
    let (mut got, mut is_whole) = (0, true);
    connection
        .body(&head, |piece| {
            is_whole &= is_intact(got, piece);
            got += piece.len() as u64;
        })
        .await;
    assert_eq!((got, is_whole), (size, true));

    let grown = peak(service).saturating_sub(before);
    print_line(&format!(
        "{} MiB up in {uploaded:?}, up and down in {:?}; the service grew by {} KiB at most",
        size / MIB,
        started.elapsed(),
        grown / 1024
    ));
    assert!(
        grown < MAX_GROWTH_BYTES,
        "the service grew by {grown} bytes"
    );
}
