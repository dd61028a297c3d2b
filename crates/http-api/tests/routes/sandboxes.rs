//! Sandboxes and their specs.

use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, NOW, SPECS, World};

const BASE: &str = "/api/v1/sandboxes";

fn spec(id: &str) -> Value {
    json!({
        "id": id, "command": null, "created_at": NOW, "initial_env": {"TZ": "UTC"}, "working_dir": "/workspace/project",
    })
}

#[actix_web::test]
async fn a_new_sandbox_hides_its_key_until_it_runs() {
    let world = World::idle().await;
    world.backend.hang(true);
    let answer = world
        .post(
            ADA,
            &format!("{BASE}?sandbox_spec_id={}", SPECS[1]),
            &json!({"ignored": 1}),
        )
        .await;
    let id = answer.json()["id"].clone();
    answer.is(200, &json!({
        "id": id, "created_by_user_id": "ada", "sandbox_spec_id": SPECS[1], "status": "STARTING",
        "session_api_key": null, "exposed_urls": null, "created_at": NOW, "status_detail": null,
    }));
    world
        .post(ADA, &format!("{BASE}?sandbox_spec_id=nope"), &json!({}))
        .await
        .refuses(404, "Sandbox spec not found");
}

#[actix_web::test]
async fn a_running_sandbox_shows_its_owner_where_it_is() {
    let world = World::working().await;
    let task = world.start(ADA, &json!({})).await;
    let id = task["sandbox_id"].as_str().unwrap();
    let found = world.get(ADA, &format!("{BASE}/search")).await;
    let key = found.json()["items"][0]["session_api_key"].clone();
    let expected = json!({
        "id": id, "created_by_user_id": "ada", "sandbox_spec_id": SPECS[0], "status": "RUNNING",
        "session_api_key": key,
        "exposed_urls": [{"name": "AGENT_SERVER", "url": "http://127.0.0.1:9001", "port": 9001}],
        "created_at": NOW, "status_detail": null,
    });
    assert!(
        key.as_str().is_some_and(|key| key.starts_with("secret")),
        "{key}"
    );
    found.is(
        200,
        &json!({"items": [expected.clone()], "next_page_id": null}),
    );
    world
        .get(ADA, &format!("{BASE}?id=zz&id={id}&id=no%2Fsuch&id={id}"))
        .await
        .is(200, &json!([null, expected, null, expected]));
    world
        .get(BOB, &format!("{BASE}/search"))
        .await
        .is(200, &json!({"items": [], "next_page_id": null}));
    world
        .get(BOB, &format!("{BASE}?id={id}"))
        .await
        .is(200, &json!([null]));
}

#[actix_web::test]
async fn commands_are_idempotent_and_the_owners_alone() {
    let world = World::working().await;
    let id = world.start(ADA, &json!({})).await["sandbox_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for command in ["pause", "pause", "resume", "resume"] {
        let path = format!("{BASE}/{id}/{command}");
        world
            .post(BOB, &path, &json!({}))
            .await
            .refuses(404, "Not Found");
        world
            .post(ADA, &path, &json!({}))
            .await
            .is(200, &json!({"success": true}));
    }
    for unknown in ["nope", "..", "a%20b", "a%2Fb"] {
        assert_eq!(
            world
                .post(ADA, &format!("{BASE}/{unknown}/pause"), &json!({}))
                .await
                .status,
            404,
            "{unknown}"
        );
    }
    world
        .delete(ADA, &format!("{BASE}/nope"))
        .await
        .refuses(404, "Not Found");
    world
        .delete(BOB, &format!("{BASE}/{id}"))
        .await
        .refuses(404, "Not Found");
    let other = world
        .delete(ADA, &format!("{BASE}/{id}?sandbox_id=other"))
        .await;
    assert_eq!(
        (other.status, &other.json()["detail"][0]["loc"]),
        (422, &json!(["query", "sandbox_id"]))
    );
    world
        .delete(ADA, &format!("{BASE}/{id}?sandbox_id={id}"))
        .await
        .is(200, &json!({"success": true}));
    world
        .delete(ADA, &format!("{BASE}/{id}"))
        .await
        .refuses(404, "Not Found");
}

#[actix_web::test]
async fn specs_are_paged_and_found() {
    let world = World::idle().await;
    let base = "/api/v1/sandbox-specs";
    let all = json!({"items": SPECS.map(spec), "next_page_id": null});
    world
        .get(ADA, &format!("{base}/search"))
        .await
        .is(200, &all);
    let first = world.get(ADA, &format!("{base}/search?limit=1")).await.ok();
    assert_eq!(first["items"], json!([spec(SPECS[0])]));
    let next = first["next_page_id"].as_str().unwrap();
    let rest = json!({"items": [spec(SPECS[1])], "next_page_id": null});
    world
        .get(ADA, &format!("{base}/search?limit=1&page_id={next}"))
        .await
        .is(200, &rest);
    world
        .get(ADA, &format!("{base}?id=nope&id={}", SPECS[1]))
        .await
        .is(200, &json!([null, spec(SPECS[1])]));
    assert_eq!(world.get("", &format!("{base}/search")).await.status, 401);
}
