//! Which files of a tree are skills, and their default names.

use domain::skill::ListedSkill;

use crate::front_matter::FrontMatter;

/// The file that makes its directory a skill (the `AgentSkills` format).
pub(crate) const SKILL_FILE: &str = "SKILL.md";

/// Whether a file of this name may be a skill.
pub(crate) fn is_markdown(file: &str) -> bool {
    let is_readme = file.eq_ignore_ascii_case("README.md");
    file.strip_suffix(".md")
        .is_some_and(|stem| !stem.is_empty())
        && !is_readme
}

/// Whether a name is hidden, as those of directories that tools use.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

/// The skill in a file. `path` is relative, its parts separated by `/`.
pub(crate) fn skill(path: &str, front_matter: FrontMatter, source: &str) -> ListedSkill {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    let default_name = if file == SKILL_FILE {
        directory.rsplit('/').next().unwrap_or_default()
    } else {
        file.strip_suffix(".md").unwrap_or(file)
    };
    ListedSkill {
        name: front_matter.name.unwrap_or_else(|| default_name.to_owned()),
        kind: front_matter.kind.unwrap_or_else(|| "knowledge".to_owned()),
        source: source.to_owned(),
        triggers: front_matter.triggers,
    }
}

/// Sorts skills by name. Keeps the first of those with equal names.
pub(crate) fn in_order(mut skills: Vec<ListedSkill>) -> Vec<ListedSkill> {
    skills.sort_by(|a, b| a.name.cmp(&b.name));
    skills.dedup_by(|later, earlier| later.name == earlier.name);
    skills
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_skill_is_that_of_its_file_or_directory() {
        let name = |path| skill(path, FrontMatter::default(), "global").name;
        assert_eq!(name("github.md"), "github");
        assert_eq!(name("tools/docker.md"), "docker");
        assert_eq!(name("tools/pdf/SKILL.md"), "pdf");
        let front_matter = FrontMatter {
            name: Some("other".to_owned()),
            ..FrontMatter::default()
        };
        assert_eq!(skill("pdf/SKILL.md", front_matter, "global").name, "other");
        for (file, expected) in [
            ("a.md", true),
            ("README.md", false),
            ("readme.md", false),
            (".md", false),
            ("a.txt", false),
        ] {
            assert_eq!(is_markdown(file), expected, "{file}");
        }
    }
}
