//! Parsers of values in the section `docker`.

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

/// Roughly an image reference; the engine checks it exactly.
pub(super) fn is_image(text: &str) -> bool {
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_./:@".contains(&b));
    plain && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 255
}

/// An absolute path without `.`, `..`, empty segments, and colons (which separate the parts of a mount).
pub(super) fn container_path(text: &str) -> Option<String> {
    let path = match text.strip_suffix('/') {
        Some("") => return Some("/".to_owned()),
        Some(path) => path,
        None => text,
    };
    let mut parts = path.strip_prefix('/')?.split('/');
    let plain = parts.all(|part| !matches!(part, "" | "." | "..")) && !path.contains([':', '\0']);
    plain.then(|| path.to_owned())
}

pub(super) fn is_inside(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
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
    fn a_path_is_inside_by_whole_segments() {
        assert!(is_inside("/workspace", "/workspace"));
        assert!(is_inside("/workspace/project", "/workspace"));
        assert!(!is_inside("/workspaces", "/workspace"));
        assert!(!is_inside("/", "/workspace"));
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
