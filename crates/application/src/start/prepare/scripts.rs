//! Bash scripts that prepare a workspace.
//!
//! Every external value is one quoted word. Each script may be cut off anywhere and run again: it finds what is done
//! and removes what is half done. A long script leaves its process id in the private directory, so that the worker
//! after a crash waits for it instead of running it twice.
//!
//! Results are printed as lines `key=value`; [`super::output`] parses them.

use std::fmt::Write;

use super::plan::{GitIdentity, PlannedRepository, PreparationPlan};

/// Private directory of this service in a sandbox: in its home, or in its directory for temporary files if the home is
/// not writable.
const PRIVATE_DIRECTORY: &str = ".agent-workspace";
/// Git's configuration file of this service, in [`PRIVATE_DIRECTORY`]: the hosts that git reaches through the service.
const GIT_CONFIGURATION: &str = "git";
/// Mark of the git hook that this service installs.
const HOOK_MARK: &str = "Installed by agent-workspace";
/// First line of output about a setup script that began and did not end.
pub(super) const INTERRUPTED: &str = "agent-workspace: interrupted";
const MAX_OUTPUT_BYTES: usize = 3_000;

/// Quotes a text as one word for a shell.
pub(super) fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Removes keys of the sandbox that some agent servers (1.34) leave in the environment of commands. Scripts of a
/// project do not need them and might print them.
pub(super) const UNSET_SANDBOX_KEYS: &str =
    "unset OH_SECRET_KEY SESSION_API_KEY ${!OH_SESSION_API_KEYS@}\n";

/// Prints what a project contains. `$1`: its directory.
const FACTS_FUNCTION: &str = r#"
facts() {
  for name in setup.sh pre-commit.sh hooks.json; do
    if [ -f "$1/.openhands/$name" ]; then echo "has=$name"; fi
  done
  for name in .openhands/skills .openhands/microagents .agents/skills; do
    if [ -d "$1/$name" ]; then echo "has=skills"; fi
  done
  if [ -e "$1/.git" ]; then echo "has=git"; fi
}
"#;

/// Waits while an earlier run of the script with this name is running. `$private` is on its command line, so another
/// process with the same id is not mistaken for it.
const TURN_FUNCTION: &str = r#"
turn() {
  while
    pid=$(cat "$private/$1.pid" 2>/dev/null) && [ "$pid" != $$ ] &&
      tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$private"
  do sleep 0.1; done
  echo $$ >"$private/$1.pid"
}
"#;

/// Sets the author of commits. `$@`: git's arguments before the names of the settings.
fn identity(identity: &GitIdentity) -> String {
    let mut text = String::from("identity() {\n  :\n");
    for (key, value) in [
        ("user.name", &identity.name),
        ("user.email", &identity.email),
    ] {
        if let Some(value) = value {
            let value = shell_quote(value);
            let _ = writeln!(text, "  git \"$@\" {key} {value} 2>/dev/null");
        }
    }
    text.push_str("}\n");
    text
}

/// The same as text of a git configuration file; `None` for values that git should write itself.
fn identity_section(identity: &GitIdentity) -> Option<String> {
    let mut text = String::new();
    for (key, value) in [("name", &identity.name), ("email", &identity.email)] {
        if let Some(value) = value {
            let _ = writeln!(text, "\t{key} = {}", in_git_config(value)?);
        }
    }
    Some(if text.is_empty() {
        text
    } else {
        format!("[user]\n{text}")
    })
}

/// A value for a git configuration file; `None` if quotes are not enough.
fn in_git_config(value: &str) -> Option<String> {
    let is_plain = !value.chars().any(char::is_control);
    is_plain.then(|| format!("\"{}\"", value.replace('\\', r"\\").replace('"', r#"\""#)))
}

/// Writes git's global configuration file, which most sandboxes do not have yet: each `git config` would cost a
/// process, and the start waits. Fails if the file exists (git changes it then) or cannot be written. With `set -C`
/// only one of two parallel writers succeeds.
fn new_global_settings(workspace: &str, who: &GitIdentity, include: &str) -> String {
    let text = identity_section(who).zip(in_git_config(workspace));
    let Some((section, workspace)) = text else {
        return "false".to_owned();
    };
    let text = shell_quote(&format!(
        "{section}[safe]\n\tdirectory = {workspace}\n{include}"
    ));
    format!(
        r#"new_global_settings() {{
  [ -n "$HOME" ] && [ -z "${{GIT_CONFIG_GLOBAL+x}}" ] && [ ! -e "${{XDG_CONFIG_HOME:-$HOME/.config}}/git/config" ] &&
    set -C && {{ printf %s {text} >"$HOME/.gitconfig"; }} 2>/dev/null
  local code=$?
  set +C
  return "$code"
}}
new_global_settings"#
    )
}

fn private_directory(task: &str) -> String {
    format!(
        r#"private_directory() {{
  for base in "$HOME" "${{TMPDIR:-/tmp}}"; do
    private="$base/{PRIVATE_DIRECTORY}/{task}"
    if [ -n "$base" ] && mkdir -p -- "$private" 2>/dev/null && chmod 700 "$base/{PRIVATE_DIRECTORY}" "$private" 2>/dev/null; then
      echo "private=$private"
      return
    fi
  done
  echo 'neither the home nor the directory for temporary files can be written to'
  exit 1
}}
"#
    )
}

/// The first command: creates the workspace and, if a later step needs it, the private directory of this start; then
/// prints what exists. Without a repository an empty workspace becomes one. It starts as few processes as possible:
/// each takes milliseconds, and every start waits for this command.
pub(super) fn inspect(workspace: &str, task: &str, plan: &PreparationPlan) -> String {
    let (who, repository) = (&plan.identity, plan.repository.as_ref());
    let mut script = format!(
        r#"workspace={}
[ -d "$workspace" ] || mkdir -p -- "$workspace" || exit 1
cd -- "$workspace" || exit 1
"#,
        shell_quote(workspace),
    );
    script.push_str(&private_directory(task));
    let needs_directory = repository.is_some() || plan.git_configuration.is_some();
    script.push_str(if needs_directory {
        "private_directory\n"
    } else {
        "if [ -f .openhands/setup.sh ]; then private_directory; fi\n"
    });
    script.push_str(FACTS_FUNCTION);
    script.push_str(&identity(who));
    let (mut section, mut add) = (String::new(), String::new());
    if plan.git_configuration.is_some() {
        let path = format!("~/{PRIVATE_DIRECTORY}/{GIT_CONFIGURATION}");
        section = format!("[include]\n\tpath = {path}\n");
        add = format!(
            "  git config --global --get-all include.path 2>/dev/null | grep -qxF '{path}' ||\n    \
             git config --global --add include.path '{path}' 2>/dev/null\n"
        );
    } else {
        let _ = write!(
            script,
            r#"for base in "$HOME" "${{TMPDIR:-/tmp}}"; do
  hosts="$base/{PRIVATE_DIRECTORY}/{GIT_CONFIGURATION}"
  if [ -e "$hosts" ]; then rm -f -- "$hosts"; fi
done
"#
        );
    }
    let _ = write!(
        script,
        r#"command -v git >/dev/null || {{ facts "$workspace"; echo git=no; exit 0; }}
{new_global_settings} || {{
  identity config --global
{add}  git config --global --get-all safe.directory 2>/dev/null | grep -qxF -e "$workspace" -e '*' ||
    git config --global --add safe.directory "$workspace" 2>/dev/null
}}
"#,
        new_global_settings = new_global_settings(workspace, who, &section),
    );
    script.push_str(&match repository {
        None => new_repository(who),
        Some(repository) => state_of(repository),
    });
    script
}

/// Makes an empty workspace a repository.
fn new_repository(who: &GitIdentity) -> String {
    let own = match identity_section(who) {
        Some(section) => format!("printf %s {} >>.git/config", shell_quote(&section)),
        None => "identity config".to_owned(),
    };
    format!(
        r#"shopt -s dotglob nullglob
there=(*)
shopt -u dotglob nullglob
if [ "${{#there[@]}}" = 0 ]; then git init --quiet && {own} || echo git=failed; fi
facts "$workspace"
"#
    )
}

/// Prints what the target directory of the repository contains.
fn state_of(repository: &PlannedRepository) -> String {
    format!(
        r#"target="$workspace"/{directory}
if [ -d "$target/.git" ]; then
  if [ "$(git --git-dir="$target/.git" config --get remote.origin.url)" = {url} ]; then
    if [ -f "$private/cloned" ]; then echo state=ours; else echo state=same; fi
    echo "branch=$(git --git-dir="$target/.git" symbolic-ref --quiet --short HEAD)"
  else echo state=other; fi
  facts "$target"
elif [ -e "$target" ] && [ -n "$(ls -A "$target")" ]; then echo state=other
else echo state=absent; fi
"#,
        directory = shell_quote(&repository.directory),
        url = shell_quote(repository.source.url.as_str()),
    )
}

/// The path of [`GIT_CONFIGURATION`] for the private directory of a start.
pub(super) fn git_configuration(private: &str) -> String {
    let parent = private.rsplit_once('/').map_or("", |(parent, _)| parent);
    format!("{parent}/{GIT_CONFIGURATION}")
}

/// Clones beside the target and moves the result there.
pub(super) fn clone(
    workspace: &str,
    private: &str,
    task: &str,
    who: &GitIdentity,
    repository: &PlannedRepository,
) -> String {
    let mut options = String::new();
    if !repository.full {
        options.push_str(" --depth=1");
    }
    if let Some(branch) = &repository.branch {
        let _ = write!(options, " --branch={}", shell_quote(branch));
    }
    let checkout = if repository.branch.is_none() {
        let branch = shell_quote(&repository.working_branch);
        format!("git -C \"$part\" checkout --quiet -b {branch} >>\"$out\" 2>&1 || fail\n")
    } else {
        String::new()
    };
    // A host with a token is reached through the service.
    let service = repository.source.token.as_ref().map_or(
        "",
        |_| " -c protocol.http.allow=always -c protocol.https.allow=always",
    );
    format!(
        r#"private={private}
workspace={workspace}
target="$workspace"/{directory}
part="$workspace"/.clone-{task}
out="$private/clone.out"
hosts={hosts}
fail() {{ code=$?; rm -rf -- "$part"; tail -c {MAX_OUTPUT_BYTES} "$out"; exit "$code"; }}
{FACTS_FUNCTION}{TURN_FUNCTION}{identity}turn clone
if [ ! -e "$target/.git" ]; then
  rm -rf -- "$part"
  unset GIT_ASKPASS SSH_ASKPASS GIT_DIR GIT_WORK_TREE GIT_TRACE GIT_TRACE_CURL GIT_CURL_VERBOSE
  export LC_ALL=C GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1
  git -c include.path="$hosts" -c protocol.allow=never -c protocol.{scheme}.allow=always{service} \
    -c http.followRedirects=false -c credential.helper= -c core.askPass= \
    -c core.hooksPath=/dev/null -c submodule.recurse=false -c advice.detachedHead=false \
    clone --quiet --no-recurse-submodules --template={options} -- {url} "$part" >"$out" 2>&1 </dev/null || fail
  {checkout}  identity -C "$part" config
  : >"$private/cloned"
  mv -T -- "$part" "$target" >>"$out" 2>&1 || fail
fi
facts "$target"
"#,
        private = shell_quote(private),
        workspace = shell_quote(workspace),
        directory = shell_quote(&repository.directory),
        identity = identity(who),
        hosts = shell_quote(&git_configuration(private)),
        scheme = repository.source.url.scheme(),
        url = shell_quote(repository.source.url.as_str()),
    )
}

/// Removes the leftovers of a clone that was ended from outside.
pub(super) fn remove_partial_clone(workspace: &str, task: &str) -> String {
    format!("rm -rf -- {}/.clone-{task}\n", shell_quote(workspace))
}

/// Runs the project's setup script once for each start. A run that was cut off (at its deadline, or with its agent
/// server) is not repeated, and the first line of output says so. Background processes of the script keep running.
pub(super) fn setup(private: &str, project: &str) -> String {
    format!(
        r#"private={private}
{TURN_FUNCTION}turn setup
if [ ! -f "$private/setup.exit" ]; then
  if [ -f "$private/setup.begun" ]; then echo {INTERRUPTED}; {end}; exit 1; fi
  cd -- {project} || exit 1
  : >"$private/setup.begun"
  bash -c 'source ./.openhands/setup.sh' >"$private/setup.out" 2>&1 </dev/null
  echo $? >"$private/setup.part" && mv -f -- "$private/setup.part" "$private/setup.exit"
fi
{end}
exit "$(cat "$private/setup.exit")"
"#,
        private = shell_quote(private),
        project = shell_quote(project),
        end = show_setup_output(private),
    )
}

/// Removes what only the preparation needed, of every attempt. Marks of finished steps stay.
pub(super) fn remove_leftovers(task: &str) -> String {
    format!(
        r#"for base in "$HOME" "${{TMPDIR:-/tmp}}"; do
  if [ -n "$base" ] && cd -- "$base/{PRIVATE_DIRECTORY}/{task}" 2>/dev/null; then
    rm -f -- clone.out clone.pid setup.out setup.pid setup.part
  fi
done
"#
    )
}

/// Prints the end of the setup script's output.
pub(super) fn show_setup_output(private: &str) -> String {
    format!(
        "tail -c {MAX_OUTPUT_BYTES} {}/setup.out",
        shell_quote(private)
    )
}

/// Makes git run `.openhands/pre-commit.sh` before each commit. An existing hook still runs, before it.
pub(super) fn pre_commit(project: &str) -> String {
    let hook = format!(
        r#"#!/bin/sh
# {HOOK_MARK}: runs the project's own .openhands/pre-commit.sh.
earlier="$(dirname "$0")/pre-commit.local"
if [ -x "$earlier" ]; then "$earlier" "$@" || exit $?; fi
cd "$(git rev-parse --show-toplevel)" || exit 1
if [ -f .openhands/pre-commit.sh ]; then exec bash .openhands/pre-commit.sh "$@"; fi
"#
    );
    format!(
        r#"cd -- {project} || exit 1
hooks="$(git rev-parse --git-common-dir)/hooks" && mkdir -p -- "$hooks" || exit 1
hook="$hooks/pre-commit"
if [ -e "$hook" ] && ! grep -qF {mark} "$hook"; then
  mv -f -- "$hook" "$hook.local" && chmod +x "$hook.local" || exit 1
fi
printf %s {hook} >"$hook.part" && chmod +x "$hook.part" && mv -f -- "$hook.part" "$hook"
"#,
        project = shell_quote(project),
        mark = shell_quote(HOOK_MARK),
        hook = shell_quote(&hook),
    )
}

#[cfg(test)]
mod tests;
