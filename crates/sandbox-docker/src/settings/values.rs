//! Parsers of values in the section `docker`.

use sandbox_provider::container_settings::container_path;

use crate::config::BindMount;

/// A supported form of the engine's address; TLS is not supported.
pub(super) fn is_socket(text: &str) -> bool {
    let unix = text
        .strip_prefix("unix://")
        .is_some_and(|path| path.starts_with('/') && path.len() > 1);
    let tcp = text.strip_prefix("tcp://").is_some_and(|rest| {
        url::Url::parse(&format!("http://{rest}")).is_ok_and(|url| {
            url.path() == "/" && url.query().is_none() && url.username().is_empty()
        })
    });
    unix || tcp
}

/// A name that becomes part of an engine command.
pub(super) fn is_plain_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

pub(super) fn mount(text: &str) -> Option<BindMount> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, writable) = match parts[..] {
        [source, target] | [source, target, "rw"] => (source, target, true),
        [source, target, "ro"] => (source, target, false),
        _ => return None,
    };
    Some(BindMount {
        source: container_path(source)?,
        target: container_path(target).filter(|path| path != "/")?,
        writable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_have_the_syntax_of_docker() {
        let expected = |source: &str, target: &str, writable| {
            Some(BindMount {
                source: source.to_owned(),
                target: target.to_owned(),
                writable,
            })
        };
        assert_eq!(mount("/a/b:/c"), expected("/a/b", "/c", true));
        assert_eq!(mount("/a/:/c/:ro"), expected("/a", "/c", false));
        assert_eq!(mount("/:/host:rw"), expected("/", "/host", true));
        for text in [
            "",
            "/a",
            "a:/b",
            "/a:b",
            "/a:/",
            "/a:/b:x",
            "/a:/b:ro:ro",
            "/a/../b:/c",
            "/a//b:/c",
        ] {
            assert_eq!(mount(text), None, "{text}");
        }
    }

    #[test]
    fn an_engine_address_is_a_unix_socket_or_plain_tcp() {
        for text in ["unix:///var/run/docker.sock", "tcp://10.0.0.5:2375"] {
            assert!(is_socket(text), "{text}");
        }
        for text in [
            "",
            "/var/run/docker.sock",
            "unix://",
            "unix://x",
            "ssh://host",
            "tcp://",
            "tcp://h/x",
        ] {
            assert!(!is_socket(text), "{text}");
        }
    }
}
