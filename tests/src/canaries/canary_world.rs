//! Users with canaries in every place, and one look at everything that the service leaves behind.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::leak_report::{AnswerCollector, LeakReport, SIGNATURE, sqlite_dump};
use super::planted_secrets::{PlantedSecrets, plant_in_legacy, plant_in_v1};
use super::secret_search::{Secret, Secrets};
use crate::client::{Client, Conversation, Record};
use crate::{Postgres, Sandboxing, Service};

/// A service and what was received of it so far.
pub struct CanaryWorld {
    /// The service.
    pub service: Service,
    /// Its database, if that is a server.
    pub postgres: Option<Postgres>,
    /// What may be found nowhere, or only where it belongs.
    pub secrets: Secrets,
    record: Record,
    askers: BTreeMap<String, AnswerCollector>,
    /// What commands printed: a name and the text.
    said: Vec<(String, String)>,
    /// Whose sandboxes there are, where agents have secrets in their environment.
    owners: Option<BTreeMap<String, String>>,
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
            askers: BTreeMap::new(),
            said: Vec::new(),
            owners: None,
        }
    }

    /// From now on secrets of a user may be in the environment of processes in that user's sandboxes: real agents export
    /// them there.
    pub fn gives_owners_their_own(&mut self) {
        self.owners = Some(BTreeMap::new());
    }

    /// A user, whose key is one of the secrets and whose answers are kept.
    pub fn user(&mut self, name: &str) -> Client {
        let client = self.service.user(name);
        self.knows(name, client.key().trim_start_matches("aw_"));
        let asker = AnswerCollector::User(name.to_owned());
        self.askers.insert(client.key().to_owned(), asker);
        client.recorded(&self.record)
    }

    fn knows(&mut self, owner: &str, key: &str) {
        self.secrets.add(Secret::new("API key", owner, key));
    }

    /// The same for somebody with a key that is given.
    pub fn caller(&self, key: &str) -> Client {
        Client::new(self.service.url(), key).recorded(&self.record)
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

    /// Takes the key of a running sandbox, and the one that its agent server seals with, among the secrets.
    ///
    /// # Panics
    /// When it does not run.
    pub fn learn_sandbox(&mut self, owner: &str, conversation: &Conversation) -> Client {
        let sandbox = &conversation.sandbox_id;
        let key = conversation.session_api_key.clone();
        let key = key.expect("a running sandbox has a key");
        if let Some(owners) = &mut self.owners {
            owners.insert(sandbox.clone(), owner.to_owned());
        }
        let what = format!("session key of sandbox {sandbox}");
        self.secrets.add(Secret::new(&what, owner, &key));
        let asker = AnswerCollector::Sandbox(owner.to_owned());
        self.askers.insert(key.clone(), asker);
        let processes = self.service.processes();
        let its_own = processes.iter().filter(|it| it.sandbox == *sandbox);
        let sealing: Vec<String> = its_own
            .filter_map(|it| it.variable("OH_SECRET_KEY").map(str::to_owned))
            .collect();
        assert!(!sealing.is_empty(), "the sandbox has a key of its own");
        let what = format!("sealing key of sandbox {sandbox}");
        let sealing = sealing.iter().map(|key| Secret::new(&what, owner, key));
        self.secrets.extend(sealing);
        self.caller(&key)
    }

    /// Takes the signatures in the addresses of a sandbox's ports among the secrets, and uses each address once; how many
    /// there are.
    ///
    /// # Panics
    /// When the user does not see the sandbox.
    pub async fn learn_addresses(&mut self, owner: &str, user: &Client, sandbox: &str) -> usize {
        let path = format!("/api/v1/sandboxes?id={sandbox}");
        let shown = user.get(&path).await.ok();
        let ports = shown[0]["exposed_urls"].as_array().cloned();
        let ports = ports.expect("a running sandbox has addresses");
        let paths = ports.iter().filter_map(|port| {
            let (_, path) = port["url"].as_str()?.split_once("/s/")?;
            Some((format!("/s/{path}"), path.split('/').nth(2)?.to_owned()))
        });
        let paths: Vec<(String, String)> = paths.collect();
        let nobody = self.caller("");
        for (path, signature) in &paths {
            let signature = signature.split('?').next().unwrap_or_default();
            self.secrets.add(Secret::new(SIGNATURE, owner, signature));
            // Whether anything listens there: what is left of it in the log is looked at.
            let _ = nobody.get(path).await;
        }
        paths.len()
    }

    /// Runs a subcommand, and keeps what it prints. Whether it succeeds is not asked: its errors are looked at, too.
    pub fn run(&mut self, arguments: &[&str]) -> String {
        let output = self.service.run(arguments);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        self.said
            .push((format!("the output of {arguments:?}"), text.clone()));
        text
    }

    /// Reads whatever a user can read.
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

    /// What a live sandbox opens of its owner's, by the routes for it.
    ///
    /// # Panics
    /// When the value is another one.
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
            assert_eq!((reply.status, reply.text), (200, of.value(place)), "{name}");
        }
        let me = sandbox.get("/api/v1/users/me?expose_secrets=true").await;
        assert!(me.text.contains(&of.core("LlmKey")), "{me:?}");
        let headless = sandbox.get("/api/v1/settings").await;
        assert_eq!(headless.status, 401, "a sandbox is no user: {headless:?}");
    }

    /// Looks everywhere; `may` says which files may hold which secrets beside those that are named here.
    ///
    /// # Panics
    /// When something is found where it must not be.
    pub fn assert_no_leak(&self, may: &dyn Fn(&Path, &Secret) -> bool) {
        let secrets = &self.secrets;
        let mut leaks = LeakReport::default();
        let never = |_: &Secret| false;
        leaks.look("the log", &self.service.log(), secrets, never);
        leaks.look_at_answers(&self.record.answers(), &self.askers, secrets);
        for (what, text) in &self.said {
            leaks.look(what, text, secrets, never);
        }
        leaks.look_at_commands(secrets);
        let processes = self.service.processes();
        let is_owners = |sandbox: &str, secret: &Secret| {
            let owner = self.owners.as_ref().and_then(|all| all.get(sandbox));
            owner == Some(&secret.owner)
        };
        leaks.look_at_processes(&processes, secrets, &is_owners);
        if let Sandboxing::Docker(engine) = self.service.sandboxing() {
            for sandbox in self.service.sandbox_directories() {
                let Some(container) = self.service.container(&sandbox) else {
                    continue;
                };
                let inspected = engine.docker(&["inspect", &container]);
                leaks.look_at_container(&sandbox, &inspected, secrets);
                let log = engine.log_of(&container, 10_000);
                leaks.look("the log of a container", &log, secrets, never);
            }
        }
        let key_files = ["bootstrap.key", "master.key"];
        let may = |path: &Path, secret: &Secret| {
            let name = path.file_name().unwrap_or_default();
            key_files.iter().any(|file| name == *file) || may(path, secret)
        };
        let files = leaks.look_at_files(&self.service.data(), secrets, &may);
        assert!(files > 2, "only {files} files were searched");
        let dump = match &self.postgres {
            Some(server) => server.dump(),
            None => sqlite_dump(&self.service),
        };
        assert!(dump.contains("conversations"), "nothing was dumped");
        leaks.look("the database", &dump, secrets, never);
        leaks.assert_none();
    }
}

/// A message that begins a conversation, with secrets of its own.
#[must_use]
pub fn start_request(message: &str, of: &PlantedSecrets) -> serde_json::Value {
    let content = json!([{"type": "text", "text": message}]);
    json!({"initial_message": {"role": "user", "content": content, "run": true}, "secrets": of.of_request()})
}
