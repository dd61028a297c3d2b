//! The typed form: three lists of servers.

use std::collections::BTreeMap;

use domain::agent::McpServer;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use super::super::fields::texts_of;
use super::super::secret::{MASK, SecretVisibility};
use super::server_url;

#[derive(Debug, Clone)]
pub struct McpRemote {
    /// URL with scheme http, https, ws or wss.
    pub url: String,
    pub api_key: Option<SecretString>,
    /// Seconds; streamable HTTP only.
    pub timeout: Option<i64>,
}

/// A server as a process in the sandbox.
#[derive(Debug, Clone)]
pub struct McpStdio {
    /// Name of letters, digits, `-` and `_`.
    pub name: String,
    /// Program, without arguments.
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, SecretString>,
}

#[derive(Debug, Clone, Default)]
pub struct McpConfig {
    /// Server-sent events.
    pub sse_servers: Vec<McpRemote>,
    pub stdio_servers: Vec<McpStdio>,
    /// Streamable HTTP.
    pub shttp_servers: Vec<McpRemote>,
}

impl McpRemote {
    fn to_json(&self, show: SecretVisibility, with_timeout: bool) -> Value {
        let mut map = Map::new();
        let url = match show {
            SecretVisibility::Clear => self.url.clone(),
            _ => server_url::masked(&self.url),
        };
        map.insert("url".into(), url.into());
        if let Some(key) = &self.api_key {
            map.insert("api_key".into(), show.show(Some(key)));
        }
        if with_timeout {
            map.insert("timeout".into(), self.timeout.into());
        }
        Value::Object(map)
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            url: value.get("url")?.as_str()?.to_owned(),
            api_key: secret_at(value, "api_key"),
            timeout: value.get("timeout").and_then(Value::as_i64),
        })
    }
}

impl McpStdio {
    fn to_json(&self, show: SecretVisibility) -> Value {
        let env: Map<String, Value> = self
            .env
            .iter()
            .map(|(name, value)| (name.clone(), show.show(Some(value))))
            .collect();
        json!({"name": self.name, "command": self.command, "args": self.args, "env": env})
    }

    /// Parses a server of either form under this name.
    pub(super) fn named(name: &str, value: &Value) -> Option<Self> {
        let env = value.get("env").and_then(Value::as_object).into_iter();
        let env = env.flatten();
        Some(Self {
            name: name.to_owned(),
            command: value.get("command")?.as_str()?.to_owned(),
            args: texts_of(value.get("args")),
            env: env
                .filter_map(|(k, v)| Some((k.clone(), SecretString::from(v.as_str()?))))
                .collect(),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        Self::named(value.get("name")?.as_str()?, value)
    }

    pub(super) fn into_server(self) -> McpServer {
        McpServer::Stdio {
            name: self.name,
            command: self.command,
            args: self.args,
            env: self.env,
        }
    }
}

fn secret_at(value: &Value, key: &str) -> Option<SecretString> {
    let text = value.get(key)?.as_str()?;
    (!text.is_empty()).then(|| SecretString::from(text))
}

impl McpConfig {
    /// Servers as an agent gets them, sorted into the three lists.
    pub(crate) fn of_servers(servers: Vec<McpServer>) -> Self {
        let mut config = Self::default();
        for server in servers {
            match server {
                McpServer::Stdio {
                    name,
                    command,
                    args,
                    env,
                } => config.stdio_servers.push(McpStdio {
                    name,
                    command,
                    args,
                    env,
                }),
                McpServer::Remote {
                    url,
                    api_key,
                    sse,
                    timeout,
                    name: _,
                } => {
                    let timeout = timeout.and_then(|seconds| seconds.try_into().ok());
                    let list = if sse {
                        &mut config.sse_servers
                    } else {
                        &mut config.shttp_servers
                    };
                    list.push(McpRemote {
                        url,
                        api_key,
                        timeout,
                    });
                }
            }
        }
        config
    }

    /// All three lists, without unset `api_key`s.
    pub(crate) fn to_json(&self, show: SecretVisibility) -> Value {
        let remotes = |list: &[McpRemote], timeout| -> Vec<Value> {
            list.iter().map(|s| s.to_json(show, timeout)).collect()
        };
        let stdio: Vec<Value> = self.stdio_servers.iter().map(|s| s.to_json(show)).collect();
        json!({
            "sse_servers": remotes(&self.sse_servers, false),
            "stdio_servers": stdio,
            "shttp_servers": remotes(&self.shttp_servers, true),
        })
    }

    /// Parses the normal form and skips unreadable entries.
    pub(in super::super) fn from_json(value: &Value) -> Self {
        let list = |key: &str| {
            value
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        Self {
            sse_servers: list("sse_servers")
                .filter_map(McpRemote::from_json)
                .collect(),
            stdio_servers: list("stdio_servers")
                .filter_map(McpStdio::from_json)
                .collect(),
            shttp_servers: list("shttp_servers")
                .filter_map(McpRemote::from_json)
                .collect(),
        }
    }

    /// The configuration to store over `stored`: masks become the stored secrets.
    #[must_use]
    pub fn with_stored_secrets(mut self, stored: Option<&Self>) -> Self {
        let none = Self::default();
        let stored = stored.unwrap_or(&none);
        unmask_remotes(&mut self.sse_servers, &stored.sse_servers);
        unmask_remotes(&mut self.shttp_servers, &stored.shttp_servers);
        for server in &mut self.stdio_servers {
            let before = stored.stdio_servers.iter().find(|s| s.name == server.name);
            server.env = std::mem::take(&mut server.env)
                .into_iter()
                .filter_map(|(name, value)| {
                    if is_mask(&value) {
                        let kept = before?.env.get(&name)?.clone();
                        Some((name, kept))
                    } else {
                        Some((name, value))
                    }
                })
                .collect();
        }
        self
    }
}

fn is_mask(secret: &SecretString) -> bool {
    secret.expose_secret() == MASK
}

/// A URL may appear twice: the n-th of the new list takes the key of the n-th of the old one.
fn unmask_remotes(new: &mut [McpRemote], old: &[McpRemote]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for server in new {
        let nth = seen.entry(server_url::masked(&server.url)).or_default();
        let same: Vec<_> = old
            .iter()
            .filter(|s| server_url::is_same(&s.url, &server.url))
            .collect();
        let before = same.get(*nth).or(same.first());
        server.url = server_url::unmasked(&server.url, before.map(|s| s.url.as_str()));
        if server.api_key.as_ref().is_some_and(is_mask) {
            server.api_key = before.and_then(|s| s.api_key.clone());
        }
        *nth += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &Value) -> McpConfig {
        McpConfig::from_json(json)
    }

    #[test]
    fn a_mask_keeps_the_secret_of_the_same_server_only() {
        let stored = config(&json!({
            "sse_servers": [{"url": "https://a/", "api_key": "one"}, {"url": "https://a/", "api_key": "two"}],
            "stdio_servers": [{"name": "n", "command": "c", "args": ["x"], "env": {"K": "v"}}],
            "shttp_servers": [{"url": "https://h/mcp", "api_key": "h", "timeout": 30}],
        }));
        let shown = stored.to_json(SecretVisibility::Masked);
        assert_eq!(
            shown["shttp_servers"][0],
            json!({"url": "https://h/mcp", "api_key": MASK, "timeout": 30})
        );
        let back = config(&shown).with_stored_secrets(Some(&stored));
        assert_eq!(
            back.to_json(SecretVisibility::Clear),
            stored.to_json(SecretVisibility::Clear)
        );

        let moved = config(&json!({
            "sse_servers": [{"url": "https://elsewhere/", "api_key": MASK}],
            "stdio_servers": [{"name": "other", "command": "c", "env": {"K": MASK}}],
        }));
        let moved = moved
            .with_stored_secrets(Some(&stored))
            .to_json(SecretVisibility::Clear);
        assert_eq!(moved["sse_servers"], json!([{"url": "https://elsewhere/"}]));
        assert_eq!(moved["stdio_servers"][0]["env"], json!({}));
    }

    #[test]
    fn a_key_in_the_url_is_masked_and_kept() {
        let url = |key: &str| format!("https://h/mcp?api_key={key}&x=1");
        let server = |key: &str, bearer: &str| {
            config(&json!({"shttp_servers": [{"url": url(key), "api_key": bearer}]}))
        };
        let stored = server("s1", "s2");
        let shown = stored.to_json(SecretVisibility::Masked);
        assert_eq!(shown["shttp_servers"][0]["url"], url(MASK));
        let back = config(&shown).with_stored_secrets(Some(&stored));
        assert_eq!(
            back.to_json(SecretVisibility::Clear),
            stored.to_json(SecretVisibility::Clear)
        );
        // No stored secret: no parameter.
        let fresh = server(MASK, "k")
            .with_stored_secrets(None)
            .to_json(SecretVisibility::Clear);
        assert_eq!(fresh["shttp_servers"][0]["url"], "https://h/mcp?x=1");
    }
}
