//! The section of the configuration.

use settings::{Redaction, SettingSection, TemplateKeys};

/// What the backend adds to the mechanism of the configuration. Its defaults are in `config/default.toml`.
pub(crate) const SECTION: SettingSection = SettingSection {
    defaults: "",
    templates: Some(TemplateKeys {
        section: "docker",
        table: "docker.templates",
        required: &["docker.id", "docker.image"],
        optional: &[
            "docker.command",
            "docker.entrypoint",
            "docker.working_dir",
            "docker.volume",
            "docker.user",
            "docker.memory",
            "docker.cpus",
            "docker.pids",
            "docker.disk",
            "docker.capabilities",
            "docker.read_only",
            "docker.pause",
            "docker.env",
            "docker.secret_env",
            "docker.secret_env_file",
            "docker.ports",
            "docker.mounts",
            "docker.egress_allow",
            "sandbox.idle_stop",
            "sandbox.lifetime",
            "sandbox.conversation_budget",
        ],
    }),
    redacted: &[
        ("docker.registry_password", Redaction::Value),
        ("docker.secret_env", Redaction::Assignments),
    ],
};
