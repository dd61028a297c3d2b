//! The mechanism of the configuration: layers of settings, typed reading, problems with their sources, and redacted output.
//!
//! Knows: TOML, variables of the environment, files with secrets. Must never know: what a setting means, or who reads it.

mod fingerprints;
mod layers;
mod reader;
mod setting;
mod show;
mod template_layers;
mod templates;
mod values;

pub use fingerprints::ConfigFingerprints;
pub use layers::{
    CONFIG_VARIABLE, EnvVariables, Redaction, SettingLayers, SettingSection, variable,
};
pub use reader::SettingReader;
pub use show::{REDACTED, show, without_password};
pub use templates::TemplateKeys;
pub use values::{assignment, parse_duration, parse_size};
