//! The libraries that releases were tested with.
//!
//! The agent server's own metadata leaves most versions open, so an installation would change with every release of a
//! library. On 2026-11-22, for example, `pip` 24.2 could no longer resolve 1.34.0.

/// A release with its libraries.
pub(super) type TestedRelease = (&'static str, &'static str);

pub(super) const AGENT_SERVERS: [TestedRelease; 2] = [
    ("1.34.0", include_str!("tested/1.34.0.txt")),
    ("1.58.0", include_str!("tested/1.58.0.txt")),
];

pub(super) const AUTOMATIONS: [TestedRelease; 1] =
    [("1.25.0", include_str!("tested/automations-1.25.0.txt"))];

/// The libraries of a release as constraints for `pip`, without those that the requirements name. `None` for an unknown
/// release.
pub(super) fn libraries(
    releases: &[TestedRelease],
    version: &str,
    requirements: &[String],
) -> Option<String> {
    let (_, tested) = releases.iter().find(|(release, _)| *release == version)?;
    let is_unconstrained = |line: &&str| {
        !line.starts_with('#')
            && !requirements
                .iter()
                .any(|requirement| name(requirement) == name(line))
    };
    let lines = tested.lines().filter(is_unconstrained);
    Some(lines.fold(String::new(), |text, line| text + line + "\n"))
}

/// The normalized name of a requirement: `Jaraco.Classes==3` and `jaraco_classes==3` have the same one.
fn name(requirement: &str) -> String {
    let end = requirement.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c));
    let name = &requirement[..end.unwrap_or(requirement.len())];
    name.replace(['_', '.'], "-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::package::PythonProgram;
    use super::*;

    #[test]
    fn the_default_versions_are_known() {
        for program in [PythonProgram::AgentServer, PythonProgram::Automations] {
            assert!(libraries(program.tested(), program.default_version(), &[]).is_some());
        }
        assert_eq!(libraries(&AGENT_SERVERS, "1.58.1", &[]), None);
    }

    #[test]
    fn required_libraries_are_not_constrained() {
        let all = libraries(&AGENT_SERVERS, "1.58.0", &[]).unwrap();
        assert!(all.contains("\njaraco-classes==") && all.contains("\nwrapt=="));
        let required = ["Jaraco.Classes==9".to_owned(), "wrapt".to_owned()];
        let rest = libraries(&AGENT_SERVERS, "1.58.0", &required).unwrap();
        assert!(!rest.contains("\njaraco-classes==") && !rest.contains("\nwrapt=="));
        assert_eq!(rest.lines().count() + 2, all.lines().count());
    }

    #[test]
    fn every_line_is_an_exact_version() {
        let releases = AGENT_SERVERS.iter().chain(&AUTOMATIONS);
        for release in releases {
            let all = libraries(&[*release], release.0, &[]).unwrap();
            for line in all.lines() {
                let (name, release) = line.split_once("==").unwrap_or_else(|| panic!("{line}"));
                assert!(
                    !name.is_empty() && !release.contains([';', ' ', '=']),
                    "{line}"
                );
            }
        }
    }
}
