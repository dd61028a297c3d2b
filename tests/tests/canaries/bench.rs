//! A service with secrets of its operator.

use std::path::PathBuf;

use acceptance::canaries::{CanaryWorld, MARK, Secret, Secrets, TEMPLATE_SECRET, master_key};
use acceptance::{Builder, Postgres, Sandboxing, Service, Stub};
use tempfile::TempDir;

/// Dropped in this order: the service first.
pub(crate) struct CanaryBench {
    pub(crate) world: CanaryWorld,
    pub(crate) stub: Stub,
    keys: TempDir,
}

/// A secret of the operator, and its record for the search.
fn operator_secret(what: &str) -> (String, Secret) {
    let letters: String = what.split(' ').collect();
    let core = format!("{MARK}Operator{letters}Z0123456789");
    (format!("pw-{core}-%22"), Secret::new(what, "", &core))
}

impl CanaryBench {
    pub(crate) async fn start(sandboxing: &Sandboxing, postgres: Option<Postgres>) -> Self {
        let stub = Stub::new();
        let keys = tempfile::tempdir().expect("a temporary directory can be made");
        let mut secrets = Secrets::default();
        let (first, one) = master_key("One");
        let (_, two) = master_key("Two");
        let (former, three) = master_key("Former");
        secrets.extend([one, two, three]);
        let mut planted = |what: &str| {
            let (text, secret) = operator_secret(what);
            secrets.add(secret);
            text
        };
        let file = keys.path().join("master");
        std::fs::write(&file, first).expect("the directory is writable");
        let (index, proxy) = (planted("IndexPassword"), planted("ProxyPassword"));
        let mut builder = Service::builder()
            .sandboxing(sandboxing)
            .stub(&stub)
            .env("WORKSPACE_LOG__LEVEL", "trace")
            .env(
                "WORKSPACE_SECRETS__MASTER_KEY_FILE",
                &file.display().to_string(),
            )
            .env("WORKSPACE_SECRETS__PREVIOUS_MASTER_KEYS", &former)
            .env("WORKSPACE_AUTH__BOOTSTRAP_KEY", &planted("BootstrapKey"))
            .env(
                "WORKSPACE_SANDBOX__INDEX_URL",
                &format!("https://u:{index}@127.0.0.1:9/simple"),
            )
            .env(
                "WORKSPACE_SANDBOX__PROXY",
                &format!("http://u:{proxy}@127.0.0.1:9"),
            )
            .env("WORKSPACE_GIT__ALLOW_PRIVATE_HOSTS", "127.0.0.1");
        if let Some(server) = &postgres {
            let (before, after) = server
                .url()
                .split_once('@')
                .map(split)
                .expect("a URL with a user");
            let url = format!("{before}:{}@{after}", planted("DatabasePassword"));
            builder = builder.env("WORKSPACE_STORAGE__URL", &url);
        }
        if let Sandboxing::Docker(_) = sandboxing {
            builder = engine_secrets(builder, planted);
        }
        let service = builder.start().await;
        let world = CanaryWorld::new(service, postgres, secrets);
        Self { world, stub, keys }
    }

    /// Adds a new master key before the present one.
    pub(crate) fn add_master_key(&self) {
        let (one, two) = (master_key("One").0, master_key("Two").0);
        let (file, unfinished) = (self.master_key_file(), self.keys.path().join("new"));
        std::fs::write(&unfinished, format!("{two}\n{one}\n")).expect("the directory is writable");
        std::fs::rename(unfinished, file).expect("the directory is writable");
    }

    fn master_key_file(&self) -> PathBuf {
        self.keys.path().join("master")
    }
}

/// The operator's secrets for the engine, and for the sandboxes on it.
fn engine_secrets(builder: Builder, mut planted: impl FnMut(&str) -> String) -> Builder {
    let template = planted(TEMPLATE_SECRET);
    builder
        .env(
            "WORKSPACE_DOCKER__SECRET_ENV",
            &format!("PLANTED={template}"),
        )
        .env("WORKSPACE_DOCKER__REGISTRY_SERVER", "registry.example.test")
        .env("WORKSPACE_DOCKER__REGISTRY_USERNAME", "puller")
        .env(
            "WORKSPACE_DOCKER__REGISTRY_PASSWORD",
            &planted("RegistryPassword"),
        )
}

fn split((before, after): (&str, &str)) -> (String, String) {
    (before.to_owned(), after.to_owned())
}
