//! The HTTP interface of the API server.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::call::{Call, Parameters, ServerBody, is_selected};
use crate::controllers;
use crate::errors::ApiError;
use crate::kind::Kind;
use crate::streams::{log, watch};
use crate::validation::check_strictly;
use crate::{ClusterState, Shared};

const SANDBOX_API: &str = "agents.x-k8s.io";
const SANDBOX_VERSION: &str = "v1beta1";

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not done, and answered with 503.
    Before,
    /// It is done, and the connection is closed without an answer.
    After,
}

/// Which request that changes something fails.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    seen: usize,
    next: Option<(usize, Fault)>,
    /// The number of requests that change something before all further ones wait.
    pub(crate) hold_after: Option<usize>,
    pub(crate) held: usize,
}

/// What becomes of a request.
enum Fate {
    Answer,
    Fail(Fault),
    Hold,
}

impl FaultPlan {
    pub(crate) fn new(after: usize, fault: Fault) -> Self {
        Self {
            seen: 0,
            next: Some((after, fault)),
            ..Self::default()
        }
    }

    /// Further requests that change something wait after this number.
    pub(crate) fn holding(after: usize) -> Self {
        Self {
            hold_after: Some(after),
            ..Self::default()
        }
    }

    pub(crate) fn seen(&self) -> usize {
        self.seen
    }

    fn take(&mut self) -> Fate {
        let number = self.seen;
        self.seen += 1;
        if self.hold_after.is_some_and(|after| number >= after) {
            self.held += 1;
            return Fate::Hold;
        }
        let fault = self.next.filter(|(after, _)| *after == number);
        fault.map_or(Fate::Answer, |(_, fault)| Fate::Fail(fault))
    }
}

pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with the server.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(|request| answer(&shared, request));
            let http = hyper::server::conn::http1::Builder::new();
            // An error is one of the connection.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> io::Result<Response<ServerBody>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let url = url::Url::parse("http://fake/").and_then(|base| base.join(&head.uri.to_string()));
    let url = url.map_err(io::Error::other)?;
    let parameters: Parameters = url.query_pairs().into_owned().collect();
    let path: Vec<&str> = url.path().trim_matches('/').split('/').collect();
    let delay = count(shared, &head.method, &path, &parameters);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let fate = if head.method == Method::GET {
        Fate::Answer
    } else {
        shared.change(|state| state.faults.take())
    };
    match fate {
        Fate::Answer | Fate::Fail(Fault::After) => {}
        Fate::Fail(Fault::Before) => return Ok(refusal(&ApiError::unavailable())),
        Fate::Hold => {
            let mut changed = shared.subscribe();
            let is_held = || shared.state().faults.hold_after.is_some();
            while is_held() && changed.changed().await.is_ok() {}
            return Ok(refusal(&ApiError::unavailable()));
        }
    }
    if let [
        "api",
        "v1",
        "namespaces",
        _,
        "pods",
        pod,
        "proxy",
        rest @ ..,
    ] = path.as_slice()
    {
        let answer = ask_pod(shared, pod, &head.method, (&rest.join("/"), body)).await;
        return Ok(answer.unwrap_or_else(|error| refusal(&error)));
    }
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    let kind = head.headers.get(CONTENT_TYPE);
    let is_apply = kind.is_some_and(|it| it.as_bytes().starts_with(b"application/apply-patch"));
    let call = Call {
        method: &head.method,
        parameters: &parameters,
        sent,
        is_apply,
    };
    let response = respond(shared, &path, call);
    if matches!(fate, Fate::Fail(Fault::After)) {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    Ok(response.unwrap_or_else(|error| refusal(&error)))
}

/// Counts a request. Returns how long its answer takes.
fn count(shared: &Shared, method: &Method, path: &[&str], parameters: &Parameters) -> Duration {
    let kinds = path
        .iter()
        .rposition(|part| Kind::of_plural(part).is_some());
    let is_list = *method == Method::GET && kinds == Some(path.len() - 1);
    let verb = match parameters.get("watch") {
        Some(_) if is_list => "WATCH",
        None if is_list => "LIST",
        _ => method.as_str(),
    };
    let about = kinds
        .or(path.len().checked_sub(1))
        .map_or("", |it| path[it]);
    let mut state = shared.state();
    *state.requests.entry(format!("{verb} {about}")).or_default() += 1;
    state.delay
}

fn respond(
    shared: &Arc<Shared>,
    path: &[&str],
    call: Call<'_>,
) -> Result<Response<ServerBody>, ApiError> {
    match path {
        ["version"] => Ok(ok(&json!({
            "major": "1", "minor": "33", "gitVersion": "v1.33.0-fake", "gitCommit": "", "gitTreeState": "", "buildDate": "",
            "goVersion": "", "compiler": "", "platform": "",
        }))),
        ["apis"] => Ok(ok(&groups(shared.state().has_sandboxes))),
        [
            "apis",
            "authorization.k8s.io",
            "v1",
            "selfsubjectaccessreviews",
        ] => {
            let mut review = call.sent;
            review["status"] = json!({"allowed": true});
            Ok(ok(&review))
        }
        ["apis", "storage.k8s.io", "v1", "storageclasses"] => {
            let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
            let class = json!({"metadata": {"name": "standard", "annotations": annotations}, "provisioner": "fake"});
            Ok(ok(
                &json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [class]}),
            ))
        }
        [
            "apis",
            "networking.k8s.io",
            "v1",
            "namespaces",
            _,
            "networkpolicies",
        ] => Ok(ok(
            &json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}),
        )),
        ["api", "v1", "namespaces", _, "pods", name, "log"] => log(shared, name, &call),
        ["api", "v1", "namespaces", _, "pods", name, "eviction"] => evict(shared, name),
        ["api", "v1", "namespaces", _, plural, rest @ ..]
        | [
            "apis",
            SANDBOX_API,
            SANDBOX_VERSION,
            "namespaces",
            _,
            plural,
            rest @ ..,
        ] => {
            let kind = Kind::of_plural(plural).ok_or_else(|| ApiError::not_found(plural))?;
            if kind == Kind::Sandbox && !shared.state().has_sandboxes {
                return Err(ApiError::not_found(plural));
            }
            match rest {
                [] => of_all(shared, kind, &call),
                [name] => of_one(shared, kind, name, &call),
                _ => Err(ApiError::not_found(plural)),
            }
        }
        _ => Err(ApiError::not_found("the requested resource")),
    }
}

fn groups(has_sandboxes: bool) -> Value {
    let version = json!({"groupVersion": format!("{SANDBOX_API}/{SANDBOX_VERSION}"), "version": SANDBOX_VERSION});
    let group = json!({"name": SANDBOX_API, "versions": [version], "preferredVersion": version});
    let all = if has_sandboxes {
        vec![group]
    } else {
        Vec::new()
    };
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all})
}

fn of_all(
    shared: &Arc<Shared>,
    kind: Kind,
    call: &Call<'_>,
) -> Result<Response<ServerBody>, ApiError> {
    match *call.method {
        Method::GET if call.is_set("watch") => watch(shared, kind, call),
        Method::GET => Ok(ok(&list(&shared.state(), kind, call))),
        Method::POST => shared.change(|state| {
            if call.parameter("fieldValidation") == Some("Strict") {
                check_strictly(kind, &call.sent)?;
            }
            if let (Kind::Pod, Some(text)) = (kind, &state.quota) {
                return Err(ApiError::forbidden(text.clone()));
            }
            Ok(ok(&state.store.create(kind, call.sent.clone())?))
        }),
        _ => Err(ApiError::bad_request("the method is not allowed")),
    }
}

fn of_one(
    shared: &Arc<Shared>,
    kind: Kind,
    name: &str,
    call: &Call<'_>,
) -> Result<Response<ServerBody>, ApiError> {
    let what = format!("{} \"{name}\"", kind.plural());
    match *call.method {
        Method::GET => {
            let found = shared.state().store.get(kind, name).cloned();
            Ok(ok(&found.ok_or_else(|| ApiError::not_found(&what))?))
        }
        Method::PATCH => shared.change(|state| {
            if call.is_apply {
                check_strictly(kind, &call.sent)?;
                return Ok(ok(&state.store.apply(kind, name, call.sent.clone())?));
            }
            Ok(ok(&state.store.merge(kind, name, &call.sent)?))
        }),
        Method::DELETE => shared.change(|state| {
            let found = state
                .store
                .get(kind, name)
                .ok_or_else(|| ApiError::not_found(&what))?;
            let expected = &call.sent["preconditions"]["uid"];
            if !expected.is_null() && *expected != found["metadata"]["uid"] {
                return Err(ApiError::conflict(&what));
            }
            let is_foreground = call.sent["propagationPolicy"] == "Foreground";
            controllers::delete(&mut state.store, kind, name, is_foreground);
            Ok(ok(&success()))
        }),
        _ => Err(ApiError::bad_request("the method is not allowed")),
    }
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
}

fn evict(shared: &Shared, name: &str) -> Result<Response<ServerBody>, ApiError> {
    shared.change(|state| {
        let found = state.store.get(Kind::Pod, name).cloned();
        let pod = found.ok_or_else(|| ApiError::not_found(name))?;
        controllers::delete_pod(&mut state.store, &pod);
        Ok(ok(&success()))
    })
}

/// Forwards a request to a port of a pod, which is named `NAME:PORT`.
async fn ask_pod(
    shared: &Shared,
    pod: &str,
    method: &Method,
    (path, body): (&str, Bytes),
) -> Result<Response<ServerBody>, ApiError> {
    let (name, port) = pod
        .split_once(':')
        .ok_or_else(|| ApiError::not_found(pod))?;
    let found = shared.state().store.get(Kind::Pod, name).cloned();
    let address = found.and_then(|pod| Some(pod["status"]["podIP"].as_str()?.to_owned()));
    let address = address.ok_or_else(|| ApiError::not_found(name))?;
    let asked = async {
        let stream = TcpStream::connect(format!("{address}:{port}")).await.ok()?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        let request = Request::builder().method(method).uri(format!("/{path}"));
        let request = request.header(HOST, pod).body(Full::new(body)).ok()?;
        // The connection works until the answer is read.
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        sender
            .send_request(request)
            .await
            .ok()?
            .collect()
            .await
            .ok()
    };
    let answer = asked.await;
    let answer = answer.ok_or_else(ApiError::unavailable)?;
    let body = Full::new(answer.to_bytes());
    Ok(Response::new(
        body.map_err(|never: Infallible| match never {})
            .boxed_unsync(),
    ))
}

/// A page of a list, in the order of names. The name of its last object continues it.
fn list(state: &ClusterState, kind: Kind, call: &Call<'_>) -> Value {
    let limit = call
        .parameter("limit")
        .and_then(|it| it.parse().ok())
        .unwrap_or(usize::MAX);
    let after = call.parameter("continue").unwrap_or_default();
    let name = |object: &Value| {
        object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let selected = state
        .store
        .of_kind(kind)
        .filter(|it| is_selected(it, call.parameters));
    let mut items: Vec<Value> = selected.filter(|it| *name(it) > *after).cloned().collect();
    let mut next = String::new();
    if items.len() > limit {
        items.truncate(limit);
        next = items.last().map(name).unwrap_or_default();
    }
    json!({
        "kind": "List", "apiVersion": "v1",
        "metadata": {"resourceVersion": state.store.revision.to_string(), "continue": next},
        "items": items,
    })
}

fn ok(body: &Value) -> Response<ServerBody> {
    json_response(200, body)
}

fn refusal(error: &ApiError) -> Response<ServerBody> {
    json_response(error.code, &error.status())
}

fn json_response(code: u16, body: &Value) -> Response<ServerBody> {
    let body = Full::new(Bytes::from(body.to_string()));
    let body = body
        .map_err(|never: Infallible| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code.try_into().unwrap_or_default();
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
