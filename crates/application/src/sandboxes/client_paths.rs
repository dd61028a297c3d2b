//! Which file of a sandbox a client means.

use domain::error::ErrorClass;
use domain::sandbox::{SandboxError, is_below};

use crate::AppError;

/// Where clients believe the workspace to be, whatever the sandbox: it is so in the reference's containers, and front ends
/// have it built in.
const CLIENT_ROOT: &str = "/workspace/project";
/// What is around it there. Where a sandbox has no such directory, it is the workspace, too.
const CLIENT_PARENT: &str = "/workspace";

/// The path that a client means: what is below the place where it believes the workspace to be is below the workspace.
/// `root` is the sandbox's workspace.
pub(crate) fn to_sandbox_path(asked: &str, root: &str) -> String {
    let parent = (!is_below(root, CLIENT_PARENT)).then_some(CLIENT_PARENT);
    for believed in std::iter::once(CLIENT_ROOT).chain(parent) {
        if is_below(asked, believed) {
            return format!("{root}{}", &asked[believed.len()..]);
        }
    }
    asked.to_owned()
}

/// 404 of a path that leads out of the sandbox.
pub(crate) fn outside_workspace() -> AppError {
    AppError::refused(
        ErrorClass::NotFound,
        "The path leads out of the workspace of this sandbox",
    )
}

/// What a client is told when a path was not resolved.
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
    fn the_workspace_is_where_clients_believe_it_to_be() {
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
