//! Every operation × who calls × in which organization × from which page: who is refused, and with which status.

use std::collections::BTreeSet;
use std::time::Duration;

use http_api::Listener;
use serde_json::json;

use super::access_matrix::{Objects, Policy, operations, policy};
use super::organization_matrix::crew;
use super::sign_in::{Accounts, post};
use crate::fixture::{ADA, ROOT};
use crate::user::tenancy::request_at;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// No key and no session.
    Keyless,
    /// A session that was ended.
    Ended,
    /// Sessions of an owner of the organization, and of an administrator of the instance, who is no member of it.
    OwnerSession,
    RootSession,
    /// Keys of members.
    Member,
    Admin,
    /// A key of another user, and a key of the owner that is bound to their personal organization.
    Outsider,
    BoundElsewhere,
}

use Who::{Admin, BoundElsewhere, Ended, Keyless, Member, Outsider, OwnerSession, RootSession};

const CALLERS: [Who; 8] = [
    Keyless,
    Ended,
    OwnerSession,
    RootSession,
    Member,
    Admin,
    Outsider,
    BoundElsewhere,
];

impl Who {
    fn has_session(self) -> bool {
        matches!(self, Ended | OwnerSession | RootSession)
    }

    fn is_member(self) -> bool {
        matches!(self, OwnerSession | Member | Admin)
    }
}

/// The page that sends a request, as its browser says.
const SENDERS: [Option<&str>; 3] = [None, Some("same-origin"), Some("cross-site")];

/// What the checks answer: `None` if the request passes them.
fn refusal(
    policy: Policy,
    method: &str,
    who: Who,
    (is_in_organization, sender): (bool, Option<&str>),
) -> Option<u16> {
    let is_safe = matches!(method, "GET" | "HEAD" | "OPTIONS");
    match policy {
        Policy::Public => return None,
        // A session opens nothing of sandboxes, and a user's key is none of theirs.
        Policy::Sandbox => return Some(401),
        Policy::UserOrSandbox if who.has_session() => return Some(401),
        Policy::UserOrSandbox | Policy::User | Policy::Admin => {}
    }
    if who == Keyless {
        return Some(401);
    }
    if who.has_session() && !is_safe && sender != Some("same-origin") {
        return Some(403);
    }
    if who == Ended {
        return Some(401);
    }
    if is_in_organization && !who.is_member() {
        return Some(403);
    }
    (policy == Policy::Admin && who != RootSession).then_some(403)
}

/// Whether the checks refused, and not the operation.
fn is_refusal(text: &str) -> bool {
    [
        "\"Unauthorized\"",
        "session cookie",
        "Invalid API key",
        "Only administrators",
        "You are no member",
        "is bound to another organization",
    ]
    .into_iter()
    .any(|refusal| text.contains(refusal))
}

#[actix_web::test]
async fn every_operation_checks_caller_organization_and_origin() {
    let it = Accounts::new().await;
    let world = &it.world;
    let crew = crew(world).await;
    let user = json!({"id": "olaf"});
    world.post(ROOT, "/api/v1/admin/users", &user).await;
    let keys = "/api/v1/admin/users/olaf/keys";
    let made = world.post(ROOT, keys, &json!({})).await;
    let outsider = made.json()["key"].as_str().unwrap().to_owned();
    let personal = world.get(ADA, "/api/organizations").await.json();
    let personal = personal["items"].as_array().unwrap().iter();
    let personal = personal.filter(|it| it["is_personal"] == json!(true));
    let personal = personal.map(|it| it["id"].clone()).next().unwrap();
    let personal = json!({"org_id": personal});
    let bound = world.post(ADA, "/api/v1/keys", &personal).await;
    let bound = bound.json()["key"].as_str().unwrap().to_owned();
    let ended = it.log_in("ada").await;
    let out = post("/logout").insert_header(("cookie", ended.as_str()));
    assert_eq!(world.send(out).await.status, 303);
    let unused = Objects::unused();
    let mut surprises = BTreeSet::new();
    for operation in operations() {
        let name = operation.name();
        // Paths with an organization are in `organization_matrix`.
        if name.contains("{organization_id}") {
            continue;
        }
        // The rate limits know no more of the requests before.
        world.clock.advance(Duration::from_secs(1));
        let policy = policy(&operation).unwrap();
        let ends_session = name == "POST /api/logout";
        let sessions = [it.log_in("ada").await, it.log_in("root").await];
        // The refused ones first: others may end the session. One application takes all, because building one takes longer.
        let (mut cases, mut requests) = (Vec::new(), Vec::new());
        for who in CALLERS {
            let credential = match who {
                Keyless => None,
                Ended => Some(("cookie", &ended)),
                OwnerSession => Some(("cookie", &sessions[0])),
                RootSession => Some(("cookie", &sessions[1])),
                Member => Some(("x-session-api-key", &crew.member)),
                Admin => Some(("x-session-api-key", &crew.admin)),
                Outsider => Some(("x-session-api-key", &outsider)),
                BoundElsewhere => Some(("x-session-api-key", &bound)),
            };
            for at in [false, true]
                .iter()
                .flat_map(|it| SENDERS.map(|sender| (*it, sender)))
            {
                let mut request = request_at(None, &name, &unused.path(&operation));
                let sender = at.1.map(|sender| ("sec-fetch-site", sender));
                let organization = at.0.then_some(("x-org-id", crew.id.as_str()));
                let credential = credential.map(|(header, value)| (header, value.as_str()));
                for header in [sender, organization, credential].into_iter().flatten() {
                    request = request.insert_header(header);
                }
                // The list of organizations is for any selection.
                let is_placed = at.0 && name != "GET /api/organizations";
                let expected = refusal(policy, &operation.method, who, (is_placed, at.1));
                let place = if expected.is_some() { 0 } else { cases.len() };
                cases.insert(place, (who, at, expected));
                requests.insert(place, request);
            }
        }
        let answers = world.send_all(Listener::Public, requests).await;
        for (answer, (who, at, expected)) in answers.iter().zip(cases) {
            let status = answer.status;
            let is_expected = match expected {
                Some(expected) => status == expected,
                None if ends_session => matches!(status, 204 | 401),
                None => !is_refusal(&answer.text) && (status < 500 || status == 501),
            };
            if !is_expected {
                let text = &answer.text;
                surprises.insert(format!(
                    "{name} {who:?} {at:?}: {status} instead of {expected:?}: {text}"
                ));
            }
        }
    }
    assert!(surprises.is_empty(), "{surprises:#?}");
}
