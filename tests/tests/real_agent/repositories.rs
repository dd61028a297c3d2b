//! A conversation about a repository: a real git host, the real binary, real agent servers.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use acceptance::client::Conversation;
use acceptance::git_server::{BRANCH, ENDLESS, SKILL};
use acceptance::processes::{PLACEHOLDER_PREFIX, command_lines, git_and_children};
use acceptance::wait::wait_until;
use acceptance::{Client, GitServer, Sandboxing, ScriptedLlm, Service};
use serde_json::{Value, json};

use crate::support::{RECONCILE_TIMEOUT, Setup, assert_not_slowed};

const TOKEN: &str = "ghp-canary-7c1f0a9d5b3e";
/// A planted text, which the search for the token must find.
const PLANTED: &str = "planted-3f1c9a77";

pub(crate) struct GitWorld {
    pub(crate) git: GitServer,
    /// Another host, which receives no requests.
    other: GitServer,
    llm: ScriptedLlm,
    pub(crate) service: Service,
    pub(crate) user: Client,
}

/// An address that the service and its sandboxes reach.
fn address(sandboxing: &Sandboxing) -> Ipv4Addr {
    match sandboxing {
        Sandboxing::UnconfinedProcess => Ipv4Addr::LOCALHOST,
        Sandboxing::Process => acceptance::machine_address(),
        Sandboxing::Docker(engine) => engine.gateway(),
    }
}

impl GitWorld {
    async fn build(setup: &Setup) -> Self {
        Self::build_with(setup, &[]).await
    }

    pub(crate) async fn build_with(setup: &Setup, variables: &[(&str, &str)]) -> Self {
        let llm = setup.sandboxing.model().await;
        let address = address(&setup.sandboxing);
        let allowed = address.to_string();
        let address = address.octets();
        let git = GitServer::start(address, TOKEN).await;
        let other = GitServer::start(address, TOKEN).await;
        let authority = git.authority().display().to_string();
        let mut builder = setup
            .service()
            .env("WORKSPACE_GIT__ALLOW_PRIVATE_HOSTS", &allowed)
            .env("WORKSPACE_GIT__CA_FILE", &authority);
        for (name, value) in variables {
            builder = builder.env(name, value);
        }
        let service = builder.start().await;
        let user = service.admin();
        user.use_model("openai/scripted", &llm.base_url(), "sk-scripted")
            .await;
        let named = json!({"git_user_name": "Ann O'Neil", "git_user_email": "ann@example.test"});
        let _ = user.post("/api/v1/settings", &named).await.ok();
        let world = Self {
            git,
            other,
            llm,
            service,
            user,
        };
        world.store_token(TOKEN).await;
        world
    }

    async fn store_token(&self, token: &str) {
        let tokens =
            json!({"provider_tokens": {"github": {"token": token, "host": self.git.url()}}});
        let _ = self
            .user
            .post("/api/v1/secrets/git-providers", &tokens)
            .await
            .ok();
    }

    /// Asserts that the token is in no file of the sandboxes or the service, and in no process's arguments.
    fn assert_no_token(&self, sandbox: &str) {
        assert!(!self.service.log().contains(TOKEN), "in the log");
        assert_no_arguments();
        let data = self.service.data_dir().display().to_string();
        assert_not_below(&[&data], |words| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        });
        let inside = (self.service.container(sandbox), self.service.sandboxing());
        if let (Some(container), Sandboxing::Docker(engine)) = inside {
            let home = engine.docker(&["exec", &container, "printenv", "HOME"]);
            // All directories that the container's user can write to.
            let directories = ["/workspace", "/tmp", home.trim()];
            assert_not_below(&directories, |words| {
                engine.command(&[&["exec", "-i", &container], words].concat())
            });
        }
    }

    /// Asserts that a clone runs without the token in its arguments or its environment.
    fn assert_a_clone_without_the_token(&self) {
        assert_no_arguments();
        let shown = git_and_children();
        let is_clone = |line: &String| line.contains(&self.git.url());
        assert!(shown.iter().any(is_clone), "no clone: {shown:?}");
        for line in &shown {
            assert!(!line.contains(TOKEN), "{line}");
        }
    }
}

fn assert_no_arguments() {
    for line in command_lines() {
        assert!(!line.contains(TOKEN), "{line}");
    }
}

/// Asserts that no file below these directories contains the token. The same search must find a planted text in each
/// directory. The patterns come by standard input, because searches in `/proc` would find arguments.
fn assert_not_below(directories: &[&str], command: impl Fn(&[&str]) -> Command) {
    let planted: Vec<String> = directories
        .iter()
        .map(|directory| format!("{directory}/{PLANTED}"))
        .collect();
    let planted: Vec<&str> = planted.iter().map(String::as_str).collect();
    let run = |words: &[&str], input: &str| {
        let mut child = command(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command can be run");
        let mut pipe = child.stdin.take().expect("a piped input");
        pipe.write_all(input.as_bytes()).expect("it is read");
        drop(pipe);
        child.wait_with_output().expect("it ends")
    };
    assert!(
        run(&[&["tee"], &planted[..]].concat(), PLANTED)
            .status
            .success()
    );
    let patterns = format!("{TOKEN}\n{PLANTED}\n");
    let search = ["grep", "-rlF", "-f", "-", "--"];
    let output = run(&[&search, directories].concat(), &patterns);
    let _ = run(&[&["rm", "-f", "--"], &planted[..]].concat(), "");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    // Files may disappear while sandboxes run.
    let mut complaints = complaints.lines();
    let all_fine = complaints.all(|line| line.contains("No such file or directory"));
    assert!(
        all_fine && output.status.code().is_some_and(|code| code != 1),
        "{output:?}"
    );
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    found.dedup();
    let mut expected = planted.clone();
    expected.sort_unstable();
    assert_eq!(
        found, expected,
        "files with the token, or directories that were not searched"
    );
}

pub(crate) fn request(message: &str, more: &Value) -> Value {
    let content = json!([{"type": "text", "text": message}]);
    let mut request = json!({
        "initial_message": {"role": "user", "content": content, "run": true},
        "selected_repository": "acme/tools",
        "git_provider": "github",
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    request
}

pub(crate) async fn an_agent_finds_its_repository_prepared(setup: Setup) {
    let world = GitWorld::build(&setup).await;
    let (user, service) = (&world.user, &world.service);
    let see = "RUN: (pwd; git symbolic-ref --short HEAD; git rev-list --count HEAD; cat README.md set-up.txt) >seen.txt; \
               git config remote.origin.url >>seen.txt; git commit --quiet --allow-empty -m x && git log -1 --format='%an <%ae>' >>seen.txt; \
               git push --quiet origin HEAD >push.txt 2>&1; git fetch --quiet origin feature/next >>push.txt 2>&1 && git log -1 --format=%s FETCH_HEAD >>push.txt";
    let task = user.start(&request(see, &json!({}))).await;
    let conversation = user.wait_until_ready(&task).await;
    let ended = user.task(&task.id).await;
    assert_eq!(ended.detail, None, "there is nothing to note");
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let sandbox = &conversation.sandbox_id;
    let seen = service
        .workspace_file(sandbox, "tools/seen.txt")
        .expect("the agent was there");
    let lines: Vec<&str> = seen.lines().collect();
    assert!(lines[0].ends_with("/tools"), "{seen}");
    let end: String = conversation.id.chars().skip(16).collect();
    assert_eq!(lines[1], format!("openhands-workspace-{end}"), "{seen}");
    assert_eq!(lines[2], "1", "a shallow clone: {seen}");
    assert_eq!(lines[3], "# Tools");
    assert_eq!(
        lines[4], lines[0],
        "the setup script ran in the project: {seen}"
    );
    let address = format!("{}/acme/tools.git", world.git.url());
    assert!(lines[5].contains(&address), "{seen}");
    assert_eq!(
        lines.last(),
        Some(&"Ann O'Neil <ann@example.test>"),
        "{seen}"
    );
    let pushed = service.workspace_file(sandbox, "tools/push.txt");
    let branch = format!("openhands-workspace-{end}");
    assert!(world.git.has_branch(&branch), "not pushed: {pushed:?}");
    let checked = service.workspace_file(sandbox, "tools/.git/checked.txt");
    assert_eq!(checked.as_deref(), Some("checked\n"), "the git hook ran");
    let hooked = service.workspace_file(sandbox, "tools/agent-hook.txt");
    assert!(hooked.is_some(), "the agent hook ran");
    let is_in_prompt = world
        .llm
        .records()
        .iter()
        .any(|record| record.body.to_string().contains(SKILL));
    assert!(is_in_prompt, "the skill reached the model");
    assert!(world.git.count_content_requests() > 0);
    let path = format!("/api/v1/app-conversations?ids={}", conversation.id);
    let document = user.get(&path).await.ok();
    let tags = &document[0]["tags"];
    assert_eq!(
        (&tags["repo_name"], &tags["git_provider"]),
        (&json!("acme/tools"), &json!("github")),
        "{document}"
    );
    assert_the_token_is_nowhere(&world, &conversation).await;
}

async fn assert_the_token_is_nowhere(world: &GitWorld, conversation: &Conversation) {
    let sandbox = &conversation.sandbox_id;
    let events = json!(world.user.events(&conversation.id).await).to_string();
    assert!(!events.contains(TOKEN), "in an event");
    let files = world
        .service
        .workspace_file(sandbox, "tools/.git/config")
        .expect("a configuration");
    assert!(
        !files.contains(TOKEN) && !files.contains("credential"),
        "{files}"
    );
    world.assert_no_token(sandbox);
}

pub(crate) async fn a_missing_branch_a_wrong_name_and_a_wrong_token_have_different_causes(
    setup: Setup,
) {
    let world = GitWorld::build(&setup).await;
    let user = &world.user;
    let see = "RUN: git symbolic-ref --short HEAD >seen.txt; git rev-list --count HEAD >>seen.txt; cat NEXT.md >>seen.txt";
    let full = json!({"git_full_clone": true});
    let _ = user.post("/api/v1/settings", &full).await.ok();
    let task = user
        .start(&request(see, &json!({"selected_branch": BRANCH})))
        .await;
    let conversation = user.wait_until_ready(&task).await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let seen = world
        .service
        .workspace_file(&conversation.sandbox_id, "tools/seen.txt");
    assert_eq!(seen, Some(format!("{BRANCH}\n3\nnext\n")));

    let fails = async |more: Value, cause: &str| {
        let task = user.start(&request("RUN: true", &more)).await;
        let ended = user.wait_for_end(&task).await;
        let detail = ended.detail.clone().unwrap_or_default();
        assert_eq!(ended.status, "ERROR", "{ended:?}");
        assert!(detail.contains(cause), "{detail}");
        let sandbox = ended.sandbox_id.expect("a sandbox");
        wait_until("the end of the sandbox", Duration::from_secs(60), || {
            !world.service.sandbox_directories().contains(&sandbox)
        })
        .await;
    };
    fails(json!({"selected_branch": "nope"}), "it has no branch nope").await;
    fails(
        json!({"selected_repository": "acme/nothing"}),
        "has no such repository",
    )
    .await;
    world.git.redirect_to(Some(&world.other));
    fails(json!({}), "redirects to another address").await;
    assert_eq!(world.other.count_connections(), 0, "it was asked");
    world.git.redirect_to(None);
    world.store_token("ghp-wrong-token").await;
    fails(json!({}), "does not accept the token of github").await;
    assert_eq!(user.conversations().await.len(), 1);
    world.assert_no_token(&conversation.sandbox_id);
}

pub(crate) async fn killed_while_it_clones_a_start_is_finished_with_one_clone(setup: Setup) {
    let mut world = GitWorld::build(&setup).await;
    world.git.hold();
    let task = world
        .user
        .start(&request(
            "RUN: git status --porcelain >seen.txt",
            &json!({}),
        ))
        .await;
    let git = &world.git;
    wait_until("a clone under way", Duration::from_secs(150), || {
        git.count_content_requests() > 0
    })
    .await;
    world.assert_a_clone_without_the_token();
    let before = world.git.count_content_requests();
    world.service.kill9();
    world.service.restart().await;
    // The new worker is at the same step; the clone of its predecessor still waits for the host.
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.git.release();
    let conversation = world
        .user
        .wait_until_ready(&world.user.task(&task.id).await)
        .await;
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    let sandbox = &conversation.sandbox_id;
    let seen = world.service.workspace_file(sandbox, "tools/seen.txt");
    assert_eq!(seen.as_deref(), Some(""), "a whole and clean clone");
    assert_eq!(world.user.sandboxes().await.len(), 1);
    let list = world.service.sandbox_dir(sandbox).join("workspace");
    let names: Vec<_> = std::fs::read_dir(list)
        .expect("a workspace")
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(names, ["tools"], "nothing is left beside it");
    // Each clone sends two requests at most (protocol 2: references, then content).
    assert!(
        world.git.count_content_requests() <= before + 2,
        "{} and then {}",
        before,
        world.git.count_content_requests()
    );
    world.assert_no_token(sandbox);
}

pub(crate) async fn what_takes_too_long_is_ended(setup: Setup) {
    let limits = [
        ("WORKSPACE_START__CLONE_DEADLINE", "15s"),
        ("WORKSPACE_START__SETUP_DEADLINE", "5s"),
    ];
    let world = GitWorld::build_with(&setup, &limits).await;
    let user = &world.user;
    let asked = request("RUN: true", &json!({"selected_branch": ENDLESS}));
    let conversation = user.wait_until_ready(&user.start(&asked).await).await;
    let tasks = user
        .get_all_pages("/api/v1/app-conversations/start-tasks/search")
        .await;
    let note = tasks[0]["detail"].as_str().unwrap_or_default();
    assert!(
        note.contains("setup.sh was ended after 5 s. Its last words: begun"),
        "{note}"
    );
    wait_until("the end of the script", RECONCILE_TIMEOUT, || {
        command_lines().iter().all(|line| line != "sleep 3131")
    })
    .await;

    world.git.hold();
    let asked = json!({"sandbox_id": conversation.sandbox_id, "selected_repository": "acme/tools", "selected_branch": BRANCH});
    // The workspace already has the repository, so no clone is needed.
    let again = user.wait_for_end(&user.start(&asked).await).await;
    let note = again.detail.unwrap_or_default();
    assert_eq!(again.status, "READY", "{note}");
    assert!(note.contains("used as it is, on branch endless"), "{note}");
    let late = user
        .wait_for_end(&user.start(&request("RUN: true", &json!({}))).await)
        .await;
    let cause = late.detail.unwrap_or_default();
    assert_eq!(late.status, "ERROR", "{cause}");
    assert!(cause.contains("within 15 s"), "{cause}");
    world.git.release();
    world.assert_no_token(&conversation.sandbox_id);
}

/// What secrets are good for inside a sandbox: the service puts them into headers of requests to their hosts, also of git's
/// with `broker.git = false`. One command, as the agent's terminal requires.
const ATTEMPTS: &str = r#"{
status() { curl -sS -o /dev/null -w '%{http_code}' -m 30 "$@" 2>&1; }
own="OWN/acme/tools.git/info/refs?service=git-upload-pack"
{
echo "curl: $(status -u "x-access-token:$GITHUB_TOKEN" "$own")"
echo "custom: $(status -u "x-access-token:$API_KEY" "$own")"
echo "elsewhere: $(status -u "x-access-token:$OTHER_KEY" "$own")"
echo "without: $(status "$own")"
echo "url: $(status "$own&token=$GITHUB_TOKEN")"
echo "body: $(status -d "token=$GITHUB_TOKEN" "$own")"
echo "plain: $(status -u "x-access-token:$GITHUB_TOKEN" "http://${own#https://}")"
echo "other: $(status -k -u "x-access-token:$GITHUB_TOKEN" "OTHER/acme/tools.git/info/refs?service=git-upload-pack")"
echo "python: $(TOKEN=$GITHUB_TOKEN URL=$own python3 -c '
import base64, os, urllib.request
key = base64.b64encode(("x-access-token:" + os.environ["TOKEN"]).encode()).decode()
request = urllib.request.Request(os.environ["URL"], headers={"Authorization": "Basic " + key})
print(urllib.request.urlopen(request, timeout=30).status)')"
echo "git: $(git clone -q OWN/acme/tools.git own && cd own && git push -q origin HEAD:refs/heads/direct && git ls-remote origin direct | wc -l)"
echo "its file: $(sed -n 's/.*Basic \(.*\)"$/\1/p' ~/.agent-workspace/git | base64 -d | grep -c '^x-access-token:workspace_secret_')"
echo "environments: $(cat /proc/[0-9]*/environ 2>/dev/null | grep -ac 'ghp-c[a]nary')"
} > results.new 2>&1
mv results.new results.txt
}"#;
const RESULTS: &str = "curl: 200\ncustom: 200\nelsewhere: 403\nwithout: 401\nurl: 403\nbody: 403\nplain: 403\nother: 401\n\
                       python: 200\ngit: 1\nits file: 1\nenvironments: 0\n";

pub(crate) async fn secrets_go_to_their_hosts_only(setup: Setup) {
    let section = match &setup.sandboxing {
        Sandboxing::Docker(_) => "DOCKER",
        Sandboxing::Process | Sandboxing::UnconfinedProcess => "PROCESS",
    };
    let variable = format!("WORKSPACE_{section}__REACHABLE_NETWORKS");
    let address = address(&setup.sandboxing).to_string();
    let variables = [
        (variable.as_str(), address.as_str()),
        ("WORKSPACE_BROKER__GIT", "off"),
    ];
    let world = GitWorld::build_with(&setup, &variables).await;
    let user = &world.user;
    let host = |url: String| url.trim_start_matches("https://").to_owned();
    for (name, host) in [
        ("API_KEY", host(world.git.url())),
        ("OTHER_KEY", "api.example.org".to_owned()),
    ] {
        let secret = json!({"name": name, "value": TOKEN, "hosts": [host]});
        let stored = user.post("/api/v1/secrets", &secret).await;
        assert_eq!(stored.status, 201, "{stored:?}");
    }
    let script = ATTEMPTS
        .replace("OWN", &world.git.url())
        .replace("OTHER/", &format!("{}/", world.other.url()));
    let content = json!([{"type": "text", "text": format!("```\n{script}\n```")}]);
    let message = json!({"role": "user", "content": content, "run": true});
    let task = user.start(&json!({"initial_message": message})).await;
    let conversation = user.wait_until_ready(&task).await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let sandbox = &conversation.sandbox_id;
    if matches!(setup.sandboxing, Sandboxing::Process) {
        assert_not_slowed(&world.service, sandbox);
    }
    let results = world.service.workspace_file(sandbox, "results.txt");
    assert_eq!(results.as_deref(), Some(RESULTS));
    let events = json!(user.events(&conversation.id).await).to_string();
    assert!(!events.contains(TOKEN), "in an event");
    world.assert_no_token(sandbox);
    assert_not_in_memory(&world, sandbox);
    let audit = user.get_all_pages("/api/v1/audit").await;
    let actor = format!("sandbox:{sandbox}");
    // Equal refusals of a minute are one entry with the reason of one of them.
    let is_refusal =
        |entry: &Value| entry["actor"] == json!(actor) && entry["action"] == "secrets send";
    assert!(audit.iter().any(is_refusal), "no entry: {audit:?}");
}

/// Asserts that no process of the sandbox has the token in its memory. The same search must find the placeholders.
fn assert_not_in_memory(world: &GitWorld, sandbox: &str) {
    let processes = world.service.processes();
    let processes: Vec<_> = processes
        .iter()
        .filter(|it| it.sandbox == sandbox)
        .collect();
    let placeholder = [PLACEHOLDER_PREFIX];
    assert!(
        processes.iter().any(|it| it.has_in_memory(&placeholder)),
        "no memory was searched: {processes:?}"
    );
    for process in processes {
        assert!(!process.has_in_memory(&[TOKEN]), "{process:?}");
    }
}
