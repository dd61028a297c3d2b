//! The stub agent server as a program: `stub-agent-server --dir DIR --host HOST --port PORT`.

use acceptance::stub::{Options, serve};
use anyhow::{Context as _, bail};

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let mut options = Options::default();
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--dir" => options.dir = value.into(),
            "--host" => options.host = value,
            "--port" => options.port = value.parse().context("--port needs a number")?,
            _ => bail!("unknown option {name}"),
        }
    }
    // What a log of a sandbox holds.
    acceptance::print_line("stub agent server");
    acceptance::print_line(&format!("listening on port {}", options.port));
    serve(options).await
}
