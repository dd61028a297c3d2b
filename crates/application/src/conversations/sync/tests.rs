//! Tests the order in which sandboxes are synchronized.

use super::*;

#[test]
fn all_sandboxes_get_a_turn_under_repeated_requests() {
    let all: BTreeSet<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|id| SandboxId::parse(*id).unwrap())
        .collect();
    let busy = all.iter().take(1).cloned().collect();
    let mut last = None;
    let mut seen = Vec::new();
    for _ in 0..6 {
        last = next_sandbox(&all, &busy, last.as_ref());
        seen.push(last.as_ref().unwrap().to_string());
    }
    assert_eq!(seen, ["b", "c", "d", "b", "c", "d"]);
    assert_eq!(next_sandbox(&all, &all, last.as_ref()), None);
}
