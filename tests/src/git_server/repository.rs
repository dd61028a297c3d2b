//! The repository: everything that a project can bring along.

use std::path::Path;
use std::process::Command;

/// A branch besides `main`.
pub const BRANCH: &str = "feature/next";
/// A branch whose setup script does not end.
pub const ENDLESS: &str = "endless";
/// What the project's skill tells the agent.
pub const SKILL: &str = "Every answer of this project mentions marmalade.";

/// Makes it, as a bare repository at `place`.
pub(super) fn make(place: &Path) {
    let parent = place.parent().expect("a place has a parent");
    std::fs::create_dir_all(parent).expect("its directory can be made");
    let work = tempfile::tempdir().expect("a temporary directory can be made");
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
        let parent = file.parent().expect("a file has a directory");
        std::fs::create_dir_all(parent).expect("a directory can be made");
        std::fs::write(file, text).expect("a file can be written");
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "user.name=Test", "-c", "user.email=test@example.test"])
            .args(arguments)
            .current_dir(work.path())
            .output()
            .expect("the program `git`: apt-get install git");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "git {arguments:?}: {said}");
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message=One"]);
    git(&["commit", "--quiet", "--allow-empty", "--message=Two"]);
    git(&["checkout", "--quiet", "-b", BRANCH]);
    std::fs::write(work.path().join("NEXT.md"), "next\n").expect("a file can be written");
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message=Three"]);
    git(&["checkout", "--quiet", "-b", ENDLESS]);
    let setup = work.path().join(".openhands/setup.sh");
    std::fs::write(setup, "echo begun\nsleep 3131\n").expect("a file can be written");
    git(&["commit", "--quiet", "--all", "--message=Four"]);
    git(&["checkout", "--quiet", "main"]);
    git(&[
        "clone",
        "--quiet",
        "--bare",
        ".",
        &place.display().to_string(),
    ]);
}
