//! Attempts to get out of a process sandbox, made by commands inside, as a hostile agent makes them.
//!
//! Each attempt first reaches its aim without walls (`none`), so that it can fail; with walls (`confined`) it is refused, and the
//! service and a neighbour are unharmed. The attempts are the table in `attempts/*.py`. `cargo xtask escape` runs them and prints
//! a table. As root the suite runs in a network of its own, with addresses that no machine has otherwise.

mod attempts;
mod bombs;
mod host;
mod network;
mod sandbox;
mod traps;
mod world;

use acceptance::print_line;

use crate::attempts::Verdict;
use crate::world::{EscapeWorld, Walls};

#[test]
fn attempts_succeed_without_walls() {
    network::run_inside("attempts_succeed_without_walls", || {
        make_attempts(Walls::None)
    });
}

#[test]
fn attempts_are_refused_when_confined() {
    network::run_inside("attempts_are_refused_when_confined", || {
        make_attempts(Walls::Confined)
    });
}

/// All attempts in one world. The verdicts come at the end, so that a run shows all that got through.
async fn make_attempts(walls: Walls) {
    let world = EscapeWorld::start(walls).await;
    let mut verdicts = attempts::make(&world).await;
    world.assert_unharmed().await;
    verdicts.extend(bombs::explode(&world).await);
    world.assert_unharmed().await;
    print_line(&attempts::table(&verdicts));
    verdicts.extend(traps::spring(&world).await);
    world.assert_unharmed().await;
    print_line(&attempts::table(&verdicts));
    let wrong: Vec<&Verdict> = verdicts.iter().filter(|it| !it.is_right).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} attempts have the wrong result: {wrong:#?}",
        wrong.len(),
        verdicts.len()
    );
}
