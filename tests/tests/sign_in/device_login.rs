//! The command line signs in by a browser.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use acceptance::Service;
use reqwest::StatusCode;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use super::{Browser, PASSWORD, code_in, start, stdout_of};

fn log_in(service: &Service, url: &str) -> Child {
    let mut command = Command::from(service.cli_command(&["login", url]));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().expect("the binary runs")
}

/// The path of the page that the command names.
async fn page_of(lines: &mut Lines<BufReader<ChildStderr>>, url: &str) -> String {
    while let Some(line) = lines.next_line().await.expect("text") {
        if let Some(path) = line.trim().strip_prefix(url) {
            return path.to_owned();
        }
    }
    panic!("the command names no page");
}

fn stderr_of(login: &mut Child) -> Lines<BufReader<ChildStderr>> {
    let stderr = login.stderr.take().expect("a pipe");
    BufReader::new(stderr).lines()
}

/// A person denies the code. The command ends at its next poll, and keeps no key.
#[tokio::test]
async fn the_command_line_says_that_it_was_denied() {
    let service = start(None).await;
    let mut browser = Browser::new(&service);
    let code = code_in(&service.log());
    browser.set_password(&code, PASSWORD).await.expect("a page");

    let url = format!("http://{}", service.address());
    let mut login = log_in(&service, &url);
    let mut stderr = stderr_of(&mut login);
    let page = page_of(&mut stderr, &url).await;
    let (path, code) = page.split_once("?user_code=").expect("a code");
    let form = [("user_code", code), ("decision", "deny")];
    let denied = browser.post(&format!("{path}-authenticated"), &form).await;
    assert_eq!(denied.status(), StatusCode::OK);
    let mut said = String::new();
    while let Some(line) = stderr.next_line().await.expect("text") {
        said.push_str(&line);
    }
    assert!(said.contains("denied in the browser"), "{said}");
    let ended = login.wait().await.expect("the command ends");
    assert_eq!(ended.code(), Some(1));
    let file = service.root().join("home/.config/agent-workspace/login");
    assert!(!file.exists());
}

/// A person confirms the code in a browser. The other commands then use the key, and `logout` revokes it.
#[tokio::test]
async fn the_command_line_signs_in_by_a_browser() {
    let service = start(None).await;
    let mut browser = Browser::new(&service);
    let code = code_in(&service.log());
    browser.set_password(&code, PASSWORD).await.expect("a page");

    let url = format!("http://{}", service.address());
    let mut login = log_in(&service, &url);
    let page = page_of(&mut stderr_of(&mut login), &url).await;
    let (path, code) = page.split_once("?user_code=").expect("a code");
    let shown = browser.get(&page).await;
    assert_eq!(shown.status(), StatusCode::OK);
    assert!(shown.text().await.expect("a page").contains(code));
    let form = [("user_code", code)];
    let target = format!("{path}-authenticated");
    let confirmed = browser.post(&target, &form);
    assert_eq!(confirmed.await.status(), StatusCode::OK);
    let output = login.wait_with_output().await.expect("the command ends");
    let said = stdout_of(&output);
    assert!(said.contains("as admin"), "{said}");

    let file = service.root().join("home/.config/agent-workspace/login");
    let mode = file.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).expect("a login");
    let key = text.lines().nth(1).expect("a key").to_owned();
    assert!(!said.contains(&key) && !service.log().contains(&key));
    let listed = stdout_of(&service.run(&["conversations", "list", "--json"]));
    assert!(listed.contains("\"items\":[]"), "{listed}");
    let client = service.admin().with_key(&key);
    let keys = || client.get("/api/v1/keys");
    let used = keys().await.ok().to_string();
    assert!(used.contains("\"last_used_at\":\"") && used.contains(&format!("device {code}")));

    let said = stdout_of(&service.run(&["logout"]));
    assert!(said.contains("Signed out"), "{said}");
    assert!(!file.exists());
    assert_eq!(keys().await.status, 401);
    let again = stdout_of(&service.run(&["logout"]));
    assert!(again.contains("not signed in"), "{again}");
}
