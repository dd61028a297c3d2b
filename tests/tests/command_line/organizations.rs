//! The command `organizations`: the administrator of an organization, a member, and mistakes.

use std::process::Output;

use acceptance::Service;
use serde_json::json;

use super::{json_of, stderr_of, stdout_of, text};

/// Runs a command as the user of this key.
fn run_as(service: &Service, key: &str, arguments: &[&str]) -> Output {
    let mut command = service.cli_command(arguments);
    command.env("AGENT_WORKSPACE_KEY", key);
    command
        .output()
        .expect("cannot run the agent-workspace binary")
}

#[tokio::test]
async fn an_organization_is_shared_from_the_command_line() {
    let service = Service::start().await;
    let (admin, mia) = (service.admin(), service.user("mia"));
    let crew = json!({"name": "Crew"});
    let made = admin.post("/api/organizations", &crew).await;
    let id = made.ok()["id"].as_str().expect("an id").to_owned();
    let table = stdout_of(&service.run(&["organizations", "list"]));
    let row = table.lines().nth(2).unwrap_or_default();
    assert_eq!(row, format!("{id}  shared    Crew"), "{table}");

    let invite = ["organizations", "invite", &id, "mia@example.org"];
    let invited = service.run(&invite);
    let link = stdout_of(&invited);
    let (page, token) = link.trim_end().split_once('#').expect("a link");
    assert!(page.ends_with("/invite"), "{link}");
    let note = text(&invited.stderr);
    assert!(note.contains("works once") && !note.contains(token));
    let accept = "/api/organizations/members/invite/accept";
    let joined = mia.post(accept, &json!({"token": token})).await.ok();
    assert_eq!(joined["org_name"], "Crew");
    let owner = [&invite[..], &["--role", "owner", "--json"]].concat();
    let owner = json_of(&service.run(&owner));
    assert_eq!(owner["role"], "owner");
    assert!(owner["invite_url"].is_string(), "{owner}");

    let members = ["organizations", "members", &id];
    let table = stdout_of(&run_as(&service, mia.key(), &members));
    let row = table.lines().nth(2).unwrap_or_default();
    assert!(row.contains("  member  mia  "), "{table}");
    let all = [&members[..], &["--all", "--json"]].concat();
    assert_eq!(stdout_of(&service.run(&all)).lines().count(), 2);
    assert_mistakes(&service, mia.key(), &id);

    let remove = ["organizations", "remove", &id, "mia"];
    let removed = stdout_of(&service.run(&remove));
    assert_eq!(removed.trim_end(), format!("removed mia from {id}"));
    let again = stderr_of(&service.run(&remove));
    assert!(again.contains("organizations members ORG"), "{again}");
    let left = run_as(&service, mia.key(), &["organizations", "list", "--json"]);
    let left = json_of(&left);
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "{left}");
}

/// What is refused, and a part of the text that says why.
fn assert_mistakes(service: &Service, member: &str, id: &str) {
    for (command, part) in [
        (&["members", "x"][..], "organizations list"),
        (&["invite", id, "no address"], "not an e-mail address"),
        (&["invite", "x", "eve@example.org"], "organizations list"),
        (&["remove", id, "olaf"], "no such member"),
    ] {
        let arguments = [&["organizations"], command].concat();
        let said = stderr_of(&service.run(&arguments));
        assert!(said.contains(part), "{command:?}: {said}");
    }
    let invite = ["organizations", "invite", id, "eve@example.org"];
    let said = stderr_of(&run_as(service, member, &invite));
    assert!(said.contains("does not allow"), "{said}");
    let role = [&invite[..], &["--role", "chief"]].concat();
    assert_eq!(service.run(&role).status.code(), Some(2));
}
