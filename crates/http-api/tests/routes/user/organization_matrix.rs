//! Every operation with an organization in its path × (member, admin, owner, outsider, a key bound elsewhere).

use domain::id::{OrganizationId, UserId};
use serde_json::{Value, json};

use crate::fixture::{ADA, ROOT, World};
use crate::user::tenancy::{operations, request_at};

/// Keys of the members of an organization, and of others.
pub(super) struct Crew {
    pub(super) id: String,
    pub(super) owner: String,
    pub(super) admin: String,
    pub(super) member: String,
    /// Another member, about whom requests are.
    other: &'static str,
    invitation: String,
}

/// The least role for an operation, by rank: 0 is a member's.
fn least_rank(operation: &str) -> usize {
    let (method, path) = operation.split_once(' ').unwrap();
    let rest = path.trim_start_matches("/api/organizations/{organization_id}");
    match (method, rest) {
        ("PATCH" | "DELETE", "") => 2,
        (_, "/members/invite" | "/members/invite/{invitation_id}")
        | ("PATCH" | "DELETE", "/members/{user_id}") => 1,
        (method, rest) if method != "GET" && is_owned_by_organization(rest) => 1,
        _ => 0,
    }
}

fn is_owned_by_organization(rest: &str) -> bool {
    ["/profiles", "/provider-connections"]
        .iter()
        .any(|part| rest.starts_with(part))
}

async fn key_of(world: &World, name: &str) -> String {
    let user = json!({"id": name});
    world.post(ROOT, "/api/v1/admin/users", &user).await;
    let keys = format!("/api/v1/admin/users/{name}/keys");
    let made = world.post(ROOT, &keys, &json!({})).await.json();
    made["key"].as_str().unwrap().to_owned()
}

async fn invite(world: &World, id: &str, role: &str) -> (String, String) {
    let path = format!("/api/organizations/{id}/members/invite");
    let body = json!({"emails": ["someone@example.org"], "role": role});
    let made = world.post(ADA, &path, &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let made = &made.json()["successful"][0];
    let link = made["invite_url"].as_str().unwrap();
    let token = link.rsplit_once('#').unwrap().1.to_owned();
    (token, made["id"].as_str().unwrap().to_owned())
}

async fn join(world: &World, id: &str, role: &str, key: &str) {
    let (token, _) = invite(world, id, role).await;
    let accept = "/api/organizations/members/invite/accept";
    let joined = world.post(key, accept, &json!({"token": token})).await.ok();
    assert_eq!(
        (&joined["org_id"], &joined["role"]),
        (&json!(id), &json!(role))
    );
}

/// An organization of Ada with members. The names are used in one organization after the other.
pub(super) async fn crew(world: &World) -> Crew {
    let body = json!({"name": "Crew", "owner": "ada"});
    let made = world.post(ROOT, "/api/organizations", &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let [admin, member, other] = ["adam", "mia", "ned"].map(|name| key_of(world, name));
    let (admin, member, other) = (admin.await, member.await, other.await);
    join(world, &id, "admin", &admin).await;
    join(world, &id, "member", &member).await;
    join(world, &id, "member", &other).await;
    let (_, invitation) = invite(world, &id, "member").await;
    Crew {
        id,
        owner: ADA.to_owned(),
        admin,
        member,
        other: "ned",
        invitation,
    }
}

#[actix_web::test]
async fn every_operation_checks_membership_and_role() {
    let world = World::working().await;
    let outsider = key_of(&world, "olaf").await;
    let personal = OrganizationId::personal(&UserId::parse("ada").unwrap()).to_string();
    let bound = json!({"organization_id": personal});
    let bound = world.post(ADA, "/api/v1/keys", &bound).await.json();
    assert_eq!(bound["record"]["organization_id"], personal);
    let bound = bound["key"].as_str().unwrap().to_owned();
    let all = operations("{organization_id}");
    assert!(all.len() >= 20, "{}", all.len());
    for operation in all {
        let crew = crew(&world).await;
        let path = operation.split_once(' ').unwrap().1;
        let path = path
            .replace("{organization_id}", &crew.id)
            .replace("{user_id}", crew.other)
            .replace("{invitation_id}", &crew.invitation)
            .replace("{connection_id}", &crew.id)
            .replace("{name}", "fast");
        let send = async |key: &str, header: Option<&str>| {
            let mut request = request_at(Some(key), &operation, &path);
            if let Some(header) = header {
                request = request.insert_header(("X-Org-Id", header));
            }
            world.send(request).await
        };
        for key in [&outsider, &bound] {
            let answer = send(key, None).await;
            answer.refuses(404, "Organization not found");
        }
        for (header, part) in [(personal.as_str(), "another organization"), ("x", "UUID")] {
            let answer = send(&crew.owner, Some(header)).await;
            assert_eq!(answer.status, 400, "{operation}");
            assert!(answer.text.contains(part), "{operation}: {}", answer.text);
        }
        let least = least_rank(&operation);
        for (rank, key) in [&crew.member, &crew.admin, &crew.owner]
            .into_iter()
            .enumerate()
        {
            let answer = send(key, Some(&crew.id)).await;
            let status = answer.status;
            if rank < least {
                assert_eq!(status, 403, "{operation} {rank}: {}", answer.text);
            } else {
                let is_allowed = !matches!(status, 400 | 401 | 403 | 422 | 500..);
                assert!(is_allowed, "{operation} {rank}: {status} {}", answer.text);
                assert_ne!(answer.text, "Organization not found");
            }
        }
        for user in ["adam", "mia", "ned"] {
            let path = format!("/api/v1/admin/users/{user}/keys");
            for key in world.get(ROOT, &path).await.json()["items"]
                .as_array()
                .unwrap()
            {
                let path = format!("{path}/{}", key["id"].as_str().unwrap());
                world.delete(ROOT, &path).await;
            }
        }
    }
}

#[actix_web::test]
async fn a_request_acts_in_one_organization() {
    let world = World::working().await;
    let crew = crew(&world).await;
    let outsider = key_of(&world, "olaf").await;
    let secret = json!({"name": "SHARED", "value": "v"});
    let at = async |key: &str, header: Option<&str>, body: Option<&Value>| {
        let (method, path) = match body {
            Some(_) => ("POST", "/api/v1/secrets"),
            None => ("GET", "/api/v1/secrets/search"),
        };
        let mut request = request_at(Some(key), &format!("{method} {path}"), path);
        if let Some(header) = header {
            request = request.insert_header(("X-Org-Id", header));
        }
        if let Some(body) = body {
            request = request.set_json(body);
        }
        world.send(request).await
    };
    let id = Some(crew.id.as_str());
    assert!(at(ADA, id, Some(&secret)).await.status < 300);
    let names = async |key: &str, header| at(key, header, None).await.ok()["items"].clone();
    assert_eq!(names(ADA, id).await.as_array().unwrap().len(), 1);
    assert_eq!(names(ADA, None).await, json!([]));
    assert_eq!(
        names(&crew.admin, id).await,
        json!([]),
        "private to its user"
    );
    at(&outsider, id, None).await.refuses(
        403,
        "You are no member of the organization that X-Org-Id names",
    );
    at(ADA, Some("any"), None)
        .await
        .refuses(400, "X-Org-Id must be the UUID of an organization");
    // A bound key acts there without a header, and nowhere else.
    let body = json!({"org_id": crew.id});
    let bound = world.post(ADA, "/api/v1/keys", &body).await.json();
    let bound = bound["key"].as_str().unwrap();
    assert_eq!(names(bound, None).await.as_array().unwrap().len(), 1);
    let personal = OrganizationId::personal(&UserId::parse("ada").unwrap()).to_string();
    at(bound, Some(&personal), None).await.refuses(
        403,
        "This API key is bound to another organization than X-Org-Id names",
    );
    let unbound = world.post(bound, "/api/v1/keys", &json!({})).await;
    assert_eq!(unbound.json()["record"]["organization_id"], crew.id);
    let listed = world.get(bound, "/api/organizations").await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    // Leaving ends access at once; the last owner cannot leave.
    let members = format!("/api/organizations/{}/members", crew.id);
    let gone = world.delete(&crew.member, &format!("{members}/mia")).await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    assert_eq!(at(&crew.member, id, None).await.status, 403);
    let last = world.delete(ADA, &format!("{members}/ada")).await;
    assert_eq!(last.status, 409, "{}", last.text);
    assert!(last.text.contains("make another member an owner first"));
    let count = world.get(ADA, &format!("{members}/count")).await.ok();
    assert_eq!(count, json!({"count": 3}));
    let page = world
        .get(ADA, &format!("{members}?limit=2&email=A"))
        .await
        .ok();
    assert_eq!(page["items"][0]["name"], "ada", "{page}");
    assert_eq!(page["items"][0]["role"], "owner");
}
