//! Delays the stop of a sandbox over its disk limit, so that its owner can resume it and delete files.

use std::collections::HashMap;

use domain::id::SandboxId;

/// Measurements during which a sandbox may stay over its limit if the first one already found it so.
const MEASUREMENTS_OF_GRACE: u32 = 2;

/// Remaining measurements of grace of running sandboxes, by id.
#[derive(Debug, Default)]
pub(super) struct OverLimitGrace(HashMap<SandboxId, u32>);

impl OverLimitGrace {
    /// Records a measurement: which running sandboxes are over their limits. Returns those to stop; they count as new when
    /// they run again.
    pub(super) fn take_over_limit(
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures one sandbox; `None` when it does not run. Returns whether it is stopped.
    fn measure(grace: &mut OverLimitGrace, is_over: Option<bool>) -> bool {
        let id = SandboxId::parse("a").expect("an id");
        !grace
            .take_over_limit(is_over.map(|is_over| (id, is_over)))
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
}
