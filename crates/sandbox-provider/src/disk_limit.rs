//! Disk limits that a backend enforces by measuring: what happens to a sandbox that uses more.

use std::collections::HashMap;

use domain::id::SandboxId;

/// Measurements during which a sandbox may stay over its limit if the first one already found it so.
const MEASUREMENTS_OF_GRACE: u32 = 2;

/// Remaining measurements of grace of running sandboxes, by id. They delay the stop of a sandbox over its limit, so that its
/// owner can resume it and delete files.
#[derive(Debug, Default)]
pub struct OverLimitGrace(HashMap<SandboxId, u32>);

impl OverLimitGrace {
    /// Records a measurement: which running sandboxes are over their limits. Returns those to stop; they count as new when
    /// they run again. Without measurements it forgets all sandboxes.
    pub fn sandboxes_to_stop(
        &mut self,
        measured: impl IntoIterator<Item = (SandboxId, bool)>,
    ) -> Vec<SandboxId> {
        let mut remaining = HashMap::new();
        let mut over = Vec::new();
        for (id, is_over) in measured {
            let remaining_measurements = match (self.0.get(&id), is_over) {
                (_, false) => 0,
                (None, true) => MEASUREMENTS_OF_GRACE,
                (Some(remaining_measurements), true) => remaining_measurements.saturating_sub(1),
            };
            if is_over && remaining_measurements == 0 {
                over.push(id);
            } else {
                remaining.insert(id, remaining_measurements);
            }
        }
        self.0 = remaining;
        over
    }
}

/// The cause of the stop, for the owner of the sandbox. `setting` names what the operator can raise.
pub fn over_disk_limit(used: u64, limit: u64, setting: &str) -> String {
    format!(
        "the sandbox used {} of disk, more than its limit of {}, and was stopped; its files are kept: resume it and delete \
         some, or ask the operator to raise {setting}",
        size(used),
        size(limit)
    )
}

/// Rounds up, so that usage over a limit is never shown as the limit.
fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes < 1024 * MIB {
        return format!("{} MiB", bytes.div_ceil(MIB));
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(1024 * u128::from(MIB));
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} GiB"),
        (whole, tenth) => format!("{whole}.{tenth} GiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures one sandbox; `None` when it does not run. Returns whether it is stopped.
    fn measure(grace: &mut OverLimitGrace, is_over: Option<bool>) -> bool {
        let id = SandboxId::parse("a").expect("an id");
        !grace
            .sandboxes_to_stop(is_over.map(|is_over| (id, is_over)))
            .is_empty()
    }

    #[test]
    fn a_sandbox_that_exceeds_its_limit_while_it_runs_is_stopped_at_once() {
        let grace = &mut OverLimitGrace::default();
        assert!(!measure(grace, Some(false)));
        assert!(measure(grace, Some(true)));
    }

    #[test]
    fn a_sandbox_that_resumes_over_its_limit_has_two_measurements_of_grace() {
        let grace = &mut OverLimitGrace::default();
        measure(grace, Some(false));
        assert!(measure(grace, Some(true)));
        for _ in 0..2 {
            assert!(!measure(grace, None));
            assert!(!measure(grace, Some(true)));
            assert!(!measure(grace, Some(true)));
            assert!(measure(grace, Some(true)));
        }
    }

    #[test]
    fn grace_ends_when_the_sandbox_is_below_its_limit() {
        let grace = &mut OverLimitGrace::default();
        assert!(!measure(grace, Some(true)));
        assert!(!measure(grace, Some(false)));
        assert!(measure(grace, Some(true)));
    }

    #[test]
    fn a_sandbox_that_resumes_between_two_measurements_has_grace() {
        let grace = &mut OverLimitGrace::default();
        measure(grace, Some(false));
        assert!(measure(grace, Some(true)));
        assert!(!measure(grace, Some(true)));
    }

    #[test]
    fn sizes_are_rounded_up() {
        for (bytes, text) in [
            (0, "0 MiB"),
            (1, "1 MiB"),
            (64 << 20, "64 MiB"),
            ((64 << 20) + 1, "65 MiB"),
            (20 << 30, "20 GiB"),
            ((20 << 30) + 1, "20.1 GiB"),
            (21 << 30, "21 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
