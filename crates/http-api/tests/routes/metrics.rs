//! The page `/metrics` and its access.

use std::collections::BTreeSet;

use serde_json::json;

use crate::fixture::{ADA, TestResponse, World};

/// The sum of all values of a series with these first labels.
fn value(page: &TestResponse, series: &str) -> f64 {
    let lines = page.text.lines().filter(|line| line.starts_with(series));
    let values = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    values.sum()
}

#[actix_web::test]
async fn requests_are_counted_by_route_and_never_by_path() {
    let world = World::working().await;
    world.start(ADA, &json!({})).await;
    let missing = "/api/v1/sandboxes/canary-id/pause";
    world
        .post(ADA, missing, &json!({}))
        .await
        .refuses(404, "Not Found");
    world
        .get(ADA, "/api/v1/canary-path")
        .await
        .refuses(404, "Not Found");
    world.get("", "/api/v1/sandboxes/search").await;
    let page = world.get("", "/metrics").await;
    assert_eq!(
        (page.status, page.content_type.as_str()),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    let requests = |labels: &str| {
        value(
            &page,
            &format!("agent_workspace_http_requests_total{{{labels}}}"),
        )
    };
    let pause = "method=\"POST\",route=\"/api/v1/sandboxes/{sandbox_id}/pause\"";
    for labels in [
        &format!("{pause},status=\"4xx\""),
        "method=\"ANY\",route=\"unmatched\",status=\"4xx\"",
        "method=\"GET\",route=\"/api/v1/sandboxes/search\",status=\"4xx\"",
    ] {
        assert!(
            (requests(labels) - 1.0).abs() < 0.1,
            "{labels}: {}",
            page.text
        );
    }
    let timed = format!("agent_workspace_http_request_duration_seconds_count{{{pause}}}");
    assert!((value(&page, &timed) - 1.0).abs() < 0.1, "{}", page.text);
    let ready = value(&page, "agent_workspace_starts_total{outcome=\"ready\"}");
    assert!((ready - 1.0).abs() < 0.1, "{}", page.text);
    let waited = "agent_workspace_start_step_seconds_count{step=\"WAITING_FOR_SANDBOX\"}";
    assert!((value(&page, waited) - 1.0).abs() < 0.1, "{}", page.text);
    for private in ["canary", "ada", "127.0.0.1"] {
        assert!(!page.text.contains(private), "{private}: {}", page.text);
    }
}

#[actix_web::test]
async fn documented_metrics_equal_served_metrics() {
    let world = World::idle().await;
    let page = world.get("", "/metrics").await;
    let served = page
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let served: BTreeSet<_> = served.collect();
    let rows = include_str!("../../../../docs/reference/metrics.md").lines();
    let rows = rows.filter(|line| line.starts_with("| `"));
    let documented: BTreeSet<_> = rows
        .map(|row| {
            let mut cells = row.split('|').map(str::trim).skip(1);
            let name = cells.next().unwrap().trim_matches('`');
            format!("{name} {}", cells.next().unwrap())
        })
        .collect();
    let documented: BTreeSet<_> = documented.iter().map(String::as_str).collect();
    assert_eq!(served, documented);
}
