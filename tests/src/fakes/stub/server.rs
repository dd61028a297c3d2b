//! The HTTP server of the stub.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use anyhow::Context as _;
use serde_json::{Value, json};

use super::append;
use super::commands;
use super::conversation::{RunPlan, StubConversation, without_dashes};
use super::echo;
use super::faults::Faults;
use super::identity::Identity;
use super::reports::ReportQueue;
use super::traffic;
use super::workspace_routes;
use crate::agent_server::variable_of;

/// The file with a line for each request.
pub(super) const CALLS_FILE: &str = "calls";
/// The file with the body of each request that makes a conversation.
pub(super) const CREATES_FILE: &str = "creates";
/// The file with a line for each start.
pub(super) const STARTS_FILE: &str = "starts";
/// Between the start of the process and its listener; a real agent server needs seconds.
const SLOW_BOOT_DELAY: Duration = Duration::from_millis(300);
/// More than the service reads of a body.
const HUGE_BODY_BYTES: usize = 64 << 20;

/// Options of the program.
#[derive(Debug, Clone, Default)]
pub struct StubOptions {
    /// The directory shared with the test.
    pub dir: PathBuf,
    /// Address to listen on.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether commands are run, as the real agent server does.
    pub runs_commands: bool,
}

/// Shared by all handlers.
pub(super) struct StubServer {
    dir: PathBuf,
    store: PathBuf,
    identity: Arc<Identity>,
    faults: Faults,
    runs_commands: bool,
    reports: ReportQueue,
    conversations: Mutex<BTreeMap<String, StubConversation>>,
}

pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "the tasks end with this program")]
    tokio::spawn(work);
}

/// Serves until the process is killed.
///
/// # Errors
/// When the port is taken, or a fault asks for it.
pub async fn serve(options: StubOptions) -> anyhow::Result<()> {
    let faults = Faults::new(&options.dir);
    append(options.dir.join(STARTS_FILE), "start");
    // A sandbox with walls may have no access to the directory.
    let starts = std::fs::read_to_string(options.dir.join(STARTS_FILE)).unwrap_or_default();
    if faults.exits_at_start(starts.lines().count()) {
        anyhow::bail!("the stub was told to end at its start");
    }
    if faults.has("boots-slowly") {
        tokio::time::sleep(SLOW_BOOT_DELAY).await;
    }
    // The standard library sets SO_REUSEADDR, which binding a reserved port requires.
    let listener = TcpListener::bind((options.host.as_str(), options.port))
        .with_context(|| format!("port {} is taken", options.port))?;
    if faults.has("silent") {
        std::future::pending::<()>().await;
    }
    let store: PathBuf =
        variable_of("OH_CONVERSATIONS_PATH").map_or_else(|| "conversations".into(), Into::into);
    std::fs::create_dir_all(&store)?;
    let identity = Arc::new(Identity::from_environment());
    let existing = StubConversation::load_all(&store);
    let stub = web::Data::new(StubServer {
        reports: ReportQueue::start(Arc::clone(&identity), faults.clone()),
        conversations: Mutex::new(existing.into_iter().map(|c| (c.id.clone(), c)).collect()),
        dir: options.dir,
        runs_commands: options.runs_commands,
        store,
        identity,
        faults,
    });
    let server = HttpServer::new(move || App::new().app_data(stub.clone()).configure(routes));
    server
        .workers(1)
        .disable_signals()
        .listen(listener)?
        .run()
        .await?;
    Ok(())
}

fn routes(config: &mut web::ServiceConfig) {
    config
        .app_data(web::PayloadConfig::new(32 << 20))
        .configure(traffic::register)
        .default_service(web::to(handle));
}

/// Handles all requests without a router: routes are few, and every one may have faults.
async fn handle(
    stub: web::Data<StubServer>,
    request: HttpRequest,
    body: web::Bytes,
) -> HttpResponse {
    let (method, path) = (request.method().as_str(), request.path());
    append(
        stub.dir.join(CALLS_FILE),
        &format!("{method} {}", request.uri()),
    );
    let stub = stub.into_inner();
    match path {
        "/alive" | "/health" | "/ready" => return ok(&json!({"status": "ok"})),
        "/server_info" => return ok(&json!({"version": "1.58.0", "usable_tools": ["terminal"]})),
        _ => {}
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if path == "/api/init" {
        let handle = stub.identity.init(&request, &body);
        return handle.unwrap_or_else(not_found);
    }
    if let Some(refused) = refusal(&stub, &request) {
        return refused;
    }
    route(&stub, &request, body).await
}

/// The refusal of a request without the expected key.
pub(super) fn refusal(stub: &StubServer, request: &HttpRequest) -> Option<HttpResponse> {
    let sent = request.headers().get("X-Session-API-Key");
    stub.identity
        .refusal(sent.and_then(|value| value.to_str().ok()))
}

async fn route(stub: &Arc<StubServer>, request: &HttpRequest, body: Value) -> HttpResponse {
    let (method, path) = (request.method().as_str(), request.path());
    let query = Query::of(request);
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let dashed = segments.get(2).map(|id| with_dashes(id));
    let segments: Vec<&str> = match &dashed {
        Some(id) => [&segments[..2], &[id.as_str()], &segments[3..]].concat(),
        None => segments,
    };
    match (method, segments.as_slice()) {
        ("POST", ["api", "conversations"]) if stub.faults.has("create-slow") => {
            create_slowly(stub, body).await
        }
        ("POST", ["api", "conversations"]) if stub.faults.has("create-echo") => {
            append(stub.dir.join(CREATES_FILE), &body.to_string());
            echo::refusal(&body)
        }
        ("POST", ["api", "conversations"]) => {
            with_faults(stub, "create", |stub| stub.create(&body)).await
        }
        ("GET", ["api", "conversations"]) => {
            with_faults(stub, "read", |stub| stub.batch(&query.all("ids"))).await
        }
        ("POST", ["api", "conversations", id, "events"]) => {
            with_faults(stub, "send", |stub| stub.send(id, &body)).await
        }
        ("GET", ["api", "conversations", id, "events", "search"]) => {
            with_faults(stub, "read", |stub| stub.search_events(id, &query)).await
        }
        ("GET", ["api", "conversations", id, "events", "count"]) => {
            with_faults(stub, "read", |stub| stub.count_events(id)).await
        }
        ("POST", ["api", "conversations", id, "pause" | "interrupt"]) => stub.interrupt(id),
        // Commands that prepare the workspace succeed without output.
        ("POST", ["api", "bash", "execute_bash_command"]) if stub.faults.has("bash-echo") => {
            let quoted = body.to_string();
            ok(
                &json!({"kind": "BashOutput", "order": 0, "exit_code": 128, "stdout": quoted, "stderr": quoted}),
            )
        }
        ("POST", ["api", "bash", "execute_bash_command"]) if stub.runs_commands => {
            commands::run(&body).await
        }
        ("POST", ["api", "bash", "execute_bash_command"]) => {
            ok(&json!({"kind": "BashOutput", "order": 0, "exit_code": 0}))
        }
        ("DELETE", ["api", "conversations", id]) => stub.delete(id),
        _ => workspace_routes::respond(method, &segments, query.one("path")),
    }
}

async fn with_faults(
    stub: &Arc<StubServer>,
    what: &str,
    work: impl FnOnce(&Arc<StubServer>) -> HttpResponse,
) -> HttpResponse {
    let has = |fault: &str| stub.faults.has(&format!("{what}-{fault}"));
    if has("hang") {
        std::future::pending::<()>().await;
    }
    if has("500") {
        let body =
            json!({"detail": "Internal Server Error", "exception": "the stub was told to fail"});
        return HttpResponse::InternalServerError().json(body);
    }
    if has("garbage") {
        return HttpResponse::Ok()
            .content_type("application/json")
            .body("{\"id\": [");
    }
    if has("huge") {
        return HttpResponse::Ok().body("x".repeat(HUGE_BODY_BYTES));
    }
    let handle = work(stub);
    if has("mute") {
        std::future::pending::<()>().await;
    }
    handle
}

/// Creates the conversation at once and adds its first message a second later, even if the client has disconnected, like the real
/// agent server.
async fn create_slowly(stub: &Arc<StubServer>, mut request: Value) -> HttpResponse {
    let first = request["initial_message"].take();
    let handle = stub.create(&request);
    if handle.status() == StatusCode::CREATED {
        let (done, waiting) = tokio::sync::oneshot::channel::<()>();
        let stub = Arc::clone(stub);
        let id = request["conversation_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stub.add_message_and_run(&id, &first);
            append(stub.dir.join(CALLS_FILE), "LATE first message");
            drop(done);
        });
        // Ends with an error when the sender is dropped.
        let _ = waiting.await;
    }
    handle
}

fn ok(body: &Value) -> HttpResponse {
    HttpResponse::Ok().json(body)
}

/// Allocates memory until the process is killed.
fn exhaust_memory() -> ! {
    let mut all = Vec::new();
    loop {
        // Written, so that the pages are resident.
        all.push(vec![1_u8; 1 << 20]);
    }
}

/// Adds missing dashes to an id.
fn with_dashes(id: &str) -> String {
    uuid::Uuid::parse_str(id).map_or_else(|_| id.to_owned(), |id| id.to_string())
}

fn not_found() -> HttpResponse {
    HttpResponse::NotFound().json(json!({"detail": "Not Found"}))
}

/// The query, also with repeated names.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(request: &HttpRequest) -> Self {
        let pairs = web::Query::<Vec<(String, String)>>::from_query(request.query_string());
        Self(pairs.map(web::Query::into_inner).unwrap_or_default())
    }

    fn all(&self, name: &str) -> Vec<String> {
        let fitting = self.0.iter().filter(|(key, _)| key == name);
        fitting.map(|(_, value)| value.clone()).collect()
    }

    fn one(&self, name: &str) -> Option<String> {
        self.all(name).pop()
    }
}

impl StubServer {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, StubConversation>> {
        let locked = self.conversations.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates a conversation, stores it, and reports its new events.
    fn update(&self, id: &str, work: impl FnOnce(&mut StubConversation) -> Vec<Value>) -> bool {
        let mut conversations = self.lock();
        let Some(conversation) = conversations.get_mut(id) else {
            return false;
        };
        let events = work(conversation);
        conversation.store(&self.store);
        self.reports
            .post(format!("events/{}", without_dashes(id)), json!(events));
        true
    }

    fn create(self: &Arc<Self>, request: &Value) -> HttpResponse {
        append(self.dir.join(CREATES_FILE), &request.to_string());
        let id = request["conversation_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if let Some(existing) = self.lock().get(&id) {
            return ok(&existing.info());
        }
        let conversation = StubConversation::new(id.clone(), request);
        // The real agent server creates the working directory, too.
        let _ = std::fs::create_dir_all(&conversation.working_dir);
        self.lock().insert(id.clone(), conversation);
        if !request["initial_message"].is_null() {
            self.add_message_and_run(&id, &request["initial_message"]);
        }
        let info = self.lock().get(&id).map(StubConversation::info);
        let info = info.unwrap_or_default();
        self.reports.post("conversations".to_owned(), info.clone());
        HttpResponse::build(StatusCode::CREATED).json(info)
    }

    fn send(self: &Arc<Self>, id: &str, message: &Value) -> HttpResponse {
        if !self.lock().contains_key(id) {
            return not_found();
        }
        self.add_message_and_run(id, message);
        ok(&json!({"success": true}))
    }

    fn add_message_and_run(self: &Arc<Self>, id: &str, message: &Value) {
        self.update(id, |conversation| {
            vec![
                conversation.add_message(message),
                conversation.set_status("running"),
            ]
        });
        let (stub, id, plan) = (Arc::clone(self), id.to_owned(), RunPlan::of(message));
        spawn(async move { stub.run(&id, plan).await });
    }

    async fn run(&self, id: &str, plan: RunPlan) {
        for step in 0..plan.steps {
            let action = json!({"tool_name": "terminal", "action": {"kind": "TerminalAction", "command": format!("step {step}")}});
            self.update(id, |c| vec![c.add("ActionEvent", "agent", action)]);
        }
        if plan.is_fatal {
            std::process::abort();
        }
        if plan.exhausts_memory {
            exhaust_memory();
        }
        plan.wait_until_continued(&self.dir).await;
        self.update(id, |conversation| {
            if conversation.status != "running" {
                // Interrupted or deleted in the meantime.
                return Vec::new();
            }
            // A test that needs the file fails when it is missing.
            let _ = std::fs::write(conversation.working_dir.join("stub.txt"), "written by the stub");
            let finish = json!({"tool_name": "finish", "action": {"kind": "FinishAction", "message": "done"}});
            vec![conversation.add("ActionEvent", "agent", finish), conversation.set_status("finished")]
        });
    }

    fn interrupt(&self, id: &str) -> HttpResponse {
        let existing = self.update(id, |conversation| {
            if conversation.status == "running" {
                vec![conversation.set_status("paused")]
            } else {
                Vec::new()
            }
        });
        if existing {
            ok(&json!({"success": true}))
        } else {
            not_found()
        }
    }

    fn delete(&self, id: &str) -> HttpResponse {
        let Some(mut conversation) = self.lock().remove(id) else {
            return not_found();
        };
        // The conversation may never have been stored.
        let _ = std::fs::remove_file(self.store.join(format!("{}.json", without_dashes(id))));
        "deleting".clone_into(&mut conversation.status);
        self.reports
            .post("conversations".to_owned(), conversation.info());
        ok(&json!({"success": true}))
    }

    fn batch(&self, ids: &[String]) -> HttpResponse {
        let conversations = self.lock();
        let infos = ids
            .iter()
            .map(|id| conversations.get(id).map(StubConversation::info));
        ok(&infos.map(Option::unwrap_or_default).collect())
    }

    fn count_events(&self, id: &str) -> HttpResponse {
        self.lock()
            .get(id)
            .map_or_else(not_found, |c| ok(&json!(c.events.len())))
    }

    fn search_events(&self, id: &str, query: &Query) -> HttpResponse {
        let conversations = self.lock();
        let Some(conversation) = conversations.get(id) else {
            return not_found();
        };
        let from = query.one("timestamp__gte").unwrap_or_default();
        let from = from.trim_end_matches('Z');
        let limit = query
            .one("limit")
            .and_then(|n| n.parse().ok())
            .unwrap_or(100);
        let start = query
            .one("page_id")
            .and_then(|n| n.parse().ok())
            .unwrap_or(0_usize);
        let is_late = |event: &&Value| event["timestamp"].as_str().is_some_and(|at| at >= from);
        let fitting: Vec<&Value> = conversation.events.iter().filter(is_late).collect();
        let items: Vec<&Value> = fitting.iter().skip(start).take(limit).copied().collect();
        let end = start + items.len();
        let next = (end < fitting.len()).then(|| end.to_string());
        ok(&json!({"items": items, "next_page_id": next}))
    }
}
