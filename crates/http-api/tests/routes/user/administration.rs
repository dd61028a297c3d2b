//! Users, roles and keys.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use serde_json::{Value, json};

use crate::fixture::{ADA, BOB, ROOT, World};

const USERS: &str = "/api/v1/admin/users";
const KEYS: &str = "/api/v1/keys";
const UNUSED_ID: &str = "ffffffff-ffff-4fff-8fff-ffffffffffff";

/// Creates a key; returns its text and id.
async fn make(world: &World, by: &str, path: &str, body: &Value) -> (String, String) {
    let made = world.post(by, path, body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let made = made.json();
    let text = made["key"].as_str().unwrap().to_owned();
    let id = made["record"]["id"].as_str().unwrap().to_owned();
    (text, id)
}

async fn ids(world: &World, by: &str, path: &str, member: &str) -> Vec<String> {
    let page = world.get(by, path).await.ok();
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|it| it[member].as_str().unwrap().to_owned())
        .collect()
}

/// The id of the key with this text.
async fn current(world: &World, key: &str) -> String {
    let page = world.get(key, KEYS).await.ok();
    let items = page["items"].as_array().unwrap();
    let current = items.iter().find(|it| it["is_current"] == true);
    current.unwrap()["id"].as_str().unwrap().to_owned()
}

/// Every administrator operation, as a request about existing objects.
fn operations(key: &str) -> Vec<(Method, String)> {
    let document = http_api::openapi_document();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let tags = operation["tags"].as_array();
            if tags.is_some_and(|tags| tags.contains(&"Administration".into())) {
                let path = path.replace("{user_id}", "bob").replace("{key_id}", key);
                found.push((method.to_uppercase().parse().unwrap(), path));
            }
        }
    }
    found
}

#[actix_web::test]
async fn only_administrators_administer() {
    let world = World::working().await;
    let id = world.conversation(ADA).await;
    let sandbox = world.read(ADA, &id).await["session_api_key"].clone();
    let bobs = current(&world, BOB).await;
    let all = operations(&bobs);
    assert!(all.len() >= 10);
    let table = [
        (None, 401),
        (Some("aw_wrong"), 401),
        (sandbox.as_str(), 401),
        (Some(ADA), 403),
        (Some(BOB), 403),
    ];
    for (method, path) in all {
        for (key, status) in table {
            let request = TestRequest::with_uri(&path).method(method.clone());
            let request = match key {
                Some(key) => request.insert_header(("X-Session-API-Key", key)),
                None => request,
            };
            let answer = world.send(request).await;
            assert_eq!(
                answer.status, status,
                "{method} {path} {key:?}: {}",
                answer.text
            );
            assert!(answer.json()["detail"].is_string(), "{}", answer.text);
        }
    }
    assert_eq!(current(&world, BOB).await, bobs, "and nothing happens");
}

#[actix_web::test]
async fn a_user_is_made_changed_and_deleted() {
    let world = World::idle().await;
    let carol = json!({"id": "carol"});
    let made = world.post(ROOT, USERS, &carol).await;
    assert_eq!((made.status, &made.json()["role"]), (201, &json!("user")));
    let again = world.post(ROOT, USERS, &carol).await;
    again.refuses(409, "User carol already exists: choose another name");
    let theirs = format!("{USERS}/carol/keys");
    let (text, id) = make(&world, ROOT, &theirs, &json!({"name": "laptop"})).await;
    assert_eq!(ids(&world, &text, KEYS, "id").await, [id.as_str()]);
    let listed = world.get(ROOT, &theirs).await.ok();
    assert_eq!(listed["items"][0]["made_by"], "user:root");
    assert_eq!(listed["items"][0]["name"], "laptop");
    assert!(!listed.to_string().contains(&text));

    assert_eq!(world.get(&text, USERS).await.status, 403);
    let path = format!("{USERS}/carol");
    let admin = world.patch(ROOT, &path, &json!({"role": "admin"})).await;
    assert_eq!(admin.ok()["role"], "admin");
    assert_eq!(world.get(&text, &path).await.ok()["role"], "admin");
    world
        .patch(ROOT, &path, &json!({"role": "user"}))
        .await
        .ok();
    assert_eq!(world.get(&text, USERS).await.status, 403);

    world.delete(ROOT, &path).await.ok();
    assert_eq!(world.get(&text, KEYS).await.status, 401);
    assert!(world.get(ROOT, &path).await.ok()["deleted_at"].is_string());
    let taken = world.post(ROOT, USERS, &carol).await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    let gone = world.post(ROOT, &theirs, &json!({})).await;
    gone.refuses(404, "There is no user carol");
}

#[actix_web::test]
async fn users_come_in_pages() {
    let world = World::idle().await;
    let first = world.get(ROOT, &format!("{USERS}?limit=2")).await.ok();
    let next = first["next_page_id"].as_str().unwrap();
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items
            .map(|it| it["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&first), ["ada", "bob"]);
    let path = format!("{USERS}?limit=2&page_id={}", next.replace('|', "%7C"));
    let second = world.get(ROOT, &path).await.ok();
    assert_eq!(
        (names(&second), &second["next_page_id"]),
        (vec!["root".to_owned()], &Value::Null)
    );
    for wrong in ["x", "users%7C", "ada"] {
        let answer = world.get(ROOT, &format!("{USERS}?page_id={wrong}")).await;
        assert_eq!(answer.status, 422, "{wrong}");
        assert_eq!(
            answer.json()["detail"][0]["loc"],
            json!(["query", "page_id"])
        );
    }
}

#[actix_web::test]
async fn unknown_users_are_not_found() {
    let world = World::idle().await;
    let none = format!("{USERS}/nobody");
    let answers = [
        world.get(ROOT, &none).await,
        world.patch(ROOT, &none, &json!({"role": "user"})).await,
        world.delete(ROOT, &none).await,
        world.get(ROOT, &format!("{none}/keys")).await,
        world.post(ROOT, &format!("{none}/keys"), &json!({})).await,
        world
            .delete(ROOT, &format!("{none}/keys/{UNUSED_ID}"))
            .await,
        world.get(ROOT, &format!("{USERS}/a%20b")).await,
        world
            .delete(ROOT, &format!("{USERS}/bob/keys/{UNUSED_ID}"))
            .await,
        world
            .post(
                ROOT,
                &format!("{USERS}/bob/keys/{UNUSED_ID}/rotate"),
                &json!({}),
            )
            .await,
    ];
    for answer in answers {
        assert_eq!(answer.status, 404, "{}", answer.text);
    }
}

#[actix_web::test]
async fn administrators_cannot_lock_themselves_out() {
    let world = World::idle().await;
    let (me, key) = (format!("{USERS}/root"), current(&world, ROOT).await);
    let answers = [
        world.patch(ROOT, &me, &json!({"role": "user"})).await,
        world.delete(ROOT, &me).await,
        world.delete(ROOT, &format!("{KEYS}/{key}")).await,
        world.delete(ROOT, &format!("{me}/keys/{key}")).await,
    ];
    for answer in answers {
        assert_eq!(answer.status, 409, "{}", answer.text);
    }
    assert_eq!(world.get(ROOT, USERS).await.status, 200);
    // A change without an effect is permitted.
    world.patch(ROOT, &me, &json!({"role": "admin"})).await.ok();
}

#[actix_web::test]
async fn a_user_has_keys_of_their_own() {
    let world = World::idle().await;
    let (second, id) = make(&world, ADA, KEYS, &json!({"expires_in": 60})).await;
    assert_eq!(current(&world, &second).await, id);
    let bobs = format!("{KEYS}/{}", current(&world, BOB).await);
    assert_eq!(world.delete(ADA, &bobs).await.status, 404);
    let rotated = world.post(ADA, &format!("{bobs}/rotate"), &json!({})).await;
    assert_eq!(rotated.status, 404);
    world.get(BOB, KEYS).await.ok();
    world.delete(ADA, &format!("{KEYS}/{id}")).await.ok();
    assert_eq!(world.get(&second, KEYS).await.status, 401);
    let without_body = TestRequest::post().uri(KEYS);
    let without_body = without_body.insert_header(("X-Session-API-Key", ADA));
    assert_eq!(world.send(without_body).await.status, 201);
    for (body, place) in [
        (json!({"name": ""}), "name"),
        (json!({"name": "a\nb"}), "name"),
        (json!({"name": "x".repeat(101)}), "name"),
        (json!({"expires_in": 0}), "expires_in"),
        (json!({"expires_in": 315_360_001}), "expires_in"),
        (json!({"expires_in": "90d"}), "expires_in"),
    ] {
        let answer = world.post(ADA, KEYS, &body).await;
        assert_eq!(answer.status, 422, "{body}");
        assert_eq!(answer.json()["detail"][0]["loc"], json!(["body", place]));
    }
}

#[actix_web::test]
async fn a_rotated_key_stays_valid_for_its_grace_period() {
    let world = World::idle().await;
    let (old, id) = make(&world, ADA, KEYS, &json!({"name": "ci", "expires_in": 60})).await;
    let rotate = format!("{KEYS}/{id}/rotate");
    let (new, _) = make(&world, &old, &rotate, &json!({"grace_period": 30})).await;
    let keys = world.get(&new, KEYS).await.ok();
    let newest = keys["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&newest["name"], &newest["is_current"]),
        (&json!("ci"), &json!(true))
    );
    assert_eq!(newest["expires_at"], "2026-01-01T00:01:00.000000Z");
    assert_eq!(world.get(&old, KEYS).await.status, 200, "for a while");
    make(&world, ADA, &rotate, &json!({"grace_period": 0})).await;
    assert_eq!(world.get(&old, KEYS).await.status, 401);
    let over = world.post(ADA, &rotate, &json!({})).await;
    over.refuses(409, "The key has expired: make a new one instead");
    for grace in [-1, 2_592_001] {
        let answer = world
            .post(ADA, &rotate, &json!({"grace_period": grace}))
            .await;
        assert_eq!(answer.status, 422);
    }
}

#[actix_web::test]
async fn keys_are_bounded() {
    let world = World::idle().await;
    let mut last = String::new();
    for _ in 1..100 {
        (_, last) = make(&world, ADA, KEYS, &json!({})).await;
    }
    let surplus = world.post(ADA, KEYS, &json!({})).await;
    surplus.refuses(409, "The user has 100 keys already: revoke some first");
    // A user with the maximum number of keys can still rotate: expired ones do not count, and one extra is permitted.
    let rotate = format!("{KEYS}/{last}/rotate");
    let (_, newest) = make(&world, ADA, &rotate, &json!({"grace_period": 0})).await;
    let rotate = format!("{KEYS}/{newest}/rotate");
    make(&world, ADA, &rotate, &json!({"grace_period": 60})).await;
    let surplus = world.post(ADA, &rotate, &json!({})).await;
    surplus.refuses(409, "The user has 101 keys already: revoke some first");
}
