//! The test engine itself: tests that kill an engine must leave nothing behind.

use acceptance::engine::stub_image;
use acceptance::processes::with_argument;
use acceptance::{Engine, PrivateEngine};

#[test]
fn killed_private_engine_restarts_and_leaves_nothing_behind() {
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
    assert!(!engine.is_responding());
    private.restart();
    let state = engine.docker(&["inspect", "--format", "{{.State.Running}}", &id]);
    assert_eq!(
        state, "false",
        "without `live-restore` an engine ends its containers"
    );
    engine.docker(&["start", &id]);

    let socket = engine.socket().unwrap_or_default();
    let directory = socket
        .trim_start_matches("unix://")
        .trim_end_matches("/docker.sock")
        .to_owned();
    assert!(!with_argument(&directory).is_empty());
    drop(private);
    assert_eq!(
        with_argument(&directory),
        [0; 0],
        "processes of the private engine are left"
    );
    assert!(!std::path::Path::new(&directory).exists());
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("cannot read the mounts");
    assert!(!mounts.contains(&directory), "{mounts}");
}
