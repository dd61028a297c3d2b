//! Large files in both directions through the proxy and the service, which must not hold them in memory.

use std::fs;

use acceptance::print_line;
use acceptance::stub::traffic::{chunk, is_intact};
use serde_json::{Value, json};

use crate::ProxyBench;

/// Growth of the service's memory, whatever the size of the file.
const MAX_GROWTH_BYTES: u64 = 32 << 20;
const MIB: u64 = 1 << 20;

/// The size that the documentation promises, or that of `cargo xtask soak --transfer-mib`.
fn transfer_size() -> u64 {
    let configured = acceptance::agent_server::variable_of("TRANSFER_MIB");
    let configured =
        configured.map(|text| text.parse::<u64>().expect("TRANSFER_MIB is not a number"));
    configured.unwrap_or(1024) * MIB
}

/// The peak resident memory of a process, in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap() * 1024
}

/// Uploads a file and downloads it again.
pub(crate) async fn upload_and_download(bench: &ProxyBench) {
    let size = transfer_size();
    let service = bench.service.pid();
    let key = format!("X-Session-API-Key: {}\r\n", bench.key);
    let before = peak_memory(service);
    let started = std::time::Instant::now();

    let mut connection = bench.proxy.connect().await;
    let request = format!("POST {}/api/file/upload?path=/workspace/large", bench.path);
    let headers = format!("{key}Content-Length: {size}\r\n");
    connection.send_head(&request, &headers).await;
    let mut sent = 0;
    while sent < size {
        let chunk = chunk(sent, size - sent);
        connection.send(&chunk).await;
        sent += chunk.len() as u64;
    }
    let head = connection.read_head().await;
    let mut answer = Vec::new();
    connection
        .read_body(&head, |piece| answer.extend_from_slice(piece))
        .await;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    assert_eq!(
        (head.status, answer),
        (200, json!({"size": size, "is_intact": true}))
    );
    let uploaded = started.elapsed();

    // The download uses the same connection.
    let request = format!("GET {}/api/file/bytes/{size}", bench.path);
    connection.send_head(&request, &key).await;
    let head = connection.read_head().await;
    assert_eq!(head.status, 200, "{head:?}");
    let (mut received, mut is_whole) = (0, true);
    connection
        .read_body(&head, |piece| {
            is_whole &= is_intact(received, piece);
            received += piece.len() as u64;
        })
        .await;
    assert_eq!((received, is_whole), (size, true));

    let growth = peak_memory(service).saturating_sub(before);
    print_line(&format!(
        "{} MiB up in {uploaded:?}, up and down in {:?}; the service grew by {} KiB at most",
        size / MIB,
        started.elapsed(),
        growth / 1024
    ));
    assert!(
        growth < MAX_GROWTH_BYTES,
        "the service grew by {growth} bytes"
    );
}
