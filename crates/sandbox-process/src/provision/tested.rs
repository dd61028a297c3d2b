//! The libraries that releases of the agent server were tested with.
//!
//! The agent server's own metadata leaves most of them open, so what an installation gets would change from day to day: on
//! 2026-11-22 `pip` 24.2 found no solution any more for 1.34.0, which it had installed the day before.

/// Each release with its libraries.
const TESTED: [(&str, &str); 2] = [
    ("1.34.0", include_str!("tested/1.34.0.txt")),
    ("1.58.0", include_str!("tested/1.58.0.txt")),
];

/// The libraries of a release, as `pip` takes constraints, but for those that the requirements name themselves. `None` for a
/// release that is not known.
pub(super) fn libraries(version: &str, requirements: &[String]) -> Option<String> {
    let (_, tested) = TESTED.iter().find(|(known, _)| *known == version)?;
    let is_free = |line: &&str| {
        !line.starts_with('#') && !requirements.iter().any(|one| name(one) == name(line))
    };
    let lines = tested.lines().filter(is_free);
    Some(lines.fold(String::new(), |text, line| text + line + "\n"))
}

/// The name of a requirement, in the spelling in which names are compared: `Jaraco.Classes==3` and `jaraco_classes==3` are one.
fn name(requirement: &str) -> String {
    let end = requirement.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c));
    let name = &requirement[..end.unwrap_or(requirement.len())];
    name.replace(['_', '.'], "-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_version_is_known() {
        assert!(libraries(super::super::DEFAULT_VERSION, &[]).is_some());
        assert_eq!(libraries("1.58.1", &[]), None);
    }

    #[test]
    fn what_is_required_is_not_constrained() {
        let all = libraries("1.58.0", &[]).unwrap();
        assert!(all.contains("\njaraco-classes==") && all.contains("\nwrapt=="));
        let required = ["Jaraco.Classes==9".to_owned(), "wrapt".to_owned()];
        let rest = libraries("1.58.0", &required).unwrap();
        assert!(!rest.contains("\njaraco-classes==") && !rest.contains("\nwrapt=="));
        assert_eq!(rest.lines().count() + 2, all.lines().count());
    }

    #[test]
    fn every_line_names_one_release() {
        for (version, _) in TESTED {
            for line in libraries(version, &[]).unwrap().lines() {
                let (name, release) = line.split_once("==").unwrap_or_else(|| panic!("{line}"));
                assert!(
                    !name.is_empty() && !release.contains([';', ' ', '=']),
                    "{line}"
                );
            }
        }
    }
}
