//! The responses of unreachable sandboxes, and the mapping of paths.

use domain::error::Classify as _;

use super::*;

fn id() -> ConversationId {
    "0123456789abcdef0123456789abcdef".parse().expect("an id")
}

const DASHED: &str = "01234567-89ab-cdef-0123-456789abcdef";

#[test]
fn every_request_has_a_response_while_the_agent_server_is_unreachable() {
    use ErrorClass::{Conflict, NotFound};
    use InspectionKind::{Files, Git, Model, Profile};
    use UnreachableReason::{NoConversation, NoSandbox, NotRunning, Paused};
    let unreachable = format!("Conversation {DASHED} is not reachable");
    for unreachable_reason in [NoConversation, NoSandbox, Paused, NotRunning] {
        assert!(refusal(InspectionKind::File, unreachable_reason, id()).is_none());
    }
    assert!(refusal(InspectionKind::Project, Paused, id()).is_none());
    let gone = |question| {
        [NoConversation, NoSandbox, NotRunning]
            .map(|unreachable_reason| (question, unreachable_reason, NotFound, unreachable.clone()))
    };
    let stands = |question, before: &str| {
        let detail = format!("Sandbox is paused; resume it before {before}.");
        (question, Paused, Conflict, detail)
    };
    let missing = |unreachable_reason, text: &str| {
        let detail = text.replace("{}", DASHED);
        (
            InspectionKind::Project,
            unreachable_reason,
            NotFound,
            detail,
        )
    };
    let refusals = [
        stands(Files, "listing files"),
        stands(Git, "reading git state"),
        stands(Profile, "switching profiles"),
        stands(Model, "switching models"),
        missing(NoConversation, "Conversation {} not found"),
        missing(NoSandbox, "Sandbox not found for conversation {}"),
        missing(NotRunning, "Sandbox not ready for conversation {}"),
    ];
    let all = [Files, Git, Profile, Model].map(gone);
    for (question, unreachable_reason, class, detail) in
        refusals.into_iter().chain(all.into_iter().flatten())
    {
        let refused = refusal(question, unreachable_reason, id()).expect("refused");
        assert_eq!(
            (refused.class(), refused.public().as_ref()),
            (class, detail.as_str()),
            "{question:?} {unreachable_reason:?}"
        );
    }
}

#[test]
fn a_sandbox_is_asked_while_it_runs_and_shall_run() {
    use SandboxStatus::{Error, Missing, Paused, Running, Starting};
    for (desired, status, expected) in [
        (DesiredState::Running, Running, None),
        (
            DesiredState::Running,
            Starting,
            Some(UnreachableReason::NotRunning),
        ),
        (
            DesiredState::Running,
            Paused,
            Some(UnreachableReason::Paused),
        ),
        (
            DesiredState::Running,
            Error,
            Some(UnreachableReason::NotRunning),
        ),
        (
            DesiredState::Running,
            Missing,
            Some(UnreachableReason::NotRunning),
        ),
        (
            DesiredState::Paused,
            Running,
            Some(UnreachableReason::Paused),
        ),
        (
            DesiredState::Paused,
            Paused,
            Some(UnreachableReason::Paused),
        ),
        (
            DesiredState::Paused,
            Missing,
            Some(UnreachableReason::NotRunning),
        ),
        (
            DesiredState::Deleted,
            Running,
            Some(UnreachableReason::NotRunning),
        ),
    ] {
        assert_eq!(
            unreachable_reason(desired, status),
            expected,
            "{desired:?} {status:?}"
        );
    }
}

#[test]
fn a_path_is_where_the_client_believes_it_to_be() {
    let resolve_client_path =
        |asked| resolve_client_path(asked, "/data/s/workspace", "/data/s/workspace/repo");
    for (asked, expected) in [
        ("/workspace/project", "/data/s/workspace"),
        ("/workspace/project/", "/data/s/workspace/"),
        (
            "/workspace/project/repo/a.txt",
            "/data/s/workspace/repo/a.txt",
        ),
        ("/workspace/projects/a", "/data/s/workspace/projects/a"),
        ("/etc/hosts", "/etc/hosts"),
        ("a/b.txt", "/data/s/workspace/repo/a/b.txt"),
        ("./b.txt", "/data/s/workspace/repo/b.txt"),
        (".", "/data/s/workspace/repo"),
        ("", "/data/s/workspace/repo"),
        (".env", "/data/s/workspace/repo/.env"),
    ] {
        assert_eq!(resolve_client_path(asked), expected, "{asked:?}");
    }
}

#[test]
fn refusals_of_agent_servers_are_upstream_errors() {
    let rejected = |status| AgentError::Rejected {
        status,
        reason: "why".to_owned(),
    };
    for (error, class) in [
        (upstream_error(AgentError::NotFound), ErrorClass::Upstream),
        (upstream_error(rejected(400)), ErrorClass::Upstream),
        (acp_error(AgentError::NotFound), ErrorClass::Upstream),
        (acp_error(rejected(400)), ErrorClass::Invalid),
        (acp_error(rejected(504)), ErrorClass::TimedOut),
        (acp_error(rejected(409)), ErrorClass::Upstream),
    ] {
        assert_eq!(error.class(), class, "{error:?}");
        assert!(error.public().starts_with("Agent server error: "));
        assert!(error.retry_after().is_none());
    }
}
