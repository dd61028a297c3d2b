//! The scripts, run by a real bash with a real git.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use domain::agent::workspace::ShellOutcome;
use domain::git::{CloneSource, GitProvider};
use tempfile::TempDir;

use super::super::output::{CheckoutState, Redactor, WorkspaceFacts, clone_failure};
use super::super::plan::{GitIdentity, PlannedRepository};
use super::*;

mod cleanup;
mod inspect;

const TASK: &str = "0123456789abcdef0123456789abcdef";

/// A home, a workspace whose name needs quoting, and a repository that is cloned from a file URL.
struct TestSandbox {
    dir: TempDir,
}

impl TestSandbox {
    fn new() -> Self {
        let sandbox = Self {
            dir: TempDir::new().unwrap(),
        };
        std::fs::create_dir(sandbox.dir.path().join("home")).unwrap();
        sandbox
    }

    fn home(&self) -> String {
        self.dir.path().join("home").display().to_string()
    }

    fn workspace(&self) -> String {
        self.dir
            .path()
            .join("it's a $(work) space")
            .display()
            .to_string()
    }

    fn in_workspace(&self, name: &str) -> std::path::PathBuf {
        Path::new(&self.workspace()).join(name)
    }

    fn start(&self, script: &str) -> std::process::Child {
        Command::new("bash")
            .args(["-c", script])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bash")
    }

    fn run(&self, script: &str) -> Output {
        self.start(script).wait_with_output().unwrap()
    }

    fn ok(&self, script: &str) -> String {
        let output = self.run(script);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{script}\n{stdout}\n{errors}");
        stdout
    }

    /// A repository with everything that a project can bring along.
    fn origin(&self) -> PlannedRepository {
        let origin = self.dir.path().join("origin/tools.git");
        self.ok(&format!(
            "git init --quiet --initial-branch=main {0} && cd {0} && mkdir -p .openhands/skills \
             && echo hello >README.md && echo 'echo set up; echo done >>set-up.txt' >.openhands/setup.sh \
             && echo 'echo checked >>checked.txt' >.openhands/pre-commit.sh && echo '{{}}' >.openhands/hooks.json \
             && echo s >.openhands/skills/s.md && git add -A && git -c user.name=a -c user.email=a commit --quiet -m one \
             && git checkout --quiet -b feature/x && echo f >feature.txt && git add -A \
             && git -c user.name=a -c user.email=a commit --quiet -m two && git checkout --quiet main",
            origin.display()
        ));
        PlannedRepository {
            name: "acme/tools".to_owned(),
            directory: "tools".to_owned(),
            branch: None,
            working_branch: "openhands-workspace-77".to_owned(),
            full: false,
            provider: GitProvider::Github,
            source: CloneSource {
                url: format!("file://{}", origin.display()).parse().unwrap(),
                username: "x-access-token".to_owned(),
                token: None,
            },
        }
    }

    fn inspect(&self, repository: Option<&PlannedRepository>) -> WorkspaceFacts {
        WorkspaceFacts::read(&self.ok(&inspect(&self.workspace(), TASK, &plan(repository))))
    }

    fn clone(&self, repository: &PlannedRepository, private: &str) -> String {
        clone(&self.workspace(), private, TASK, &who(), repository)
    }
}

fn plan(repository: Option<&PlannedRepository>) -> PreparationPlan {
    PreparationPlan {
        identity: who(),
        repository: repository.cloned(),
        ..PreparationPlan::default()
    }
}

fn who() -> GitIdentity {
    GitIdentity {
        name: Some("Ann O'Neil".to_owned()),
        email: Some("ann@example.test".to_owned()),
    }
}

#[test]
fn existing_files_of_a_workspace_stay() {
    let sandbox = TestSandbox::new();
    std::fs::create_dir(sandbox.workspace()).unwrap();
    std::fs::write(sandbox.in_workspace("work.txt"), "mine").unwrap();
    assert!(!sandbox.inspect(None).has("git"));
    let repository = sandbox.origin();
    std::fs::create_dir(sandbox.in_workspace("tools")).unwrap();
    assert_eq!(
        sandbox.inspect(Some(&repository)).state,
        CheckoutState::Absent,
        "an empty directory"
    );
    std::fs::write(sandbox.in_workspace("tools/work.txt"), "mine").unwrap();
    assert_eq!(
        sandbox.inspect(Some(&repository)).state,
        CheckoutState::Other
    );
}

#[test]
fn a_clone_is_on_a_branch_of_its_own_and_found_again() {
    let sandbox = TestSandbox::new();
    let repository = sandbox.origin();
    let found = sandbox.inspect(Some(&repository));
    assert_eq!(found.state, CheckoutState::Absent);
    let private = found.private.unwrap();
    // What an attempt that was killed left behind.
    std::fs::create_dir_all(sandbox.in_workspace(&format!(".clone-{TASK}/x"))).unwrap();
    let cloned = WorkspaceFacts::read(&sandbox.ok(&sandbox.clone(&repository, &private)));
    for what in ["git", "setup.sh", "pre-commit.sh", "hooks.json", "skills"] {
        assert!(cloned.has(what), "{what}");
    }
    let git = |arguments: &str| {
        let target = shell_quote(&sandbox.in_workspace("tools").display().to_string());
        sandbox.ok(&format!("git -C {target} {arguments}"))
    };
    assert_eq!(
        git("symbolic-ref --short HEAD").trim(),
        "openhands-workspace-77"
    );
    assert_eq!(git("rev-list --count HEAD").trim(), "1");
    assert_eq!(git("config --local user.email").trim(), "ann@example.test");
    assert_eq!(git("status --porcelain"), "");
    let names = sandbox.ok(&format!("ls -A {}", shell_quote(&sandbox.workspace())));
    assert_eq!(names, "tools\n", "nothing is left beside it");

    let again = sandbox.inspect(Some(&repository));
    assert_eq!(
        (again.state, again.branch.as_deref()),
        (CheckoutState::Ours, Some("openhands-workspace-77"))
    );
    std::fs::write(sandbox.in_workspace("tools/work.txt"), "mine").unwrap();
    sandbox.ok(&sandbox.clone(&repository, &private));
    assert!(
        sandbox.in_workspace("tools/work.txt").exists(),
        "not cloned again"
    );
    let other = inspect(
        &sandbox.workspace(),
        "another-task",
        &plan(Some(&repository)),
    );
    assert_eq!(
        WorkspaceFacts::read(&sandbox.ok(&other)).state,
        CheckoutState::Same
    );
}

#[test]
fn a_branch_is_cloned_with_or_without_history_and_a_missing_one_leaves_nothing() {
    let sandbox = TestSandbox::new();
    let mut repository = sandbox.origin();
    repository.branch = Some("feature/x".to_owned());
    repository.full = true;
    let private = sandbox.inspect(Some(&repository)).private.unwrap();
    repository.branch = Some("nope".to_owned());
    let failed = sandbox.run(&sandbox.clone(&repository, &private));
    assert!(!failed.status.success());
    let stdout = String::from_utf8_lossy(&failed.stdout).into_owned();
    assert!(stdout.contains("not found in upstream"), "{stdout}");
    let names = sandbox.ok(&format!("ls -A {}", shell_quote(&sandbox.workspace())));
    assert_eq!(names, "");
    repository.branch = Some("feature/x".to_owned());
    sandbox.ok(&sandbox.clone(&repository, &private));
    let target = shell_quote(&sandbox.in_workspace("tools").display().to_string());
    let stdout = sandbox.ok(&format!(
        "cd {target} && git symbolic-ref --short HEAD && git rev-list --count HEAD && cat feature.txt"
    ));
    assert_eq!(stdout, "feature/x\n2\nf\n");
}

#[test]
fn a_worker_waits_for_the_clone_that_an_earlier_one_began() {
    let sandbox = TestSandbox::new();
    let repository = sandbox.origin();
    let private = sandbox.inspect(Some(&repository)).private.unwrap();
    // An earlier clone that is at work: its command line names the private directory.
    let go = sandbox.dir.path().join("go");
    let earlier = format!(
        "echo $$ >{private}/part && mv {private}/part {private}/clone.pid; while [ ! -e {} ]; do sleep 0.05; done; mkdir -p {}/.git; : {private}",
        shell_quote(&go.display().to_string()),
        shell_quote(&sandbox.in_workspace("tools").display().to_string()),
    );
    let mut earlier = sandbox.start(&earlier);
    while !Path::new(&private).join("clone.pid").exists() {
        std::thread::yield_now();
    }
    let mut later = sandbox.start(&sandbox.clone(&repository, &private));
    for _ in 0..50_000 {
        assert!(later.try_wait().unwrap().is_none(), "it did not wait");
        std::thread::yield_now();
    }
    std::fs::write(&go, "").unwrap();
    assert!(earlier.wait().unwrap().success());
    assert!(later.wait().unwrap().success());
    assert!(
        !sandbox.in_workspace("tools/README.md").exists(),
        "it cloned again"
    );
}

#[test]
fn the_setup_script_runs_once_for_a_start_and_its_children_go_on() {
    let sandbox = TestSandbox::new();
    let mut repository = sandbox.origin();
    repository.branch = Some("main".to_owned());
    let private = sandbox.inspect(Some(&repository)).private.unwrap();
    sandbox.ok(&sandbox.clone(&repository, &private));
    let project = sandbox.in_workspace("tools");
    let script = setup(&private, &project.display().to_string());
    assert_eq!(sandbox.ok(&script), "set up\n");
    assert_eq!(
        sandbox.ok(&script),
        "set up\n",
        "its output is printed again"
    );
    let text = std::fs::read_to_string(project.join("set-up.txt")).unwrap();
    assert_eq!(text, "done\n", "and not run again");

    for name in ["setup.begun", "setup.exit"] {
        std::fs::remove_file(format!("{private}/{name}")).unwrap();
    }
    let background = "(sleep 5; echo late >late.txt) &\necho begun\nreturn 7\n";
    std::fs::write(project.join(".openhands/setup.sh"), background).unwrap();
    let output = sandbox.run(&script);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        output.stdout, b"begun\n",
        "it did not wait for the background"
    );
    assert_eq!(sandbox.run(&script).status.code(), Some(7));
    assert!(!project.join("late.txt").exists());
}

#[test]
fn commands_do_not_have_the_keys_of_the_sandbox() {
    let sandbox = TestSandbox::new();
    let given = "export OH_SECRET_KEY=a OH_SESSION_API_KEYS_0=b OH_SESSION_API_KEYS_1=c SESSION_API_KEY=d OTHER=e";
    let stdout = sandbox.ok(&format!("{given}\n{UNSET_SANDBOX_KEYS}env"));
    assert!(
        !stdout.contains("KEY") && stdout.contains("OTHER=e"),
        "{stdout}"
    );
}

#[test]
fn a_pre_commit_script_runs_at_commits_and_an_earlier_hook_before_it() {
    let sandbox = TestSandbox::new();
    let mut repository = sandbox.origin();
    repository.branch = Some("main".to_owned());
    let private = sandbox.inspect(Some(&repository)).private.unwrap();
    sandbox.ok(&sandbox.clone(&repository, &private));
    let project = sandbox.in_workspace("tools");
    let hooks = project.join(".git/hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    std::fs::write(
        hooks.join("pre-commit"),
        "#!/bin/sh\necho earlier >>checked.txt\n",
    )
    .unwrap();
    let script = pre_commit(&project.display().to_string());
    sandbox.ok(&script);
    sandbox.ok(&script);
    let target = shell_quote(&project.display().to_string());
    sandbox.ok(&format!(
        "cd {target} && mkdir sub && cd sub && git commit --quiet --allow-empty -m x"
    ));
    let text = std::fs::read_to_string(project.join("checked.txt")).unwrap();
    assert_eq!(text, "earlier\nchecked\n");
    // A script that refuses.
    std::fs::write(project.join(".openhands/pre-commit.sh"), "exit 3\n").unwrap();
    let refused = sandbox.run(&format!(
        "cd {target} && git commit --quiet --allow-empty -m y"
    ));
    assert!(!refused.status.success());
}

#[test]
fn a_host_that_sends_elsewhere_is_not_followed() {
    let sandbox = TestSandbox::new();
    let mut repository = sandbox.origin();
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = elsewhere.local_addr().unwrap();
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in elsewhere.incoming() {
            seen.store(true, std::sync::atomic::Ordering::SeqCst);
            drop(stream);
        }
    });
    let head = format!("302 Found\r\nLocation: http://{to}/acme/tools.git/info/refs");
    let host = answering(head.leak());
    let url = format!("http://{host}/acme/tools.git");
    repository.source.url = url.parse().unwrap();
    let private = sandbox.inspect(Some(&repository)).private.unwrap();
    let output = sandbox.run(&sandbox.clone(&repository, &private));
    let outcome = ShellOutcome {
        exit_code: output.status.code(),
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
    };
    let limit = std::time::Duration::from_secs(1);
    let cause = clone_failure(&repository, &outcome, limit, &Redactor::default());
    assert!(
        cause.contains("redirects to another address"),
        "{cause}: {outcome:?}"
    );
    let asked = asked.load(std::sync::atomic::Ordering::SeqCst);
    assert!(!asked, "the other host was asked");
}

/// A server that answers everything with this status.
fn answering(status: &'static str) -> std::net::SocketAddr {
    use std::io::{BufRead as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = std::io::BufReader::new(stream.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: 9\r\nConnection: close");
            write!(stream.get_mut(), "{head}\r\n\r\nme:s3cret").unwrap();
        }
    });
    address
}

#[test]
fn a_setup_script_that_was_cut_off_is_not_run_again() {
    let sandbox = TestSandbox::new();
    let mut repository = sandbox.origin();
    repository.branch = Some("main".to_owned());
    let private = sandbox.inspect(Some(&repository)).private.unwrap();
    sandbox.ok(&sandbox.clone(&repository, &private));
    let project = sandbox.in_workspace("tools");
    let script =
        "echo begun >>begun.txt; echo half; kill -9 $PPID; sleep 1; echo more >>begun.txt\n";
    std::fs::write(project.join(".openhands/setup.sh"), script).unwrap();
    let script = setup(&private, &project.display().to_string());
    assert_eq!(sandbox.run(&script).status.code(), None, "killed");
    let again = sandbox.run(&script);
    assert_eq!(again.status.code(), Some(1));
    let stdout = String::from_utf8_lossy(&again.stdout).into_owned();
    assert_eq!(stdout, format!("{INTERRUPTED}\nhalf\n"));
    let text = std::fs::read_to_string(project.join("begun.txt")).unwrap();
    assert_eq!(text.matches("begun").count(), 1, "{text}");
}
