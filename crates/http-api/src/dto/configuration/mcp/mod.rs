//! `MCPConfig`: three lists of servers, with the shorthands that clients use (a text for a remote server, a command line for
//! arguments, `A=1,B=2` for an environment).
//!
//! No error quotes a value: URLs, arguments and variables may all be secret.

mod shell;

use std::collections::BTreeMap;

use application::settings::{McpConfig, McpRemote, McpStdio, has_credentials};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;
use utoipa::ToSchema;

use crate::decode::{Decode, FieldError, FieldErrors, Object, Path, items};

/// Servers in one list. Masks are matched with stored servers pairwise.
const MAX_MCP_SERVERS: u64 = 100;

/// Configuration of MCP servers.
#[expect(
    clippy::struct_field_names,
    reason = "the names of the interface document"
)]
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MCPConfig)]
pub struct McpConfigDto {
    /// Servers that use server-sent events.
    #[schema(required = false)]
    sse_servers: Vec<SseServerDto>,
    /// Servers that are processes in the sandbox.
    #[schema(required = false)]
    stdio_servers: Vec<StdioServerDto>,
    /// Servers that use streamable HTTP.
    #[schema(required = false)]
    shttp_servers: Vec<ShttpServerDto>,
}

/// A server that uses server-sent events.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MCPSSEServerConfig)]
pub struct SseServerDto {
    /// URL: http, https, ws or wss.
    url: String,
    /// Bearer key. Responses mask it; the mask in a request keeps the stored key of this URL.
    #[schema(format = Password)]
    api_key: Option<String>,
}

/// A server that uses streamable HTTP.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MCPSHTTPServerConfig)]
pub struct ShttpServerDto {
    /// URL: http, https, ws or wss.
    url: String,
    /// Bearer key. Responses mask it; the mask in a request keeps the stored key of this URL.
    #[schema(format = Password)]
    api_key: Option<String>,
    /// Timeout in seconds, 1 to 3600.
    #[schema(minimum = 1, maximum = 3600, default = 60)]
    timeout: Option<i64>,
}

/// A server that is a process in the sandbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MCPStdioServerConfig)]
pub struct StdioServerDto {
    /// The name: letters, digits, `-` and `_`.
    name: String,
    /// The program, without arguments.
    command: String,
    /// The arguments: a list, or a command line.
    #[schema(required = false)]
    args: Vec<String>,
    /// The environment: an object of texts, or `A=1,B=2`. Responses mask the values.
    #[schema(required = false)]
    env: BTreeMap<String, String>,
}

/// The decoded `MCPConfig`.
#[derive(Debug, Clone)]
pub struct McpConfigInput(pub McpConfig);

impl Decode for McpConfigInput {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let sse = object.default::<Vec<SseServerInput>>("sse_servers", Vec::new);
        object.rule("sse_servers", sse.as_ref(), items(..=MAX_MCP_SERVERS));
        let stdio = object.default::<Vec<StdioServerInput>>("stdio_servers", Vec::new);
        object.rule("stdio_servers", stdio.as_ref(), items(..=MAX_MCP_SERVERS));
        let shttp = object.default::<Vec<ShttpServerInput>>("shttp_servers", Vec::new);
        object.rule("shttp_servers", shttp.as_ref(), items(..=MAX_MCP_SERVERS));
        object.forbid_extra();
        Some(Self(McpConfig {
            sse_servers: sse?.into_iter().map(|server| server.0).collect(),
            stdio_servers: stdio?.into_iter().map(|server| server.0).collect(),
            shttp_servers: shttp?.into_iter().map(|server| server.0).collect(),
        }))
    }
}

struct SseServerInput(McpRemote);

impl Decode for SseServerInput {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        remote::<Self>(value, at, errors, false).map(Self)
    }
}

struct ShttpServerInput(McpRemote);

impl Decode for ShttpServerInput {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        remote::<Self>(value, at, errors, true).map(Self)
    }
}

/// Decodes a remote server. A text stands for its URL. Other members are ignored.
fn remote<M: Decode>(
    value: &Value,
    at: &Path<'_>,
    errors: &mut FieldErrors,
    timed: bool,
) -> Option<McpRemote> {
    if let Value::String(url) = value {
        return remote::<M>(&json!({"url": url}), at, errors, timed);
    }
    let mut object = Object::<M>::open(value, at, errors)?;
    let url = object.required::<String>("url");
    let url = object.convert("url", url, |text| checked_url(&text));
    let api_key = object.optional::<SecretString>("api_key");
    let timeout = if timed {
        let timeout = object.default::<Option<i64>>("timeout", || Some(60));
        object.convert_optional("timeout", timeout, checked_timeout)
    } else {
        Some(None)
    };
    Some(McpRemote {
        url: url?,
        api_key: api_key?.filter(not_empty),
        timeout: timeout?,
    })
}

fn not_empty(secret: &SecretString) -> bool {
    use secrecy::ExposeSecret;
    !secret.expose_secret().trim().is_empty()
}

fn checked_url(text: &str) -> Result<String, &'static str> {
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

struct StdioServerInput(McpStdio);

impl Decode for StdioServerInput {
    const SENSITIVE: bool = true;

    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let mut object = Object::<Self>::open(value, at, errors)?;
        let name = object.required::<String>("name");
        let name = object.convert("name", name, |text| checked_name(&text));
        let command = object.required::<String>("command");
        let command = object.convert("command", command, |text| checked_command(&text));
        let args = object.optional::<StdioArgs>("args");
        let env = object.optional::<StdioEnv>("env");
        Some(Self(McpStdio {
            name: name?,
            command: command?,
            args: args?.map(|args| args.0).unwrap_or_default(),
            env: env?.map(|env| env.0).unwrap_or_default(),
        }))
    }
}

fn checked_name(text: &str) -> Result<String, &'static str> {
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

fn checked_command(text: &str) -> Result<String, &'static str> {
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
struct StdioArgs(Vec<String>);

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
struct StdioEnv(BTreeMap<String, SecretString>);

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
