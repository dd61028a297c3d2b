//! Kills this process at a crash point that a test names. Only debug builds contain this, and it is active only with the
//! variable `CRASH_POINTS_DIR`.
//!
//! Knows: a directory shared with the test (`tests/tests/crash_points`). While it contains a file `plan`, every arrival is
//! appended to the file `arrivals` as `before POINT` or `after POINT`. A plan has three lines: a unique number, the number
//! of an arrival (from 1), and such a line. At that arrival the process ends as by `kill -9`. The point `anywhere` matches
//! all. The plan is read at each arrival, so a test can change it while the service runs.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use domain::crash_point;
use rustix::process::{Signal, getpid, kill_process};
use settings::variable;

const VARIABLE: &str = "CRASH_POINTS_DIR";

static DIR: OnceLock<PathBuf> = OnceLock::new();
/// The last plan, and the number of arrivals at its point.
static ARRIVALS: Mutex<(String, u32)> = Mutex::new((String::new(), 0));

/// Activates crash points if the environment says so.
pub(crate) fn install(variables: &[(OsString, OsString)]) {
    if let Some(dir) = variable(variables, VARIABLE) {
        tracing::warn!(
            "crash points are active: the service kills itself where the test's plan says so"
        );
        let _ = DIR.set(PathBuf::from(dir));
        crash_point::install(on_arrival);
    }
}

/// Blocks for a moment, but only in tests.
fn on_arrival(moment: &'static str, operation: &'static str) {
    let Some(dir) = DIR.get() else { return };
    let Ok(plan) = std::fs::read_to_string(dir.join("plan")) else {
        return;
    };
    let arrival = format!("{moment} {}", operation_name(operation));
    // Serialized, so that the arrivals have one order.
    let mut arrivals = ARRIVALS.lock().unwrap_or_else(PoisonError::into_inner);
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("arrivals"));
    if let Ok(mut log) = log {
        // The test notices a missing line.
        let _ = log.write_all(format!("{arrival}\n").as_bytes());
    }
    if arrivals.0 != plan {
        *arrivals = (plan.clone(), 0);
    }
    let mut lines = plan.lines().skip(1);
    let (number, point) = (lines.next(), lines.next());
    if point != Some(arrival.as_str()) && point != Some("anywhere") {
        return;
    }
    arrivals.1 += 1;
    if number == Some(arrivals.1.to_string().as_str()) {
        // SIGKILL to oneself is delivered immediately.
        let _ = kill_process(getpid(), Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

/// A transaction is named after the type of its job, which contains the port and its method.
fn operation_name(operation: &str) -> String {
    let Some((path, _)) = operation.split_once("::{{closure}}") else {
        return operation.to_owned();
    };
    let (parent, method) = path.rsplit_once("::").unwrap_or(("", path));
    let method = method.split('<').next().unwrap_or(method);
    // `module::<impl Port for Store>`, or the store's own method.
    let port = parent
        .rsplit_once("<impl ")
        .map_or(parent, |(_, rest)| rest);
    let port = port.split(" for ").next().unwrap_or(port);
    let port = port.rsplit("::").next().unwrap_or(port);
    format!("commit of {port}::{method}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_named_after_its_port_and_method() {
        let job = "&mut a_store::events::<impl domain::event::EventStore for a_store::store::SqlStore>\
                   ::append<'_, '_>::{{closure}}::{{closure}}";
        assert_eq!(operation_name(job), "commit of EventStore::append");
        let own = "&mut a_store::store::SqlStore::ping::{{closure}}";
        assert_eq!(operation_name(own), "commit of SqlStore::ping");
        assert_eq!(operation_name("process: spawning"), "process: spawning");
    }
}
