//! `secrets rotate-key` from outside, with services that run and commands that are killed.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use crate::support::{RunningService, run, service, text};

const OPEN: (&str, &str) = ("WORKSPACE_AUTH__MODE", "open");
/// With a short wait for writes that are under way; what the wait is for, tests of the use case say.
const ROTATE: [&str; 4] = ["secrets", "rotate-key", "--settle", "1s"];
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
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    said
}

/// The id of the master key that a dry run says is in use.
fn in_use(dir: &Path, variables: &[(&str, &str)]) -> String {
    let output = run(dir, &["secrets", "rotate-key", "--dry-run"], variables);
    let said = succeeded(&output);
    let (_, rest) = said.split_once("master key: ").unwrap();
    rest[..16].to_owned()
}

#[test]
fn a_service_goes_on_while_its_key_is_rotated_and_the_former_one_may_go() {
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
    let said = succeeded(&output);
    let told = format!("Nothing is sealed with {before} any more. It may be removed");
    assert!(said.contains(&told), "{said}");
    let keys = key_file(dir.path());
    assert_eq!((keys.len(), &keys[1]), (2, &first));
    assert!(!said.contains(&keys[0]) && !text(&output.stderr).contains(&keys[0]));
    assert_ne!(in_use(dir.path(), &[]), before);

    assert_saved(&running, "openai/one");
    save(&running, "openai/two");
    running.stop();
    // What the running service saved is sealed with the new key, too.
    fs::write(dir.path().join("master.key"), format!("{}\n", keys[0])).unwrap();
    let running = RunningService::start(dir.path(), &[OPEN]);
    assert_saved(&running, "openai/two");
    running.stop();
    let variables = [OPEN, ("WORKSPACE_SECRETS__MASTER_KEY", first.as_str())];
    let refused = run(dir.path(), &[], &variables);
    let said = text(&refused.stderr);
    assert!(said.contains("not the master key"), "{said}");
}

/// What a killed command leaves is opened by a service, and finished by the next command.
#[test]
fn killed_at_any_moment_it_loses_nothing_and_is_gone_on_with() {
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
    let places = fs::read_to_string(&arrivals).unwrap();
    let places: Vec<&str> = places.lines().collect();
    for part in [
        "master key file",
        "replace_installation",
        "SealedRecordRepository::replace",
    ] {
        let found = places.iter().filter(|place| place.contains(part)).count();
        assert!(found >= 2, "{part} is missing in {places:?}");
    }
    for (n, place) in places.iter().enumerate() {
        let earlier = places[..n].iter().filter(|it| it == &place).count();
        fs::write(&plan, format!("{n}\n{}\n{place}\n", earlier + 1)).unwrap();
        let killed = run(dir.path(), &ROTATE, &watched);
        assert_eq!(
            killed.status.code(),
            None,
            "{place}: {}",
            text(&killed.stdout)
        );
        fs::remove_file(&plan).unwrap();
        let running = RunningService::start(dir.path(), &[OPEN]);
        assert_saved(&running, &format!("openai/{n}"));
        save(&running, &format!("openai/{}", n + 1));
        running.stop();
        let said = run(dir.path(), &ROTATE, &[]);
        assert!(succeeded(&said).contains("may be removed"), "{place}");
        // Only the first key is needed then.
        let keys = key_file(dir.path());
        fs::write(dir.path().join("master.key"), format!("{}\n", keys[0])).unwrap();
    }
    let running = RunningService::start(dir.path(), &[OPEN]);
    assert_saved(&running, &format!("openai/{}", places.len()));
}

#[test]
fn a_key_that_a_service_does_not_have_is_not_rotated_to() {
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
    let said = text(&refused.stderr);
    assert!(said.contains("nothing was changed"), "{said}");
    assert_eq!(in_use(dir.path(), &only_one), before);
    assert_saved(&running, "openai/one");
    running.stop();

    // With both it still seals with the one that is in use, so that services may be restarted one by one.
    let running = RunningService::start(dir.path(), &both);
    assert_saved(&running, "openai/one");
    save(&running, "openai/two");
    running.stop();
    let running = RunningService::start(dir.path(), &only_one);
    assert_saved(&running, "openai/two");
    running.stop();

    let running = RunningService::start(dir.path(), &both);
    let rotated = run(dir.path(), &ROTATE, &both);
    assert!(succeeded(&rotated).contains(&format!("Nothing is sealed with {before}")));
    assert_saved(&running, "openai/two");
    running.stop();
    let only_two = [OPEN, ("WORKSPACE_SECRETS__MASTER_KEY", two.as_str())];
    let running = RunningService::start(dir.path(), &only_two);
    assert_saved(&running, "openai/two");
    running.stop();
    assert_eq!(run(dir.path(), &[], &only_one).status.code(), Some(1));
}

#[test]
fn keys_in_files_are_picked_up_by_a_service_that_runs() {
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

/// A key file that is lost is never made again: what is sealed would be lost for good in silence.
#[test]
fn a_lost_key_file_refuses_to_start() {
    let dir = TempDir::new().unwrap();
    RunningService::start(dir.path(), &[OPEN]).stop();
    fs::remove_file(dir.path().join("master.key")).unwrap();
    for arguments in [&[][..], &ROTATE] {
        let refused = run(dir.path(), arguments, &[OPEN]);
        assert_eq!(refused.status.code(), Some(1));
        let said = text(&refused.stderr);
        assert!(
            said.contains("is missing") && said.contains("Restore"),
            "{said}"
        );
    }
    assert!(!dir.path().join("master.key").exists());
}

/// One command at a time: two would each make a key.
#[test]
fn commands_at_the_same_time_make_one_key() {
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

/// Saves a field again and again; answers how the settings show what it saved last.
fn save_until(running: &RunningService, is_over: &AtomicBool, field: &str) -> String {
    for value in (0..1000).cycle() {
        // Temperatures end at 2 and probabilities at 1.
        let shown = match field {
            "max_output_tokens" => format!("{}", value + 1),
            _ => format!("0.{value:03}1"),
        };
        let body = format!(r#"{{"agent_settings_diff": {{"llm": {{"{field}": {shown}}}}}}}"#);
        let answer = running.send("POST", SETTINGS, &body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        if is_over.load(Ordering::SeqCst) {
            return format!("\"{field}\":{shown}");
        }
    }
    unreachable!("it never ends by itself")
}

/// Writers go on while the key is rotated again and again: everything that was acknowledged is there, under the last key.
#[test]
fn a_storm_of_writers_loses_nothing() {
    let dir = TempDir::new().unwrap();
    let mut running = RunningService::start(dir.path(), &[OPEN]);
    running.drain();
    save(&running, "openai/storm");
    let is_over = AtomicBool::new(false);
    let fields = ["temperature", "top_p", "max_output_tokens"];
    let written = std::thread::scope(|scope| {
        let savers = fields.map(|field| {
            let (running, is_over) = (&running, &is_over);
            scope.spawn(move || save_until(running, is_over, field))
        });
        let keeper = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::SeqCst) && count < 900 {
                let body = format!(r#"{{"name": "SECRET_{count}", "value": "canary-{count}"}}"#);
                let answer = running.send("POST", "/api/v1/secrets", &body);
                assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
                count += 1;
            }
            count
        });
        let rotated = [(); 3].map(|()| run(dir.path(), &ROTATE, &[]));
        is_over.store(true, Ordering::SeqCst);
        for output in &rotated {
            succeeded(output);
        }
        let count = keeper.join().unwrap();
        (savers.map(|saver| saver.join().unwrap()), count)
    });
    let settings = running.send("GET", SETTINGS, "");
    let settings = settings.replace(' ', "");
    for last in written.0 {
        assert!(settings.contains(&last), "{last} is missing in {settings}");
    }
    assert!(settings.contains("openai/storm"), "{settings}");
    running.stop();
    let keys = key_file(dir.path());
    assert_eq!(keys.len(), 4);
    fs::write(dir.path().join("master.key"), format!("{}\n", keys[0])).unwrap();
    let left = run(dir.path(), &["secrets", "rotate-key", "--dry-run"], &[]);
    let said = succeeded(&left);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let secrets = format!("secrets of users {}, with another key: 0", written.1);
    assert!(said.contains(&secrets), "{secrets} is missing in {said}");
    assert!(!said.contains("open with no key"), "{said}");
    let running = RunningService::start(dir.path(), &[OPEN]);
    assert_saved(&running, "openai/storm");
}
