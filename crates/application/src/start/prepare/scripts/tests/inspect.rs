//! The first command: what it leaves, and what it does not need.

use super::*;

#[test]
fn an_empty_workspace_becomes_a_repository_once() {
    let sandbox = TestSandbox::new();
    let found = sandbox.inspect(None);
    assert!(found.has("git") && !found.has("setup.sh"));
    assert_eq!(found.private, None, "nothing needs one");
    let names = sandbox.ok(&format!("ls -A {}", shell_quote(&sandbox.home())));
    assert_eq!(names, ".gitconfig\n");
    assert_eq!(sandbox.inspect(None), found);
    let name =
        sandbox.ok("git config --global user.name; git config --global --get-all safe.directory");
    assert_eq!(name, format!("Ann O'Neil\n{}\n", sandbox.workspace()));
    let own = format!(
        "git -C {} config --local --get-regexp user",
        shell_quote(&sandbox.workspace())
    );
    assert_eq!(
        sandbox.ok(&own),
        "user.name Ann O'Neil\nuser.email ann@example.test\n"
    );
}

#[test]
fn a_private_directory_is_only_created_when_needed() {
    let sandbox = TestSandbox::new();
    std::fs::create_dir_all(sandbox.in_workspace(".openhands")).unwrap();
    assert_eq!(sandbox.inspect(None).private, None);
    std::fs::write(sandbox.in_workspace(".openhands/setup.sh"), "true").unwrap();
    let private = format!("{}/.agent-workspace/{TASK}", sandbox.home());
    assert_eq!(sandbox.inspect(None).private.as_ref(), Some(&private));
    let mode = sandbox.ok(&format!("stat -c %a {private}"));
    assert_eq!(mode.trim(), "700");
}

#[test]
fn names_of_all_kinds_come_back_from_git_as_they_are() {
    let odd = [
        r#"Ann "the\hammer" $(x) `y`; # z"#,
        "  spaces  ",
        "O'Neil é",
        "",
        "two\tlines\n[user]\n\temail = not@this.test",
    ];
    for name in odd {
        let sandbox = TestSandbox::new();
        let mut plan = plan(None);
        plan.identity.name = Some(name.to_owned());
        sandbox.ok(&inspect(&sandbox.workspace(), TASK, &plan));
        for which in ["--global", "--local"] {
            let asked = format!(
                "cd {} && git config {which} --null user.name && git config {which} user.email",
                shell_quote(&sandbox.workspace())
            );
            let expected = format!("{name}\0ann@example.test\n");
            assert_eq!(sandbox.ok(&asked), expected, "{which}");
        }
    }
}

#[test]
fn settings_of_git_that_are_there_are_kept() {
    for file in [".gitconfig", ".config/git/config"] {
        let sandbox = TestSandbox::new();
        let path = Path::new(&sandbox.home()).join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "[core]\n\teditor = theirs\n[user]\n\tname = Old\n").unwrap();
        sandbox.inspect(None);
        sandbox.inspect(None);
        let all = sandbox.ok("git config --global --list");
        let mut lines: Vec<_> = all.lines().collect();
        lines.sort_unstable();
        let directory = format!("safe.directory={}", sandbox.workspace());
        assert_eq!(
            lines,
            [
                "core.editor=theirs",
                directory.as_str(),
                "user.email=ann@example.test",
                "user.name=Ann O'Neil",
            ],
            "{file}"
        );
    }
}

#[test]
fn git_reaches_listed_hosts_through_the_service_with_one_token() {
    for existing in ["", "[core]\n\teditor = theirs\n"] {
        let sandbox = TestSandbox::new();
        if !existing.is_empty() {
            std::fs::write(Path::new(&sandbox.home()).join(".gitconfig"), existing).unwrap();
        }
        let mut plan = plan(None);
        plan.git_configuration = Some("any".into());
        let look = inspect(&sandbox.workspace(), TASK, &plan);
        sandbox.ok(&look);
        let found = WorkspaceFacts::read(&sandbox.ok(&look));
        let hosts = git_configuration(&found.private.unwrap());
        let text = "[http \"http://s/git/\"]\n\textraHeader =\n\textraHeader = \"X-Access-Token: gb_1\"\n\
                    [url \"http://s/git/github.com/\"]\n\tinsteadOf = \"https://github.com/\"\n";
        std::fs::write(&hosts, text).unwrap();
        for (given, expected) in [
            (
                "https://github.com/o/r.git",
                "http://s/git/github.com/o/r.git",
            ),
            ("https://gitlab.com/o/r.git", "https://gitlab.com/o/r.git"),
        ] {
            let asked = format!("git ls-remote --get-url {given}");
            assert_eq!(sandbox.ok(&asked), format!("{expected}\n"), "{existing:?}");
        }
        let asked = "git config --get-urlmatch http.extraHeader http://s/git/github.com/o/r.git";
        assert_eq!(sandbox.ok(asked), "X-Access-Token: gb_1\n");
        let includes = sandbox.ok("git config --global --get-all include.path");
        assert_eq!(includes.lines().count(), 1, "{includes}");

        // The owner has removed the tokens.
        sandbox.inspect(None);
        assert!(!Path::new(&hosts).exists());
        let asked = "git ls-remote --get-url https://github.com/o/r.git";
        assert_eq!(sandbox.ok(asked), "https://github.com/o/r.git\n");
    }
}
