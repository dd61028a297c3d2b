//! Every operation × every kind of key × own, foreign and missing objects. An operation's policy decides the expectation; an
//! operation without a policy fails the test.

use http_api::Listener;
use serde_json::json;

use crate::fixture::{ADA, BOB, TestResponse, World};
use crate::user::tenancy::{UNUSED_ID, anonymous, request_at, spent_key};

/// The callers that an operation accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// All callers, with any key or none.
    Public,
    /// Users.
    User,
    /// Users and their sandboxes.
    UserOrSandbox,
    /// Administrators.
    Admin,
    /// A sandbox, about itself.
    Sandbox,
}

/// The policy by the part of the API. A new operation gets its part's policy; a new part needs a line here.
pub(super) fn policy(operation: &Operation) -> Option<Policy> {
    let path = operation.path.as_str();
    if path.starts_with("/api/v1/sandboxes/{sandbox_id}/settings/") {
        return Some(Policy::Sandbox);
    }
    match (operation.tag.as_str(), path) {
        ("Health", _) | (_, "/api/v1/web-client/config") => Some(Policy::Public),
        ("Organizations", "/api/organizations/members/invite/accept")
            if operation.method == "GET" =>
        {
            Some(Policy::Public)
        }
        ("Organizations", "/api/organizations") if operation.method == "POST" => {
            Some(Policy::Admin)
        }
        ("Webhooks", _) => Some(Policy::Sandbox),
        ("Administration", _) => Some(Policy::Admin),
        ("MCP", _) => Some(Policy::UserOrSandbox),
        (
            "Config"
            | "Conversations"
            | "Conversations of older front ends"
            | "Events"
            | "Git"
            | "Git of older front ends"
            | "Keys"
            | "Legacy"
            | "Organizations"
            | "Pending Messages"
            | "Sandbox specs"
            | "Sandboxes"
            | "Secrets"
            | "Sessions"
            | "Settings"
            | "Skills"
            | "Start tasks"
            | "Users",
            _,
        ) => Some(Policy::User),
        _ => None,
    }
}

pub(super) struct Operation {
    pub(super) method: String,
    path: String,
    tag: String,
    /// Whether the document declares that no key is needed.
    is_open: bool,
}

impl Operation {
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn has_object(&self) -> bool {
        self.path.contains('{')
    }
}

pub(super) fn operations() -> Vec<Operation> {
    let document = http_api::openapi_document();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if matches!(method.as_str(), "parameters" | "summary") {
                continue;
            }
            let security = operation["security"].as_array();
            found.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                tag: operation["tags"][0].as_str().unwrap_or_default().to_owned(),
                is_open: security.is_some_and(|all| all.contains(&json!({}))),
            });
        }
    }
    assert!(found.len() >= 120, "{}", found.len());
    found
}

/// The ids for path parameters.
pub(super) struct Objects {
    conversation: String,
    sandbox: String,
    key: String,
    user: String,
}

impl Objects {
    pub(super) fn unused() -> Self {
        Self {
            conversation: UNUSED_ID.to_owned(),
            sandbox: UNUSED_ID.to_owned(),
            key: UNUSED_ID.to_owned(),
            user: "nobody".to_owned(),
        }
    }

    async fn of(world: &World, name: &str, key: &str) -> (Self, String) {
        let conversation = world.conversation(key).await;
        let read = world.read(key, &conversation).await;
        let text = |name: &str| read[name].as_str().unwrap().to_owned();
        let made = world.post(key, "/api/v1/keys", &json!({})).await.json();
        let objects = Self {
            sandbox: text("sandbox_id"),
            key: made["record"]["id"].as_str().unwrap().to_owned(),
            user: name.to_owned(),
            conversation,
        };
        (objects, text("session_api_key"))
    }

    pub(super) fn path(&self, operation: &Operation) -> String {
        let path = operation
            .path
            .replace("{conversation_id}", &self.conversation);
        let path = path.replace("{sandbox_id}", &self.sandbox);
        let path = path.replace("{key_id}", &self.key);
        let path = path.replace("{session_id}", UNUSED_ID);
        let path = path.replace("{host_id}", "nowhere");
        let path = path.replace("{identity_id}", UNUSED_ID);
        let path = path.replace("{egress_request_id}", UNUSED_ID);
        let path = path.replace("{user_id}", &self.user);
        let path = path.replace("{organization_id}", &self.conversation);
        let path = path.replace("{invitation_id}", UNUSED_ID);
        let path = path.replace("{profile_id}", UNUSED_ID);
        let path = path.replace("{connection_id}", UNUSED_ID);
        let path = path.replace("{secret_id}", "SECRET");
        let path = path.replace("{secret_name}", "SECRET");
        let path = path.replace("{name}", "fast");
        assert!(!path.contains('{'), "{path}: say here what stands for it");
        path
    }

    /// A response without these ids.
    fn without(&self, answer: &TestResponse) -> String {
        let ids = [&self.conversation, &self.sandbox, &self.key];
        let text = ids
            .into_iter()
            .fold(answer.text.clone(), |text, id| anonymous(&text, id));
        text.replace(&format!("\"{}\"", self.user), "USER")
    }
}

/// Requests the operation with each key.
async fn ask<const N: usize>(
    world: &World,
    operation: &Operation,
    asked: [(Option<&str>, &Objects); N],
) -> [TestResponse; N] {
    let requests = asked.map(|(key, at)| request_at(key, &operation.name(), &at.path(operation)));
    let answers = world.send_all(Listener::Public, requests).await;
    answers.try_into().expect("as many as were asked")
}

#[test]
fn every_operation_has_a_policy_that_matches_its_document() {
    for operation in operations() {
        let name = operation.name();
        let Some(policy) = policy(&operation) else {
            panic!(
                "{name} ({}): say in `policy` who may call it",
                operation.tag
            );
        };
        assert_eq!(operation.is_open, policy == Policy::Public, "{name}");
    }
}

/// An invalid key gets the same error on every path.
#[actix_web::test]
async fn invalid_keys_get_the_same_error_everywhere() {
    let world = World::working().await;
    let (adas, _) = Objects::of(&world, "ada", ADA).await;
    let unused = Objects::unused();
    let revoked = spent_key(&world, "revoked").await;
    let expired = spent_key(&world, "expired").await;
    let keys = [
        None,
        Some("aw_wrong"),
        Some(revoked.as_str()),
        Some(expired.as_str()),
    ];
    for operation in operations() {
        let name = operation.name();
        let is_public = policy(&operation) == Some(Policy::Public);
        let there = ask(&world, &operation, keys.map(|key| (key, &adas))).await;
        let missing = ask(&world, &operation, keys.map(|key| (key, &unused))).await;
        for ((key, there), missing) in keys.iter().zip(there).zip(missing) {
            if is_public {
                assert!(matches!(there.status, 200 | 303), "{name} {key:?}");
                continue;
            }
            assert_eq!(there.status, 401, "{name} {key:?}: {}", there.text);
            if operation.has_object() {
                assert_eq!(missing.status, 401, "{name} {key:?}");
                assert_eq!(
                    adas.without(&there),
                    unused.without(&missing),
                    "{name} {key:?}"
                );
            }
        }
    }
}

/// A sandbox's key gives access to the sandbox's routes, and to no user routes: neither its owner's nor another user's.
#[actix_web::test]
async fn a_sandbox_key_gives_access_to_its_own_sandbox_only() {
    let world = World::working().await;
    let (adas, of_adas) = Objects::of(&world, "ada", ADA).await;
    let (bobs, of_bobs) = Objects::of(&world, "bob", BOB).await;
    let unused = Objects::unused();
    for operation in operations() {
        let (name, policy) = (operation.name(), policy(&operation));
        // On other paths the key is forwarded to the agent server.
        let is_ours = operation.path.starts_with("/api/v1/");
        for (key, own, foreign) in [(&of_adas, &adas, &bobs), (&of_bobs, &bobs, &adas)] {
            let key = Some(key.as_str());
            match policy {
                Some(Policy::User | Policy::Admin) if is_ours => {
                    let at = [own, foreign, &unused].map(|at| (key, at));
                    for answer in ask(&world, &operation, at).await {
                        assert_eq!(answer.status, 401, "{name}: {}", answer.text);
                    }
                }
                Some(Policy::Sandbox) if operation.has_object() => {
                    let at = [foreign, &unused, own].map(|at| (key, at));
                    let [theirs, missing, its_own] = ask(&world, &operation, at).await;
                    assert_eq!(
                        (theirs.status, foreign.without(&theirs)),
                        (missing.status, unused.without(&missing)),
                        "{name}"
                    );
                    assert!(
                        !matches!(its_own.status, 401 | 403),
                        "{name}: {}",
                        its_own.text
                    );
                }
                _ => {}
            }
        }
    }
}

/// A user's key gives no access to routes of sandboxes or administrators.
#[actix_web::test]
async fn a_user_key_is_not_a_sandbox_or_administrator_key() {
    let world = World::working().await;
    let (adas, _) = Objects::of(&world, "ada", ADA).await;
    let (bobs, _) = Objects::of(&world, "bob", BOB).await;
    let unused = Objects::unused();
    for operation in operations() {
        let expected = match policy(&operation) {
            Some(Policy::Sandbox) => 401,
            Some(Policy::Admin) => 403,
            _ => continue,
        };
        let at = [&adas, &bobs, &unused].map(|at| (Some(BOB), at));
        for answer in ask(&world, &operation, at).await {
            let name = operation.name();
            assert_eq!(answer.status, expected, "{name}: {}", answer.text);
        }
    }
}

/// Paths with an object: a foreign one gets the same response as an unknown one. Conversations, sandboxes and organizations
/// are tested in `tenancy`.
#[actix_web::test]
async fn ids_reveal_nothing_of_other_users() {
    let world = World::working().await;
    let (adas, _) = Objects::of(&world, "ada", ADA).await;
    let unused = Objects::unused();
    let secret = json!({"name": "SECRET", "value": "v"});
    let profile = json!({"llm": {"model": "openai/fast", "api_key": "sk-2"}});
    assert!(world.post(ADA, "/api/v1/secrets", &secret).await.status < 300);
    let saved = "/api/v1/settings/profiles/fast";
    assert_eq!(world.post(ADA, saved, &profile).await.status, 201);
    for operation in operations() {
        let is_by_name = ["{key_id}", "{secret_id}", "profiles/{name}"];
        let is_by_name = is_by_name.iter().any(|it| operation.path.contains(it));
        if !is_by_name || policy(&operation) != Some(Policy::User) {
            continue;
        }
        let [theirs] = ask(&world, &operation, [(Some(BOB), &adas)]).await;
        // Names reveal nothing: an object that Bob lacks is missing, whether Ada has it or not.
        let elsewhere = operation
            .path
            .replace("{secret_id}", "OTHER")
            .replace("{name}", "slow");
        let missing = Operation {
            path: elsewhere,
            method: operation.method.clone(),
            tag: operation.tag.clone(),
            is_open: false,
        };
        let name = operation.name();
        let missing = request_at(Some(BOB), &name, &unused.path(&missing));
        let missing = world.send(missing).await;
        assert!(
            !matches!(theirs.status, 400 | 422),
            "{name}: say in `needs` what to send: {}",
            theirs.text
        );
        let text = |answer: String| answer.replace("slow", "fast").replace("OTHER", "SECRET");
        assert_eq!(
            (theirs.status, text(adas.without(&theirs))),
            (missing.status, text(unused.without(&missing))),
            "{name}"
        );
    }
}

/// The same for batch reads by id and for bodies that name an object.
#[actix_web::test]
async fn lists_and_bodies_reveal_nothing_of_other_users() {
    let world = World::working().await;
    let (adas, _) = Objects::of(&world, "ada", ADA).await;
    let unused = Objects::unused();
    for (list, theirs) in [
        ("/api/v1/app-conversations?ids=", &adas.conversation),
        ("/api/v1/sandboxes?id=", &adas.sandbox),
    ] {
        let found = world.get(BOB, &format!("{list}{theirs}")).await;
        let missing = world.get(BOB, &format!("{list}{UNUSED_ID}")).await;
        assert_eq!(found.status, 200, "{list}: {}", found.text);
        assert_eq!((found.status, found.text), (missing.status, missing.text));
    }
    let start = |sandbox: &str| json!({"sandbox_id": sandbox});
    let starts = "/api/v1/app-conversations";
    let theirs = world.post(BOB, starts, &start(&adas.sandbox)).await;
    let missing = world.post(BOB, starts, &start(UNUSED_ID)).await;
    assert_eq!(
        (theirs.status, adas.without(&theirs)),
        (missing.status, unused.without(&missing))
    );
    assert!((400..500).contains(&theirs.status), "{}", theirs.text);
}
