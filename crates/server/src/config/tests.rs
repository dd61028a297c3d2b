mod identity_providers;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;

use super::*;
use crate::compose::BACKENDS;

const CANARY: &str = "canary-7f3a";

fn load(file: Option<&str>, variables: &[(&str, &str)]) -> Result<Config, String> {
    let mut variables: Vec<(OsString, OsString)> = variables
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    variables.push(("HOME".into(), "/home/someone".into()));
    let file = file.map(|text| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    });
    let path = file.as_ref().map(tempfile::NamedTempFile::path);
    Config::load(BACKENDS, path, &variables).map_err(|e| e.to_string())
}

#[test]
fn the_defaults_are_valid_and_every_key_is_read() {
    let config = load(None, &[]).unwrap();
    assert_eq!(config.http.bind.to_string(), "127.0.0.1:3000");
    assert_eq!(
        config.data_dir,
        Path::new("/home/someone/.local/share/agent-workspace")
    );
    assert_eq!(
        config.storage.url.expose_secret(),
        "sqlite:///home/someone/.local/share/agent-workspace/agent-workspace.db"
    );

    let variables = [("HOME".into(), "/home/someone".into())];
    let layers = SettingLayers::load(Config::sections(BACKENDS), None, &variables);
    let reader = SettingReader::new(&layers, &variables);
    Config::read(BACKENDS, &reader, &layers, &variables);
    let all_keys: BTreeSet<String> = layers.keys().map(str::to_owned).collect();
    assert_eq!(
        reader.keys_read(),
        all_keys,
        "the code reads exactly the keys of default.toml"
    );
}

#[test]
fn a_shared_host_needs_postgres_and_docker() {
    let error = load(None, &[("WORKSPACE_SANDBOX__HOST", "engine-1")]).unwrap_err();
    assert!(
        error.contains("Postgres") && error.contains("docker"),
        "{error}"
    );
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let complete = [
        ("WORKSPACE_SANDBOX__HOST", "engine-1"),
        ("WORKSPACE_SANDBOX__BACKEND", "docker"),
        ("WORKSPACE_STORAGE__URL", "postgres://db/x"),
        ("WORKSPACE_SECRETS__MASTER_KEY", key),
    ];
    let config = load(None, &complete).unwrap();
    let host = config.sandbox.shared_host.unwrap();
    assert_eq!(host.as_str(), "engine-1");
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let file = "[http]\nbind = '127.0.0.1:1'\nworkers = 3\n[sandbox]\nmax_running = 7\n";
    let config = load(
        Some(file),
        &[
            ("WORKSPACE_HTTP__BIND", "127.0.0.1:2"),
            (
                "WORKSPACE_HTTP__CORS_ORIGINS",
                "https://a.example, http://localhost:3001",
            ),
            ("WORKSPACE_DATA_DIR", "/data"),
            ("WORKSPACE_HTTP__WORKERS", ""),
        ],
    )
    .unwrap();
    assert_eq!(config.http.bind.port(), 2);
    assert_eq!(config.http.workers, 3, "an empty variable is not set");
    assert_eq!(
        config.http.cors_origins,
        ["https://a.example", "http://localhost:3001"]
    );
    assert_eq!(
        (
            config.sandbox.max_running,
            config.sandbox.max_running_per_user
        ),
        (7, 10)
    );
    assert_eq!(config.data_dir, Path::new("/data"));
}

#[test]
fn unknown_keys_are_named_with_the_nearest_known_one() {
    for (file, variable, unknown, nearest) in [
        (
            Some("[http]\nbnid = 'x'"),
            None,
            "`http.bnid`",
            "`http.bind`",
        ),
        (Some("datadir = 'x'"), None, "`datadir`", "`data_dir`"),
        (
            Some("[http.bind]\nport = 1"),
            None,
            "`http.bind.port`",
            "`http.bind`",
        ),
        (
            None,
            Some("WORKSPACE_HTTP_BIND"),
            "`WORKSPACE_HTTP_BIND`",
            "`WORKSPACE_HTTP__BIND`",
        ),
        (
            None,
            Some("WORKSPACE_SANDBOX__MAX_RUNING"),
            "`WORKSPACE_SANDBOX__MAX_RUNING`",
            "`WORKSPACE_SANDBOX__MAX_RUNNING`",
        ),
    ] {
        let variables: Vec<_> = variable.into_iter().map(|name| (name, "1")).collect();
        let error = load(file, &variables).unwrap_err();
        assert!(
            error.contains(unknown) && error.contains(nearest),
            "{error}"
        );
    }
    load(
        None,
        &[
            ("WORKSPACE_TMP", "/tmp"),
            ("WORKSPACE", "x"),
            ("OTHER", "x"),
        ],
    )
    .unwrap();
}

#[test]
fn all_problems_are_reported_together_with_their_sources() {
    let file = "[http]\nbind = 'nowhere'\nworkers = 'two'\n[log]\nformat = 'xml'\n";
    let error = load(
        Some(file),
        &[
            ("WORKSPACE_SANDBOX__STOP_GRACE", "soon"),
            ("WORKSPACE_START__PARALLEL", "0"),
            ("WORKSPACE_AUTH__ALLOW_OPEN_ON_PUBLIC", "maybe"),
            ("WORKSPACE_STORAGE__URL", "mysql://x"),
            ("WORKSPACE_HTTP__CORS_ORIGINS", "https://a/b"),
            ("WORKSPACE_HTTP__PUBLIC_URL", "ftp://x"),
            ("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", "'open quote"),
            ("WORKSPACE_SANDBOX__AGENT_SERVER_VERSION", "../x"),
        ],
    )
    .unwrap_err();
    for part in [
        "`http.bind` in ",
        "`http.workers` must be a whole number",
        "`log.format` in ",
        "WORKSPACE_SANDBOX__STOP_GRACE must",
        "WORKSPACE_START__PARALLEL must be from 1",
        "WORKSPACE_AUTH__ALLOW_OPEN_ON_PUBLIC must be true or false",
        "WORKSPACE_STORAGE__URL must",
        "WORKSPACE_HTTP__CORS_ORIGINS must",
        "WORKSPACE_HTTP__PUBLIC_URL must",
        "WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND must",
        "WORKSPACE_SANDBOX__AGENT_SERVER_VERSION must",
    ] {
        assert!(error.contains(part), "{part} is missing in {error}");
    }
}

#[test]
fn open_mode_needs_a_second_switch_on_a_public_address() {
    let open = ("WORKSPACE_AUTH__MODE", "open");
    let public = ("WORKSPACE_HTTP__BIND", "0.0.0.0:3000");
    assert_eq!(
        load(None, &[open]).unwrap().auth.mode,
        AuthModeSetting::Open
    );
    let error = load(None, &[open, public]).unwrap_err();
    assert!(
        error.contains("WORKSPACE_AUTH__ALLOW_OPEN_ON_PUBLIC"),
        "{error}"
    );
    let switch = ("WORKSPACE_AUTH__ALLOW_OPEN_ON_PUBLIC", "true");
    assert_eq!(
        load(None, &[open, public, switch]).unwrap().auth.mode,
        AuthModeSetting::Open
    );
}

#[test]
fn accounts_need_an_encrypted_or_local_address() {
    let accounts = ("WORKSPACE_AUTH__MODE", "accounts");
    let url = |url| ("WORKSPACE_HTTP__PUBLIC_URL", url);
    for variables in [
        &[][..],
        &[accounts],
        &[accounts, url("https://agents.example/")],
        &[accounts, url("http://localhost:3000")],
        &[
            accounts,
            url("https://agents.example/"),
            ("WORKSPACE_HTTP__BIND", "0.0.0.0:3000"),
        ],
    ] {
        let mode = load(None, variables).unwrap().auth.mode;
        assert_eq!(mode, AuthModeSetting::Accounts, "{variables:?}");
    }
    for (variables, part) in [
        (url("http://agents.example/"), "is not encrypted"),
        (
            ("WORKSPACE_HTTP__BIND", "192.0.2.1:3000"),
            "is not encrypted",
        ),
        (
            ("WORKSPACE_SANDBOX__DIRECT_URLS", "true"),
            "cookies do not distinguish ports",
        ),
        (
            ("WORKSPACE_AUTH__SESSION_LIFETIME", "0s"),
            "SESSION_LIFETIME",
        ),
    ] {
        let error = load(None, &[accounts, variables]).unwrap_err();
        assert!(error.contains(part), "{variables:?}: {error}");
    }
}

#[test]
fn a_service_without_encryption_goes_on_with_keys_unless_accounts_are_asked_for() {
    for variable in [
        ("WORKSPACE_HTTP__PUBLIC_URL", "http://agents.example/"),
        ("WORKSPACE_HTTP__BIND", "192.0.2.1:3000"),
        ("WORKSPACE_SANDBOX__DIRECT_URLS", "true"),
    ] {
        let auth = load(None, &[variable]).unwrap().auth;
        assert_eq!(auth.mode, AuthModeSetting::ApiKey, "{variable:?}");
        assert!(auth.without_sign_in.is_some(), "{variable:?}");
    }
    let auth = load(None, &[]).unwrap().auth;
    assert!(auth.without_sign_in.is_none());
}

#[test]
fn backends_are_chosen_by_name() {
    for (name, backend) in [
        ("auto", None),
        ("docker", Some("docker")),
        ("kubernetes", Some("kubernetes")),
        ("process", Some("process")),
        ("example", Some("example")),
    ] {
        let config = load(None, &[("WORKSPACE_SANDBOX__BACKEND", name)]).unwrap();
        assert_eq!(config.sandbox.backend, backend);
    }
    let error = load(None, &[("WORKSPACE_SANDBOX__BACKEND", "podman")]).unwrap_err();
    assert!(
        error.contains("auto, docker, kubernetes, process or example"),
        "{error}"
    );
}

#[test]
fn the_number_of_warm_sandboxes_is_configured_or_follows_the_backend() {
    let kept = |file, variables: &[_]| {
        let config = load(file, variables).unwrap();
        let kept = |name| config.kept_warm(&config.backend(name).unwrap().features());
        (kept("process"), kept("docker"))
    };
    let variable = |text| [("WORKSPACE_SANDBOX__WARM", text)];
    assert_eq!(kept(None, &[]), (0, 1));
    assert_eq!(kept(None, &variable("auto")), (0, 1));
    assert_eq!(kept(None, &variable("0")), (0, 0));
    assert_eq!(kept(None, &variable("3")), (3, 3));
    assert_eq!(kept(Some("[sandbox]\nwarm = 2\n"), &[]), (2, 2));
    assert_eq!(kept(Some("[sandbox]\nwarm = 'auto'\n"), &[]), (0, 1));
    for wrong in ["1001", "-1", "some"] {
        let error = load(None, &variable(wrong)).unwrap_err();
        assert!(error.contains("auto or a number from 0 to 1000"), "{error}");
    }
}

#[test]
fn time_outs_are_above_zero() {
    for name in [
        "HTTP__SEND_TIMEOUT",
        "GIT__TIMEOUT",
        "START__SANDBOX_DEADLINE",
        "START__PREPARE_DEADLINE",
        "START__CLONE_DEADLINE",
        "START__SETUP_DEADLINE",
    ] {
        let name = format!("WORKSPACE_{name}");
        let error = load(None, &[(&name, "0s")]).unwrap_err();
        assert!(error.contains("a number above 0 and a unit"), "{error}");
        load(None, &[(&name, "1ms")]).unwrap();
    }
}

#[test]
fn postgres_needs_a_configured_master_key() {
    let url = ("WORKSPACE_STORAGE__URL", "postgres://u:p@h/db");
    let error = load(None, &[url]).unwrap_err();
    assert!(error.contains("WORKSPACE_SECRETS__MASTER_KEY"), "{error}");
    let key = "A".repeat(43) + "=";
    let config = load(None, &[url, ("WORKSPACE_SECRETS__MASTER_KEY", &key)]).unwrap();
    assert!(config.storage.is_shared && config.secrets.master_key.is_some());
}

#[test]
fn a_secret_comes_from_a_key_or_a_file_of_the_highest_layer() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"  key-from-file\n").unwrap();
    let path = file.path().to_str().unwrap();
    let from_file = ("WORKSPACE_AUTH__BOOTSTRAP_KEY_FILE", path);
    let bootstrap = |config: &Config| {
        config
            .auth
            .bootstrap_key
            .as_ref()
            .unwrap()
            .expose_secret()
            .to_owned()
    };
    let lower = "[auth]\nbootstrap_key = 'key-in-config'\n";
    assert_eq!(
        bootstrap(&load(Some(lower), &[from_file]).unwrap()),
        "key-from-file"
    );
    let lower = format!("[auth]\nbootstrap_key_file = '{path}'\n");
    let direct = ("WORKSPACE_AUTH__BOOTSTRAP_KEY", "key-in-variable");
    assert_eq!(
        bootstrap(&load(Some(&lower), &[direct]).unwrap()),
        "key-in-variable"
    );

    let error = load(None, &[direct, from_file]).unwrap_err();
    assert!(error.contains("both set"), "{error}");
    let missing = ("WORKSPACE_AUTH__BOOTSTRAP_KEY_FILE", "/no/such/file");
    assert!(
        load(None, &[missing])
            .unwrap_err()
            .contains("/no/such/file")
    );
}

#[test]
fn secrets_are_redacted() {
    let key = "A".repeat(43) + "=";
    let variables = [
        (
            "WORKSPACE_STORAGE__URL",
            "postgres://canary-7f3a:canary-7f3a@db.example/w?password=canary-7f3a",
        ),
        ("WORKSPACE_SECRETS__MASTER_KEY", key.as_str()),
        ("WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS", key.as_str()),
        ("WORKSPACE_AUTH__BOOTSTRAP_KEY", CANARY),
        (
            "WORKSPACE_SANDBOX__INDEX_URL",
            "https://canary-7f3a:canary-7f3a@index.example/simple",
        ),
        (
            "WORKSPACE_SANDBOX__PROXY",
            "http://u:canary-7f3a@proxy.example:3128",
        ),
        ("WORKSPACE_DOCKER__REGISTRY_SERVER", "ghcr.io"),
        ("WORKSPACE_DOCKER__REGISTRY_USERNAME", "someone"),
        ("WORKSPACE_DOCKER__REGISTRY_PASSWORD", CANARY),
        ("WORKSPACE_DOCKER__SECRET_ENV", "TOKEN=canary-7f3a"),
    ];
    let file = "[[docker.templates]]\nid = 'a'\nimage = 'b'\nsecret_env = ['OTHER=canary-7f3a']\n";
    let config = load(Some(file), &variables).unwrap();
    let shown = format!("{config:?}\n{}", config.as_toml());
    assert!(!shown.contains(CANARY) && !shown.contains(&key), "{shown}");
    for part in [
        "db.example/w",
        "index.example/simple",
        "proxy.example:3128",
        "TOKEN=<redacted>",
        "OTHER=<redacted>",
        settings::REDACTED,
    ] {
        assert!(
            config.as_toml().contains(part),
            "{part} is missing in {shown}"
        );
    }
}

#[test]
fn problems_do_not_repeat_invalid_secrets() {
    let error = load(
        Some("[secrets]\nmaster_key = 'canary-7f3a'\nnot toml canary-7f3a\n"),
        &[],
    )
    .unwrap_err();
    assert!(
        error.contains("line 3") && !error.contains(CANARY),
        "{error}"
    );
    let error = load(
        None,
        &[
            ("WORKSPACE_SECRETS__MASTER_KEY", CANARY),
            ("WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS", CANARY),
            ("WORKSPACE_AUTH__BOOTSTRAP_KEY", "canary-7f3a with space"),
            ("WORKSPACE_STORAGE__URL", "canary-7f3a"),
            ("WORKSPACE_DOCKER__SECRET_ENV", "no assignment canary-7f3a"),
        ],
    )
    .unwrap_err();
    assert_eq!(error.lines().count(), 6, "{error}");
    assert!(!error.contains(CANARY), "{error}");
}

#[test]
fn the_printed_configuration_loads_again_and_names_sources() {
    let config = load(None, &[("WORKSPACE_HTTP__BIND", "127.0.0.1:4")]).unwrap();
    assert!(
        config
            .as_toml()
            .contains("bind = \"127.0.0.1:4\"  # WORKSPACE_HTTP__BIND")
    );
    let again = load(Some(config.as_toml()), &[]).unwrap();
    assert_eq!(again.http.bind, config.http.bind);
    assert_eq!(again.data_dir, config.data_dir);
}
