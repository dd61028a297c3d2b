use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use sandbox_provider::container_settings::ExposedPort;
use secrecy::ExposeSecret as _;
use settings::SettingLayers;

use super::*;
use crate::config::{PauseMode, ResourceLimits};
use crate::section::SECTION;

/// The settings, and the configuration as it is shown.
#[derive(Debug)]
struct LoadedSettings {
    docker: DockerConfig,
    text: String,
}

fn load(file: Option<&str>, variables: &[(&str, &str)]) -> Result<LoadedSettings, String> {
    let variables = variables
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    let variables: Vec<(OsString, OsString)> = variables.collect();
    let file = file.map(|text| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    });
    let path: Option<&Path> = file.as_ref().map(tempfile::NamedTempFile::path);
    let layers = SettingLayers::load(vec![SECTION], path, &variables);
    let reader = SettingReader::new(&layers, &variables);
    let docker = DockerConfig::read(&reader, HostId::parse("here").unwrap());
    let text = settings::show(&layers, &[]);
    let problems = reader.into_problems();
    if problems.is_empty() {
        Ok(LoadedSettings { docker, text })
    } else {
        Err(format!("invalid:\n{}", problems.join("\n")))
    }
}

const IMAGE: &str = "ghcr.io/openhands/agent-server:1.58.0-python";

fn port(name: &str, port: u16) -> ExposedPort {
    let name = name.to_owned();
    ExposedPort { name, port }
}

#[test]
fn by_default_there_is_one_template_of_the_tested_image() {
    let docker = load(None, &[]).unwrap().docker;
    assert_eq!(docker.socket, None);
    assert_eq!(docker.publish_address.to_string(), "127.0.0.1");
    assert_eq!(docker.metadata, MetadataBlocking::Auto);
    assert!(docker.registry.is_none());
    let [template] = &docker.specs[..] else {
        panic!("{docker:?}")
    };
    assert_eq!(
        (template.id.as_str(), template.image.as_str()),
        (IMAGE, IMAGE)
    );
    assert_eq!(template.command.as_ref().unwrap().join(" "), "--port 8000");
    assert_eq!(
        template.resources,
        ResourceLimits {
            memory: Some(4 << 30),
            cpus: Some(2.0),
            pids: Some(1024),
            disk: Some(20 << 30),
        }
    );
    assert_eq!(template.ports[0], port("AGENT_SERVER", 8000));
    assert_eq!(template.idle_stop.unwrap().as_secs(), 1800);
    assert_eq!(template.lifetime, None);
}

#[test]
fn variables_change_the_default_template() {
    let variables = [
        ("WORKSPACE_DOCKER__IMAGE", "agents:2"),
        ("WORKSPACE_DOCKER__ID", "usual"),
        ("WORKSPACE_DOCKER__COMMAND", "--port 9000 --name 'a b'"),
        ("WORKSPACE_DOCKER__ENTRYPOINT", "/start"),
        ("WORKSPACE_DOCKER__USER", "1000:1000"),
        ("WORKSPACE_DOCKER__MEMORY", "512MiB"),
        ("WORKSPACE_DOCKER__CPUS", "0.5"),
        ("WORKSPACE_DOCKER__PIDS", "0"),
        ("WORKSPACE_DOCKER__DISK", "0"),
        ("WORKSPACE_DOCKER__CAPABILITIES", "CAP_CHOWN, SETUID"),
        ("WORKSPACE_DOCKER__READ_ONLY", "true"),
        ("WORKSPACE_DOCKER__PAUSE", "freeze"),
        ("WORKSPACE_DOCKER__ENV", "A=1,B=x=y,C="),
        ("WORKSPACE_DOCKER__SECRET_ENV", "TOKEN=t"),
        ("WORKSPACE_DOCKER__PORTS", "AGENT_SERVER=9000"),
        ("WORKSPACE_DOCKER__MOUNTS", "/srv/data:/data:ro"),
        ("WORKSPACE_DOCKER__SOCKET", "unix:///run/user/7/docker.sock"),
        ("WORKSPACE_DOCKER__RUNTIME", "runsc"),
        ("WORKSPACE_DOCKER__BLOCK_METADATA", "required"),
        ("WORKSPACE_SANDBOX__IDLE_STOP", "0"),
        ("WORKSPACE_SANDBOX__LIFETIME", "7d"),
        ("DOCKER_HOST", "unix:///ignored"),
    ];
    let docker = load(None, &variables).unwrap().docker;
    assert_eq!(docker.socket.unwrap(), "unix:///run/user/7/docker.sock");
    assert_eq!(docker.runtime.unwrap(), "runsc");
    assert_eq!(docker.metadata, MetadataBlocking::Required);
    let template = &docker.specs[0];
    assert_eq!(
        (template.id.as_str(), template.image.as_str()),
        ("usual", "agents:2")
    );
    assert_eq!(
        template.command.as_ref().unwrap(),
        &["--port", "9000", "--name", "a b"]
    );
    assert_eq!(template.entrypoint.as_ref().unwrap(), &["/start"]);
    assert_eq!(
        template.resources,
        ResourceLimits {
            memory: Some(512 << 20),
            cpus: Some(0.5),
            pids: None,
            disk: None,
        }
    );
    assert_eq!(template.capabilities, ["CHOWN", "SETUID"]);
    assert!(template.read_only && template.pause == PauseMode::Freeze);
    let env: Vec<_> = template
        .env
        .iter()
        .map(|(name, value)| format!("{name}:{value}"))
        .collect();
    assert_eq!(env, ["A:1", "B:x=y", "C:"]);
    assert_eq!(template.secret_env["TOKEN"].expose_secret(), "t");
    assert_eq!(template.ports, [port("AGENT_SERVER", 9000)]);
    assert!(!template.mounts[0].writable);
    assert_eq!(template.idle_stop, None);
    assert_eq!(template.lifetime.unwrap().as_secs(), 7 * 86_400);
}

#[test]
fn docker_host_names_the_engine_unless_a_setting_does() {
    let host = ("DOCKER_HOST", "unix:///run/user/7/docker.sock");
    let socket = load(None, &[host]).unwrap().docker.socket;
    assert_eq!(socket.unwrap(), host.1);
}

#[test]
fn further_templates_inherit_and_override_the_section() {
    let file = "
        [docker]
        memory = '1GiB'
        env = ['A=1']
        secret_env = ['TOKEN=t']
        [[docker.templates]]
        id = 'large'
        image = 'agents:2'
        memory = '8GiB'
        idle_stop = '2h'
        secret_env_file = 'SECRETS'
        [[docker.templates]]
        id = 'plain'
        image = 'agents:3'
        command = ''
        env = []
        lifetime = '1d'
        [sandbox]
        idle_stop = '5m'
    ";
    let secrets = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secrets.path(), "OTHER=o\n\nMORE=m=m\n").unwrap();
    let file = file.replace("SECRETS", secrets.path().to_str().unwrap());
    let cpus = ("WORKSPACE_DOCKER__CPUS", "3");
    let templates = load(Some(&file), &[cpus]).unwrap().docker.specs;
    let shown: Vec<_> = templates
        .iter()
        .map(|template| {
            let names = template.env.keys().chain(template.secret_env.keys());
            format!(
                "{} {} {:?} {:?} {} {:?} {:?} {}",
                template.id,
                template.image,
                template.resources.memory.map(|bytes| bytes >> 30),
                template.resources.cpus,
                names.cloned().collect::<Vec<_>>().join("+"),
                template.idle_stop.map(|time| time.as_secs() / 60),
                template.lifetime.map(|time| time.as_secs() / 3600),
                template.command.is_some(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            format!("{IMAGE} {IMAGE} Some(1) Some(3.0) A+TOKEN Some(5) None true"),
            "large agents:2 Some(8) Some(3.0) A+MORE+OTHER Some(120) None true".to_owned(),
            "plain agents:3 Some(1) Some(3.0) TOKEN Some(5) Some(24) false".to_owned(),
        ]
    );
}

#[test]
fn problems_of_a_template_name_its_number() {
    let file = "
        [docker]
        disk = 'much'
        [[docker.templates]]
        id = 'a'
        image = 'agents:2'
        memroy = '8GiB'
        http = 1
        [[docker.templates]]
        id = 'a'
        memory = 8
        pause = 'sleep'
        secret_env = ['A=1']
        secret_env_file = '/x'
    ";
    let error = load(Some(file), &[]).unwrap_err();
    for part in [
        "`docker.disk` in ",
        ": unknown key `memroy`; did you mean `memory`?",
        ": unknown key `http`; did you mean `",
        ": `image` is required",
        ": `memory` must be a string in quotes",
        "`pause` of template 2 in ",
        "`id` of template 2 in ",
        "`secret_env` of template 2 in ",
    ] {
        assert!(error.contains(part), "{part} is missing in {error}");
    }
    assert!(error.contains("template 1 in /"), "{error}");
    assert_eq!(
        error.matches("`docker.disk`").count(),
        1,
        "reported once: {error}"
    );
    let error = load(Some("[docker]\ntemplates = 1\n"), &[]).unwrap_err();
    assert!(error.contains("[[docker.templates]]"), "{error}");
    let id = format!("[[docker.templates]]\nid = '{IMAGE}'\nimage = 'x'\n");
    let error = load(Some(&id), &[]).unwrap_err();
    assert!(
        error.contains("is also the id of another template"),
        "{error}"
    );
}

#[test]
fn problems_say_what_is_expected() {
    for (name, value, part) in [
        ("SOCKET", "ssh://host", "unix:///PATH"),
        ("SOCKET", "/var/run/docker.sock", "unix:///PATH"),
        ("PUBLISH_ADDRESS", "everywhere", "IP address"),
        ("REACH_HOST", "a/b", "host name"),
        ("EXPOSED_HOST", "http://a", "host name"),
        ("RUNTIME", "run sc", "name"),
        ("BLOCK_METADATA", "yes", "auto, required or off"),
        ("DISK_CHECK", "0s", "1s or more"),
        ("REGISTRY_SERVER", "ghcr.io", "all three"),
        ("REGISTRY_PASSWORD", "p", "all three"),
        ("ID", "a b", "visible characters"),
        ("IMAGE", "-x", "an image"),
        ("IMAGE", "a b", "an image"),
        ("COMMAND", "'open", "quoted as for a shell"),
        ("WORKING_DIR", "project", "absolute path"),
        ("WORKING_DIR", "/elsewhere", "do not outlive"),
        ("VOLUME", "/", "absolute path"),
        ("USER", "a:b:c", "UID"),
        ("MEMORY", "4GB", "KiB, MiB, GiB, TiB"),
        ("MEMORY", "1MiB", "6MiB or more"),
        ("CPUS", "-1", "cores"),
        ("CPUS", "inf", "cores"),
        ("CPUS", "0.001", "cores"),
        ("PIDS", "-1", "from 0"),
        ("CAPABILITIES", "ALL", "CHOWN"),
        ("CAPABILITIES", "chown", "CHOWN"),
        ("PAUSE", "kill", "stop or freeze"),
        ("ENV", "A", "NAME=VALUE"),
        ("ENV", "1A=x", "NAME=VALUE"),
        ("SECRET_ENV", "A", "NAME=VALUE"),
        ("PORTS", "VSCODE=8001", "AGENT_SERVER=PORT"),
        ("PORTS", "AGENT_SERVER=0", "NAME=PORT"),
        ("PORTS", "AGENT_SERVER=1,X=1", "twice"),
        ("MOUNTS", "/a", "/SOURCE:/TARGET"),
    ] {
        let variable = format!("WORKSPACE_DOCKER__{name}");
        let error = load(None, &[(&variable, value)]).unwrap_err();
        assert!(error.contains(part), "{name}={value}: {error}");
        // Keys that belong together are reported once, by one of them.
        let is_about =
            name.starts_with("REGISTRY") || error.contains(&variable) || name == "SECRET_ENV";
        assert!(is_about, "{name}={value}: {error}");
        assert_eq!(error.lines().count(), 2, "one problem: {error}");
    }
    for variable in [
        "WORKSPACE_SANDBOX__IDLE_STOP",
        "WORKSPACE_SANDBOX__LIFETIME",
    ] {
        let error = load(None, &[(variable, "never")]).unwrap_err();
        assert!(
            error.contains(variable) && error.contains("or 0"),
            "{error}"
        );
    }
}

#[test]
fn the_working_directory_may_be_in_a_mount() {
    let variables = [
        ("WORKSPACE_DOCKER__WORKING_DIR", "/code/project"),
        ("WORKSPACE_DOCKER__MOUNTS", "/srv/code:/code"),
    ];
    let docker = load(None, &variables).unwrap().docker;
    assert_eq!(docker.specs[0].working_dir, "/code/project");
}

#[test]
fn printed_templates_load_again() {
    let file = "[[docker.templates]]\nid = 'a'\nimage = 'b'\nlifetime = '1d'\npids = 5\nread_only = true\n";
    let config = load(Some(file), &[]).unwrap();
    let again = load(Some(&config.text), &[]).unwrap();
    let template = |config: &LoadedSettings| format!("{:?}", config.docker.specs[1]);
    assert_eq!(template(&again), template(&config), "{}", &config.text);
}
