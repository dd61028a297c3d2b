//! Runs the micro benchmarks and prints criterion's results as one table.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::run::{bench_cargo, print, root, run, say};

/// The micro benchmarks, in `bench/benches`. `start` needs an engine and is not part of a run.
const BENCHES: [&str; 4] = ["keyring", "requests", "log", "store"];
/// Criterion's arguments: seconds per benchmark.
const CRITERION_ARGS: [&str; 4] = ["--warm-up-time", "1", "--measurement-time", "3"];
/// Names of the two sides of a comparison.
const SERVICE_BENCH: &str = "ours";
const BASELINE_BENCH: &str = "bare";

/// A result of criterion.
#[derive(Debug, Clone, PartialEq)]
struct BenchResult {
    group: String,
    name: String,
    /// In nanoseconds.
    median: f64,
}

/// Runs all benchmarks with optimization and prints a table; with `short`, runs each once in a test build.
pub(crate) fn micro_benchmarks(short: bool) -> anyhow::Result<()> {
    let mut command = bench_cargo();
    command.arg(if short { "test" } else { "bench" });
    for bench in BENCHES {
        command.args(["--bench", bench]);
    }
    if short {
        return run(&mut command);
    }
    let home = root().join("target").join("criterion");
    let began = SystemTime::now();
    command
        .arg("--")
        .args(CRITERION_ARGS)
        .env("CRITERION_HOME", &home);
    run(&mut command)?;
    let measured = since(began, &home)?;
    ensure!(!measured.is_empty(), "nothing was measured");
    say("medians");
    print(table(&measured).trim_end());
    Ok(())
}

/// The results since `began`; older files belong to earlier runs.
fn since(began: SystemTime, home: &Path) -> anyhow::Result<Vec<BenchResult>> {
    let mut measured = Vec::new();
    for group in folders(home)? {
        for benchmark in folders(&group)? {
            let new = benchmark.join("new");
            let estimates = new.join("estimates.json");
            let written = fs::metadata(&estimates).and_then(|it| it.modified());
            if written.is_ok_and(|at| at >= began) {
                let texts = [new.join("benchmark.json"), estimates].map(fs::read_to_string);
                let [benchmark, estimates] = texts;
                let one = read(&benchmark?, &estimates?);
                measured.push(one.with_context(|| format!("cannot read {}", new.display()))?);
            }
        }
    }
    measured.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
    Ok(measured)
}

fn folders(of: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(of).with_context(|| format!("cannot read {}", of.display()))?;
    let paths = entries.map(|entry| entry.map(|it| it.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>()?;
    paths.retain(|path| path.is_dir());
    Ok(paths)
}

/// Parses `new/benchmark.json` and `new/estimates.json` of criterion 0.8.
fn read(benchmark: &str, estimates: &str) -> Option<BenchResult> {
    let benchmark: Value = serde_json::from_str(benchmark).ok()?;
    let estimates: Value = serde_json::from_str(estimates).ok()?;
    Some(BenchResult {
        group: benchmark["group_id"].as_str()?.to_owned(),
        name: benchmark["function_id"].as_str()?.to_owned(),
        median: estimates["median"]["point_estimate"].as_f64()?,
    })
}

/// One row per benchmark. `ours` and `bare` of one group share a row with their ratio.
fn table(measured: &[BenchResult]) -> String {
    let mut table = "| what | median | bare | ratio |\n|---|---|---|---|\n".to_owned();
    for one in measured {
        let find = |name: &str| {
            let mut others = measured.iter();
            others.find(|it| it.group == one.group && it.name == name)
        };
        let line = match (one.name.as_str(), find(SERVICE_BENCH), find(BASELINE_BENCH)) {
            (BASELINE_BENCH, Some(_), _) => continue,
            (SERVICE_BENCH, _, Some(bare)) => {
                let (beside, ratio) = (shown(bare.median), one.median / bare.median);
                format!(
                    "| {} | {} | {beside} | {ratio:.2} |\n",
                    one.group,
                    shown(one.median)
                )
            }
            (name, ..) => format!("| {}: {name} | {} | | |\n", one.group, shown(one.median)),
        };
        table.push_str(&line);
    }
    table
}

/// Formats nanoseconds in a suitable unit.
fn shown(nanos: f64) -> String {
    match nanos {
        ..1e3 => format!("{nanos:.0} ns"),
        ..1e6 => format!("{:.1} µs", nanos / 1e3),
        _ => format!("{:.1} ms", nanos / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_is_read_as_criterion_writes_it() {
        let benchmark = r#"{"group_id":"open","function_id":"ours","value_str":null,"throughput":null,"full_id":"open/ours","directory_name":"open/ours","title":"open/ours"}"#;
        let estimates = r#"{"mean":{"point_estimate":7.5},"median":{"confidence_interval":{"confidence_level":0.95,"lower_bound":1.0,"upper_bound":3.0},"point_estimate":2.5,"standard_error":0.1}}"#;
        let read_one = read(benchmark, estimates);
        let expected = measured("open", "ours", 2.5);
        assert_eq!(read_one, Some(expected));
        assert_eq!(read(benchmark, "{}"), None);
    }

    #[test]
    fn what_is_compared_is_one_line_and_what_is_not_one_of_its_own() {
        let all = [
            measured("alone", "first page", 2_500_000.0),
            measured("open", "bare", 500.0),
            measured("open", "ours", 1_250.0),
        ];
        let expected = "| what | median | bare | ratio |\n|---|---|---|---|\n\
            | alone: first page | 2.5 ms | | |\n| open | 1.2 µs | 500 ns | 2.50 |\n";
        assert_eq!(table(&all), expected);
        assert!(table(&all[1..2]).contains("| open: bare | 500 ns | | |"));
    }

    #[test]
    fn only_new_measurements_are_printed() {
        let home = std::env::temp_dir().join(format!("micro-{}", std::process::id()));
        let new = home.join("open").join("ours").join("new");
        fs::create_dir_all(&new).unwrap();
        fs::create_dir_all(home.join("report")).unwrap();
        let benchmark = r#"{"group_id":"open","function_id":"ours"}"#;
        fs::write(new.join("benchmark.json"), benchmark).unwrap();
        let estimates = r#"{"median":{"point_estimate":2.5}}"#;
        fs::write(new.join("estimates.json"), estimates).unwrap();
        let written = fs::metadata(new.join("estimates.json"));
        let at = written.and_then(|it| it.modified()).unwrap();
        let of_now = since(at, &home).unwrap();
        let of_later = since(at + std::time::Duration::from_secs(1), &home).unwrap();
        fs::remove_dir_all(&home).unwrap();
        assert_eq!(of_now, [measured("open", "ours", 2.5)]);
        assert_eq!(of_later, []);
    }

    fn measured(group: &str, name: &str, median: f64) -> BenchResult {
        BenchResult {
            group: group.to_owned(),
            name: name.to_owned(),
            median,
        }
    }
}
