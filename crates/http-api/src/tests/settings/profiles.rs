use serde_json::json;

use super::*;

const PROFILES: &str = "/api/v1/settings/profiles";
const SETTINGS: &str = "/api/v1/settings";

impl SettingsFixture {
    /// Settings with a model, and two profiles.
    async fn with_profiles() -> Self {
        let world = Self::new();
        let llm = json!({"model": "anthropic/claude", "api_key": "k0-secret"});
        let body = json!({"agent_settings_diff": {"llm": llm}});
        world.post_ok(SETTINGS, &body, "Settings stored").await;
        world.save_profile("p1", &json!({})).await;
        let llm = json!({"model": "openai/gpt-5", "api_key": "k2-secret", "temperature": 0.5});
        world.save_profile("p2", &json!({"llm": llm})).await;
        world
    }

    async fn save_profile(&self, name: &str, body: &Value) {
        let answer = self.post(&format!("{PROFILES}/{name}"), body).await;
        let expected = json!({"name": name, "message": format!("Profile '{name}' saved")});
        assert_eq!((answer.status, answer.json()), (201, expected));
    }

    async fn send_to_profiles(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let request = request(method, &format!("{PROFILES}{path}"), KEY)
            .insert_header(("Content-Type", "application/json"))
            .set_payload(body.to_string());
        let answer = self.send(request).await;
        (answer.status, answer.json())
    }
}

fn missing(what: &str) -> (u16, Value) {
    (404, json!({"detail": format!("{what} not found")}))
}

#[actix_web::test]
async fn strangers_are_refused_first() {
    let world = SettingsFixture::new();
    for (method, path) in [
        (Method::GET, ""),
        (Method::GET, "/p"),
        (Method::POST, "/p"),
        (Method::DELETE, "/p"),
        (Method::POST, "/p/activate"),
        (Method::POST, "/p/rename"),
    ] {
        for key in ["", "nope", SANDBOX_KEY] {
            let path = format!("{PROFILES}{path}");
            let answer = world
                .send(request(method.clone(), &path, key).set_payload("{"))
                .await;
            assert_eq!(answer.status, 401, "{path}");
        }
    }
}

#[actix_web::test]
async fn before_the_first_save_there_is_nothing() {
    let world = SettingsFixture::new();
    let empty = json!({"profiles": [], "active_profile": null});
    assert_eq!(world.get(PROFILES).await.json(), empty);
    let (get, post, none) = (Method::GET, Method::POST, json!(null));
    assert_eq!(
        world.send_to_profiles(get, "/abc", &none).await,
        missing("Profile 'abc'")
    );
    assert_eq!(
        world
            .send_to_profiles(post.clone(), "/abc", &json!({}))
            .await,
        missing("Settings")
    );
    let activated = world
        .send_to_profiles(post.clone(), "/abc/activate", &none)
        .await;
    assert_eq!(activated, missing("Profile 'abc'"));
    let name = json!({"new_name": "x"});
    assert_eq!(
        world.send_to_profiles(post, "/abc/rename", &name).await,
        missing("Settings")
    );
    let deleted = (
        200,
        json!({"name": "abc", "message": "Profile 'abc' deleted"}),
    );
    assert_eq!(
        world.send_to_profiles(Method::DELETE, "/abc", &none).await,
        deleted
    );
    assert_eq!(world.stored().await, None, "none of this stores anything");
}

#[actix_web::test]
async fn a_profile_may_be_the_first_thing_stored() {
    let world = SettingsFixture::new();
    let llm = json!({"llm": {"model": "openai/gpt-5", "api_key": "k1-secret"}});
    world.save_profile("p1", &llm).await;
    let listed = world.get(PROFILES).await.json();
    assert_eq!(listed["profiles"][0]["name"], "p1");
    assert_eq!(
        listed["active_profile"], "p1",
        "the first model is in force"
    );
    assert_eq!(world.get(SETTINGS).await.json()["llm_api_key_set"], true);
    world.save_profile("p2", &llm).await;
    assert_eq!(world.get(PROFILES).await.json()["active_profile"], "p1");
}

#[actix_web::test]
async fn profiles_are_listed_without_their_keys() {
    let world = SettingsFixture::with_profiles().await;
    let bare =
        json!({"include_secrets": false, "llm": {"model": "openai/gpt-5", "api_key": "k4-secret"}});
    world.save_profile("p4", &bare).await;
    let info = |name, model, set| json!({"name": name, "model": model, "base_url": null, "api_key_set": set});
    let expected = json!({
        "profiles": [
            info("p1", "anthropic/claude", true),
            info("p2", "openai/gpt-5", true),
            info("p4", "openai/gpt-5", false),
        ],
        "active_profile": "p1",
    });
    let mut listed = world.get(PROFILES).await.json();
    assert_eq!(listed["active_profile"], Value::Null);
    listed["active_profile"] = "p1".into();
    assert_eq!(listed, expected);
    let one = world.get(&format!("{PROFILES}/p2")).await.json();
    assert_eq!(one["config"].as_object().unwrap().len(), 53);
    assert_eq!(
        (&one["name"], &one["api_key_set"]),
        (&json!("p2"), &json!(true))
    );
    assert_eq!(one["config"]["api_key"], Value::Null);
    assert_eq!(one["config"]["temperature"], 0.5);
    let shown = world.get(SETTINGS).await;
    let profiles = shown.json()["llm_profiles"].clone();
    assert_eq!(profiles["active"], Value::Null);
    assert_eq!(profiles["profiles"]["p2"], one["config"]);
    let masked = world.get("/api/v1/users/me").await;
    assert_eq!(
        masked.json()["llm_profiles"]["profiles"]["p2"]["api_key"],
        "**********"
    );
    for text in [&shown.text, &masked.text] {
        assert!(!text.contains("-secret"), "{text}");
    }
    let other = world.send(request(Method::GET, PROFILES, OTHER_KEY)).await;
    assert_eq!(other.json()["profiles"], json!([]));
}

#[actix_web::test]
async fn the_active_profile_is_in_force() {
    let world = SettingsFixture::with_profiles().await;
    let (post, none) = (Method::POST, json!(null));
    let switched =
        json!({"name": "p2", "message": "Switched to profile 'p2'", "model": "openai/gpt-5"});
    assert_eq!(
        world
            .send_to_profiles(post.clone(), "/p2/activate", &none)
            .await,
        (200, switched)
    );
    let model = |document: &Value| document["agent_settings"]["llm"]["model"].clone();
    let settings = world.get(SETTINGS).await.json();
    assert_eq!(
        (model(&settings), &settings["llm_profiles"]["active"]),
        (json!("openai/gpt-5"), &json!("p2"))
    );
    assert_eq!(
        world.get("/api/settings").await.json()["llm_model"],
        "openai/gpt-5"
    );

    let renamed = json!({"name": "p2b", "message": "Profile 'p2' renamed to 'p2b'"});
    let name = |name: &str| json!({"new_name": name});
    assert_eq!(
        world
            .send_to_profiles(post.clone(), "/p2/rename", &name("p2b"))
            .await,
        (200, renamed)
    );
    assert_eq!(world.get(PROFILES).await.json()["active_profile"], "p2b");
    let taken = (409, json!({"detail": "Profile 'p1' already exists"}));
    assert_eq!(
        world
            .send_to_profiles(post.clone(), "/p2b/rename", &name("p1"))
            .await,
        taken
    );
    let same = world
        .send_to_profiles(post.clone(), "/p2b/rename", &name("p2b"))
        .await;
    assert_eq!(
        same,
        (
            200,
            json!({"name": "p2b", "message": "Profile 'p2b' renamed to 'p2b'"})
        )
    );
    assert_eq!(
        world
            .send_to_profiles(post.clone(), "/zzz/rename", &name("q"))
            .await,
        missing("Profile 'zzz'")
    );
    assert_eq!(
        world
            .send_to_profiles(post.clone(), "/zzz/activate", &none)
            .await,
        missing("Profile 'zzz'")
    );

    // Profiles in the settings themselves are ignored; changes of the model are applied.
    let body = json!({"llm_profiles": {"profiles": {}}, "language": "en"});
    world.post_ok(SETTINGS, &body, "Settings stored").await;
    assert_eq!(world.get(PROFILES).await.json()["active_profile"], "p2b");
    assert_eq!(
        world
            .send_to_profiles(Method::DELETE, "/p2b", &none)
            .await
            .0,
        200
    );
    let settings = world.get(SETTINGS).await.json();
    assert_eq!(
        (model(&settings), &settings["llm_profiles"]["active"]),
        (json!("anthropic/claude"), &json!("p1"))
    );
    let body = json!({"llm_model": "openai/other"});
    world
        .post_ok("/api/settings", &body, "Settings stored")
        .await;
    assert_eq!(
        world.get(PROFILES).await.json()["active_profile"],
        Value::Null
    );
}

#[actix_web::test]
async fn a_save_may_have_no_body_and_keeps_keys() {
    let world = SettingsFixture::with_profiles().await;
    let path = format!("{PROFILES}/bare");
    let answer = world.send(request(Method::POST, &path, KEY)).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let answer = world.post(&path, &Value::Null).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let config = world.get(&format!("{PROFILES}/p2")).await.json()["config"].clone();
    world.save_profile("p2", &json!({"llm": config})).await;
    let preserved = json!({"preserve_existing_api_key": true});
    world.save_profile("p2", &preserved).await;
    let stored = world.stored().await.unwrap()["llm_profiles"]["list"].clone();
    assert_eq!(stored[1]["secrets"], json!({"/llm/api_key": "k2-secret"}));
    assert_eq!(stored[1]["llm"]["model"], "anthropic/claude");
    assert_eq!(stored[2]["secrets"], json!({"/llm/api_key": "k0-secret"}));
}

#[actix_web::test]
async fn errors_are_listed_and_nothing_is_stored() {
    let world = SettingsFixture::with_profiles().await;
    let before = world.stored().await;
    let long = "a".repeat(65);
    for (path, body, loc, kind) in [
        (
            format!("/{long}"),
            json!({}),
            json!(["path", "name"]),
            "string_too_long",
        ),
        (
            "/a%20b".into(),
            json!({}),
            json!(["path", "name"]),
            "string_pattern_mismatch",
        ),
        (
            "/p".into(),
            json!({"llm": {"model": "x", "custom_header": "planted"}}),
            json!(["body", "llm", "custom_header"]),
            "extra_forbidden",
        ),
        (
            "/p".into(),
            json!({"llm": {"api_key": "planted"}}),
            json!(["body", "llm", "model"]),
            "missing",
        ),
        (
            "/p".into(),
            json!({"llm": {"model": "m", "temperature": "planted"}}),
            json!(["body", "llm", "temperature"]),
            "float_parsing",
        ),
        (
            "/p".into(),
            json!({"llm": "planted"}),
            json!(["body", "llm"]),
            "model_attributes_type",
        ),
        (
            "/p".into(),
            json!({"include_secrets": "maybe"}),
            json!(["body", "include_secrets"]),
            "bool_parsing",
        ),
        (
            "/p1/rename".into(),
            json!({"new_name": "a b"}),
            json!(["body", "new_name"]),
            "string_pattern_mismatch",
        ),
        (
            "/p1/rename".into(),
            json!({"new_name": ""}),
            json!(["body", "new_name"]),
            "string_too_short",
        ),
        (
            "/p1/rename".into(),
            json!({}),
            json!(["body", "new_name"]),
            "missing",
        ),
    ] {
        let (status, answer) = world.send_to_profiles(Method::POST, &path, &body).await;
        assert_eq!(status, 422, "{path} {body}: {answer}");
        let item = &answer["detail"][0];
        assert_eq!(
            (&item["loc"], &item["type"]),
            (&loc, &json!(kind)),
            "{path} {body}"
        );
        assert!(!answer.to_string().contains("planted"), "{answer}");
    }
    assert_eq!(world.stored().await, before);
    for n in 0..8 {
        world
            .save_profile(&format!("n{n}"), &json!({"llm": {"model": "m"}}))
            .await;
    }
    let full =
        json!({"detail": "Profile limit reached (10). Delete a profile before saving a new one."});
    let more = world
        .send_to_profiles(Method::POST, "/more", &json!({"llm": {"model": "m"}}))
        .await;
    assert_eq!(more, (409, full));
    world.save_profile("n3", &json!({})).await;
}
