//! Validation of secrets: one list of reserved names for the user's own secrets and those of a request.

use domain::secret_rule::{SecretRule, SecretRules};
use domain::user::secret::MAX_HOSTS_PER_SECRET;
use secrecy::{ExposeSecret, SecretString};

use crate::settings::MASK;

const MAX_SECRET_NAME_CHARS: usize = 255;
const MAX_DESCRIPTION_CHARS: usize = 4_096;
pub(crate) const MAX_SECRET_VALUE_BYTES: usize = 65_536;
/// Of an invalid host, in its error.
const MAX_SHOWN_HOST_CHARS: usize = 100;
/// Names that the sandbox itself needs.
const RESERVED_NAMES: &[&str] = &[
    "OPENVSCODE_SERVER_ROOT",
    "OH_ENABLE_VNC",
    "LOG_JSON",
    "OH_CONVERSATIONS_PATH",
    "OH_BASH_EVENTS_DIR",
    "PYTHONUNBUFFERED",
    "ENV_LOG_LEVEL",
    "OH_WEBHOOKS_0_BASE_URL",
    "OH_ALLOW_CORS_ORIGINS_0",
    "WORKER_1",
    "WORKER_2",
];

/// Whether the name would conflict with the sandbox, or with the agent's own model.
pub(crate) fn is_reserved(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    RESERVED_NAMES.contains(&upper.as_str()) || upper.starts_with("LLM_")
}

/// Whether the text is a name of an environment variable in every shell.
pub(super) fn is_valid_name(text: &str) -> bool {
    let head = text.bytes().next().unwrap_or_default();
    text.len() <= MAX_SECRET_NAME_CHARS
        && (head.is_ascii_alphabetic() || head == b'_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Checks the name of a secret. The error does not repeat it: people paste values into the wrong field.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.chars().count() > MAX_SECRET_NAME_CHARS {
        return Err(format!(
            "Invalid secret name. It has more than {MAX_SECRET_NAME_CHARS} characters."
        ));
    }
    if !is_valid_name(name) {
        return Err(
            "Invalid secret name. Must start with a letter or underscore, and contain only alphanumeric characters and \
             underscores."
                .to_owned(),
        );
    }
    if is_reserved(name) {
        return Err("The secret name is reserved".to_owned());
    }
    Ok(())
}

pub fn check_description(text: &str) -> Result<(), String> {
    if text.chars().count() > MAX_DESCRIPTION_CHARS {
        return Err(format!(
            "The description has more than {MAX_DESCRIPTION_CHARS} characters"
        ));
    }
    Ok(())
}

/// Checks the hosts of a secret, such as `api.example.org/repos/acme` or `*.example.org:8443`.
pub fn check_hosts(hosts: &[String]) -> Result<SecretRules, String> {
    if hosts.len() > MAX_HOSTS_PER_SECRET {
        return Err(format!("A secret has at most {MAX_HOSTS_PER_SECRET} hosts"));
    }
    let rule = |text: &String| {
        let rule: Result<SecretRule, _> = text.trim().parse();
        rule.map_err(|reason| {
            let shown: String = text.chars().take(MAX_SHOWN_HOST_CHARS).collect();
            format!("The host {shown:?} {reason}")
        })
    };
    hosts.iter().map(rule).collect()
}

/// Checks a value. The error never repeats it.
pub fn check_value(value: &SecretString) -> Result<(), String> {
    let text = value.expose_secret();
    if text.len() > MAX_SECRET_VALUE_BYTES {
        return Err(format!(
            "The value is larger than {MAX_SECRET_VALUE_BYTES} bytes"
        ));
    }
    if text.contains('\0') {
        return Err("The value must not contain the character NUL".to_owned());
    }
    if text == MASK {
        return Err("The value is the mask that stands for a secret".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_environment_variables() {
        for good in ["A", "_", "a1", "MY_TOKEN", &"n".repeat(255)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "1A",
            "A-B",
            "A B",
            "clé",
            "A=B",
            "A\0",
            "a/b c=$(id)",
            "LLM_API_KEY",
            "llm_x",
            "worker_1",
            "WORKER_2",
            &"n".repeat(256),
            &"é".repeat(300),
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn values_have_a_bound_and_are_not_repeated() {
        let value = |text: &str| check_value(&SecretString::from(text.to_owned()));
        assert_eq!(value(""), Ok(()));
        assert_eq!(value(&"v".repeat(MAX_SECRET_VALUE_BYTES)), Ok(()));
        assert!(value(MASK).is_err() && value("a\0b").is_err());
        let refused = value(&"hunter2".repeat(MAX_SECRET_VALUE_BYTES)).expect_err("too large");
        assert!(!refused.contains("hunter2"));
        assert!(check_description(&"d".repeat(4_096)).is_ok());
        assert!(check_description(&"d".repeat(4_097)).is_err());
    }

    proptest! {
        #[test]
        fn valid_names_need_no_quoting(name in "\\PC{0,40}") {
            if check_name(&name).is_ok() {
                prop_assert!(!name.is_empty() && name.is_ascii());
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
                prop_assert!(!name.starts_with(|c: char| c.is_ascii_digit()));
            }
        }
    }
}
