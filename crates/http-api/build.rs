//! Packs `config/openapi.json`, the document that release builds serve: `src/openapi/prebuilt.rs`.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

const DOCUMENT: &str = "../../config/openapi.json";

#[expect(
    clippy::disallowed_methods,
    reason = "how cargo tells a build script where its output goes"
)]
fn main() -> Result<(), Box<dyn Error>> {
    let document: Value = serde_json::from_slice(&fs::read(DOCUMENT)?)?;
    let out = env::var_os("OUT_DIR").ok_or("cargo names no directory")?;
    let file = File::create(Path::new(&out).join("openapi.json.gz"))?;
    let mut packed = GzEncoder::new(file, Compression::best());
    serde_json::to_writer(&mut packed, &document)?;
    packed.finish()?;
    writeln!(std::io::stdout(), "cargo::rerun-if-changed={DOCUMENT}")?;
    Ok(())
}
