//! Users with canaries in every place for secrets, and the search of everything that the service leaves behind.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::leak_report::{KeyHolder, LeakReport, SIGNATURE, sqlite_dump};
use super::planted_secrets::{PlantedSecrets, plant_in_legacy, plant_in_v1};
use super::secret_search::{Secret, Secrets};
use crate::client::{Client, Conversation, Record};
use crate::processes::PLACEHOLDER_PREFIX;
use crate::{Postgres, Sandboxing, Service};

/// A service, and all responses and outputs so far.
pub struct CanaryWorld {
    /// The service.
    pub service: Service,
    /// Its database, if that is a server.
    pub postgres: Option<Postgres>,
    /// Secrets to search for.
    pub secrets: Secrets,
    record: Record,
    key_holders: BTreeMap<String, KeyHolder>,
    /// Outputs of commands: a name and the text.
    command_outputs: Vec<(String, String)>,
}

impl CanaryWorld {
    /// A service whose operator has these secrets.
    #[must_use]
    pub fn new(service: Service, postgres: Option<Postgres>, secrets: Secrets) -> Self {
        Self {
            service,
            postgres,
            secrets,
            record: Record::default(),
            key_holders: BTreeMap::new(),
            command_outputs: Vec::new(),
        }
    }

    /// Creates a user, whose key is a secret and whose responses are recorded.
    pub fn user(&mut self, name: &str) -> Client {
        let client = self.service.user(name);
        self.add_api_key(name, client.key().trim_start_matches("aw_"));
        let key_holder = KeyHolder::User(name.to_owned());
        self.key_holders.insert(client.key().to_owned(), key_holder);
        client.with_record(&self.record)
    }

    fn add_api_key(&mut self, owner: &str, key: &str) {
        self.secrets.add(Secret::new("API key", owner, key));
    }

    /// A client with this key, whose responses are recorded.
    pub fn caller(&self, key: &str) -> Client {
        Client::new(self.service.url(), key).with_record(&self.record)
    }

    /// Saves every secret of a user, through both APIs.
    ///
    /// # Panics
    /// When one is refused.
    pub async fn plant(&mut self, user: &Client, of: &PlantedSecrets, model: &str, base_url: &str) {
        self.secrets.extend(of.secrets());
        let mut saved = plant_in_v1(user, of, model, base_url).await;
        saved.extend(plant_in_legacy(user, of).await);
        for reply in saved {
            let _ = reply.ok();
        }
    }

    /// Adds the session key of a running sandbox and the sealing key of its agent server to the secrets.
    ///
    /// # Panics
    /// When it does not run.
    pub fn learn_sandbox(&mut self, owner: &str, conversation: &Conversation) -> Client {
        let sandbox = &conversation.sandbox_id;
        let key = conversation.session_api_key.clone();
        let key = key.expect("the running sandbox has no key");
        let what = format!("session key of sandbox {sandbox}");
        self.secrets.add(Secret::new(&what, owner, &key));
        let key_holder = KeyHolder::Sandbox(owner.to_owned());
        self.key_holders.insert(key.clone(), key_holder);
        let processes = self.service.processes();
        let in_sandbox = processes.iter().filter(|it| it.sandbox == *sandbox);
        let sealing_keys: Vec<String> = in_sandbox
            .filter_map(|it| it.variable("OH_SECRET_KEY").map(str::to_owned))
            .collect();
        assert!(
            !sealing_keys.is_empty(),
            "the agent server has no sealing key"
        );
        let what = format!("sealing key of sandbox {sandbox}");
        let sealing_keys = sealing_keys
            .iter()
            .map(|key| Secret::new(&what, owner, key));
        self.secrets.extend(sealing_keys);
        self.caller(&key)
    }

    /// Adds the signatures in the URLs of a sandbox's ports to the secrets, and requests each URL once. Returns their number.
    ///
    /// # Panics
    /// When the user does not see the sandbox.
    pub async fn learn_addresses(&mut self, owner: &str, user: &Client, sandbox: &str) -> usize {
        let path = format!("/api/v1/sandboxes?id={sandbox}");
        let shown = user.get(&path).await.ok();
        let ports = shown[0]["exposed_urls"].as_array().cloned();
        let ports = ports.expect("the running sandbox has no URLs");
        let paths = ports.iter().filter_map(|port| {
            let (_, path) = port["url"].as_str()?.split_once("/s/")?;
            Some((format!("/s/{path}"), path.split('/').nth(2)?.to_owned()))
        });
        let paths: Vec<(String, String)> = paths.collect();
        let anonymous = self.caller("");
        for (path, signature) in &paths {
            let signature = signature.split('?').next().unwrap_or_default();
            self.secrets.add(Secret::new(SIGNATURE, owner, signature));
            // The response does not matter; the search covers what the request leaves in the log.
            let _ = anonymous.get(path).await;
        }
        paths.len()
    }

    /// Runs a subcommand, which may fail, and records its output.
    pub fn run(&mut self, arguments: &[&str]) -> String {
        let output = self.service.run(arguments);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        self.command_outputs
            .push((format!("the output of {arguments:?}"), text.clone()));
        text
    }

    /// Reads every document of a user.
    ///
    /// # Panics
    /// When a list is refused.
    pub async fn read_all(&self, user: &Client) {
        for path in [
            "/api/v1/settings",
            "/api/settings",
            "/api/v1/settings/profiles",
            "/api/v1/settings/profiles/other",
            "/api/v1/settings/agent-schema",
            "/api/v1/secrets/search",
            "/api/secrets",
            "/api/v1/users/me",
            "/api/v1/users/me?expose_secrets=true",
            "/api/v1/app-conversations/search",
            "/api/v1/app-conversations/start-tasks/search",
            "/api/v1/sandboxes/search",
            "/api/v1/sandbox-specs/search",
            "/server_info",
            "/ready",
            "/openapi.json",
        ] {
            let reply = user.get(path).await;
            let is_refused = path.contains("expose_secrets") && reply.status == 401;
            assert!(reply.status == 200 || is_refused, "{path}: {reply:?}");
        }
        for conversation in user.conversations().await {
            let _ = user.events(&conversation.id).await;
        }
    }

    /// Asserts that a running sandbox reads its owner's secrets, and has placeholders of git tokens where it uses the
    /// forward proxy.
    ///
    /// # Panics
    /// When a value differs.
    pub async fn open(&self, sandbox: &Client, conversation: &Conversation, of: &PlantedSecrets) {
        let id = &conversation.sandbox_id;
        let list = format!("/api/v1/sandboxes/{id}/settings/secrets");
        assert_eq!(sandbox.get(&list).await.status, 200);
        for (name, place) in [
            ("CUSTOM", "Custom"),
            ("CUSTOM_LEGACY", "CustomLegacy"),
            ("GITHUB_TOKEN", "Github"),
            ("FORGEJO_TOKEN", "Forgejo"),
        ] {
            let reply = sandbox.get(&format!("{list}/{name}")).await;
            assert_eq!(reply.status, 200, "{name}");
            let has_proxy = self.service.sandboxing().has_proxy();
            if has_proxy && name.ends_with("_TOKEN") {
                assert!(reply.text.starts_with(PLACEHOLDER_PREFIX), "{name}");
            } else {
                assert_eq!(reply.text, of.value(place), "{name}");
            }
        }
        let me = sandbox.get("/api/v1/users/me?expose_secrets=true").await;
        assert_eq!(
            me.status, 401,
            "the session key alone opens no settings: {me:?}"
        );
        let headless = sandbox.get("/api/v1/settings").await;
        assert_eq!(
            headless.status, 401,
            "a sandbox must not read settings: {headless:?}"
        );
    }

    /// Searches every place. `may` allows secrets in further files.
    ///
    /// # Panics
    /// When a secret is in a place where it must not be.
    pub fn assert_no_leak(&self, is_allowed: &dyn Fn(&Path, &Secret) -> bool) {
        let secrets = &self.secrets;
        let mut leaks = LeakReport::default();
        let nowhere = |_: &Secret| false;
        leaks.search_text("the log", &self.service.log(), secrets, nowhere);
        leaks.search_responses(&self.record.responses(), &self.key_holders, secrets);
        for (what, text) in &self.command_outputs {
            leaks.search_text(what, text, secrets, nowhere);
        }
        leaks.search_command_lines(secrets);
        leaks.search_environments(&self.service.processes(), secrets);
        if let Sandboxing::Docker(engine) = self.service.sandboxing() {
            for sandbox in self.service.sandbox_directories() {
                let Some(container) = self.service.container(&sandbox) else {
                    continue;
                };
                let inspected = engine.docker(&["inspect", &container]);
                leaks.search_container(&sandbox, &inspected, secrets);
                let log = engine.log_of(&container, 10_000);
                leaks.search_text("the log of a container", &log, secrets, nowhere);
            }
        }
        let key_files = ["bootstrap.key", "master.key"];
        let is_allowed = |path: &Path, secret: &Secret| {
            let name = path.file_name().unwrap_or_default();
            key_files.iter().any(|file| name == *file) || is_allowed(path, secret)
        };
        let files = leaks.search_files(&self.service.data_dir(), secrets, &is_allowed);
        assert!(files > 2, "only {files} files were searched");
        let dump = match &self.postgres {
            Some(server) => server.dump(),
            None => sqlite_dump(&self.service),
        };
        assert!(dump.contains("conversations"), "the dump is empty");
        leaks.search_text("the database", &dump, secrets, nowhere);
        leaks.assert_none();
    }
}

/// A request that starts a conversation with secrets.
#[must_use]
pub fn start_request(message: &str, of: &PlantedSecrets) -> serde_json::Value {
    let content = json!([{"type": "text", "text": message}]);
    json!({"initial_message": {"role": "user", "content": content, "run": true}, "secrets": of.of_request()})
}
