//! Logs of sandboxes.

use std::time::Duration;

use domain::sandbox::LogTail;
use tokio::time::{Instant, timeout};

use crate::fixture::{Fixture, alice, start_input};

const MINUTE: Duration = Duration::from_secs(60);

/// However short the intervals of the reader's polls are.
#[tokio::test(start_paused = true)]
async fn a_log_that_is_followed_ends_after_fifteen_minutes_of_silence() {
    let fixture = Fixture::new().await;
    let id = fixture.start_and_wait(start_input(|_| {})).await.sandbox_id;
    fixture.backend.append_log_line(&id, "first");
    let tail = LogTail {
        lines: 10,
        follow: true,
    };
    let reading = fixture.app.sandbox_logs.open(&alice(), &id, tail).await;
    let mut reading = reading.expect("readable");
    let mut said = Instant::now();
    let mut lines = 0;
    let follow = async {
        loop {
            match timeout(MINUTE, reading.next()).await {
                Ok(None) => return,
                Ok(Some(_)) => (lines, said) = (lines + 1, Instant::now()),
                // Each output restarts the time.
                Err(_) if lines == 1 && said.elapsed() > MINUTE * 10 => {
                    fixture.backend.append_log_line(&id, "second");
                }
                Err(_) => {}
            }
        }
    };
    timeout(MINUTE * 60, follow).await.expect("it ends");
    assert_eq!(lines, 2);
    let silence = said.elapsed();
    assert!(
        silence >= MINUTE * 15 && silence < MINUTE * 17,
        "{silence:?}"
    );
}
