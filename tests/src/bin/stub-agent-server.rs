//! The stub agent server as a program: `stub-agent-server --dir DIR [--run-commands yes] --host HOST --port PORT`.

use acceptance::stub::{StubOptions, serve};
use anyhow::{Context as _, bail};

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let mut options = StubOptions::default();
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--dir" => options.dir = value.into(),
            "--host" => options.host = value,
            "--port" => options.port = value.parse().context("--port needs a number")?,
            "--run-commands" => options.runs_commands = value == "yes",
            _ => bail!("unknown option {name}"),
        }
    }
    // All sandboxes share its files, and confined ones have ids of their own.
    rustix::process::umask(rustix::fs::Mode::empty());
    // Lines for the sandbox's log.
    acceptance::print_line("stub agent server");
    acceptance::print_line(&format!("listening on port {}", options.port));
    serve(options).await
}
