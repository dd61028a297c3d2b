//! Commands that call a running service as one of its users.
//!
//! They use only its HTTP API (crate `client`), so they work from any machine. Results go to standard output, everything
//! else to standard error.

mod args;
mod automations;
mod connect;
mod conversations;
mod egress;
mod event_line;
mod login;
mod logs;
mod organizations;
mod output;
mod sandboxes;
mod saved_login;

use std::path::Path;

use anyhow::Context as _;
use clap::Subcommand;

use args::{
    AtService, AutomationsCommand, ConversationsCommand, EgressCommand, LoginArgs,
    OrganizationsCommand, SandboxesCommand, ServiceArgs, SpecsCommand,
};
use connect::Connection;
use output::CommandOutput;
use settings::EnvVariables;

/// Commands that call a running service.
#[derive(Debug, Subcommand)]
pub(crate) enum RemoteCommand {
    /// Start, list and follow conversations of a running service, as one of its users.
    Conversations(AtService<ConversationsCommand>),
    /// List, pause and resume sandboxes of a running service, and read their logs, as one of its users.
    Sandboxes(AtService<SandboxesCommand>),
    /// List automations of a running service, run them and see how their runs ended, as one of its users.
    Automations(AtService<AutomationsCommand>),
    /// List hosts that the egress policy of a running service refused to sandboxes, and approve or deny them, as one of its users.
    Egress(AtService<EgressCommand>),
    /// List the sandbox specs of a running service, the templates that sandboxes are created from.
    Specs(AtService<SpecsCommand>),
    /// List organizations of a running service and their members, invite and remove members, as one of its users.
    Organizations(AtService<OrganizationsCommand>),
    /// Sign in to a running service in a browser. Keeps an API key for the other commands, which then need neither URL nor key.
    Login(LoginArgs),
    /// Sign out: revoke the API key that `login` keeps, and delete it.
    Logout,
}

impl RemoteCommand {
    /// The service of a command that needs a key.
    fn service(&self) -> Option<&ServiceArgs> {
        match self {
            Self::Conversations(arguments) => Some(&arguments.service),
            Self::Sandboxes(arguments) => Some(&arguments.service),
            Self::Automations(arguments) => Some(&arguments.service),
            Self::Egress(arguments) => Some(&arguments.service),
            Self::Specs(arguments) => Some(&arguments.service),
            Self::Organizations(arguments) => Some(&arguments.service),
            Self::Login(_) | Self::Logout => None,
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
    let output = CommandOutput {
        is_json: service.is_some_and(|service| service.json),
    };
    let connection = service.map(|service| Connection::new(service, config, variables));
    let connection = connection.transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        match (command, &connection) {
            (RemoteCommand::Conversations(arguments), Some(connection)) => {
                conversations::run(arguments.command, connection, &output).await
            }
            (RemoteCommand::Sandboxes(arguments), Some(connection)) => {
                sandboxes::run(arguments.command, connection, &output).await
            }
            (RemoteCommand::Automations(arguments), Some(connection)) => {
                automations::run(arguments.command, connection, &output).await
            }
            (RemoteCommand::Egress(arguments), Some(connection)) => {
                egress::run(arguments.command, connection, &output).await
            }
            (RemoteCommand::Specs(arguments), Some(connection)) => {
                sandboxes::specs(arguments.command, connection, &output).await
            }
            (RemoteCommand::Organizations(arguments), Some(connection)) => {
                organizations::run(arguments.command, connection, &output).await
            }
            (RemoteCommand::Login(arguments), _) => {
                login::log_in(&arguments.url, variables, &output).await
            }
            (RemoteCommand::Logout, _) => login::log_out(variables, &output).await,
            (_, None) => anyhow::bail!("the command has no service"),
        }
    });
    // A running name resolution cannot be cancelled.
    runtime.shutdown_background();
    match result {
        Err(error) if error.is::<output::OutputClosed>() => Ok(()),
        result => result,
    }
}
