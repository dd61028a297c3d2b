//! Arguments of the commands for a running service.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Which service, as whom, and how the answer is printed.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// The service's URL. Else `AGENT_WORKSPACE_URL`, else the one that the configuration here says.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// A file that holds the API key. Else `AGENT_WORKSPACE_KEY_FILE`, or the key itself in `AGENT_WORKSPACE_KEY`; else, for the
    /// service that is configured here, its first key.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Print JSON, for programs: one document, or one a line for `--all` and `follow`. Keys of sandboxes are left out.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Arguments of `conversations`.
#[derive(Debug, Args)]
pub(crate) struct Conversations {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(subcommand)]
    pub(crate) command: ConversationsCommand,
}

/// What to do with conversations.
#[derive(Debug, Subcommand)]
pub(crate) enum ConversationsCommand {
    /// Start a conversation.
    Start(Box<StartArgs>),
    /// List conversations, newest first.
    List(Listing),
    /// Print a conversation's events, and those that arrive, as they do. Ends when the conversation is deleted.
    Follow(Follow),
}

/// What to start.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// The first message; `-` reads it from standard input.
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// The repository to work on, e.g. owner/name.
    #[arg(long, value_name = "R")]
    pub(crate) repository: Option<String>,
    /// Its branch.
    #[arg(long, value_name = "B", requires = "repository")]
    pub(crate) branch: Option<String>,
    /// Title of the conversation.
    #[arg(long, value_name = "T")]
    pub(crate) title: Option<String>,
    /// The model, if not that of the settings.
    #[arg(long, value_name = "M")]
    pub(crate) model: Option<String>,
    /// The sandbox to run in, if not one that the service chooses.
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,
    /// Wait until it is ready, and say what is going on. Exit code 1 if it fails.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait, and then print its events as they arrive.
    #[arg(long)]
    pub(crate) follow: bool,
}

/// How much of a list.
#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// Maximum number of items.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) limit: u16,
    /// List all.
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// What to follow.
#[derive(Debug, Args)]
pub(crate) struct Follow {
    /// The conversation, from `conversations list`.
    pub(crate) id: String,
    /// Skip existing events.
    #[arg(long)]
    pub(crate) from_now: bool,
}

/// Arguments of `sandboxes`.
#[derive(Debug, Args)]
pub(crate) struct Sandboxes {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(subcommand)]
    pub(crate) command: SandboxesCommand,
}

/// What to do with sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxesCommand {
    /// List sandboxes, newest first.
    List(Listing),
    /// Stop what runs in a sandbox; its files and conversations stay.
    Pause {
        /// The sandbox, from `sandboxes list`.
        id: String,
    },
    /// Start a paused sandbox again.
    Resume {
        /// The sandbox, from `sandboxes list`.
        id: String,
    },
    /// Print what a sandbox's agent server has written, also of one that is paused or has failed. Keys are masked.
    Logs(Logs),
}

/// Which part of a log.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The sandbox, from `sandboxes list`.
    pub(crate) id: String,
    /// Also print new lines, until the sandbox stops.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Number of lines from the end.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) tail: u32,
}

/// Arguments of `specs`.
#[derive(Debug, Args)]
pub(crate) struct Specs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    #[command(subcommand)]
    pub(crate) command: SpecsCommand,
}

/// What to do with templates of sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum SpecsCommand {
    /// List the templates of sandboxes.
    List(Listing),
}
