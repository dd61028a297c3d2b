//! Memory after large answers that are not read.

use std::time::Duration;

use acceptance::processes::resident;
use acceptance::wait::{wait_for, wait_until};
use acceptance::{Service, Stub, print_line};

use crate::{MEMORY, crowd, get, long_conversation};

/// Connections, each with a page of nearly 2 MiB that is not sent: more than a user may leave unread.
const UNREAD: usize = 64;
const ROUNDS: usize = 2;
/// The allocator gives pages back after about a second.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_comes_back_after_large_answers_that_nobody_reads() {
    let stub = Stub::new();
    let builder = Service::builder().stub(&stub);
    let service = builder.env("WORKSPACE_LOG__LEVEL", "warn").start().await;
    let (user, address, pid) = (service.admin(), service.address(), service.pid());
    let (id, ..) = long_conversation(&user).await;
    let path = format!("/api/v1/conversation/{id}/events/search");
    let request = get(&path, user.key());
    let closing = request.replace("Host: x", "Host: x\r\nConnection: close");
    // The first ones fit into the buffers of the connection.
    let requests = request.repeat(4);
    let status = || async { crowd::statuses(address, 1, closing.as_bytes()).await[0] };
    assert_eq!(status().await, 200);
    let memory = || resident(pid).expect("the service runs");
    let before = memory();
    let mut most = before;
    for _ in 0..ROUNDS {
        let unread = crowd::asking(address, UNREAD, &requests).await;
        let refused = || async { (status().await == 429).then_some(()) };
        wait_for("a user who reads nothing is refused", WAIT_TIMEOUT, refused).await;
        most = most.max(memory());
        drop(unread);
        let served = || async { (status().await == 200).then_some(()) };
        wait_for("one who has left is served again", WAIT_TIMEOUT, served).await;
    }
    let what = "resident memory is at most 1.5 times of what it was";
    wait_until(what, WAIT_TIMEOUT, || memory() <= before / 2 * 3).await;
    let mib = [before, most, memory()].map(|bytes| bytes >> 20);
    print_line(&format!("resident before, then, after: {mib:?} MiB"));
    assert!(most < before + MEMORY, "{before} {most}");
}
