//! Packs `config/openapi.json`, the document that release builds serve: `src/openapi/written.rs`.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

const DOCUMENT: &str = "../../config/openapi.json";

fn main() -> Result<(), Box<dyn Error>> {
    let document: Value = serde_json::from_slice(&fs::read(DOCUMENT)?)?;
    let out = env::var_os("OUT_DIR").ok_or("cargo names no directory")?;
    let file = File::create(Path::new(&out).join("openapi.json.gz"))?;
    let mut packed = GzEncoder::new(file, Compression::best());
    serde_json::to_writer(&mut packed, &document)?;
    packed.finish()?;
    let mut orders = std::io::stdout();
    std::io::Write::write_all(
        &mut orders,
        format!("cargo::rerun-if-changed={DOCUMENT}\n").as_bytes(),
    )?;
    Ok(())
}
