//! The repository, with every file that the service reads from a project.

use std::path::Path;
use std::process::Command;

/// A branch beside `main`.
pub const BRANCH: &str = "feature/next";
/// A branch whose setup script does not end.
pub const ENDLESS: &str = "endless";
/// The text of the project's skill.
pub const SKILL: &str = "Every answer of this project mentions marmalade.";

/// Creates the bare repository at `path`.
pub(super) fn create(path: &Path) {
    let parent = path.parent().expect("the path has no parent");
    std::fs::create_dir_all(parent).expect("cannot create the parent directory");
    let work = tempfile::tempdir().expect("cannot create a temporary directory");
    let hooks = r#"{"hooks": {"PreToolUse": [{"matcher": "terminal", "hooks":
        [{"type": "command", "command": "touch agent-hook.txt"}]}]}}"#;
    let skill = format!("---\nname: style\n---\n{SKILL}\n");
    let files = [
        ("README.md", "# Tools\n"),
        (".openhands/setup.sh", "echo setting up\npwd >set-up.txt\n"),
        (
            ".openhands/pre-commit.sh",
            "echo checked >>.git/checked.txt\n",
        ),
        (".openhands/hooks.json", hooks),
        (".openhands/skills/style.md", &skill),
        (".gitignore", "*.txt\n"),
    ];
    for (name, text) in files {
        let file = work.path().join(name);
        let parent = file.parent().expect("the file has no parent");
        std::fs::create_dir_all(parent).expect("cannot create a directory");
        std::fs::write(file, text).expect("cannot write a file");
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "user.name=Test", "-c", "user.email=test@example.test"])
            .args(arguments)
            .current_dir(work.path())
            .output()
            .expect("cannot run git: apt-get install git");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "git {arguments:?}: {stderr}");
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message=One"]);
    git(&["commit", "--quiet", "--allow-empty", "--message=Two"]);
    git(&["checkout", "--quiet", "-b", BRANCH]);
    std::fs::write(work.path().join("NEXT.md"), "next\n").expect("cannot write a file");
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message=Three"]);
    git(&["checkout", "--quiet", "-b", ENDLESS]);
    let setup = work.path().join(".openhands/setup.sh");
    std::fs::write(setup, "echo begun\nsleep 3131\n").expect("cannot write a file");
    git(&["commit", "--quiet", "--all", "--message=Four"]);
    git(&["checkout", "--quiet", "main"]);
    git(&[
        "clone",
        "--quiet",
        "--bare",
        ".",
        &path.display().to_string(),
    ]);
}

/// Whether the repository at `path` has this branch.
pub(super) fn has_branch(path: &Path, name: &str) -> bool {
    let reference = format!("refs/heads/{name}");
    let found = Command::new("git")
        .arg("--git-dir")
        .arg(path)
        .args(["show-ref", "--verify", "--quiet", &reference])
        .status();
    found.expect("cannot run git").success()
}
