//! Checks of `doctor`: warm sandboxes.

use super::DoctorReport;

/// Memory of an idle agent server in bytes, rounded up: at most 334 MB were measured (1.58.0).
const WARM_SANDBOX_BYTES: u64 = 350 << 20;
/// Memory for everything else, in bytes.
const RESERVED_BYTES: u64 = 1 << 30;

pub(super) fn examine(kept: u32, report: &mut DoctorReport) {
    // Demand can double their number.
    let needed = 2 * u64::from(kept) * WARM_SANDBOX_BYTES;
    check(kept, needed, available(), report);
}

fn check(kept: u32, needed: u64, available: Option<u64>, report: &mut DoctorReport) {
    let what = "warm sandboxes";
    let (needed_mib, available_mib) = (needed >> 20, available.map(|bytes| bytes >> 20));
    match (kept, available_mib) {
        (0, _) => report.ok(what, "none are kept"),
        (_, Some(free)) if available.is_some_and(|bytes| bytes < needed + RESERVED_BYTES) => report.warn(
            what,
            format!(
                "{kept} kept (at demand twice as many) take up to {needed_mib} MiB, and {free} MiB are available: set \
                 WORKSPACE_SANDBOX__WARM to a smaller number, or 0 for none"
            ),
        ),
        _ => report.ok(
            what,
            format!("{kept} kept (at demand twice as many), up to {needed_mib} MiB"),
        ),
    }
}

/// Memory available to programs; `None` if the system does not report it.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_is_a_warning_that_names_the_setting() {
        for (kept, available, expected) in [
            (0, Some(0), "ok       warm sandboxes: none"),
            (1, Some(8 << 30), "ok       warm sandboxes: 1 kept"),
            (1, None, "ok       warm sandboxes: 1 kept"),
            (1, Some(1 << 30), "warning  warm sandboxes: 1 kept"),
        ] {
            let mut report = DoctorReport::default();
            check(
                kept,
                u64::from(2 * kept) * WARM_SANDBOX_BYTES,
                available,
                &mut report,
            );
            let shown = report.render(false);
            assert!(shown.starts_with(expected), "{shown}");
            let is_warning = expected.starts_with("warning");
            assert_eq!(shown.contains("WORKSPACE_SANDBOX__WARM"), is_warning);
        }
    }
}
