//! Paths inside sandboxes, handled as text, because the files may be on another machine.

/// Removes `.`, `..` and double slashes from a path. `None` if the path climbs above its start or contains NUL.
pub fn normalize_path(path: &str) -> Option<String> {
    if path.contains('\0') {
        return None;
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let start = if path.starts_with('/') { "/" } else { "" };
    Some(format!("{start}{}", parts.join("/")))
}

/// Whether a normalized path is this directory or lies in it.
pub fn is_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_never_climbs_above_its_start() {
        for (path, expected) in [
            ("/", Some("/")),
            ("/a//b/./c/", Some("/a/b/c")),
            ("/a/../b", Some("/b")),
            ("a/../b", Some("b")),
            ("", Some("")),
            ("/..", None),
            ("..", None),
            ("a/../..", None),
            ("/a\0b", None),
            ("/...", Some("/...")),
        ] {
            assert_eq!(normalize_path(path).as_deref(), expected, "{path:?}");
        }
    }

    #[test]
    fn a_sibling_with_a_longer_name_is_not_below() {
        assert!(is_below("/a/b", "/a") && is_below("/a", "/a") && is_below("/a/b", "/a/"));
        assert!(!is_below("/ab", "/a") && !is_below("/", "/a"));
    }
}
