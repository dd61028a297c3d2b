//! Decides who serves a path: the service, agent servers, or both. Pure; the tables in this file are the whole policy.
//!
//! The paths are those of agent servers 1.34 and 1.58 (`docs/reference/wire/agent-server.md`).

use domain::id::ConversationId;

/// Agent servers have no paths below this prefix.
const API_PREFIX: &str = "/api/v1/";

/// Paths of agent servers only: the path itself and everything below.
const AGENT_SERVER_PATHS: &[&str] = &[
    "/api/acp",
    "/api/auth",
    "/api/bash",
    "/api/canvas-extensions",
    "/api/desktop",
    "/api/file",
    "/api/git",
    "/api/hooks",
    "/api/llm",
    "/api/mcp",
    "/api/meta-profiles",
    "/api/plugins",
    "/api/profiles",
    "/api/skills",
    "/api/sub-agents",
    "/api/tools",
    "/api/vscode",
    "/api/workspaces",
    "/app-backends",
    "/sockets",
    "/v1",
];

/// Paths of both: the path itself and everything below.
const SHARED_PATHS: &[&str] = &["/api/agent-profiles", "/api/settings"];

/// Paths of both: only the path itself.
const SHARED_EXACT_PATHS: &[&str] = &[
    "/",
    "/alive",
    "/api/conversations",
    "/docs",
    "/health",
    "/openapi.json",
    "/ready",
    "/redoc",
    "/server_info",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathOwner {
    /// The service (or nothing, and it answers 404).
    Service,
    /// The service and agent servers.
    Shared,
    /// Only agent servers.
    AgentServer,
    /// Only agent servers; the path names a conversation.
    Conversation(ConversationId),
    /// A socket of a conversation. The key may come in its first frame.
    Socket(ConversationId),
}

/// The caller, as far as it matters for forwarding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallerClass {
    /// The holder of a sandbox's key.
    Sandbox,
    User,
    /// The request has a key, which is not valid.
    UnknownKey,
    NoKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteDecision {
    /// The service's routes handle it.
    Service,
    /// Forward to the sandbox whose key it is.
    ByKey,
    /// Forward to the sandbox of this conversation, which must be the user's.
    ByConversation(ConversationId),
    /// Forward to the sandbox of this conversation without authentication: the agent server checks the key in the first frame.
    Unchecked(ConversationId),
    /// Answer 401.
    Refused,
}

impl PathOwner {
    /// The owner of a path, given as it stands in the request. A path that may mean another one is not forwarded.
    pub(crate) fn of(path: &str) -> Self {
        // The most frequent case; no table contains it.
        if path.starts_with(API_PREFIX) || is_ambiguous(path) {
            return Self::Service;
        }
        if SHARED_EXACT_PATHS.contains(&path)
            || SHARED_PATHS.iter().any(|shared| is_below(path, shared))
        {
            return Self::Shared;
        }
        if let Some(rest) = path.strip_prefix("/api/conversations/") {
            return Self::of_conversation(rest);
        }
        for sockets in ["/sockets/events/", "/sockets/session/"] {
            let id = path.strip_prefix(sockets).map(str::parse);
            if let Some(Ok(id)) = id {
                return Self::Socket(id);
            }
        }
        // Not `/api/init`: it takes the key of the process that booted the agent server, which is this service.
        if AGENT_SERVER_PATHS.iter().any(|known| is_below(path, known)) {
            return Self::AgentServer;
        }
        Self::Service
    }

    /// The owner of a path after `/api/conversations/`.
    fn of_conversation(rest: &str) -> Self {
        match rest.split_once('/') {
            // Legacy front ends use these two (`routes/legacy/conversations.rs`).
            None | Some((_, "" | "config")) => Self::Shared,
            Some((id, _)) => id.parse().map_or(Self::AgentServer, Self::Conversation),
        }
    }

    /// Whether the path may be forwarded, depending on the caller.
    pub(crate) fn is_forwardable(self) -> bool {
        self != Self::Service
    }

    /// Decides about a request for this path. `upgrades`: it asks for a socket.
    pub(crate) fn decision(self, caller: CallerClass, upgrades: bool) -> RouteDecision {
        match (self, caller) {
            (Self::Service, _)
            | (Self::Shared, CallerClass::User | CallerClass::UnknownKey | CallerClass::NoKey) => {
                RouteDecision::Service
            }
            (_, CallerClass::Sandbox) => RouteDecision::ByKey,
            (Self::Conversation(id) | Self::Socket(id), CallerClass::User) => {
                RouteDecision::ByConversation(id)
            }
            (Self::Socket(id), CallerClass::NoKey) if upgrades => RouteDecision::Unchecked(id),
            // The path does not name a sandbox.
            (Self::AgentServer, CallerClass::User) => RouteDecision::Service,
            (_, CallerClass::UnknownKey | CallerClass::NoKey) => RouteDecision::Refused,
        }
    }
}

pub(super) fn is_below(path: &str, place: &str) -> bool {
    path.strip_prefix(place)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path may mean another one: dot segments in any spelling, and characters that some servers treat as a slash.
fn is_ambiguous(path: &str) -> bool {
    if !path.starts_with('/') || path.starts_with("//") || path.contains('\\') {
        return true;
    }
    if !path.contains('%') {
        return has_dot_segments(path);
    }
    let lower = path.to_ascii_lowercase();
    let plain = lower.replace("%2e", ".").replace("%2f", "/");
    lower.contains("%5c") || has_dot_segments(&plain)
}

fn has_dot_segments(path: &str) -> bool {
    path.split('/').any(|part| part == "." || part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "123e4567-e89b-12d3-a456-426614174000";

    fn id() -> ConversationId {
        ID.parse().unwrap()
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn paths_are_assigned_to_owners() {
        let conversation = |rest: &str| format!("/api/conversations/{ID}{rest}");
        let table = [
            (
                "/api/bash/start_bash_command".to_owned(),
                PathOwner::AgentServer,
            ),
            ("/api/file".to_owned(), PathOwner::AgentServer),
            (
                "/api/file/download//abs/olute".to_owned(),
                PathOwner::AgentServer,
            ),
            ("/api/files".to_owned(), PathOwner::Service),
            ("/api/git/changes/x".to_owned(), PathOwner::AgentServer),
            ("/api/git-providers".to_owned(), PathOwner::Service),
            ("/api/tools/".to_owned(), PathOwner::AgentServer),
            ("/api/vscode/url".to_owned(), PathOwner::AgentServer),
            ("/api/desktop/url".to_owned(), PathOwner::AgentServer),
            ("/v1/models".to_owned(), PathOwner::AgentServer),
            ("/api/settings".to_owned(), PathOwner::Shared),
            ("/api/settings/llm".to_owned(), PathOwner::Shared),
            ("/health".to_owned(), PathOwner::Shared),
            ("/health/x".to_owned(), PathOwner::Service),
            ("/server_info".to_owned(), PathOwner::Shared),
            ("/".to_owned(), PathOwner::Shared),
            ("/api/conversations".to_owned(), PathOwner::Shared),
            ("/api/conversations/search".to_owned(), PathOwner::Shared),
            (conversation(""), PathOwner::Shared),
            (conversation("/"), PathOwner::Shared),
            (conversation("/config"), PathOwner::Shared),
            (
                conversation("/events/search"),
                PathOwner::Conversation(id()),
            ),
            (conversation("/run"), PathOwner::Conversation(id())),
            (
                "/api/conversations/x/run".to_owned(),
                PathOwner::AgentServer,
            ),
            (format!("/sockets/events/{ID}"), PathOwner::Socket(id())),
            (format!("/sockets/session/{ID}"), PathOwner::Socket(id())),
            (format!("/sockets/events/{ID}/"), PathOwner::AgentServer),
            ("/sockets/bash-events".to_owned(), PathOwner::AgentServer),
            ("/api/init".to_owned(), PathOwner::Service),
            (
                "/api/v1/sandboxes/a/settings/secrets".to_owned(),
                PathOwner::Service,
            ),
            ("/api/v1/users/me".to_owned(), PathOwner::Service),
            (
                "/api/v1/webhooks/conversations".to_owned(),
                PathOwner::Service,
            ),
            ("/mcp/mcp".to_owned(), PathOwner::Service),
            ("/metrics".to_owned(), PathOwner::Service),
            // Paths that mean another one.
            ("/api/file/../init".to_owned(), PathOwner::Service),
            ("/api/file/%2e%2E/init".to_owned(), PathOwner::Service),
            ("/api/file/..%2Finit".to_owned(), PathOwner::Service),
            ("/api/file/.%2fx".to_owned(), PathOwner::Service),
            ("/api/file/..\\init".to_owned(), PathOwner::Service),
            ("/api/file/%5c..".to_owned(), PathOwner::Service),
            ("//api/file".to_owned(), PathOwner::Service),
            ("/API/file".to_owned(), PathOwner::Service),
            ("/%61pi/file".to_owned(), PathOwner::Service),
            (String::new(), PathOwner::Service),
        ];
        for (path, place) in table {
            assert_eq!(PathOwner::of(&path), place, "{path}");
        }
    }

    #[test]
    fn the_caller_decides_about_shared_paths() {
        use CallerClass::{NoKey, Sandbox, UnknownKey, User};
        let places = [
            PathOwner::Service,
            PathOwner::Shared,
            PathOwner::AgentServer,
            PathOwner::Conversation(id()),
            PathOwner::Socket(id()),
        ];
        let ours = RouteDecision::Service;
        let (by_key, refused) = (RouteDecision::ByKey, RouteDecision::Refused);
        let (checked, unchecked) = (
            RouteDecision::ByConversation(id()),
            RouteDecision::Unchecked(id()),
        );
        let table = [
            (Sandbox, false, [ours, by_key, by_key, by_key, by_key]),
            (Sandbox, true, [ours, by_key, by_key, by_key, by_key]),
            (User, false, [ours, ours, ours, checked, checked]),
            (User, true, [ours, ours, ours, checked, checked]),
            (UnknownKey, false, [ours, ours, refused, refused, refused]),
            (UnknownKey, true, [ours, ours, refused, refused, refused]),
            (NoKey, false, [ours, ours, refused, refused, refused]),
            (NoKey, true, [ours, ours, refused, refused, unchecked]),
        ];
        for (caller, upgrades, courses) in table {
            let found = places.map(|place| place.decision(caller, upgrades));
            assert_eq!(found, courses, "{caller:?} {upgrades}");
        }
    }
}
