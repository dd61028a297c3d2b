//! The tenancy matrix: every kind of caller calls every operation of the `OpenAPI` document about Alice's objects.
//!
//! A caller without a key gets 401. Another user gets the same response as for an unknown id, without any data of Alice's.
//! Afterwards her objects are unchanged.

mod operation_requests;
mod owned_objects;

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use self::owned_objects::OwnedObjects;
use super::requests::encoded;
use super::surface::{ApiSurface, Operation};
use super::wire::{self, Request, Response};
use crate::client::Client;
use crate::service::Service;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(45);
/// A text in all of Alice's texts that are not names.
const CANARY: &str = "canary5e1foralicealone";

/// Operations that need no key.
const PUBLIC: [&str; 7] = [
    "GET /alive",
    "GET /api/organizations/members/invite/accept",
    "GET /api/v1/web-client/config",
    "GET /health",
    "GET /metrics",
    "GET /ready",
    "GET /server_info",
];

/// Reads that fail for their owner: they need a reachable git provider, a key of a sandbox, an administrator, or an upgrade. One
/// redirects.
const NO_SUCCESS_FOR_OWNER: [&str; 16] = [
    "GET /api/organizations/members/invite/accept",
    "GET /api/user/info",
    "GET /api/user/installations",
    "GET /api/user/repositories",
    "GET /api/user/repository/branches",
    "GET /api/v1/admin/",
    "GET /api/v1/app-conversations/{conversation_id}/git/",
    "GET /api/v1/audit",
    "GET /api/v1/git/branches",
    "GET /api/v1/git/installations",
    "GET /api/v1/git/repositories",
    "GET /api/v1/sandboxes/{sandbox_id}/settings/",
    "GET /api/v1/users/git-info",
    "GET /api/v1/webhooks/secrets",
    "GET /api/user/suggested-tasks",
    "GET /sockets/",
];

/// Operations that a sandbox may call with its key: its owner's secrets, and paths that its agent server also has.
const SANDBOX_OPERATIONS: [&str; 6] = [
    "GET /api/agent-profiles",
    "GET /api/conversations",
    "GET /api/settings",
    "GET /api/v1/sandboxes/{sandbox_id}/settings/",
    "GET /api/v1/users/me",
    "GET /api/v1/webhooks/secrets",
];

/// Paths by which administrators access users and keys of others.
const ADMINISTRATOR_PATHS: [&str; 2] = ["/api/v1/admin/", "/api/v1/audit"];

/// The kind of a caller. A new kind needs a variant here and a line in [`TenancyMatrix::prepare`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// No key, or a wrong one.
    Stranger,
    /// Alice. She and her sandbox may change her objects, so they only read.
    Owner,
    OwnSandbox,
    /// Another user, with or without the role `admin`, or a sandbox of another user.
    Other,
    Administrator,
    OtherSandbox,
}

impl Role {
    fn may_change(self) -> bool {
        matches!(self, Self::Owner | Self::OwnSandbox)
    }

    fn is_foreign(self) -> bool {
        matches!(self, Self::Other | Self::Administrator | Self::OtherSandbox)
    }
}

#[derive(Debug)]
struct Caller {
    name: &'static str,
    role: Role,
    key: Option<String>,
}

/// Calls every operation as every caller. Returns descriptions of the failures. The service must run the stub in its
/// sandboxes.
///
/// # Panics
/// When the objects cannot be created, or the service does not respond.
pub async fn check(service: &Service) -> Vec<String> {
    let matrix = TenancyMatrix::prepare(service).await;
    let before = matrix.read_as_owner().await;
    let mut failures = matrix.fill_failures();
    // One caller after the other: the last one, a sandbox, creates unknown conversations by its reports.
    for caller in &matrix.callers {
        for operation in matrix.surface.operations() {
            matrix
                .send_and_check(operation, caller, &mut failures)
                .await;
        }
    }
    let after = matrix.read_as_owner().await;
    for (asked, answer) in before {
        let now = after.get(&asked);
        if now != Some(&answer) {
            failures.push(format!(
                "{asked} was changed by others:\n  {answer}\n  {now:?}"
            ));
        }
    }
    failures.extend(matrix.replay().await);
    failures
}

struct TenancyMatrix<'a> {
    service: &'a Service,
    surface: ApiSurface,
    callers: Vec<Caller>,
    /// Alice's objects, and ids of the same form that name no object.
    owned: OwnedObjects,
    unknown: OwnedObjects,
    /// For each list, Alice's page after her newest object.
    pages: BTreeMap<String, Request>,
}

impl<'a> TenancyMatrix<'a> {
    async fn prepare(service: &'a Service) -> Self {
        let (admin, alice, mallory) = (
            service.admin(),
            service.user(owned_objects::ALICE),
            service.user("mallory"),
        );
        let mut document = alice.get("/openapi.json").await.ok();
        if let Some(paths) = document["paths"].as_object_mut() {
            paths.extend(operation_requests::forwarded());
        }
        let surface = ApiSurface::read_all(document);
        let (owned, own_sandbox) = OwnedObjects::make(service, &alice).await;
        let other_sandbox = owned_objects::sandbox_key(&mallory).await;
        let revoked = owned_objects::revoked_key(&mallory).await;
        let deleted_sandbox = owned_objects::deleted_sandbox_key(&mallory).await;
        let caller = |name, role, key: &str| Caller {
            name,
            role,
            key: (!key.is_empty()).then(|| key.to_owned()),
        };
        let callers = vec![
            caller("no key", Role::Stranger, ""),
            caller("a wrong key", Role::Stranger, "aw_wrong"),
            caller("a revoked key", Role::Stranger, &revoked),
            caller("a deleted sandbox", Role::Stranger, &deleted_sandbox),
            caller("the owner", Role::Owner, alice.key()),
            caller("another user", Role::Other, mallory.key()),
            caller("an administrator", Role::Administrator, admin.key()),
            caller("her sandbox", Role::OwnSandbox, &own_sandbox),
            caller("another user's sandbox", Role::OtherSandbox, &other_sandbox),
        ];
        Self {
            service,
            callers,
            pages: pages(&surface, &alice, &owned).await,
            surface,
            unknown: owned.unknown(),
            owned,
        }
    }

    /// Failures for operations that are missing in the tables.
    fn fill_failures(&self) -> Vec<String> {
        let all = self.surface.operations().iter();
        let filled =
            all.filter_map(|operation| operation_requests::requests(operation, &self.owned).err());
        filled.collect()
    }

    async fn exchange(&self, request: &Request, key: Option<&str>) -> Response {
        let mut request = request.clone();
        if let Some(key) = key {
            request
                .headers
                .push(("X-Session-API-Key".to_owned(), key.to_owned()));
        }
        let answer =
            wire::exchange(self.service.address(), &request.bytes(), REQUEST_TIMEOUT).await;
        answer
            .unwrap_or_else(|silence| panic!("{} {}: {silence:?}", request.method, request.target))
    }

    async fn send_and_check(
        &self,
        operation: &Operation,
        caller: &Caller,
        failures: &mut Vec<String>,
    ) {
        if caller.role.may_change() && operation.method != "GET" {
            return;
        }
        let is_administration = is_one_of(operation, &ADMINISTRATOR_PATHS);
        let administers = caller.role == Role::Administrator && is_administration;
        if administers && operation.method != "GET" {
            return;
        }
        let fill = |objects| operation_requests::requests(operation, objects).unwrap_or_default();
        let filled = fill(&self.owned).into_iter().zip(fill(&self.unknown));
        let page = self.pages.get(&operation.name());
        let page = page.map(|page| (page.clone(), page.clone()));
        for (request, twin) in filled.chain(page) {
            let key = caller.key.as_deref();
            let answer = self.exchange(&request, key).await;
            let mut wrong = self.judge(operation, caller, &request, &answer);
            let is_named = request != twin;
            if wrong.is_none() && caller.role.is_foreign() && !administers && is_named {
                let unknown = self.exchange(&twin, key).await;
                wrong = self.compare(&answer, &unknown);
                if caller.role == Role::Other && is_malformed(&answer) {
                    wrong = Some("it is refused for its form: nothing is proved".to_owned());
                }
            }
            if let Some(wrong) = wrong {
                let (name, method, target) = (caller.name, &request.method, &request.target);
                let body = String::from_utf8_lossy(request.body.as_deref().unwrap_or_default());
                let (status, text) = (answer.status, shorten(&answer.text()));
                failures.push(format!(
                    "{name}: {method} {target} {body}\n  {wrong}\n  {status} {text}"
                ));
            }
        }
    }

    /// The failure of a response; `None` if it is right.
    fn judge(
        &self,
        operation: &Operation,
        caller: &Caller,
        request: &Request,
        answer: &Response,
    ) -> Option<String> {
        let (status, text) = (answer.status, answer.text());
        let is_success = (200..300).contains(&status);
        let is_public = PUBLIC.contains(&operation.name().as_str());
        match caller.role {
            Role::Stranger if !is_public && status != 401 => {
                return Some("it needs a key".to_owned());
            }
            Role::Owner => {
                let is_plain = !request.target.contains('?') || operation.needs_query();
                let expects = is_plain && !is_one_of(operation, &NO_SUCCESS_FOR_OWNER);
                let is_refused = expects && !is_success;
                return is_refused.then(|| "its owner is refused: nothing is proved".to_owned());
            }
            Role::OwnSandbox => {
                let may = is_public || is_one_of(operation, &SANDBOX_OPERATIONS);
                return (is_success && !may).then(|| "a sandbox acts as a user".to_owned());
            }
            _ => {}
        }
        if text.contains(CANARY) && !request.contains_id(CANARY) {
            return Some("it holds a text of Alice's".to_owned());
        }
        let administers =
            caller.role == Role::Administrator && is_one_of(operation, &ADMINISTRATOR_PATHS);
        let mut ids = self.owned.ids().into_iter();
        let foreign = ids
            .find(|id| is_success && !administers && text.contains(id) && !request.contains_id(id));
        foreign.map(|id| format!("it holds {id}, which is Alice's"))
    }

    /// Compares the responses for an object of Alice's and for an unknown id. Another user must get the same.
    fn compare(&self, owned: &Response, unknown: &Response) -> Option<String> {
        let alike = self.owned.rename(&self.unknown, &unknown.text());
        let is_alike = owned.status == unknown.status && owned.text() == alike;
        (!is_alike).then(|| {
            let (status, text) = (unknown.status, shorten(&alike));
            format!("an unknown id is answered otherwise: {status} {text}")
        })
    }

    fn client(&self, role: Role) -> Client {
        let caller = self.callers.iter().find(|caller| caller.role == role);
        let key = caller.and_then(|caller| caller.key.as_deref());
        Client::new(self.service.url(), key.unwrap_or_default())
    }

    /// Checks that another user with Alice's `Idempotency-Key` does not get her response.
    async fn replay(&self) -> Option<String> {
        let (path, key) = ("/api/v1/sandboxes", Some("a-key-of-alice"));
        let create = async |role| {
            let client = self.client(role);
            let answer = client.try_repeatable(Method::POST, path, None, key);
            answer.await.expect("an answer")
        };
        let (first, again) = (create(Role::Owner).await, create(Role::Owner).await);
        let other = create(Role::Other).await;
        let ids = [&first, &again, &other].map(|answer| answer.body["id"].as_str());
        let is_right = ids[0].is_some() && ids[0] == ids[1] && ids[2].is_some() && ids[0] != ids[2];
        (!is_right).then(|| format!("POST {path} with one Idempotency-Key of two users: {ids:?}"))
    }

    /// Alice's reads of her objects, without values that change without a request.
    async fn read_as_owner(&self) -> BTreeMap<String, String> {
        let client = self.client(Role::Owner);
        let mut all = BTreeMap::new();
        for operation in self.surface.operations() {
            let is_read = operation.method == "GET" && !PUBLIC.contains(&operation.name().as_str());
            // Streams and archives contain events that other reads compare.
            let is_document =
                !operation.path.ends_with("/stream") && !operation.path.ends_with("/download");
            let request = operation_requests::requests(operation, &self.owned).unwrap_or_default();
            let Some(request) = request.first().filter(|_| is_read && is_document) else {
                continue;
            };
            let answer = client.call(Method::GET, &request.target, None).await;
            let mut body = if answer.body.is_null() {
                json!(answer.text)
            } else {
                answer.body
            };
            owned_objects::mask(&mut body);
            all.insert(request.target.clone(), format!("{} {body}", answer.status));
        }
        all
    }
}

/// The requests of the owner for second pages.
async fn pages(
    surface: &ApiSurface,
    alice: &Client,
    owned: &OwnedObjects,
) -> BTreeMap<String, Request> {
    let mut pages = BTreeMap::new();
    for operation in surface.operations() {
        let mut parameters = operation.parameters.iter();
        if operation.method != "GET" || !parameters.any(|it| it.name == "page_id") {
            continue;
        }
        let Some(mut request) = operation_requests::requests(operation, owned)
            .unwrap_or_default()
            .into_iter()
            .next()
        else {
            continue;
        };
        let separator = if request.target.contains('?') {
            '&'
        } else {
            '?'
        };
        let first = format!("{}{separator}limit=1", request.target);
        let first = alice.get(&first).await.body;
        if let Some(token) = first["next_page_id"].as_str() {
            let token = encoded(token);
            request.target = format!("{}{separator}limit=100&page_id={token}", request.target);
            pages.insert(operation.name(), request);
        }
    }
    assert!(
        pages.len() > 3,
        "too few of Alice's lists have a second page: {pages:?}"
    );
    pages
}

fn is_malformed(answer: &Response) -> bool {
    matches!(answer.status, 400 | 415 | 422)
}

fn is_one_of(operation: &Operation, beginnings: &[&str]) -> bool {
    let name = operation.name();
    let mut beginnings = beginnings.iter();
    beginnings.any(|it| name.starts_with(it) || operation.path.starts_with(it))
}

fn shorten(text: &str) -> String {
    text.chars().take(600).collect()
}

impl Operation {
    /// `METHOD path`, as in the document.
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn needs_query(&self) -> bool {
        let mut parameters = self.parameters.iter();
        parameters.any(|it| !it.in_path && it.is_required)
    }
}

impl Request {
    fn contains_id(&self, text: &str) -> bool {
        let body = String::from_utf8_lossy(self.body.as_deref().unwrap_or_default());
        self.target.contains(text) || body.contains(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_cannot_be_filled_is_a_failure() {
        let responses = json!({"200": {}});
        let schema = json!({"type": "string"});
        let parameter = |place: &str, name: &str| json!([{"in": place, "name": name, "required": true, "schema": schema}]);
        let body = json!({"content": {"application/json": {"schema": {}}}});
        let surface = ApiSurface::read_all(json!({"paths": {
            "/a/{thing_id}": {"get": {"parameters": parameter("path", "thing_id"), "responses": responses}},
            "/b": {"get": {"parameters": parameter("query", "whose"), "responses": responses}},
            "/c": {"post": {"requestBody": body, "responses": responses}},
            "/d": {"get": {"responses": responses}},
        }}));
        let objects = OwnedObjects::sample();
        let filled = surface
            .operations()
            .iter()
            .map(|it| operation_requests::requests(it, &objects));
        let failures: Vec<String> = filled.filter_map(Result::err).collect();
        assert_eq!(failures.len(), 3, "{failures:?}");
    }
}
