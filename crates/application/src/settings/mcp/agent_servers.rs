//! Merges both forms into the agent's list of servers.

use domain::agent::McpServer;
use secrecy::SecretString;
use serde_json::Value;

use super::opaque_config::servers;
use super::typed_config::{McpConfig, McpRemote, McpStdio};

/// Servers of one agent.
const MAX_SERVERS: usize = 100;
/// Notes about single servers.
const MAX_SERVER_NOTES: usize = 20;

/// The servers for an agent, and notes about unusable ones (without secrets). Names are unique; a remote server with
/// the same URL in both forms appears once.
pub(crate) fn for_agent(
    typed: Option<&McpConfig>,
    opaque: Option<&Value>,
) -> (Vec<McpServer>, Vec<String>) {
    let mut list = ServerList::default();
    for (name, server) in opaque.and_then(servers).into_iter().flatten() {
        match read(name, server) {
            Ok(Some(server)) => list.push(server),
            Ok(None) => {}
            Err(why) => list
                .notes
                .push(format!("MCP server '{}' was left out: {why}.", short(name))),
        }
    }
    let none = McpConfig::default();
    let typed = typed.unwrap_or(&none);
    for (kind, remotes, sse) in [
        ("sse", &typed.sse_servers, true),
        ("shttp", &typed.shttp_servers, false),
    ] {
        for (index, remote) in remotes.iter().enumerate() {
            if !list.has_url(&remote.url) {
                list.push(from_remote(format!("{kind}-{}", index + 1), remote, sse));
            }
        }
    }
    for server in &typed.stdio_servers {
        list.push(server.clone().into_server());
    }
    list.finish()
}

#[derive(Default)]
struct ServerList {
    servers: Vec<McpServer>,
    left_out: usize,
    notes: Vec<String>,
}

impl ServerList {
    fn push(&mut self, mut server: McpServer) {
        if self.servers.len() >= MAX_SERVERS {
            self.left_out += 1;
            return;
        }
        let (McpServer::Remote { name, .. } | McpServer::Stdio { name, .. }) = &mut server;
        let wanted = name.clone();
        let mut n = 2;
        while self.servers.iter().any(|s| name_of(s) == name) {
            *name = format!("{wanted}-{n}");
            n += 1;
        }
        self.servers.push(server);
    }

    fn finish(mut self) -> (Vec<McpServer>, Vec<String>) {
        self.notes.truncate(MAX_SERVER_NOTES);
        if self.left_out > 0 {
            let n = self.left_out;
            self.notes.push(format!(
                "{n} MCP servers were left out: at most {MAX_SERVERS} are used."
            ));
        }
        (self.servers, self.notes)
    }

    fn has_url(&self, wanted: &str) -> bool {
        self.servers
            .iter()
            .any(|s| matches!(s, McpServer::Remote { url, .. } if url == wanted))
    }
}

fn name_of(server: &McpServer) -> &String {
    let (McpServer::Remote { name, .. } | McpServer::Stdio { name, .. }) = server;
    name
}

fn from_remote(name: String, remote: &McpRemote, sse: bool) -> McpServer {
    McpServer::Remote {
        name,
        url: remote.url.clone(),
        api_key: remote.api_key.clone(),
        sse,
        timeout: remote.timeout.and_then(|t| u64::try_from(t).ok()),
    }
}

/// Parses a server of the opaque form; `None` if it is switched off.
fn read(name: &str, server: &Value) -> Result<Option<McpServer>, &'static str> {
    if server.get("enabled") == Some(&Value::Bool(false))
        || server.get("disabled") == Some(&Value::Bool(true))
    {
        return Ok(None);
    }
    let text = |key: &str| {
        server
            .get(key)
            .and_then(Value::as_str)
            .filter(|t| !t.trim().is_empty())
    };
    if let Some(url) = text("url") {
        let transport = text("transport").or(text("type"));
        let (timeout, api_key) = (whole_seconds(server.get("timeout")), key(server)?);
        return Ok(Some(McpServer::Remote {
            name: name.to_owned(),
            url: url.to_owned(),
            api_key,
            sse: transport == Some("sse"),
            timeout,
        }));
    }
    text("command").ok_or("it has neither a url nor a command")?;
    Ok(McpStdio::named(name, server).map(McpStdio::into_server))
}

/// The bearer key of a remote server, from any field that may have it. The port supports no other headers and schemes.
fn key(server: &Value) -> Result<Option<SecretString>, &'static str> {
    let secret = |value: Option<&Value>| {
        value
            .and_then(Value::as_str)
            .filter(|t| !t.is_empty())
            .map(SecretString::from)
    };
    if let Some(key) = secret(server.get("api_key")) {
        return Ok(Some(key));
    }
    match server.get("auth") {
        None | Some(Value::Null) => {}
        Some(Value::String(token)) if token != "oauth" => {
            return Ok(secret(Some(&Value::from(token.as_str()))));
        }
        Some(auth) => match auth.get("strategy").and_then(Value::as_str) {
            Some("none") => {}
            Some("bearer") => return Ok(secret(auth.get("value"))),
            Some("api_key") if is_authorization(auth.get("header_name")) => {
                return Ok(secret(auth.get("value")));
            }
            _ => return Err("its way of authentication is not supported"),
        },
    }
    let mut found = None;
    for (name, value) in server
        .get("headers")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let bearer = value.as_str().and_then(|v| v.strip_prefix("Bearer "));
        match bearer {
            Some(token) if name.eq_ignore_ascii_case("authorization") => {
                found = Some(SecretString::from(token.trim()));
            }
            _ => return Err("headers other than a bearer authorization are not supported"),
        }
    }
    Ok(found)
}

fn is_authorization(header: Option<&Value>) -> bool {
    match header {
        None | Some(Value::Null) => true,
        Some(name) => name
            .as_str()
            .is_some_and(|n| n.eq_ignore_ascii_case("authorization")),
    }
}

fn whole_seconds(value: Option<&Value>) -> Option<u64> {
    let seconds = value?.as_f64()?.ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 3600"
    )]
    (1.0..=3600.0).contains(&seconds).then_some(seconds as u64)
}

/// A name in a note, shortened because it is user text.
fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;
    use serde_json::json;

    #[test]
    fn both_forms_become_one_list_with_unique_names() {
        let typed = McpConfig::from_json(&json!({
            "sse_servers": [{"url": "https://s/sse", "api_key": "a"}, {"url": "https://b"}],
            "stdio_servers": [{"name": "b", "command": "npx", "args": ["-y"], "env": {"K": "V"}}],
            "shttp_servers": [{"url": "https://h/mcp", "timeout": 30}],
        }));
        let opaque = json!({
            "b": {"url": "https://b", "headers": {"authorization": "Bearer t"}},
            "off": {"command": "x", "enabled": false},
            "odd": {"url": "https://c", "headers": {"X-Other": "t"}},
            "sse-1": {"command": "y", "env": {"E": "F"}},
            "broken": 5,
        });
        let (servers, notes) = for_agent(Some(&typed), Some(&opaque));
        let names: Vec<&str> = servers.iter().map(|s| name_of(s).as_str()).collect();
        assert_eq!(names, ["b", "sse-1", "sse-1-2", "shttp-1", "b-2"]);
        assert!(
            matches!(&servers[0], McpServer::Remote { api_key: Some(k), .. } if k.expose_secret() == "t")
        );
        assert!(matches!(&servers[2], McpServer::Remote { sse: true, .. }));
        assert!(matches!(
            &servers[3],
            McpServer::Remote {
                sse: false,
                timeout: Some(30),
                ..
            }
        ));
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("'odd'") && notes[1].contains("'broken'"));
    }

    #[test]
    fn the_list_is_bounded() {
        let many = (0..150).map(|n| (format!("s{n}"), json!({"command": "c"})));
        let (servers, notes) = for_agent(None, Some(&Value::Object(many.collect())));
        assert_eq!(servers.len(), MAX_SERVERS);
        assert_eq!(
            notes,
            ["50 MCP servers were left out: at most 100 are used."]
        );
    }
}
