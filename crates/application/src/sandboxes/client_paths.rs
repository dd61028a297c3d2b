//! Maps paths of clients to paths in sandboxes.

use domain::error::ErrorClass;
use domain::sandbox::{SandboxError, is_below};

use crate::AppError;

/// The workspace path of the reference's containers. Front ends use it in every sandbox, because they have it built in.
const CLIENT_ROOT: &str = "/workspace/project";
/// Parent of [`CLIENT_ROOT`]. It also means the workspace, unless the sandbox's workspace is below it.
const CLIENT_PARENT: &str = "/workspace";

/// Maps a path below the workspace that clients assume to the same path below the sandbox's workspace `root`.
pub(crate) fn to_sandbox_path(asked: &str, root: &str) -> String {
    let parent = (!is_below(root, CLIENT_PARENT)).then_some(CLIENT_PARENT);
    for believed in std::iter::once(CLIENT_ROOT).chain(parent) {
        if is_below(asked, believed) {
            return format!("{root}{}", &asked[believed.len()..]);
        }
    }
    asked.to_owned()
}

pub(crate) fn outside_workspace() -> AppError {
    AppError::refused(
        ErrorClass::NotFound,
        "The path leads out of the workspace of this sandbox",
    )
}

pub(crate) fn map_resolve_error(error: SandboxError) -> AppError {
    match error {
        SandboxError::NotFound => outside_workspace(),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_clients_map_to_the_workspace() {
        let own = "/data/s/workspace";
        for (root, asked, expected) in [
            (own, "/workspace/project", own),
            (own, "/workspace/project/a", "/data/s/workspace/a"),
            (own, "/workspace", own),
            (own, "/workspace/a", "/data/s/workspace/a"),
            (own, "/workspace/projects/a", "/data/s/workspace/projects/a"),
            (own, "/workspaces/a", "/workspaces/a"),
            (own, "/etc/hosts", "/etc/hosts"),
            (own, "a", "a"),
            (
                "/workspace/project",
                "/workspace/project/a",
                "/workspace/project/a",
            ),
            ("/workspace/project", "/workspace/a", "/workspace/a"),
            ("/workspace", "/workspace/project/a", "/workspace/a"),
            ("/workspace", "/workspace/a", "/workspace/a"),
        ] {
            assert_eq!(to_sandbox_path(asked, root), expected, "{root} {asked}");
        }
    }
}
