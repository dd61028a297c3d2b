//! Whose a path is: ours, the agent servers', or both have it. Pure, and the whole of it is the tables of this file.
//!
//! The paths are those of agent servers 1.34 and 1.58 (their `OpenAPI` documents; sockets: contract, section 1.1).

use domain::id::ConversationId;

/// Agent servers have nothing below this.
const OURS: &str = "/api/v1/";

/// Agent servers have these, and we do not: the path itself and all below it.
const THEIRS: &[&str] = &[
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

/// Both have these: the path itself and all below it.
const OF_BOTH: &[&str] = &["/api/agent-profiles", "/api/settings"];

/// Both have these, and nothing below.
const OF_BOTH_ALONE: &[&str] = &[
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

/// Whose a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Ours, or nobody's.
    Ours,
    /// We have it, and agent servers have it.
    OfBoth,
    /// Only agent servers have it.
    Theirs,
    /// Only agent servers have it, and it names a conversation.
    Conversation(ConversationId),
    /// A socket of a conversation, whose key may come in its first frame.
    Socket(ConversationId),
}

/// Who asks, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The holder of a sandbox's key.
    Sandbox,
    /// A user.
    User,
    /// A key was sent that is nobody's.
    Stranger,
    /// No key was sent where we look for one.
    Silent,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// It is for our routes.
    Ours,
    /// To the sandbox whose key it is.
    ByKey,
    /// To the sandbox of this conversation, which must be the user's.
    ByConversation(ConversationId),
    /// To the sandbox of this conversation, whoever asks: the agent server checks the key in the first frame.
    Unchecked(ConversationId),
    /// 401.
    Refused,
}

impl Place {
    /// Of the path as it stands in the request. One that means another path than it says is not forwarded.
    pub(crate) fn of(path: &str) -> Self {
        // Most requests by far; none of the tables has any of it.
        if path.starts_with(OURS) || is_doubtful(path) {
            return Self::Ours;
        }
        if OF_BOTH_ALONE.contains(&path) || OF_BOTH.iter().any(|it| is_below(path, it)) {
            return Self::OfBoth;
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
        // It takes the key of whoever booted the agent server, and that is us.
        if THEIRS.iter().any(|it| is_below(path, it)) {
            return Self::Theirs;
        }
        Self::Ours
    }

    /// What stands behind `/api/conversations/`.
    fn of_conversation(rest: &str) -> Self {
        match rest.split_once('/') {
            // Older front ends have these two (`routes/legacy_conversations.rs`).
            None | Some((_, "" | "config")) => Self::OfBoth,
            Some((id, _)) => id.parse().map_or(Self::Theirs, Self::Conversation),
        }
    }

    /// Whether it matters who asks.
    pub(crate) fn asks_for_caller(self) -> bool {
        self != Self::Ours
    }

    /// What becomes of a request for this place. `upgrades`: it wants to be a socket.
    pub(crate) fn course(self, caller: Caller, upgrades: bool) -> Course {
        match (self, caller) {
            (Self::Ours, _) | (Self::OfBoth, Caller::User | Caller::Stranger | Caller::Silent) => {
                Course::Ours
            }
            (_, Caller::Sandbox) => Course::ByKey,
            (Self::Conversation(id) | Self::Socket(id), Caller::User) => Course::ByConversation(id),
            (Self::Socket(id), Caller::Silent) if upgrades => Course::Unchecked(id),
            // Nothing says which sandbox is meant.
            (Self::Theirs, Caller::User) => Course::Ours,
            (_, Caller::Stranger | Caller::Silent) => Course::Refused,
        }
    }
}

pub(super) fn is_below(path: &str, place: &str) -> bool {
    path.strip_prefix(place)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Segments that mean another place, spelled in any way, and what some servers take for a slash.
fn is_doubtful(path: &str) -> bool {
    if !path.starts_with('/') || path.starts_with("//") || path.contains('\\') {
        return true;
    }
    if !path.contains('%') {
        return has_steps(path);
    }
    let lower = path.to_ascii_lowercase();
    let plain = lower.replace("%2e", ".").replace("%2f", "/");
    lower.contains("%5c") || has_steps(&plain)
}

fn has_steps(path: &str) -> bool {
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
    fn paths_have_owners() {
        let conversation = |rest: &str| format!("/api/conversations/{ID}{rest}");
        let table = [
            ("/api/bash/start_bash_command".to_owned(), Place::Theirs),
            ("/api/file".to_owned(), Place::Theirs),
            ("/api/file/download//abs/olute".to_owned(), Place::Theirs),
            ("/api/files".to_owned(), Place::Ours),
            ("/api/git/changes/x".to_owned(), Place::Theirs),
            ("/api/git-providers".to_owned(), Place::Ours),
            ("/api/tools/".to_owned(), Place::Theirs),
            ("/api/vscode/url".to_owned(), Place::Theirs),
            ("/api/desktop/url".to_owned(), Place::Theirs),
            ("/v1/models".to_owned(), Place::Theirs),
            ("/api/settings".to_owned(), Place::OfBoth),
            ("/api/settings/llm".to_owned(), Place::OfBoth),
            ("/health".to_owned(), Place::OfBoth),
            ("/health/x".to_owned(), Place::Ours),
            ("/server_info".to_owned(), Place::OfBoth),
            ("/".to_owned(), Place::OfBoth),
            ("/api/conversations".to_owned(), Place::OfBoth),
            ("/api/conversations/search".to_owned(), Place::OfBoth),
            (conversation(""), Place::OfBoth),
            (conversation("/"), Place::OfBoth),
            (conversation("/config"), Place::OfBoth),
            (conversation("/events/search"), Place::Conversation(id())),
            (conversation("/run"), Place::Conversation(id())),
            ("/api/conversations/x/run".to_owned(), Place::Theirs),
            (format!("/sockets/events/{ID}"), Place::Socket(id())),
            (format!("/sockets/session/{ID}"), Place::Socket(id())),
            (format!("/sockets/events/{ID}/"), Place::Theirs),
            ("/sockets/bash-events".to_owned(), Place::Theirs),
            ("/api/init".to_owned(), Place::Ours),
            (
                "/api/v1/sandboxes/a/settings/secrets".to_owned(),
                Place::Ours,
            ),
            ("/api/v1/users/me".to_owned(), Place::Ours),
            ("/api/v1/webhooks/conversations".to_owned(), Place::Ours),
            ("/mcp/mcp".to_owned(), Place::Ours),
            ("/metrics".to_owned(), Place::Ours),
            // Paths that mean another one.
            ("/api/file/../init".to_owned(), Place::Ours),
            ("/api/file/%2e%2E/init".to_owned(), Place::Ours),
            ("/api/file/..%2Finit".to_owned(), Place::Ours),
            ("/api/file/.%2fx".to_owned(), Place::Ours),
            ("/api/file/..\\init".to_owned(), Place::Ours),
            ("/api/file/%5c..".to_owned(), Place::Ours),
            ("//api/file".to_owned(), Place::Ours),
            ("/API/file".to_owned(), Place::Ours),
            ("/%61pi/file".to_owned(), Place::Ours),
            (String::new(), Place::Ours),
        ];
        for (path, place) in table {
            assert_eq!(Place::of(&path), place, "{path}");
        }
    }

    #[test]
    fn who_asks_decides_where_both_could_answer() {
        use Caller::{Sandbox, Silent, Stranger, User};
        let places = [
            Place::Ours,
            Place::OfBoth,
            Place::Theirs,
            Place::Conversation(id()),
            Place::Socket(id()),
        ];
        let ours = Course::Ours;
        let (by_key, refused) = (Course::ByKey, Course::Refused);
        let (checked, unchecked) = (Course::ByConversation(id()), Course::Unchecked(id()));
        let table = [
            (Sandbox, false, [ours, by_key, by_key, by_key, by_key]),
            (Sandbox, true, [ours, by_key, by_key, by_key, by_key]),
            (User, false, [ours, ours, ours, checked, checked]),
            (User, true, [ours, ours, ours, checked, checked]),
            (Stranger, false, [ours, ours, refused, refused, refused]),
            (Stranger, true, [ours, ours, refused, refused, refused]),
            (Silent, false, [ours, ours, refused, refused, refused]),
            (Silent, true, [ours, ours, refused, refused, unchecked]),
        ];
        for (caller, upgrades, courses) in table {
            let found = places.map(|place| place.course(caller, upgrades));
            assert_eq!(found, courses, "{caller:?} {upgrades}");
        }
    }
}
