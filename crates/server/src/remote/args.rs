//! Arguments of the commands for a running service.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The service, the key and the output format.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// URL of the service. Default: `AGENT_WORKSPACE_URL`, then the service of `login`, then the URL in the configuration of this
    /// machine.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// File with the API key. Default: the file in `AGENT_WORKSPACE_KEY_FILE`, or the key itself in `AGENT_WORKSPACE_KEY`; then,
    /// for the service of `login`, the key that it keeps; then, only for the service configured on this machine, its first key.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Print JSON, for programs: one document, or one per line with `--all` and `follow`. Session keys are omitted.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The service to sign in to.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// URL of the service, for example <https://agents.example.org>.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
}

/// Subcommands at a service.
#[derive(Debug, Args)]
pub(crate) struct AtService<C: Subcommand> {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(subcommand)]
    pub(crate) command: C,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConversationsCommand {
    /// Start a conversation.
    Start(Box<StartArgs>),
    /// List conversations, newest first.
    List(Listing),
    /// Print the events of a conversation, and new ones as they arrive, until the conversation is deleted.
    Follow(Follow),
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// The first message; `-` reads it from standard input.
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// The repository to work on, e.g. owner/name.
    #[arg(long, value_name = "REPOSITORY")]
    pub(crate) repository: Option<String>,
    /// Branch of the repository. Default: the repository's default branch.
    #[arg(long, value_name = "BRANCH", requires = "repository")]
    pub(crate) branch: Option<String>,
    /// Limits the new sandbox to these hosts, separated by commas, e.g. packages,api.example.org. Default: those in the
    /// user's settings.
    #[arg(
        long,
        value_name = "HOSTS",
        value_delimiter = ',',
        conflicts_with = "sandbox"
    )]
    pub(crate) egress_allow: Option<Vec<String>>,
    /// Title of the conversation.
    #[arg(long, value_name = "TITLE")]
    pub(crate) title: Option<String>,
    /// Model. Default: the one in the user's settings.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Sandbox to run in. Default: the service chooses or creates one.
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,
    /// Wait until the conversation is ready, and print the progress. Exit code 1 if the start fails.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait like --wait, and then print the events as they arrive.
    #[arg(long)]
    pub(crate) follow: bool,
}

/// Length of a list.
#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// Maximum number of items.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) limit: u16,
    /// List all items.
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Follow {
    /// Id of the conversation, from `conversations list`.
    pub(crate) id: String,
    /// Print only events that arrive from now on.
    #[arg(long)]
    pub(crate) from_now: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxesCommand {
    /// List sandboxes, newest first.
    List(Listing),
    /// Stop all programs in a sandbox; its files and conversations stay.
    Pause {
        /// Id of the sandbox, from `sandboxes list`.
        id: String,
    },
    /// Start a paused sandbox again.
    Resume {
        /// Id of the sandbox, from `sandboxes list`.
        id: String,
    },
    /// Print the output of a sandbox's agent server, also of a paused or failed sandbox. Keys are masked.
    Logs(Logs),
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Id of the sandbox, from `sandboxes list`.
    pub(crate) id: String,
    /// Also print new lines, until the sandbox stops.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Number of lines from the end.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) tail: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EgressCommand {
    /// List the hosts, newest first, with the decisions about them.
    List {
        /// Only those without a decision.
        #[arg(long)]
        pending: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Let the sandbox that asked reach the host.
    Approve {
        /// Id of the request, from `egress list`.
        id: String,
        /// Let all of the user's sandboxes reach it, also later ones.
        #[arg(long)]
        all: bool,
    },
    /// Refuse the host for good.
    Deny {
        /// Id of the request, from `egress list`.
        id: String,
    },
    /// Delete the request with its decision, so that the next attempt asks again.
    Forget {
        /// Id of the request, from `egress list`.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AutomationsCommand {
    /// List the automations of the user's organization.
    List {
        /// Maximum number of items.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
        limit: u16,
    },
    /// Run an automation now.
    Run {
        /// Id of the automation, from `automations list`.
        id: String,
    },
    /// List the latest runs of an automation: how they ended, and their conversations.
    Logs {
        /// Id of the automation, from `automations list`.
        id: String,
        /// Maximum number of runs.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
        limit: u16,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum OrganizationsCommand {
    /// List the user's organizations, the personal one first.
    List,
    /// List the members of an organization, by name.
    Members {
        /// Id of the organization, from `organizations list`.
        #[arg(value_name = "ORG")]
        organization: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Invite a person, and print the link by which they join. It works once, and cannot be shown again.
    Invite {
        /// Id of the organization, from `organizations list`.
        #[arg(value_name = "ORG")]
        organization: String,
        /// The person's e-mail address. The service does not check that the holder of the link has it.
        email: String,
        /// The role of the new member.
        #[arg(long, value_name = "ROLE", default_value = "member", value_parser = ["member", "admin", "owner"])]
        role: String,
    },
    /// Remove a member: their keys for the organization end, and their sandboxes in it pause. Removing yourself leaves it.
    Remove {
        /// Id of the organization, from `organizations list`.
        #[arg(value_name = "ORG")]
        organization: String,
        /// Login name or id of the member, from `organizations members`.
        user: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpecsCommand {
    /// List the sandbox specs.
    List(Listing),
}
