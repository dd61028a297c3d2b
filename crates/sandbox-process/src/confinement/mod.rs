//! Puts a sandbox behind walls: namespaces, a file system and a network of its own, and no privileges.
//!
//! Knows: bubblewrap, slirp4netns, and the processes between them and the agent server. Must never know: the life cycle of a
//! sandbox.
//!
//! ```text
//! service ── <this binary> __confine PORT   (`launcher`; reads the plan from standard input)
//!              │  spawns <this binary> __network, which becomes slirp4netns
//!              └ becomes bwrap, the main process of the sandbox: it exits with the code of init
//!                  └ <this binary> __init   (`init`; process 1 of the sandbox)
//!                       └ agent server
//! ```

pub(crate) mod control;
mod ids;
mod init;
mod launcher;
mod network;
pub(crate) mod plan;
mod routes;
mod view;
pub(crate) mod walls;

use std::ffi::OsString;
use std::io;

/// Acts as one of the processes of a confined sandbox if the arguments say so. Returns only on failure.
pub(crate) fn run_helper(arguments: &[OsString]) -> Option<io::Error> {
    let (name, rest) = arguments.split_first()?;
    match name.to_str()? {
        launcher::SUBCOMMAND => Some(launcher::main()),
        network::SUBCOMMAND => Some(network::main(rest)),
        init::SUBCOMMAND => Some(init::main()),
        _ => None,
    }
}
