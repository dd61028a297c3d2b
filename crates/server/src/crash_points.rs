//! Kills this process at a place that a test names. Only debug builds have this, and only those do anything that are started
//! with the variable `CRASH_POINTS_DIR`.
//!
//! Knows: a directory that it shares with the test (`tests/tests/crash_points`). While there is a file `plan` in it, every
//! arrival is a line of the file `arrivals`: `before DEED`, `after DEED`. A plan is three lines: a number that no other plan
//! has, the number of an arrival (from 1), and such a line; when that is reached for the time named, the process ends as by
//! `kill -9`. The place `anywhere` is every one. Looked up anew at each arrival, so that a service that runs can be told.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use domain::crash_point;
use rustix::process::{Signal, getpid, kill_process};

const VARIABLE: &str = "CRASH_POINTS_DIR";

static DIR: OnceLock<PathBuf> = OnceLock::new();
/// The plan that was seen last, and how often its place was reached.
static SEEN: Mutex<(String, u32)> = Mutex::new((String::new(), 0));

/// Listens to arrivals if the environment says so.
pub(crate) fn install(variables: &[(OsString, OsString)]) {
    let found = variables.iter().find(|(name, _)| name == VARIABLE);
    if let Some((_, dir)) = found {
        tracing::warn!("this is a test: the service kills itself where a plan says so");
        let _ = DIR.set(PathBuf::from(dir));
        crash_point::install(on_arrival);
    }
}

/// Blocks for a moment: nobody but tests comes here.
fn on_arrival(moment: &'static str, operation: &'static str) {
    let Some(dir) = DIR.get() else { return };
    let Ok(plan) = std::fs::read_to_string(dir.join("plan")) else {
        return;
    };
    let arrival = format!("{moment} {}", short(operation));
    // One at a time, so that the place with a number is the same for everybody.
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("arrivals"));
    if let Ok(mut log) = log {
        // The test that reads it misses what is not there.
        let _ = log.write_all(format!("{arrival}\n").as_bytes());
    }
    if seen.0 != plan {
        *seen = (plan.clone(), 0);
    }
    let mut lines = plan.lines().skip(1);
    let (number, place) = (lines.next(), lines.next());
    if place != Some(arrival.as_str()) && place != Some("anywhere") {
        return;
    }
    seen.1 += 1;
    if number == Some(seen.1.to_string().as_str()) {
        // No signal is more certain to arrive than this one to oneself.
        let _ = kill_process(getpid(), Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

/// A transaction goes by the type of its job, of which this is the port and its method.
fn short(operation: &str) -> String {
    let Some((path, _)) = operation.split_once("::{{closure}}") else {
        return operation.to_owned();
    };
    let (of, method) = path.rsplit_once("::").unwrap_or(("", path));
    let method = method.split('<').next().unwrap_or(method);
    // `module::<impl Port for Store>`, or the store's own.
    let port = of.rsplit_once("<impl ").map_or(of, |(_, rest)| rest);
    let port = port.split(" for ").next().unwrap_or(port);
    let port = port.rsplit("::").next().unwrap_or(port);
    format!("commit of {port}::{method}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_called_after_its_port_and_method() {
        let job = "&mut a_store::events::<impl domain::event::EventStore for a_store::store::SqlStore>\
                   ::append<'_, '_>::{{closure}}::{{closure}}";
        assert_eq!(short(job), "commit of EventStore::append");
        let own = "&mut a_store::store::SqlStore::ping::{{closure}}";
        assert_eq!(short(own), "commit of SqlStore::ping");
        assert_eq!(short("process: spawning"), "process: spawning");
    }
}
