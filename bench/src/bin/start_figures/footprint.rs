//! Memory and processor time of idle process sandboxes.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use acceptance::Service;
use acceptance::processes::{children_of, processor_time};
use anyhow::Context as _;
use benchmarks::table::Table;

/// Until agent servers have finished what they do after their start.
const SETTLE_INTERVAL: Duration = Duration::from_secs(10);
const MEGABYTE: u64 = 1_000_000;

/// Adds the memory and processor time of a sandbox, and the memory of the service with the fork server. Memory is proportional
/// (PSS): pages that several processes share count in equal parts.
pub(crate) async fn measure(service: &Service, table: &mut Table) -> anyhow::Result<()> {
    tokio::time::sleep(SETTLE_INTERVAL).await;
    let processes = service.processes();
    let sandboxes: BTreeSet<_> = processes.iter().map(|it| &it.sandbox).collect();
    let count = u32::try_from(sandboxes.len().max(1))?;
    let pids = processes.iter().filter_map(|it| u32::try_from(it.pid).ok());
    let pids: Vec<u32> = pids.collect();
    let memory: u64 = pids.iter().filter_map(|pid| pss(*pid).ok()).sum();
    let processor: Duration = pids.iter().filter_map(|pid| processor_time(*pid)).sum();
    let mut own = children_of(service.pid());
    own.retain(|pid| !pids.contains(pid));
    own.push(service.pid());
    let own: u64 = own.iter().filter_map(|pid| pss(*pid).ok()).sum();
    let what = format!("{count} idle sandboxes");
    let each = format!(
        "{} MB (PSS) and {} ms of processor time each; the service and the fork server {} MB",
        memory / u64::from(count) / MEGABYTE,
        (processor / count).as_millis(),
        own / MEGABYTE
    );
    table.row([&what, &each, "", "", "80 MB, 600 ms"]);
    Ok(())
}

fn pss(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes = line.context("no PSS")?.trim().trim_end_matches(" kB");
    Ok(kilobytes.parse::<u64>()? * 1024)
}
