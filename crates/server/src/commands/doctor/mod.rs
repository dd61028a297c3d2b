//! The `doctor` command: checks whether the service could run here, without changing anything.

mod clock;
mod containers;
mod database;
mod machine;
mod model;
mod report;
mod warm_pool;

use std::net::SocketAddr;

use domain::id::HostId;
use http_api::Listener;

use crate::compose::{self, BackendChoice, EnvVariables};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::listeners::callback::CallbackRoute;
use crate::listeners::http_server::listen;

pub(crate) use report::DoctorReport;

/// Runs all checks, also after a failure.
pub(crate) async fn examine(config: &Config, variables: &EnvVariables) -> DoctorReport {
    let mut report = DoctorReport::default();
    let clock = compose::clock();
    let data_dir = machine::data_dir(config, &mut report);
    let data_dir = data_dir.as_ref();
    machine::permissions(config, data_dir, &mut report);
    database::examine(config, data_dir, clock.as_ref(), &mut report).await;
    match choose_backend(config, data_dir).await {
        Ok(BackendChoice::Containers(sandboxes)) => {
            report.ok("sandboxes", format!("docker ({})", sandboxes.reason));
            warm_pool::examine(config, true, &mut report);
            if let Some(engine) = &sandboxes.engine {
                containers::examine(config, engine, clock.as_ref(), &mut report).await;
            }
        }
        Ok(BackendChoice::Processes(reason)) => {
            report.ok("sandboxes", format!("process ({reason})"));
            warm_pool::examine(config, false, &mut report);
            callbacks(config, &mut report);
            let agent_server = compose::describe_agent_server(config, variables).await;
            report.add("agent server", agent_server, Clone::clone);
        }
        Err(error) => report.problem("sandboxes", format!("{error:#}")),
    }
    let is_running = data_dir.is_some_and(DataDir::is_in_use);
    let public = (Listener::Public, config.http.bind);
    check_listen("address", public, is_running, &mut report);
    if let Some(bind) = config.metrics.bind {
        check_listen(
            "metrics",
            (Listener::Metrics, bind),
            is_running,
            &mut report,
        );
    }
    clock::public_url(config, is_running, clock.as_ref(), &mut report).await;
    report
}

/// Chooses the backend as the service would.
async fn choose_backend(
    config: &Config,
    data_dir: Option<&DataDir>,
) -> anyhow::Result<BackendChoice> {
    let host = config.sandbox.shared_host.clone();
    let host = host.or_else(|| data_dir?.recorded_host());
    // Nothing uses this name before the first start chooses a host id.
    let host = host.map_or_else(|| HostId::parse("not-chosen-yet"), Ok)?;
    let before = match data_dir {
        Some(dir) => dir.backend()?,
        None => None,
    };
    compose::choose_backend(config, &host, before.as_deref()).await
}

/// Checks the route by which processes report to the service.
fn callbacks(config: &Config, report: &mut DoctorReport) {
    let route = CallbackRoute::new(config, false, config.http.bind);
    match &route.warning {
        Some(warning) => report.warn("callbacks", warning),
        None => report.ok("callbacks", format!("sandboxes use {}", route.base())),
    }
}

/// Whether the service can listen on an address.
fn check_listen(
    what: &str,
    (kind, address): (Listener, SocketAddr),
    is_running: bool,
    report: &mut DoctorReport,
) {
    if is_running {
        let text = format!("{address} (probably in use by the running service)");
        report.ok(what, text);
    } else {
        report.add(what, listen(kind, address), |_| address.to_string());
    }
}
