//! The documentation: pages that are generated, links, the book, and the commands of the tutorials.

mod config_schema;
mod generated;
mod links;
mod metrics;
mod script;
mod service;
mod team_server;
mod tutorials;

use std::fs;

use anyhow::{Context as _, bail};

use crate::run::{cargo, output, print, program, programs, root, run, say};

/// A version that is known to work, for Rust 1.88 or newer.
const MDBOOK_VERSION: &str = "0.5.4";

const METRICS_PAGE: &str = "docs/reference/metrics.md";

/// What to do with the documentation.
#[derive(Debug, clap::Args)]
pub(crate) struct DocsArgs {
    /// Fail when a generated page is out of date, instead of writing it, and build no book.
    #[arg(long)]
    check: bool,
    /// Also run the commands of the tutorials (blocks marked `sh run`) against a service with a stub agent server, Postgres and
    /// nginx; these are installed where they are missing.
    #[arg(long)]
    run: bool,
}

impl DocsArgs {
    /// What CI does.
    pub(crate) const CI: Self = Self {
        check: true,
        run: true,
    };
}

/// Writes the generated pages and builds the book in `target/book`, or checks the pages; checks all links.
pub(crate) fn docs(args: &DocsArgs) -> anyhow::Result<()> {
    let programs = programs()?;
    let pages = [
        (
            "docs/reference/settings.md",
            generated::settings(&read("config/default.toml")?),
        ),
        (
            "config/schema.json",
            config_schema::schema(&read("config/default.toml")?),
        ),
        (
            "docs/reference/command-line.md",
            generated::command_line(&mut |words| {
                output(program(&programs.service).args(words).arg("--help"))
            })?,
        ),
        (
            METRICS_PAGE,
            metrics::page(&read(METRICS_PAGE)?, &metrics::exposition(&programs)?)?,
        ),
    ];
    for (path, text) in pages {
        write(path, &text, args.check)?;
    }
    links::check()?;
    tutorials::check()?;
    if !args.check {
        book()?;
    }
    if args.run {
        tutorials::run(&programs)?;
    }
    Ok(())
}

/// A text file of the repository.
pub(crate) fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

fn write(path: &str, text: &str, check: bool) -> anyhow::Result<()> {
    if read(path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    if check {
        bail!("{path} is out of date: run `cargo xtask docs`");
    }
    fs::write(root().join(path), text).with_context(|| format!("cannot write {path}"))?;
    print(&format!("{path} written"));
    Ok(())
}

/// Builds the book. A warning is an error.
pub(crate) fn book() -> anyhow::Result<()> {
    install_mdbook()?;
    let built = program("mdbook")
        .arg("build")
        .output()
        .context("cannot run mdbook")?;
    let messages = String::from_utf8_lossy(&built.stderr);
    let is_problem = |line: &&str| line.contains("WARN") || line.contains("ERROR");
    let problems: Vec<&str> = messages.lines().filter(is_problem).collect();
    if !built.status.success() || !problems.is_empty() {
        bail!("mdbook build failed ({}):\n{messages}", built.status);
    }
    print("target/book/index.html written");
    Ok(())
}

/// Installs the program that builds the book where it is missing. It is built without optimization: it builds in half the
/// time and runs for a second.
fn install_mdbook() -> anyhow::Result<()> {
    let version = program("mdbook").arg("--version").output();
    if version.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    say("mdbook is missing: installing it takes about two minutes, once");
    let package = format!("mdbook@{MDBOOK_VERSION}");
    run(cargo()
        .args(["install", "--locked", "--debug", "--quiet"])
        .args(["--no-default-features", "--features", "search"])
        .arg(&package))
    .context("mdbook could not be installed: it needs the crates registry")
}
