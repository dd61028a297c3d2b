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
    pub(super) fn judge(
        &mut self,
        seen: impl IntoIterator<Item = (SandboxId, bool)>,
    ) -> Vec<SandboxId> {
        let mut remaining = HashMap::new();
        let mut over = Vec::new();
        for (id, is_over) in seen {
            let left = match (self.0.get(&id), is_over) {
                (_, false) => 0,
                (None, true) => MEASUREMENTS_OF_GRACE,
                (Some(left), true) => left.saturating_sub(1),
            };
            if is_over && left == 0 {
                over.push(id);
            } else {
                remaining.insert(id, left);
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
    fn look(grace: &mut OverLimitGrace, is_over: Option<bool>) -> bool {
        let id = SandboxId::parse("a").expect("an id");
        !grace.judge(is_over.map(|is_over| (id, is_over))).is_empty()
    }

    #[test]
    fn one_that_fills_up_while_it_runs_is_put_down_at_once() {
        let grace = &mut OverLimitGrace::default();
        assert!(!look(grace, Some(false)));
        assert!(look(grace, Some(true)));
    }

    #[test]
    fn one_that_comes_back_full_has_two_intervals() {
        let grace = &mut OverLimitGrace::default();
        look(grace, Some(false));
        assert!(look(grace, Some(true)));
        for _ in 0..2 {
            assert!(!look(grace, None));
            assert!(!look(grace, Some(true)));
            assert!(!look(grace, Some(true)));
            assert!(look(grace, Some(true)));
        }
    }

    #[test]
    fn one_that_was_tidied_has_no_grace_left() {
        let grace = &mut OverLimitGrace::default();
        assert!(!look(grace, Some(true)));
        assert!(!look(grace, Some(false)));
        assert!(look(grace, Some(true)));
    }

    #[test]
    fn one_that_was_put_down_and_brought_back_between_two_looks_is_new() {
        let grace = &mut OverLimitGrace::default();
        look(grace, Some(false));
        assert!(look(grace, Some(true)));
        assert!(!look(grace, Some(true)));
    }
}
