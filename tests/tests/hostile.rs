//! Ten thousand hostile requests. `cargo xtask soak` sends more.

use acceptance::hostile::{Options, run};
use acceptance::{Service, Stub, tell};

#[tokio::test]
async fn hostile_requests_get_answers_that_are_documented_and_change_nothing_else() {
    let stub = Stub::new();
    let builder = Service::builder()
        .stub(&stub)
        .env("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "2")
        // A log line for each request would be most of the run.
        .env("WORKSPACE_LOG__LEVEL", "warn");
    let mut service = builder.start().await;
    let options = Options::from_environment();
    let report = run(&mut service, options).await;
    tell(&report.summary());
    assert!(
        report.failures.is_empty(),
        "{} failures with seed {}:\n\n{}",
        report.failures.len(),
        options.seed,
        report.failures.join("\n\n")
    );
    if let Some(requests) = options.requests.filter(|_| options.limit.is_none()) {
        assert_eq!(report.sent, requests);
    }
}
