//! A node that runs the containers of pods as processes of this machine.
//!
//! Knows: `unshare` gives a process a view of its own of the file system, in which the pod's claim is mounted where its container
//! wants it. The mount point must exist. Pods share the network of this machine, and each has a loopback address.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::controllers::{container_statuses, end, leaves, name};
use crate::kind::Kind;
use crate::store::now;
use crate::{ClusterState, Shared};

/// Mounts the first directory at the second one, and becomes the program.
const RUN: &str = r#"mount --bind "$1" "$2" && cd "$2" && shift 2 && exec "$@""#;
/// The variable with the pod's address, which arguments name as `$(POD_IP)`.
const ADDRESS: &str = "POD_IP";

/// Runs pods until the cluster is dropped. Claims are directories in `claims`.
pub(crate) async fn run(shared: Arc<Shared>, claims: PathBuf) {
    let mut changed = shared.subscribe();
    let mut processes = BTreeMap::<String, Pid>::new();
    let mut ends = JoinSet::new();
    loop {
        let pods: Vec<Value> = shared.state().store.of_kind(Kind::Pod).cloned().collect();
        for pod in pods {
            let uid = pod["metadata"]["uid"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            match processes.get(&uid) {
                // An error means that it has ended.
                Some(process) if leaves(&pod) => {
                    let _ = kill_process(*process, Signal::TERM);
                }
                None if leaves(&pod) => {
                    shared.change(|state| state.store.remove(Kind::Pod, name(&pod)));
                }
                None if pod["status"]["phase"] == "Pending" => {
                    let Some((address, variables)) = shared.change(|state| schedule(state, &pod))
                    else {
                        continue;
                    };
                    match spawn(&claims, &pod, &address, variables).await {
                        Ok((child, id)) => {
                            processes.insert(uid.clone(), id);
                            shared.change(|state| set_running(state, &pod, &address));
                            ends.spawn(wait(Arc::clone(&shared), pod, child));
                        }
                        Err(error) => shared.change(|state| fail(state, pod, &error.to_string())),
                    }
                }
                Some(_) | None => {}
            }
        }
        tokio::select! {
            changed = changed.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(Ok(uid)) = ends.join_next() => {
                processes.remove(&uid);
            }
        }
    }
}

/// The address and the variables of a pod, once the claim and the Secret exist that it names.
fn schedule(state: &mut ClusterState, pod: &Value) -> Option<(String, BTreeMap<String, String>)> {
    let has = |state: &ClusterState, kind| state.store.get(kind, name(pod)).cloned();
    let spec = &pod["spec"];
    if !spec["volumes"][0]["persistentVolumeClaim"].is_null() {
        has(state, Kind::Claim)?;
    }
    let secret = if spec["containers"][0]["envFrom"][0].is_null() {
        json!({})
    } else {
        has(state, Kind::Secret)?
    };
    let members = secret["data"].as_object().into_iter().flatten();
    let variables = members.filter_map(|(key, value)| {
        let value = STANDARD.decode(value.as_str()?).ok()?;
        Some((key.clone(), String::from_utf8(value).ok()?))
    });
    Some((state.next_address(), variables.collect()))
}

fn set_running(state: &mut ClusterState, pod: &Value, address: &str) {
    let Some(mut pod) = state.store.get(Kind::Pod, name(pod)).cloned() else {
        return;
    };
    let running = container_statuses(&json!({"running": {"startedAt": now()}}));
    pod["status"] = json!({"phase": "Running", "podIP": address, "containerStatuses": running});
    state.store.replace(Kind::Pod, pod);
}

fn fail(state: &mut ClusterState, mut pod: Value, message: &str) {
    let terminated =
        json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": message}});
    pod["status"] =
        json!({"phase": "Failed", "containerStatuses": container_statuses(&terminated)});
    state.store.replace(Kind::Pod, pod);
}

/// Runs the containers before the usual one, and starts that.
async fn spawn(
    claims: &Path,
    pod: &Value,
    address: &str,
    variables: BTreeMap<String, String>,
) -> std::io::Result<(Child, Pid)> {
    let claim = claims.join(name(pod));
    std::fs::create_dir_all(&claim)?;
    let spec = &pod["spec"];
    for container in spec["initContainers"].as_array().into_iter().flatten() {
        let output = program(&claim, container, address).output().await?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(std::io::Error::other(text.into_owned()));
        }
    }
    let mut command = program(&claim, &spec["containers"][0], address);
    let child = command
        .envs(variables)
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let id = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let id = id.ok_or(std::io::ErrorKind::NotFound)?;
    Ok((child, id))
}

/// The program of a container, with the variables that it sets itself.
fn program(claim: &Path, container: &Value, address: &str) -> Command {
    let words = |key: &str| -> Vec<String> {
        let words = container[key].as_array().into_iter().flatten();
        let words = words.filter_map(Value::as_str);
        words
            .map(|word| word.replace("$(POD_IP)", address))
            .collect()
    };
    let variables = container["env"].as_array().into_iter().flatten();
    let variables = variables.filter_map(|it| Some((it["name"].as_str()?, it["value"].as_str()?)));
    let mount = container["volumeMounts"][0]["mountPath"]
        .as_str()
        .unwrap_or_default();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--map-root-user", "sh", "-c", RUN, "sh"])
        .arg(claim)
        .arg(mount)
        .args(words("command"))
        .args(words("args"))
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("HOME", mount)
        .envs(variables)
        .env(ADDRESS, address)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Waits for the end of a process, and copies its log. Returns the pod's uid.
async fn wait(shared: Arc<Shared>, pod: Value, mut child: Child) -> String {
    let id = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut logs = pin!(async {
        tokio::join!(copy_log(&shared, &pod, out), copy_log(&shared, &pod, err));
    });
    let mut has_closed = false;
    let ended = loop {
        tokio::select! {
            ended = child.wait() => break ended,
            () = &mut logs, if !has_closed => has_closed = true,
        }
    };
    // What it started ends with it. An error means that there is nothing.
    let _ = id.map(|id| kill_process_group(id, Signal::KILL));
    if !has_closed {
        logs.await;
    }
    let code = ended.ok().and_then(|status| status.code()).unwrap_or(137);
    shared.change(|state| {
        if let Some(mut pod) = state.store.get(Kind::Pod, name(&pod)).cloned() {
            end(&mut pod, code);
            state.store.replace(Kind::Pod, pod);
        }
    });
    pod["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

async fn copy_log(shared: &Shared, pod: &Value, log: Option<impl AsyncRead + Unpin>) {
    let Some(log) = log else {
        return;
    };
    let mut lines = BufReader::new(log).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        shared.change(|state| state.logs.write(pod, &line));
    }
}
