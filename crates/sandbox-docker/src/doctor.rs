//! Checks of `doctor`: the container engine.

use std::time::Instant;

use chrono::DateTime;
use domain::clock::{Clock as _, SystemClock, Timestamp};
use sandbox_provider::DoctorReport;

use crate::config::MetadataBlocking;
use crate::engine::survey::Survey;

/// Reports the engine's capabilities.
pub(crate) fn examine(survey: &Survey, blocking: MetadataBlocking, report: &mut DoctorReport) {
    report.ok("engine", summary(survey));
    limits(survey, report);
    clock_and_disk(survey, SystemClock.now(), report);
    images(survey, report);
    metadata(survey, blocking, report);
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
        report.skew(
            "clock of the engine",
            theirs,
            theirs.clamp(requested, received),
        );
    }
    match &survey.root {
        Some(root) => {
            let advice = "free some space (`docker system df` shows what uses it)";
            report.free_space("disk of the engine", root, advice);
        }
        None => report.ok(
            "disk of the engine",
            "on another machine, or not visible from here",
        ),
    }
}

fn limits(survey: &Survey, report: &mut DoctorReport) {
    if survey.ignored_limits.is_empty() {
        report.ok(
            "limits",
            "limits of memory, processor and processes are enforced",
        );
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
    report.ok("disk limits", disk);
    if let Some(runtime) = &survey.missing_runtime {
        report.problem("runtime", format!(
            "the engine has no runtime {runtime}: install it there and name it in its daemon.json, or change docker.runtime"
        ));
    }
}

fn images(survey: &Survey, report: &mut DoctorReport) {
    for (template, image, is_present) in &survey.images {
        let state = if *is_present {
            "is present"
        } else {
            "is missing; the first start pulls it (or run docker pull)"
        };
        report.ok(
            &format!("template {template}"),
            format!("image {image} {state}"),
        );
    }
}

fn metadata(survey: &Survey, blocking: MetadataBlocking, report: &mut DoctorReport) {
    let what = "metadata address";
    match (&survey.metadata_problem, blocking) {
        (_, MetadataBlocking::Off) => report.ok(what, "not blocked, as configured"),
        (None, _) => report.ok(what, "can be blocked by this machine's packet filter"),
        (Some(problem), MetadataBlocking::Auto) => report.warn(
            what,
            format!(
                "sandboxes may reach 169.254.169.254 ({problem}). In a cloud, block it: run the service as root, or set a \
                 rule of your own; elsewhere set WORKSPACE_DOCKER__BLOCK_METADATA=off"
            ),
        ),
        (Some(problem), MetadataBlocking::Required) => report.problem(
            what,
            format!(
                "docker.block_metadata = \"required\", but 169.254.169.254 cannot be blocked: {problem}"
            ),
        ),
    }
}
