//! Memory after large responses that the client does not read.

use std::time::Duration;

use acceptance::processes::resident_bytes;
use acceptance::wait::{wait_for, wait_until, within};
use acceptance::{Service, Stub, print_line};

use crate::{MAX_MEMORY_BYTES, crowd, get, long_conversation};

/// Connections with unread pages of nearly 2 MiB that are added at a time. How much of the last page each of them leaves to the
/// service depends on the kernel's buffers.
const UNREAD_BATCH: usize = 16;
const ROUNDS: usize = 2;
/// The allocator gives pages back after about a second.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_released_after_large_unread_responses() {
    let stub = Stub::new();
    let service = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_LOG__LEVEL", "warn")
        // On a busy machine, connections would be closed before there are enough responses.
        .env("WORKSPACE_HTTP__SEND_TIMEOUT", "10m")
        .start()
        .await;
    let (user, address, pid) = (service.admin(), service.address(), service.pid());
    let (id, ..) = long_conversation(&user).await;
    let path = format!("/api/v1/conversation/{id}/events/search");
    let request = get(&path, user.key());
    let closing = request.replace("Host: x", "Host: x\r\nConnection: close");
    // The first responses fit into the buffers of the connection.
    let requests = request.repeat(4);
    let status = || async { crowd::statuses(address, 1, closing.as_bytes()).await[0] };
    assert_eq!(status().await, 200);
    let memory = || resident_bytes(pid).expect("the service runs");
    let before = memory();
    let mut peak = before;
    for _ in 0..ROUNDS {
        let mut unread = Vec::new();
        let refused = async {
            while status().await != 429 {
                unread.extend(crowd::send_without_reading(address, UNREAD_BATCH, &requests).await);
            }
        };
        within("refusal of a user who reads nothing", WAIT_TIMEOUT, refused).await;
        peak = peak.max(memory());
        drop(unread);
        let served = || async { (status().await == 200).then_some(()) };
        wait_for(
            "a served request after the disconnection",
            WAIT_TIMEOUT,
            served,
        )
        .await;
    }
    let what = "resident memory of at most 1.5 times the initial one";
    wait_until(what, WAIT_TIMEOUT, || memory() <= before / 2 * 3).await;
    let mib = [before, peak, memory()].map(|bytes| bytes >> 20);
    print_line(&format!("resident before, then, after: {mib:?} MiB"));
    assert!(peak < before + MAX_MEMORY_BYTES, "{before} {peak}");
}
