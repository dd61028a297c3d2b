//! Runs the scripted model alone: prints its base URL, then serves until Ctrl-C.
//!
//! `scripted-llm [PORT]` (default: a free port).

use std::io::Write;

use acceptance::scripted_llm::ScriptedLlm;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let port = std::env::args().nth(1).map_or(Ok(0), |text| text.parse())?;
    let llm = ScriptedLlm::start_on(port).await?;
    writeln!(std::io::stdout(), "{}", llm.base_url())?;
    tokio::signal::ctrl_c().await?;
    Ok(())
}
