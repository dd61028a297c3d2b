//! The description of a tool.

use domain::git::GitProvider;

/// A tool and the names of its arguments.
#[derive(Debug)]
pub(super) struct McpTool {
    pub(super) name: &'static str,
    pub(super) provider: GitProvider,
    /// The provider's term for a pull request.
    pub(super) what: &'static str,
    /// The argument that names the repository, and the form of names.
    pub(super) repository: (&'static str, &'static str),
    /// Whether the repository may also be given by number.
    pub(super) takes_number: bool,
    pub(super) text: &'static str,
    pub(super) takes_draft: bool,
    pub(super) takes_labels: bool,
}
