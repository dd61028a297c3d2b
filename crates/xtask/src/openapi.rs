//! Keeps `config/openapi.json` equal to the output of the service's `openapi` command.

use std::fs;

use anyhow::{Context as _, bail};

use crate::run::{output, print, program, programs, root};

const FILE: &str = "config/openapi.json";

/// Writes the file, or with `check` fails if it would change.
pub(crate) fn write(check: bool) -> anyhow::Result<()> {
    let document = output(program(programs()?.service).arg("openapi"))?;
    let path = root().join(FILE);
    let present = fs::read_to_string(&path).unwrap_or_default();
    if present == document {
        print(&format!("{FILE} is up to date"));
        return Ok(());
    }
    if check {
        let at = first_difference(&present, &document);
        bail!("{FILE} is out of date (first difference in line {at}): run `cargo xtask openapi`");
    }
    fs::write(&path, document).with_context(|| format!("cannot write {FILE}"))?;
    print(&format!("{FILE} written"));
    Ok(())
}

/// The number of the first different line, counted from 1.
fn first_difference(one: &str, other: &str) -> usize {
    let same = one
        .lines()
        .zip(other.lines())
        .take_while(|(one, other)| one == other)
        .count();
    same + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_a_line() {
        assert_eq!(first_difference("", "a\n"), 1);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), 2);
    }
}
