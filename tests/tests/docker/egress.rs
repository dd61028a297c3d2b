//! The egress policy of containers, with the real service and packet filter.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{assert_resumes, configured, container, engine, start_finished_conversation};

#[tokio::test]
async fn with_an_allow_list_a_conversation_runs_and_its_programs_reach_listed_hosts_only() {
    let world = configured(|builder| {
        builder
            .env("WORKSPACE_EGRESS__POLICY", "allow_list")
            .env("WORKSPACE_EGRESS__ALLOW", "listed.test")
    })
    .await;
    // Its events arrive at the service.
    let conversation = start_finished_conversation(&world.user).await;
    let inside = container(&world, &conversation.sandbox_id);
    let fetch = |variables: &str, url: &str| {
        let script = format!("env {variables} wget -q -O /dev/null {url} 2>&1; true");
        engine().docker(&["exec", &inside, "sh", "-c", &script])
    };
    let refused = fetch("", "http://other.test/");
    assert!(refused.contains("403"), "{refused}");
    let listed = fetch("", "http://listed.test/");
    assert!(listed.contains("502"), "it has no address: {listed}");
    // The owner was asked, and approves.
    let pending = world
        .service
        .run(&["egress", "list", "--pending", "--json"]);
    let pending: Value = serde_json::from_slice(&pending.stdout).expect("a list");
    let asked = &pending["items"][0];
    let about = [&asked["host"], &asked["port"], &asked["sandbox_id"]];
    let sandbox = json!(conversation.sandbox_id);
    assert_eq!(
        about,
        [&json!("other.test"), &json!(80), &sandbox],
        "{pending:#}"
    );
    let id = asked["id"].as_str().expect("a request has an id");
    let decided = world.service.run(&["egress", "approve", id]);
    let decided = String::from_utf8_lossy(&decided.stdout);
    assert!(decided.contains("approved_for_sandbox"), "{decided}");
    let approved = fetch("", "http://other.test/");
    assert!(approved.contains("502"), "it has no address: {approved}");
    // A program that ignores the proxy does not even reach this machine.
    let server = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = server.local_addr().expect("it is bound").port();
    let url = format!("http://{}:{port}/", engine().gateway());
    let direct = fetch("-u http_proxy", &url);
    assert!(direct.contains("Connection refused"), "{direct}");
    assert_resumes(&world, &conversation).await;
}
