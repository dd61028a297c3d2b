//! The benchmark with Postgres works, with small numbers. What it measures is not looked at: timed tests fail on busy
//! machines.

use std::process::{Command, Stdio};

use acceptance::agent_server::built;

#[test]
fn the_benchmark_with_postgres_measures_everything() {
    let output = Command::new(built("bench-postgres"))
        .arg("--short")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("it can be run");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {table}", output.status);
    for measured in [
        "list of 100 conversations",
        "page of 100 events",
        "GET app-conversations/search",
        "GET settings",
        "events taken in",
        "a user's reads meanwhile",
    ] {
        assert!(table.contains(measured), "{measured}: {table}");
    }
    let ratios = table.lines().filter_map(|line| line.split('|').nth(4));
    let ratios: Vec<f64> = ratios
        .filter_map(|ratio| ratio.trim().parse().ok())
        .collect();
    assert!(
        ratios.len() == 8 && ratios.iter().all(|it| *it > 0.0),
        "{table}"
    );
}
