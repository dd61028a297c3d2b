//! The section of the configuration.

use settings::{Redaction, SettingSection, TemplateKeys};

/// What the backend adds to the mechanism of the configuration. Its defaults are in `config/default.toml`.
pub(crate) const SECTION: SettingSection = SettingSection {
    defaults: "",
    templates: Some(TemplateKeys {
        section: "kubernetes",
        table: "kubernetes.templates",
        required: &["kubernetes.id", "kubernetes.image"],
        optional: &[
            "kubernetes.command",
            "kubernetes.entrypoint",
            "kubernetes.working_dir",
            "kubernetes.volume",
            "kubernetes.user",
            "kubernetes.group",
            "kubernetes.memory",
            "kubernetes.cpus",
            "kubernetes.reserved_cpus",
            "kubernetes.disk",
            "kubernetes.capabilities",
            "kubernetes.runtime_class",
            "kubernetes.env",
            "kubernetes.secret_env",
            "kubernetes.secret_env_file",
            "kubernetes.ports",
            "kubernetes.egress_allow",
            "sandbox.idle_stop",
            "sandbox.lifetime",
            "sandbox.conversation_budget",
        ],
    }),
    redacted: &[("kubernetes.secret_env", Redaction::Assignments)],
};
