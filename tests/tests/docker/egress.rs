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

#[tokio::test]
async fn templates_settings_and_conversations_have_lists_of_their_own() {
    let world = configured(|builder| {
        builder
            .env("WORKSPACE_EGRESS__POLICY", "allow_list")
            .env("WORKSPACE_EGRESS__ALLOW", "public")
            .env("WORKSPACE_DOCKER__EGRESS_ALLOW", "public,listed.test:8080")
    })
    .await;
    // The names have no addresses, so 502 is the answer where a host is allowed.
    let assert_reached = async |start: Value, allowed: &[&str], refused: &[&str]| {
        let task = world.user.start(&start).await;
        let conversation = world.user.wait_until_ready(&task).await;
        let inside = container(&world, &conversation.sandbox_id);
        for (urls, status) in [(allowed, "502"), (refused, "403")] {
            for url in urls {
                let script = format!("wget -q -O /dev/null {url} 2>&1; true");
                let answer = engine().docker(&["exec", &inside, "sh", "-c", &script]);
                assert!(answer.contains(status), "{start} {url}: {answer}");
            }
        }
    };
    let (plain, other_port) = ("http://other.test/", "http://listed.test:8080/");
    // The template's list replaces that of the service.
    assert_reached(
        json!({}),
        &[plain, other_port],
        &["http://other.test:8080/"],
    )
    .await;
    let only_listed = json!({"egress_allow": ["listed.test"]});
    let listed = "http://listed.test/";
    assert_reached(only_listed.clone(), &[listed], &[plain, other_port]).await;
    let changed = world.user.post("/api/v1/settings", &only_listed).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_reached(json!({}), &[listed], &[plain]).await;
    // A request says more than the settings.
    assert_reached(json!({"egress_allow": ["other.test"]}), &[plain], &[listed]).await;
    assert_reached(json!({"egress_allow": []}), &[], &[plain, listed]).await;
}
