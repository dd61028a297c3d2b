//! When a sandbox that is over its limit is put down: not the moment its owner brought it back to tidy it.

use std::collections::HashMap;

use domain::id::SandboxId;

/// How many looks one that was over its limit when it was first seen is left alone.
const MEASUREMENTS_OF_GRACE: u32 = 2;

/// Remaining looks of running sandboxes, by id.
#[derive(Debug, Default)]
pub(super) struct OverLimitGrace(HashMap<SandboxId, u32>);

impl OverLimitGrace {
    /// Takes in one look: which of the running sandboxes are over their limit. Returns those to be put down; they count
    /// as new when they are seen again.
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

    /// One look at one running sandbox, `None` when it does not run. Whether it is put down.
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
