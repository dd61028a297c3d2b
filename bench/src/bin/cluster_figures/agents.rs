//! One server that stands for the agent servers of all pods: each connection is to the pod whose address it was opened to.

use std::any::Any;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};
use std::thread;

use actix_web::dev::Extensions;
use actix_web::rt::System;
use actix_web::rt::net::TcpStream;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use anyhow::Context as _;
use serde_json::{Value, json};

/// The port of agent servers in pods.
const PORT: u16 = 8_000;

/// The address of the pod that a connection was opened to.
#[derive(Debug, Clone, Copy)]
struct Pod(IpAddr);

/// The pods whose agent server is awake. All boot dormant.
type Awake = Mutex<BTreeSet<IpAddr>>;

/// Serves on all loopback addresses until the program ends.
pub(crate) fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT));
    let listener = listener.with_context(|| format!("port {PORT} is taken"))?;
    let awake = web::Data::new(Awake::default());
    let server = move || {
        let app = move || App::new().app_data(awake.clone()).configure(routes);
        let server = HttpServer::new(app)
            .workers(1)
            .disable_signals()
            .on_connect(note_pod)
            .listen(listener)?;
        System::new().block_on(server.run())
    };
    thread::spawn(server);
    Ok(())
}

fn note_pod(connection: &dyn Any, data: &mut Extensions) {
    let stream = connection.downcast_ref::<TcpStream>();
    if let Some(address) = stream.and_then(|it| it.local_addr().ok()) {
        data.insert(Pod(address.ip()));
    }
}

fn routes(config: &mut web::ServiceConfig) {
    config
        .app_data(web::PayloadConfig::new(32 << 20))
        .default_service(web::to(handle));
}

async fn handle(awake: web::Data<Awake>, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let pod = request.conn_data::<Pod>().map(|pod| pod.0);
    let Some(pod) = pod else {
        return HttpResponse::InternalServerError().finish();
    };
    let mut awake = awake.lock().unwrap_or_else(PoisonError::into_inner);
    match (request.method().as_str(), request.path()) {
        (_, "/alive" | "/health" | "/ready") => ok(&json!({"status": "ok"})),
        (_, "/server_info") => ok(&json!({"version": "1.58.0", "usable_tools": ["terminal"]})),
        ("GET", "/api/init") => {
            let is_awake = awake.contains(&pod);
            ok(&json!({"state": if is_awake { "ready" } else { "dormant" }}))
        }
        ("POST", "/api/init") => {
            awake.insert(pod);
            ok(&json!({"state": "ready"}))
        }
        ("POST", "/api/conversations") => created(&body),
        ("POST", "/api/bash/execute_bash_command") => {
            ok(&json!({"kind": "BashOutput", "order": 0, "exit_code": 0}))
        }
        ("POST", "/api/skills") => ok(&json!({"skills": [], "sources": {}})),
        ("POST", "/api/hooks") => ok(&json!({"hook_config": null})),
        ("GET", "/api/profiles") => ok(&json!({"profiles": [], "active_profile": null})),
        _ => HttpResponse::NotFound().json(json!({"detail": "Not Found"})),
    }
}

fn ok(body: &Value) -> HttpResponse {
    HttpResponse::Ok().json(body)
}

fn created(request: &[u8]) -> HttpResponse {
    let request: Value = serde_json::from_slice(request).unwrap_or_default();
    HttpResponse::Created().json(json!({
        "id": request["conversation_id"],
        "execution_status": "idle",
        "workspace": request["workspace"],
        "title": null,
        "tags": {},
        "stats": {"usage_to_metrics": {}},
        "agent": {"kind": "Agent", "llm": {"model": "openai/m", "api_key": "**********"}},
        "last_user_message_id": null,
        "created_at": "2026-01-01T00:00:00",
        "updated_at": "2026-01-01T00:00:00",
    }))
}
