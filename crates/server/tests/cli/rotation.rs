//! The command `secrets rotate-key`, with running services and killed commands.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use crate::support::{RunningService, run, service, text};

const OPEN: (&str, &str) = ("WORKSPACE_AUTH__MODE", "open");
/// With a short wait for writes in progress. Tests of the use case cover the wait.
const ROTATE: [&str; 4] = ["secrets", "rotate-key", "--write-grace", "1s"];
const SETTINGS: &str = "/api/v1/settings";

fn save(running: &RunningService, model: &str) {
    let body = format!(
        r#"{{"agent_settings_diff": {{"llm": {{"model": "{model}", "api_key": "sk-canary"}}}}}}"#
    );
    let answer = running.send("POST", SETTINGS, &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn assert_saved(running: &RunningService, model: &str) {
    let answer = running.send("GET", SETTINGS, "");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains(model),
        "{answer}"
    );
}

fn key_file(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("master.key")).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn succeeded(output: &Output) -> &str {
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", text(&output.stderr));
    stdout
}

/// The id of the master key in use, by a dry run.
fn in_use(dir: &Path, variables: &[(&str, &str)]) -> String {
    let output = run(dir, &["secrets", "rotate-key", "--dry-run"], variables);
    let printed = succeeded(&output);
    let (_, rest) = printed.split_once("master key: ").unwrap();
    rest[..16].to_owned()
}

#[test]
fn a_service_keeps_running_while_its_key_is_rotated() {
    let dir = TempDir::new().unwrap();
    let running = RunningService::start(dir.path(), &[OPEN]);
    save(&running, "openai/one");
    let [first] = <[String; 1]>::try_from(key_file(dir.path())).unwrap();
    let before = in_use(dir.path(), &[]);
    let keys = key_file(dir.path());
    assert_eq!(
        keys,
        std::slice::from_ref(&first),
        "a dry run changes nothing"
    );

    let output = run(dir.path(), &ROTATE, &[]);
    let printed = succeeded(&output);
    let advice = format!("No secret is sealed with {before} any more. It may be removed");
    assert!(printed.contains(&advice), "{printed}");
    let keys = key_file(dir.path());
    assert_eq!((keys.len(), &keys[1]), (2, &first));
    assert!(!printed.contains(&keys[0]) && !text(&output.stderr).contains(&keys[0]));
    assert_ne!(in_use(dir.path(), &[]), before);

    assert_saved(&running, "openai/one");
    save(&running, "openai/two");
    running.stop();
    // Secrets that the running service stored are sealed with the new key, too.
    fs::write(dir.path().join("master.key"), format!("{}\n", keys[0])).unwrap();
    let running = RunningService::start(dir.path(), &[OPEN]);
    assert_saved(&running, "openai/two");
    running.stop();
    let variables = [OPEN, ("WORKSPACE_SECRETS__MASTER_KEY", first.as_str())];
    let refused = run(dir.path(), &[], &variables);
    let printed = text(&refused.stderr);
    assert!(printed.contains("not the master key"), "{printed}");
}

/// A service works with the state that a killed command leaves, and the next command completes the rotation.
#[test]
fn a_killed_rotation_loses_nothing_and_is_completed_by_the_next() {
    let dir = TempDir::new().unwrap();
    let crash = TempDir::new().unwrap();
    let running = RunningService::start(dir.path(), &[OPEN]);
    save(&running, "openai/0");
    running.stop();
    let plan = crash.path().join("plan");
    let arrivals = crash.path().join("arrivals");
    let crash_dir = crash.path().to_str().unwrap().to_owned();
    let watched = [("CRASH_POINTS_DIR", crash_dir.as_str())];
    fs::write(&plan, "watch\n0\nnothing\n").unwrap();
    succeeded(&run(dir.path(), &ROTATE, &watched));
    let points = fs::read_to_string(&arrivals).unwrap();
    let points: Vec<&str> = points.lines().collect();
    for part in [
        "master key file",
        "replace_installation",
        "SealedRecordRepository::replace",
    ] {
        let found = points.iter().filter(|point| point.contains(part)).count();
        assert!(found >= 2, "{part} is missing in {points:?}");
    }
    for (n, point) in points.iter().enumerate() {
        let earlier = points[..n].iter().filter(|other| other == &point).count();
        fs::write(&plan, format!("{n}\n{}\n{point}\n", earlier + 1)).unwrap();
        let killed = run(dir.path(), &ROTATE, &watched);
        assert_eq!(
            killed.status.code(),
            None,
            "{point}: {}",
            text(&killed.stdout)
        );
        fs::remove_file(&plan).unwrap();
        let running = RunningService::start(dir.path(), &[OPEN]);
        assert_saved(&running, &format!("openai/{n}"));
        save(&running, &format!("openai/{}", n + 1));
        running.stop();
        let printed = run(dir.path(), &ROTATE, &[]);
        assert!(succeeded(&printed).contains("may be removed"), "{point}");
        // After the rotation the first key is enough.
        let keys = key_file(dir.path());
        fs::write(dir.path().join("master.key"), format!("{}\n", keys[0])).unwrap();
    }
    let running = RunningService::start(dir.path(), &[OPEN]);
    assert_saved(&running, &format!("openai/{}", points.len()));
}

#[test]
fn a_rotation_fails_while_a_service_lacks_the_new_key() {
    let dir = TempDir::new().unwrap();
    let [one, two] = ["A", "B"].map(|letter| letter.repeat(42) + "A=");
    let only_one = [OPEN, ("WORKSPACE_SECRETS__MASTER_KEY", one.as_str())];
    let both = [
        OPEN,
        ("WORKSPACE_SECRETS__MASTER_KEY", two.as_str()),
        ("WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS", one.as_str()),
    ];
    let running = RunningService::start(dir.path(), &only_one);
    save(&running, "openai/one");
    let before = in_use(dir.path(), &only_one);
    let refused = run(
        dir.path(),
        &["secrets", "rotate-key", "--wait", "1s"],
        &both,
    );
    assert_eq!(refused.status.code(), Some(1));
    let printed = text(&refused.stderr);
    assert!(printed.contains("nothing was changed"), "{printed}");
    assert_eq!(in_use(dir.path(), &only_one), before);
    assert_saved(&running, "openai/one");
    running.stop();

    // A service with both keys still seals with the one in use, so that services can be restarted one by one.
    let running = RunningService::start(dir.path(), &both);
    assert_saved(&running, "openai/one");
    save(&running, "openai/two");
    running.stop();
    let running = RunningService::start(dir.path(), &only_one);
    assert_saved(&running, "openai/two");
    running.stop();

    let running = RunningService::start(dir.path(), &both);
    let rotated = run(dir.path(), &ROTATE, &both);
    assert!(succeeded(&rotated).contains(&format!("No secret is sealed with {before}")));
    assert_saved(&running, "openai/two");
    running.stop();
    let only_two = [OPEN, ("WORKSPACE_SECRETS__MASTER_KEY", two.as_str())];
    let running = RunningService::start(dir.path(), &only_two);
    assert_saved(&running, "openai/two");
    running.stop();
    assert_eq!(run(dir.path(), &[], &only_one).status.code(), Some(1));
}

#[test]
fn a_running_service_rereads_key_files() {
    let dir = TempDir::new().unwrap();
    let [one, two] = ["A", "B"].map(|letter| letter.repeat(42) + "A=");
    let file = dir.path().join("given.key");
    fs::write(&file, format!("{one}\n")).unwrap();
    let variables = [
        OPEN,
        ("WORKSPACE_SECRETS__MASTER_KEY_FILE", file.to_str().unwrap()),
    ];
    let running = RunningService::start(dir.path(), &variables);
    save(&running, "openai/one");
    fs::write(&file, format!("{two}\n{one}\n")).unwrap();
    let rotated = run(dir.path(), &ROTATE, &variables);
    assert!(succeeded(&rotated).contains("may be removed"));
    fs::write(&file, format!("{two}\n")).unwrap();
    assert_saved(&running, "openai/one");
    save(&running, "openai/two");
    running.stop();
    let running = RunningService::start(dir.path(), &variables);
    assert_saved(&running, "openai/two");
}

/// The service does not generate a new key in place of a missing one: sealed secrets would be lost silently.
#[test]
fn a_missing_key_file_prevents_the_start() {
    let dir = TempDir::new().unwrap();
    RunningService::start(dir.path(), &[OPEN]).stop();
    fs::remove_file(dir.path().join("master.key")).unwrap();
    for arguments in [&[][..], &ROTATE] {
        let refused = run(dir.path(), arguments, &[OPEN]);
        assert_eq!(refused.status.code(), Some(1));
        let printed = text(&refused.stderr);
        assert!(
            printed.contains("is missing") && printed.contains("Restore"),
            "{printed}"
        );
    }
    assert!(!dir.path().join("master.key").exists());
}

/// Only one command runs at a time: two would each generate a key.
#[test]
fn concurrent_commands_generate_one_key_each_success() {
    let dir = TempDir::new().unwrap();
    RunningService::start(dir.path(), &[OPEN]).stop();
    let started: Vec<_> = (0..4)
        .map(|_| {
            let mut command = service(dir.path(), &ROTATE, &[]);
            command.stdout(std::process::Stdio::null());
            command.stderr(std::process::Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    let mut succeeded = 0;
    for mut child in started {
        succeeded += usize::from(child.wait().unwrap().success());
    }
    assert!(succeeded >= 1);
    assert_eq!(key_file(dir.path()).len(), succeeded + 1);
    RunningService::start(dir.path(), &[OPEN]).stop();
}

/// Saves a field repeatedly; returns the last value as the settings show it.
fn save_until(running: &RunningService, is_stopped: &AtomicBool, field: &str) -> String {
    for value in (0..1000).cycle() {
        // The maximum is 2 for temperatures and 1 for probabilities.
        let shown = match field {
            "max_output_tokens" => format!("{}", value + 1),
            _ => format!("0.{value:03}1"),
        };
        let body = format!(r#"{{"agent_settings_diff": {{"llm": {{"{field}": {shown}}}}}}}"#);
        let answer = running.send("POST", SETTINGS, &body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        if is_stopped.load(Ordering::SeqCst) {
            return format!("\"{field}\":{shown}");
        }
    }
    unreachable!("the loop ends only when it is stopped")
}

/// Writers continue while the key is rotated several times: all acknowledged data is stored, sealed with the last key.
#[test]
fn concurrent_writers_lose_nothing() {
    let dir = TempDir::new().unwrap();
    let mut running = RunningService::start(dir.path(), &[OPEN]);
    running.drain();
    save(&running, "openai/concurrent");
    let is_stopped = AtomicBool::new(false);
    let fields = ["temperature", "top_p", "max_output_tokens"];
    let written = std::thread::scope(|scope| {
        let savers = fields.map(|field| {
            let (running, is_stopped) = (&running, &is_stopped);
            scope.spawn(move || save_until(running, is_stopped, field))
        });
        let secret_writer = scope.spawn(|| {
            let mut count = 0;
            while !is_stopped.load(Ordering::SeqCst) && count < 900 {
                let body = format!(r#"{{"name": "SECRET_{count}", "value": "canary-{count}"}}"#);
                let answer = running.send("POST", "/api/v1/secrets", &body);
                assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
                count += 1;
            }
            count
        });
        let rotated = [(); 3].map(|()| run(dir.path(), &ROTATE, &[]));
        is_stopped.store(true, Ordering::SeqCst);
        for output in &rotated {
            succeeded(output);
        }
        let count = secret_writer.join().unwrap();
        (savers.map(|saver| saver.join().unwrap()), count)
    });
    let settings = running.send("GET", SETTINGS, "");
    let settings = settings.replace(' ', "");
    for last in written.0 {
        assert!(settings.contains(&last), "{last} is missing in {settings}");
    }
    assert!(settings.contains("openai/concurrent"), "{settings}");
    running.stop();
    let keys = key_file(dir.path());
    assert_eq!(keys.len(), 4);
    fs::write(dir.path().join("master.key"), format!("{}\n", keys[0])).unwrap();
    let left = run(dir.path(), &["secrets", "rotate-key", "--dry-run"], &[]);
    let printed = succeeded(&left);
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let secrets = format!("secrets of users {}, with another key: 0", written.1);
    assert!(
        printed.contains(&secrets),
        "{secrets} is missing in {printed}"
    );
    assert!(!printed.contains("that no present key opens"), "{printed}");
    let running = RunningService::start(dir.path(), &[OPEN]);
    assert_saved(&running, "openai/concurrent");
}
