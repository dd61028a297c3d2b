//! Checks of `doctor`: the container engine.

use std::time::Instant;

use anyhow::anyhow;
use chrono::DateTime;
use domain::clock::{Clock, Timestamp};
use http_api::Listener;

use super::DoctorReport;
use super::clock::skew;
use super::machine::free_space;
use crate::compose::{EngineHandle, Survey};
use crate::config::{Config, MetadataAccess};
use crate::listeners::callback::CallbackRoute;
use crate::listeners::http_server::listen;

/// Queries the engine, and tests what needs no new resource.
pub(super) async fn examine(
    config: &Config,
    engine: &EngineHandle,
    clock: &dyn Clock,
    report: &mut DoctorReport,
) {
    let survey = report.add("engine", engine.survey().await, summary);
    if let Some(survey) = survey {
        limits(&survey, report);
        clock_and_disk(&survey, clock.now(), report);
        images(&survey, report);
        metadata(config, &survey, report);
        callback(config, &survey, report);
    }
}

fn summary(survey: &Survey) -> String {
    let mode = if survey.is_rootless {
        "rootless"
    } else {
        "run by root"
    };
    let cgroups = survey.cgroups.as_deref().unwrap_or("unknown");
    format!(
        "{} on {}, {mode}, cgroups {cgroups}, storage {}",
        survey.version, survey.system, survey.storage
    )
}

/// Events of sandboxes carry the engine's time; images and volumes need disk space.
fn clock_and_disk(survey: &Survey, now: Timestamp, report: &mut DoctorReport) {
    let time = survey.time.as_deref();
    if let Some(time) = time.and_then(|text| DateTime::parse_from_rfc3339(text).ok()) {
        let measured_at = Instant::now();
        let wall_clock = |instant| now.minus(measured_at.duration_since(instant));
        let (requested, received) = (
            wall_clock(survey.requested_at),
            wall_clock(survey.received_at),
        );
        // The engine read its clock between the request and the response.
        let theirs = Timestamp::new(time.to_utc());
        skew(
            "clock of the engine",
            theirs,
            theirs.clamp(requested, received),
            report,
        );
    }
    match &survey.root {
        Some(root) => {
            let advice = "free some space (`docker system df` shows what uses it)";
            free_space("disk of the engine", root, advice, report);
        }
        None => report.ok(
            "disk of the engine",
            "on another machine, or not visible from here",
        ),
    }
}

fn limits(survey: &Survey, report: &mut DoctorReport) {
    if survey.ignored_limits.is_empty() {
        report.add("limits", Ok(()), |()| {
            "limits of memory, processor and processes are enforced".to_owned()
        });
    } else {
        let limits = survey.ignored_limits.join(", ");
        report.warn(
            "limits",
            format!(
                "the engine does not enforce limits of {limits}: a sandbox can use up the machine. Enable the \
                     kernel's accounting (cgroup v2 with all controllers delegated, for a rootless engine)"
            ),
        );
    }
    let disk = if survey.may_limit_disk {
        "the engine can limit changes to images; the service measures volumes"
    } else {
        "the engine's storage has no quotas: the service measures usage, and stops sandboxes over their limit"
    };
    report.add("disk limits", Ok(()), |()| disk.to_owned());
    if let Some(runtime) = &survey.missing_runtime {
        let problem = anyhow!(
            "the engine has no runtime {runtime}: install it there and name it in its daemon.json, or change docker.runtime"
        );
        report.add("runtime", Err::<(), _>(problem), |()| String::new());
    }
}

fn images(survey: &Survey, report: &mut DoctorReport) {
    for (template, image, is_present) in &survey.images {
        let state = if *is_present {
            "is present"
        } else {
            "is missing; the first start pulls it (or run docker pull)"
        };
        let what = format!("template {template}");
        report.add(&what, Ok(()), |()| format!("image {image} {state}"));
    }
}

fn metadata(config: &Config, survey: &Survey, report: &mut DoctorReport) {
    let what = "metadata address";
    match (&survey.metadata_problem, config.docker.block_metadata) {
        (_, MetadataAccess::Off) => {
            report.add(what, Ok(()), |()| "not blocked, as configured".to_owned());
        }
        (None, _) => {
            report.add(what, Ok(()), |()| {
                "can be blocked by this machine's packet filter".to_owned()
            });
        }
        (Some(problem), MetadataAccess::Auto) => report.warn(
            what,
            format!(
                "sandboxes may reach 169.254.169.254 ({problem}). In a cloud, block it: run the service as root, or set a \
                 rule of your own; elsewhere set WORKSPACE_DOCKER__BLOCK_METADATA=off"
            ),
        ),
        (Some(problem), MetadataAccess::Required) => {
            let problem = anyhow!(
                "docker.block_metadata = \"required\", but 169.254.169.254 cannot be blocked: {problem}"
            );
            report.add(what, Err::<(), _>(problem), |()| String::new());
        }
    }
}

fn callback(config: &Config, survey: &Survey, report: &mut DoctorReport) {
    let what = "callbacks";
    let route = CallbackRoute::new(config, true, config.http.bind);
    let base = route.base();
    if let Some(warning) = &route.warning {
        return report.warn(what, warning);
    }
    if !route.needs_listener {
        report.add(what, Ok(()), |()| format!("sandboxes use {base}"));
        return;
    }
    let Some(gateway) = survey.gateway else {
        return report.warn(
            what,
            "the engine does not report the address by which containers reach this machine: set \
                 WORKSPACE_SANDBOX__CALLBACK_URL, or let the service listen on another address than loopback",
        );
    };
    // Port 0: the service's own port may be in use by the running service.
    match listen(Listener::Callback, (gateway, 0).into()) {
        Ok(_) => {
            report.add(what, Ok(()), |()| {
                format!("sandboxes use {base}, for which the service also listens on {gateway}")
            });
        }
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
