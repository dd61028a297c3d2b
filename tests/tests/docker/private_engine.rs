//! The equipment itself: tests that kill an engine must not leave one behind.

use acceptance::engine::stub_image;
use acceptance::processes::mentioning;
use acceptance::{Engine, PrivateEngine};

#[test]
fn a_private_engine_that_was_killed_comes_back_and_leaves_nothing() {
    let mut private = PrivateEngine::start();
    let engine = private.engine();
    let image = stub_image();
    private.load(&image, &Engine::shared());
    let sleeper = [
        "run",
        "--detach",
        "--init",
        "--entrypoint",
        "sleep",
        &image,
        "1000",
    ];
    let id = engine.docker(&sleeper);
    private.kill9();
    assert!(!engine.answers());
    private.restart();
    let state = engine.docker(&["inspect", "--format", "{{.State.Running}}", &id]);
    assert_eq!(
        state, "false",
        "an engine that keeps no containers ends what ran"
    );
    engine.docker(&["start", &id]);

    let place = engine.socket().unwrap_or_default().to_owned();
    let place = place
        .trim_start_matches("unix://")
        .trim_end_matches("/docker.sock")
        .to_owned();
    assert!(!mentioning(&place).is_empty());
    drop(private);
    assert_eq!(
        mentioning(&place),
        [0; 0],
        "processes of the private engine"
    );
    assert!(!std::path::Path::new(&place).exists());
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it is there");
    assert!(!mounts.contains(&place), "{mounts}");
}
