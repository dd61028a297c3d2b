//! Parsers of values in the section `docker`.

/// A file or directory of the engine's host that is mounted into sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountSettings {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) writable: bool,
}

/// A supported form of the engine's address; TLS is not supported.
pub(in crate::config) fn is_socket(text: &str) -> bool {
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
pub(in crate::config) fn is_plain_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Roughly an image reference; the engine checks it exactly.
pub(in crate::config) fn is_image(text: &str) -> bool {
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_./:@".contains(&b));
    plain && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 255
}

/// An absolute path without `.`, `..`, empty segments, and colons (which separate the parts of a mount).
pub(in crate::config) fn container_path(text: &str) -> Option<String> {
    let path = match text.strip_suffix('/') {
        Some("") => return Some("/".to_owned()),
        Some(path) => path,
        None => text,
    };
    let mut parts = path.strip_prefix('/')?.split('/');
    let plain = parts.all(|part| !matches!(part, "" | "." | "..")) && !path.contains([':', '\0']);
    plain.then(|| path.to_owned())
}

pub(in crate::config) fn is_inside(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Bytes in `4GiB`, `512 MiB`, `0`.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let shift = match unit.trim() {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        "" if number == 0 => 0,
        _ => return None,
    };
    let bytes = number.checked_mul(1 << shift)?;
    // The engine uses signed numbers.
    i64::try_from(bytes).is_ok().then_some(bytes)
}

/// The parts of `NAME=VALUE`, if the name is valid for a variable.
pub(in crate::config) fn assignment(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_name = plain && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    (is_name && !value.contains('\0')).then_some((name, value))
}

pub(in crate::config) fn mount(text: &str) -> Option<MountSettings> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, writable) = match parts[..] {
        [source, target] | [source, target, "rw"] => (source, target, true),
        [source, target, "ro"] => (source, target, false),
        _ => return None,
    };
    Some(MountSettings {
        source: container_path(source)?,
        target: container_path(target).filter(|path| path != "/")?,
        writable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_a_number_and_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("0GiB", 0),
            ("64KiB", 65_536),
            ("512 MiB", 536_870_912),
            (" 4GiB ", 4_294_967_296),
            ("2TiB", 2_199_023_255_552),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "4",
            "4GB",
            "4G",
            "4gib",
            "GiB",
            "1.5GiB",
            "-1GiB",
            "8388608TiB",
            "99999999999999999999KiB",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn mounts_have_the_syntax_of_docker() {
        let expected = |source: &str, target: &str, writable| {
            Some(MountSettings {
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
