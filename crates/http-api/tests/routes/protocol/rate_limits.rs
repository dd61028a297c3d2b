//! A sandbox that floods the service with reports.

use actix_web::test::TestRequest;
use futures::future::{Either, join_all, select};
use serde_json::json;

use crate::fixture::{ADA, BOB, TestResponse, World};

/// Maximum number of running and waiting reports of one sandbox.
const MAX_REPORTS_PER_SANDBOX: usize = 32;

#[actix_web::test]
async fn a_flooding_sandbox_is_refused_and_others_are_not() {
    let world = World::working().await;
    let mut reports = Vec::new();
    for user in [ADA, BOB] {
        let id = world.conversation(user).await;
        let read = world.read(user, &id).await;
        let key = read["session_api_key"].as_str().unwrap().to_owned();
        reports.push((format!("/api/v1/webhooks/events/{id}"), key));
    }
    let stuck = join_all((0..MAX_REPORTS_PER_SANDBOX).map(|_| {
        let (path, key) = &reports[0];
        let request = TestRequest::post().uri(path);
        let request = request.insert_header(("X-Session-API-Key", key.as_str()));
        world.send_without_end(request.insert_header(("Content-Type", "application/json")))
    }));
    let report = async |of: usize| -> TestResponse {
        let (path, key) = &reports[of];
        world.post(key, path, &json!([])).await
    };
    let beside = async {
        let mut refused = report(0).await;
        for _ in 0..MAX_REPORTS_PER_SANDBOX {
            if refused.status != 200 {
                break;
            }
            refused = report(0).await;
        }
        (refused, report(1).await)
    };
    let Either::Right(((refused, other), stuck)) = select(stuck, Box::pin(beside)).await else {
        panic!("the flood ends before the body's deadline");
    };
    refused.refuses(
        503,
        "Too many reports from this sandbox are being processed. Send the report again later.",
    );
    other.is(200, &json!({"success": true}));
    drop(stuck);
    report(0).await.is(200, &json!({"success": true}));
}
