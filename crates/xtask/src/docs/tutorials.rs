//! The code of the tutorials: commands are run, Rust is a part of a file that tests compile and run.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::docs::read;
use crate::docs::script::{PAUSE_SANDBOXES_AT_EXIT, run_script};
use crate::docs::service::DocsService;
use crate::docs::team_server;
use crate::install::debian;
use crate::run::{Programs, output, print, program, say};

/// The info string of a block whose commands are run.
const RUN_BLOCK: &str = "sh run";
/// The first line of a block of commands that is not run, with the reason.
const SKIPPED_BLOCK_START: &str = "# Not run by the tests: ";
/// The address that tutorials name.
const DOCUMENTED_ADDRESS: &str = "127.0.0.1:3000";
/// The tutorial with an engine, Postgres and nginx.
const TEAM_SERVER: &str = "team-server.md";
/// The files whose parts the tutorials show.
const EXAMPLES: [&str; 4] = [
    "crates/sandbox-example/src/backend.rs",
    "crates/sandbox-example/src/provider.rs",
    "crates/sandbox-example/tests/conformance.rs",
    "crates/server/src/compose.rs",
];

/// Checks that each block of commands is run or says why not, and that each block of Rust is a part of a tested file.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut examples = String::new();
    for path in EXAMPLES {
        examples += &read(path)?;
    }
    let mut problems = Vec::new();
    for (path, page) in tutorials()? {
        let problem = |text: &str, why: &str| {
            let line = text.lines().next().unwrap_or_default();
            format!("{}: `{line}`: {why}", path.display())
        };
        for (info, text) in blocks(&page) {
            if info == "sh" && !text.starts_with(SKIPPED_BLOCK_START) {
                let why = format!(
                    "mark the block with `{RUN_BLOCK}`, or begin it with `{SKIPPED_BLOCK_START}…`"
                );
                problems.push(problem(text, &why));
            }
            if info == "rust" && !examples.contains(text) {
                problems.push(problem(
                    text,
                    &format!("the block is in none of {}", EXAMPLES.join(", ")),
                ));
            }
        }
    }
    if !problems.is_empty() {
        bail!(
            "tutorials contain code that no test runs:\n{}",
            problems.join("\n")
        );
    }
    Ok(())
}

/// Runs the marked blocks of each tutorial, as one script, against a fresh service whose agent server is the stub.
pub(crate) fn run(programs: &Programs) -> anyhow::Result<()> {
    debian::tools()?;
    let version = program("curl").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        bail!("curl is missing: install it to run the tutorials' commands");
    }
    for (path, page) in tutorials()? {
        let scripts = marked(&page);
        if scripts.is_empty() {
            continue;
        }
        say(&format!("commands of {}", path.display()));
        let done = if path.ends_with(TEAM_SERVER) {
            team_server::follow(programs, &scripts)
        } else {
            follow(programs, &scripts.concat())
        };
        done.with_context(|| format!("in {}", path.display()))?;
        print(&format!("{}: its commands work", path.display()));
    }
    Ok(())
}

/// The pages of all tutorials.
fn tutorials() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let pages = output(program("git").args(["ls-files", "-co", "docs/tutorials/*.md"]))?;
    let pages = pages.lines().map(|path| Ok((path.into(), read(path)?)));
    pages.collect()
}

/// The marked blocks of a page.
fn marked(page: &str) -> Vec<&str> {
    let run = blocks(page).filter(|(info, _)| *info == RUN_BLOCK);
    run.map(|(_, text)| text).collect()
}

/// The info string and the text of each block of code.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.split_once('\n'))
}

fn follow(programs: &Programs, script: &str) -> anyhow::Result<()> {
    let service = DocsService::start(programs, "tutorial")?;
    let script = [PAUSE_SANDBOXES_AT_EXIT, script].concat();
    let script = script.replace(DOCUMENTED_ADDRESS, &service.address);
    run_script(service.command(Path::new("bash"), programs)?, &script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_are_run() {
        let page = "```sh\nno\n```\n```sh run\nyes\n```\ntext\n```sh run\ntoo\n```\n";
        assert_eq!(marked(page), ["yes\n", "too\n"]);
    }
}
