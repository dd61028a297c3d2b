//! The benchmarks work, with small numbers. The tests ignore the measured times, because those vary on busy machines.

use std::process::{Command, Stdio};

use acceptance::agent_server::built_program;

/// Column of the ratio in a line of the table, split at `|`.
const RATIO_COLUMN: usize = 4;
/// Ratios in the table of the benchmark with Postgres.
const POSTGRES_RATIOS: usize = 13;

/// Runs a benchmark, and requires these texts in its table.
fn run_short(program: &str, measured: &[&str]) -> String {
    let output = Command::new(built_program(program))
        .arg("--short")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("the benchmark can be run");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {table}", output.status);
    for what in measured {
        assert!(table.contains(what), "{what}: {table}");
    }
    table
}

#[test]
fn the_benchmark_of_load_measures_everything() {
    run_short(
        "bench-load",
        &[
            "GET sandbox-specs/search",
            "GET settings",
            "GET sandboxes/search",
            "GET app-conversations/search",
            "GET a page of 100 events",
            "POST webhooks/events",
            "at half of its rate",
        ],
    );
}

#[test]
fn the_benchmark_of_scale_measures_everything() {
    run_short(
        "bench-scale",
        &[
            "list of at most 100 of 200 conversations",
            "page of 100 events out of 200",
            "4 live sandboxes, idle",
            "list of at most 100 sandboxes",
        ],
    );
}

#[test]
fn the_benchmark_of_the_gateway_measures_everything() {
    run_short(
        "bench-gateway",
        &[
            "a small request, directly",
            "through the service | p50",
            "downloads of 16 MiB, 4 connections, through the service",
            "10 open sockets, after a word over each",
        ],
    );
}

#[test]
fn the_benchmark_of_model_calls_measures_everything() {
    run_short(
        "bench-broker",
        &[
            "a call, through the service | p50",
            "4 concurrent calls, through the service",
            "4 concurrent streams of 200 chunks, through a bare proxy",
        ],
    );
}

#[test]
fn the_benchmark_of_browsers_measures_everything() {
    run_short(
        "bench-browsers",
        &["GET /api/organizations, 10 browsers", "/me, 10 browsers"],
    );
}

#[test]
fn the_benchmark_of_a_cluster_measures_everything() {
    run_short(
        "bench-cluster",
        &[
            "a cold start",
            "a warm start",
            "2 starts a second at 2 replicas",
            "10 sandboxes, idle",
            "a killed replica serves again",
        ],
    );
}

#[test]
fn the_benchmark_with_postgres_measures_everything() {
    let table = run_short(
        "bench-postgres",
        &[
            "list of 100 conversations",
            "page of 100 events",
            "GET app-conversations/search",
            "GET /api/v1/settings",
            "GET /api/settings",
            "bare handler",
            "floor",
            "events stored",
            "a user's reads meanwhile",
        ],
    );
    let ratios = table
        .lines()
        .filter_map(|line| line.split('|').nth(RATIO_COLUMN));
    let ratios: Vec<f64> = ratios
        .filter_map(|ratio| ratio.trim().parse().ok())
        .collect();
    assert!(
        ratios.len() == POSTGRES_RATIOS && ratios.iter().all(|it| *it > 0.0),
        "{table}"
    );
}
