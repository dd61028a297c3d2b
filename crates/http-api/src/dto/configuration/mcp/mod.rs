//! `MCPConfig`: three lists of servers, with the shorthands that clients use (a text for a remote server, a command
//! line for arguments, `A=1,B=2` for an environment).
//!
//! No error quotes a value: URLs, arguments and variables may all be secret.

mod shell;

use std::collections::BTreeMap;

use application::settings::{McpConfig, McpRemote, McpStdio, has_credentials};
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use crate::decode::{Decode, FieldError, FieldErrors, Path, model};
use crate::dto::each;

/// Servers in one list. Masks are matched with stored servers pairwise.
const MAX_MCP_SERVERS: u64 = 100;

/// Configuration of MCP servers.
#[expect(
    clippy::struct_field_names,
    reason = "the names of the documented legacy API"
)]
#[model(body = MCPConfig, deny_unknown_fields, into = McpConfig)]
pub(crate) struct McpConfigDto {
    /// Servers that use server-sent events.
    #[decode(default)]
    #[validate(length(max = MAX_MCP_SERVERS))]
    #[into(each(sse_servers))]
    sse_servers: Vec<SseServerDto>,
    /// Servers that are processes in the sandbox.
    #[decode(default)]
    #[validate(length(max = MAX_MCP_SERVERS))]
    #[into(each(stdio_servers))]
    stdio_servers: Vec<StdioServerDto>,
    /// Servers that use streamable HTTP.
    #[decode(default)]
    #[validate(length(max = MAX_MCP_SERVERS))]
    #[into(each(shttp_servers))]
    shttp_servers: Vec<ShttpServerDto>,
}

/// A server that uses server-sent events.
#[model(body = MCPSSEServerConfig, shorthand = "url")]
pub(crate) struct SseServerDto {
    /// URL: http, https, ws or wss.
    #[decode(with = checked_url)]
    url: String,
    api_key: Option<SecretString>,
}

/// A server that uses streamable HTTP.
#[model(body = MCPSHTTPServerConfig, shorthand = "url", into = McpRemote)]
pub(crate) struct ShttpServerDto {
    /// URL: http, https, ws or wss.
    #[decode(with = checked_url)]
    url: String,
    #[into(api_key.filter(not_empty))]
    api_key: Option<SecretString>,
    /// Timeout in seconds, 1 to 3600.
    #[decode(default = Some(60), with = checked_timeout)]
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    timeout: Option<i64>,
}

/// A server that is a process in the sandbox.
#[model(body = MCPStdioServerConfig, into = McpStdio)]
pub(crate) struct StdioServerDto {
    /// The name: letters, digits, `-` and `_`.
    #[decode(with = checked_name)]
    name: String,
    /// The program, without arguments.
    #[decode(with = checked_command)]
    command: String,
    /// The arguments: a list, or a command line.
    #[schema(value_type = Vec<String>, required = false)]
    #[into(args.map(|args| args.0).unwrap_or_default())]
    args: Option<StdioArgs>,
    /// The environment: an object of texts, or `A=1,B=2`. Responses mask the values.
    #[schema(value_type = BTreeMap<String, String>, required = false)]
    #[into(env.map(|env| env.0).unwrap_or_default())]
    env: Option<StdioEnv>,
}

impl From<SseServerDto> for McpRemote {
    fn from(server: SseServerDto) -> Self {
        Self {
            url: server.url,
            api_key: server.api_key.filter(not_empty),
            timeout: None,
        }
    }
}

fn not_empty(secret: &SecretString) -> bool {
    use secrecy::ExposeSecret;
    !secret.expose_secret().trim().is_empty()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`decode(with)` passes the value"
)]
fn checked_url(text: String) -> Result<String, &'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Err("URL cannot be empty");
    }
    if !text.contains("://") {
        return Err("URL must include a scheme (http:// or https://)");
    }
    let odd = |c: char| c.is_control() || c.is_whitespace();
    let url = Url::parse(text).map_err(|_| "URL must include a valid host")?;
    if !matches!(url.scheme(), "http" | "https" | "ws" | "wss") {
        return Err("URL scheme must be http, https, ws or wss");
    }
    if has_credentials(text) || !url.username().is_empty() || url.password().is_some() {
        return Err("URL cannot contain a user name or password");
    }
    if url.host_str().is_none_or(str::is_empty) || text.contains(odd) {
        return Err("URL must include a valid host");
    }
    Ok(text.to_owned())
}

fn checked_timeout(seconds: i64) -> Result<i64, &'static str> {
    match seconds {
        ..=0 => Err("Timeout must be positive"),
        1..=3600 => Ok(seconds),
        _ => Err("Timeout cannot exceed 3600 seconds"),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`decode(with)` passes the value"
)]
fn checked_name(text: String) -> Result<String, &'static str> {
    let name = text.trim();
    if name.is_empty() {
        return Err("Server name cannot be empty");
    }
    if !name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    {
        return Err("Server name can only contain letters, numbers, hyphens, and underscores");
    }
    Ok(name.to_owned())
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`decode(with)` passes the value"
)]
fn checked_command(text: String) -> Result<String, &'static str> {
    let command = text.trim();
    if command.is_empty() {
        return Err("Command cannot be empty");
    }
    if command.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(
            "Command should be a single executable without spaces (use arguments field for parameters)",
        );
    }
    Ok(command.to_owned())
}

/// Arguments: a list of texts, or one text that is split like in a shell.
#[derive(Debug, Clone)]
pub(crate) struct StdioArgs(Vec<String>);

/// Written by hand, like the next one, because the derive has no model for two forms of one value.
impl Decode for StdioArgs {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let args = match value {
            Value::String(text) => match shell::split(text) {
                Ok(args) => args,
                Err(reason) => {
                    let fault =
                        FieldError::value_error(format!("Invalid argument format: {reason}"));
                    errors.push_silent(at, fault);
                    return None;
                }
            },
            other => Vec::<String>::decode(other, at, errors)?,
        };
        if args.iter().any(|arg| arg.contains('\0')) {
            errors.push_silent(at, FieldError::value_error("Arguments cannot contain NUL"));
            return None;
        }
        Some(Self(args))
    }
}

/// An environment: an object of texts, or `A=1,B=2`.
#[derive(Debug, Clone)]
pub(crate) struct StdioEnv(BTreeMap<String, SecretString>);

impl Decode for StdioEnv {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let env = match value {
            Value::String(text) => pairs(text),
            other => Ok(BTreeMap::<String, SecretString>::decode(other, at, errors)?),
        };
        match env.and_then(checked_env) {
            Ok(env) => Some(Self(env)),
            Err(reason) => {
                errors.push_silent(at, FieldError::value_error(reason));
                None
            }
        }
    }
}

fn pairs(text: &str) -> Result<BTreeMap<String, SecretString>, &'static str> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part
                .split_once('=')
                .ok_or("Environment variables must be in KEY=VALUE format")?;
            Ok((name.trim().to_owned(), SecretString::from(value.trim())))
        })
        .collect()
}

fn checked_env(
    env: BTreeMap<String, SecretString>,
) -> Result<BTreeMap<String, SecretString>, &'static str> {
    use secrecy::ExposeSecret;
    for (name, value) in &env {
        if name.trim().is_empty() || name.contains(['=', '\0']) {
            return Err("Environment variable names cannot be empty or contain '='");
        }
        if value.expose_secret().contains('\0') {
            return Err("Environment variables cannot contain NUL");
        }
    }
    Ok(env)
}

#[cfg(test)]
mod tests;
