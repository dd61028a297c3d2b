//! Shell completions and man pages, for packages.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::{Shell, generate_to};

use crate::cli::Cli;

/// Writes `DIR/completions` and `DIR/man`.
pub(crate) fn write(dir: &Path) -> anyhow::Result<()> {
    write_files(dir).with_context(|| format!("cannot write the manual into {}", dir.display()))
}

fn write_files(dir: &Path) -> io::Result<()> {
    let (completions, man) = (dir.join("completions"), dir.join("man"));
    fs::create_dir_all(&completions)?;
    fs::create_dir_all(&man)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        generate_to(shell, &mut Cli::command(), "agent-workspace", &completions)?;
    }
    clap_mangen::generate_to(Cli::command(), &man)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path()).unwrap();
        for file in [
            "completions/_agent-workspace",
            "completions/agent-workspace.bash",
            "completions/agent-workspace.fish",
            "man/agent-workspace.1",
            "man/agent-workspace-keys-create.1",
        ] {
            assert!(dir.path().join(file).is_file(), "{file}");
        }
    }
}
