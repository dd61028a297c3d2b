//! The model's decision for a chat-completions request.

use serde_json::{Map, Value, json};

use super::mode::{Mode, ModelBehavior};

/// The command for a message without one.
const DEFAULT_COMMAND: &str = "echo scripted > scripted.txt";

/// An argument that tools have while a security analyzer is on. A policy may stop at a call without it.
const RISK_ARGUMENT: &str = "security_risk";

/// One turn of the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ModelTurn {
    Text(String),
    Call { tool: String, arguments: Value },
}

impl ModelTurn {
    /// The name in the counters.
    pub(super) fn kind(&self) -> &str {
        match self {
            Self::Text(_) => "text",
            Self::Call { tool, .. } => tool,
        }
    }
}

pub(super) fn decide(request: &Value, mode: Mode) -> ModelTurn {
    let tools = request["tools"].as_array().map_or(&[][..], Vec::as_slice);
    if tools.is_empty() {
        return ModelTurn::Text("Scripted run".to_owned());
    }
    let messages = request["messages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let last_user_message = messages.iter().rposition(|m| m["role"] == "user");
    let later_messages = last_user_message.map_or(messages, |at| &messages[at + 1..]);
    let results = later_messages
        .iter()
        .filter(|m| m["role"] == "tool")
        .count();
    if mode.behavior == ModelBehavior::TextOnly {
        return ModelTurn::Text("Nothing to do.".to_owned());
    }
    let message =
        last_user_message.map_or_else(String::new, |at| text_of(&messages[at]["content"]));
    if results < mode.steps
        && let Some((name, arguments)) = named_tool(&message)
        && let Some(tool) = find_tool(tools, |offered| offered.ends_with(&name))
    {
        let arguments_given: Vec<_> = arguments
            .iter()
            .map(|(k, v)| (k.as_str(), v.clone()))
            .collect();
        return tool_call(tool, &arguments_given);
    }
    if results < mode.steps
        && let Some(tool) = find_tool(tools, |name| name == "terminal" || name.contains("bash"))
    {
        let mut command = command_in(&message).unwrap_or_else(|| DEFAULT_COMMAND.to_owned());
        if results > 0 {
            // The agent server ends a run that repeats one action.
            command = format!("{command} # step {}", results + 1);
        }
        return tool_call(tool, &[("command", json!(command))]);
    }
    match find_tool(tools, |name| name == "finish") {
        Some(tool) => tool_call(tool, &[("message", json!("Done as scripted."))]),
        None => ModelTurn::Text("Done as scripted.".to_owned()),
    }
}

fn find_tool(tools: &[Value], wanted: impl Fn(&str) -> bool) -> Option<&Value> {
    tools
        .iter()
        .map(|t| &t["function"])
        .find(|f| f["name"].as_str().is_some_and(&wanted))
}

/// A call with these arguments, and a plausible value for every other argument that the schema requires. The agent server adds
/// some, such as the risk for its security analyzer.
fn tool_call(function: &Value, arguments_given: &[(&str, Value)]) -> ModelTurn {
    let mut arguments: Map<String, Value> = arguments_given
        .iter()
        .map(|(k, v)| ((*k).to_owned(), v.clone()))
        .collect();
    let schema = &function["parameters"];
    let required = schema["required"].as_array().into_iter().flatten();
    let risk = schema["properties"]
        .get(RISK_ARGUMENT)
        .map(|_| RISK_ARGUMENT);
    for name in required.filter_map(Value::as_str).chain(risk) {
        if !arguments.contains_key(name) {
            arguments.insert(
                name.to_owned(),
                plausible_value(name, &schema["properties"][name]),
            );
        }
    }
    ModelTurn::Call {
        tool: function["name"].as_str().unwrap_or_default().to_owned(),
        arguments: Value::Object(arguments),
    }
}

fn plausible_value(name: &str, schema: &Value) -> Value {
    if name == RISK_ARGUMENT {
        return json!("LOW");
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("boolean") => json!(false),
        Some("integer" | "number") => json!(0),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("scripted step"),
    }
}

/// The text of a message whose content is a string or a list of parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|p| p["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

/// A line `TOOL: <end of a tool's name> <JSON object>`.
fn named_tool(message: &str) -> Option<(String, Map<String, Value>)> {
    let mut lines = message.lines();
    let line = lines.find_map(|line| line.trim().strip_prefix("TOOL:"))?;
    let (name, arguments) = line.trim().split_once(' ')?;
    Some((name.to_owned(), serde_json::from_str(arguments).ok()?))
}

fn command_in(message: &str) -> Option<String> {
    if let Some(line) = message.lines().find_map(|l| l.trim().strip_prefix("RUN:")) {
        return Some(line.trim().to_owned());
    }
    let (_, fenced) = message.split_once("```")?;
    let (_, body) = fenced.split_once('\n')?;
    let (body, _) = body.split_once("```")?;
    Some(body.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(messages: &Value) -> Value {
        let parameters = json!({
            "type": "object",
            "properties": {"command": {"type": "string"}, "security_risk": {"enum": ["LOW", "HIGH"]},
                           "is_input": {"type": "boolean"}},
            "required": ["command", "is_input"],
        });
        let finish = json!({"type": "object", "properties": {"message": {"type": "string"}}});
        json!({"messages": messages, "tools": [
            {"type": "function", "function": {"name": "terminal", "parameters": parameters}},
            {"type": "function", "function": {"name": "finish", "parameters": finish}},
        ]})
    }

    #[test]
    fn runs_the_named_command_and_fills_required_arguments() {
        let first_request = request(&json!([{"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "please\nRUN: touch a\nbye"}]}]));
        let ModelTurn::Call { tool, arguments } = decide(&first_request, Mode::default()) else {
            panic!()
        };
        assert_eq!(tool, "terminal");
        assert_eq!(
            arguments,
            json!({"command": "touch a", "security_risk": "LOW", "is_input": false})
        );
    }

    #[test]
    fn finishes_after_the_steps_and_starts_again_with_the_next_message() {
        let user = json!({"role": "user", "content": "```sh\nls\n```"});
        let result = json!({"role": "tool", "content": "ok"});
        let done = request(&json!([user, result]));
        assert_eq!(decide(&done, Mode::default()).kind(), "finish");
        assert_eq!(decide(&done, Mode::parse("steps-2")).kind(), "terminal");
        let again = request(&json!([user, result, user]));
        assert_eq!(decide(&again, Mode::default()).kind(), "terminal");
    }

    #[test]
    fn named_tool_is_called_once_if_it_is_offered() {
        let user = json!({"role": "user", "content": "TOOL: nish {\"message\": \"m\"}"});
        let ModelTurn::Call { tool, arguments } = decide(&request(&json!([user])), Mode::default())
        else {
            panic!()
        };
        assert_eq!(
            (tool.as_str(), arguments),
            ("finish", json!({"message": "m"}))
        );
        let other = json!({"role": "user", "content": "TOOL: lookup {}"});
        assert_eq!(
            decide(&request(&json!([other])), Mode::default()).kind(),
            "terminal"
        );
    }

    #[test]
    fn request_without_tools_gets_a_text() {
        let title = json!({"messages": [{"role": "user", "content": "RUN: x"}]});
        assert_eq!(decide(&title, Mode::default()).kind(), "text");
    }

    #[test]
    fn fenced_block_is_a_command() {
        assert_eq!(
            command_in("do\n```bash\necho 1\necho 2\n```\n").as_deref(),
            Some("echo 1\necho 2")
        );
        assert_eq!(command_in("nothing"), None);
    }
}
