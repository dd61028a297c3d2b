//! The table, and where a client's path leads.

use domain::error::Classify as _;

use super::*;

fn id() -> ConversationId {
    "0123456789abcdef0123456789abcdef".parse().expect("an id")
}

const DASHED: &str = "01234567-89ab-cdef-0123-456789abcdef";

#[test]
fn every_question_has_an_answer_where_nobody_can_be_asked() {
    use ErrorClass::{Conflict, NotFound};
    use Obstacle::{NoConversation, NoSandbox, NotRunning, Paused};
    use Question::{Files, Git, Model, Profile};
    let unreachable = format!("Conversation {DASHED} is not reachable");
    for obstacle in [NoConversation, NoSandbox, Paused, NotRunning] {
        assert!(refusal(Question::File, obstacle, id()).is_none());
    }
    assert!(refusal(Question::Project, Paused, id()).is_none());
    let gone = |question| {
        [NoConversation, NoSandbox, NotRunning]
            .map(|obstacle| (question, obstacle, NotFound, unreachable.clone()))
    };
    let stands = |question, before: &str| {
        let detail = format!("Sandbox is paused; resume it before {before}.");
        (question, Paused, Conflict, detail)
    };
    let missing = |obstacle, text: &str| {
        let detail = text.replace("{}", DASHED);
        (Question::Project, obstacle, NotFound, detail)
    };
    let told = [
        stands(Files, "listing files"),
        stands(Git, "reading git state"),
        stands(Profile, "switching profiles"),
        stands(Model, "switching models"),
        missing(NoConversation, "Conversation {} not found"),
        missing(NoSandbox, "Sandbox not found for conversation {}"),
        missing(NotRunning, "Sandbox not ready for conversation {}"),
    ];
    let all = [Files, Git, Profile, Model].map(gone);
    for (question, obstacle, class, detail) in told.into_iter().chain(all.into_iter().flatten()) {
        let refused = refusal(question, obstacle, id()).expect("refused");
        assert_eq!(
            (refused.class(), refused.public().as_ref()),
            (class, detail.as_str()),
            "{question:?} {obstacle:?}"
        );
    }
}

#[test]
fn a_sandbox_is_asked_while_it_runs_and_shall_run() {
    use SandboxStatus::{Error, Missing, Paused, Running, Starting};
    for (desired, status, expected) in [
        (DesiredState::Running, Running, None),
        (DesiredState::Running, Starting, Some(Obstacle::NotRunning)),
        (DesiredState::Running, Paused, Some(Obstacle::Paused)),
        (DesiredState::Running, Error, Some(Obstacle::NotRunning)),
        (DesiredState::Running, Missing, Some(Obstacle::NotRunning)),
        (DesiredState::Paused, Running, Some(Obstacle::Paused)),
        (DesiredState::Paused, Paused, Some(Obstacle::Paused)),
        (DesiredState::Paused, Missing, Some(Obstacle::NotRunning)),
        (DesiredState::Deleted, Running, Some(Obstacle::NotRunning)),
    ] {
        assert_eq!(
            obstacle(desired, status),
            expected,
            "{desired:?} {status:?}"
        );
    }
}

#[test]
fn a_path_is_where_the_client_believes_it_to_be() {
    let located = |asked| located(asked, "/data/s/workspace", "/data/s/workspace/repo");
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
        assert_eq!(located(asked), expected, "{asked:?}");
    }
}

#[test]
fn what_an_agent_server_refuses_is_its_failure() {
    let rejected = |status| AgentError::Rejected {
        status,
        reason: "why".to_owned(),
    };
    for (error, class) in [
        (upstream(AgentError::NotFound), ErrorClass::Upstream),
        (upstream(rejected(400)), ErrorClass::Upstream),
        (of_program(AgentError::NotFound), ErrorClass::Upstream),
        (of_program(rejected(400)), ErrorClass::Invalid),
        (of_program(rejected(504)), ErrorClass::TimedOut),
        (of_program(rejected(409)), ErrorClass::Upstream),
    ] {
        assert_eq!(error.class(), class, "{error:?}");
        assert!(error.public().starts_with("Agent server error: "));
        assert!(error.retry_after().is_none());
    }
}
