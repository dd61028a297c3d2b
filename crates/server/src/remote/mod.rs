//! Commands that call a running service as one of its users.
//!
//! They use only its HTTP API (crate `client`), so they work from any machine. Results go to standard output, everything
//! else to standard error.

mod args;
mod connect;
mod conversations;
mod event_line;
mod logs;
mod output;
mod sandboxes;

use std::path::Path;

use anyhow::Context as _;
use clap::Subcommand;

use crate::compose::EnvVariables;
use args::{AtService, ConversationsCommand, SandboxesCommand, ServiceArgs, SpecsCommand};
use connect::Connection;
use output::CommandOutput;

/// Commands that call a running service.
#[derive(Debug, Subcommand)]
pub(crate) enum RemoteCommand {
    /// Start, list and follow conversations of a running service, as one of its users.
    Conversations(AtService<ConversationsCommand>),
    /// List, pause and resume sandboxes of a running service, and read their logs, as one of its users.
    Sandboxes(AtService<SandboxesCommand>),
    /// List the sandbox specs of a running service, the templates that sandboxes are created from.
    Specs(AtService<SpecsCommand>),
}

impl RemoteCommand {
    fn service(&self) -> &ServiceArgs {
        match self {
            Self::Conversations(arguments) => &arguments.service,
            Self::Sandboxes(arguments) => &arguments.service,
            Self::Specs(arguments) => &arguments.service,
        }
    }
}

/// Runs the command. Ends silently when the reader closes the pipe (`| head`).
pub(crate) fn run(
    command: RemoteCommand,
    config: Option<&Path>,
    variables: &EnvVariables,
) -> anyhow::Result<()> {
    let service = command.service();
    let connection = Connection::new(service, config, variables)?;
    let output = CommandOutput {
        is_json: service.json,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        match command {
            RemoteCommand::Conversations(arguments) => {
                conversations::run(arguments.command, &connection, &output).await
            }
            RemoteCommand::Sandboxes(arguments) => {
                sandboxes::run(arguments.command, &connection, &output).await
            }
            RemoteCommand::Specs(arguments) => {
                sandboxes::specs(arguments.command, &connection, &output).await
            }
        }
    });
    // A running name resolution cannot be cancelled.
    runtime.shutdown_background();
    match result {
        Err(error) if error.is::<output::OutputClosed>() => Ok(()),
        result => result,
    }
}
