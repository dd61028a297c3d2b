//! The `doctor` command: checks whether the service could run here, without changing anything.

mod clock;
mod database;
mod hosts;
mod machine;
mod mail;
mod model;
mod network;
mod public_url;
mod warm_pool;

use std::net::SocketAddr;

use http_api::Listener;
use sandbox_provider::{CallbackCheck, Installation, SandboxNetworking};

use crate::compose;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::listeners::callback::CallbackRoute;
use crate::listeners::http_server::listen;
use settings::EnvVariables;

pub(crate) use sandbox_provider::DoctorReport;

/// Runs all checks, also after a failure.
pub(crate) async fn examine(config: &Config, variables: &EnvVariables) -> DoctorReport {
    let mut report = DoctorReport::default();
    let clock = compose::clock();
    let data_dir = machine::data_dir(config, &mut report);
    let data_dir = data_dir.as_ref();
    machine::permissions(config, data_dir, &mut report);
    database::examine(config, data_dir, clock.as_ref(), &mut report).await;
    if let Err(error) = sandboxes(config, variables, data_dir, &mut report).await {
        report.problem("sandboxes", format!("{error:#}"));
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
    public_url::examine(config, is_running, clock.as_ref(), &mut report).await;
    mail::examine(config.mail.as_ref(), &mut report).await;
    report
}

/// Chooses the backend as the service would, and lets it check the machine.
async fn sandboxes(
    config: &Config,
    variables: &EnvVariables,
    data_dir: Option<&DataDir>,
    report: &mut DoctorReport,
) -> anyhow::Result<()> {
    let host = config.sandbox.shared_host.clone();
    let host = host.or_else(|| data_dir?.recorded_host());
    let installation = Installation {
        host: &host.unwrap_or_else(compose::unnamed_host),
        data_dir: &config.data_dir,
        variables,
    };
    let before = data_dir
        .map(compose::previous_backend)
        .transpose()?
        .flatten();
    let chosen = compose::choose_backend(config, &installation, before.as_deref());
    let (backend, reason) = chosen.await;
    let features = backend.features();
    report.ok("sandboxes", format!("{} ({reason})", features.name));
    let egress = compose::egress::check(&config.egress, &features);
    let policy = compose::egress::describe(&config.egress).to_owned();
    report.add("egress policy", egress.map(|_| policy), Clone::clone);
    warm_pool::examine(config.kept_warm(&features), report);
    if let Some(check) = backend.examine(&installation, report).await {
        callbacks(config, features.network, check, report);
    }
    let route = CallbackRoute::new(config, features.network, config.http.bind);
    match compose::describe_automations(config, variables, &route).await {
        Ok(found) => report.ok("automations", found),
        // Everything else works without them.
        Err(cause) => report.warn("automations", format!("{cause:#}")),
    }
    Ok(())
}

/// Checks the route by which sandboxes report to the service.
fn callbacks(
    config: &Config,
    network: SandboxNetworking,
    CallbackCheck { gateway }: CallbackCheck,
    report: &mut DoctorReport,
) {
    let what = "callbacks";
    let route = CallbackRoute::new(config, network, config.http.bind);
    let base = route.base();
    if let Some(warning) = &route.warning {
        return report.warn(what, warning);
    }
    if let SandboxNetworking::Forwarded { .. } = network {
        return report.ok(
            what,
            format!("sandboxes use {base}, which the service forwards"),
        );
    }
    if !route.needs_listener {
        return report.ok(what, format!("sandboxes use {base}"));
    }
    let Some(gateway) = gateway else {
        return report.warn(
            what,
            "the engine does not report the address by which containers reach this machine: set \
                 WORKSPACE_SANDBOX__CALLBACK_URL, or let the service listen on another address than loopback",
        );
    };
    // Port 0: the service's own port may be in use by the running service.
    match listen(Listener::Callback, (gateway, 0).into()) {
        Ok(_) => report.ok(
            what,
            format!("sandboxes use {base}, for which the service also listens on {gateway}"),
        ),
        Err(error) => report.warn(
            what,
            format!(
                "cannot listen on the engine's gateway {gateway} ({}): sandboxes could not report, and their events \
                     would arrive some seconds late. Set WORKSPACE_SANDBOX__CALLBACK_URL, or let the service listen \
                     on an address that containers reach",
                error.root_cause()
            ),
        ),
    }
}

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
