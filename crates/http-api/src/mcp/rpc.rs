//! JSON-RPC 2.0: messages and responses.

use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RpcErrorCode {
    Parse = -32700,
    Invalid = -32600,
    Method = -32601,
    Params = -32602,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RpcError(pub(super) RpcErrorCode, pub(super) &'static str);

pub(super) type RpcResult = Result<Value, RpcError>;

#[derive(Debug, PartialEq)]
pub(super) enum RpcMessage {
    Request {
        /// A string or an integer.
        id: Value,
        method: String,
        params: Map<String, Value>,
    },
    /// A notification, or a response to a request that this server never sent.
    Unanswered,
    /// Not a valid message; with the response to it.
    Invalid(Value),
}

impl RpcMessage {
    pub(super) fn read(value: Value) -> Self {
        let Value::Object(mut members) = value else {
            return invalid("A message must be a JSON object");
        };
        if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return invalid("A message must contain \"jsonrpc\": \"2.0\"");
        }
        let (id, method) = (members.remove("id"), members.remove("method"));
        match (id, method) {
            (None, Some(Value::String(_))) => Self::Unanswered,
            (Some(id), Some(Value::String(method))) if is_id(&id) => {
                let params = match members.remove("params") {
                    None | Some(Value::Null) => Map::new(),
                    Some(Value::Object(params)) => params,
                    Some(_) => {
                        let why = "params must be an object";
                        return Self::Invalid(fault(&id, RpcErrorCode::Params, why));
                    }
                };
                Self::Request { id, method, params }
            }
            (Some(_), None) if members.contains_key("result") || members.contains_key("error") => {
                Self::Unanswered
            }
            _ => invalid("A request must have a method, and an id that is a string or an integer"),
        }
    }
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_i64() || id.is_u64()
}

fn invalid(why: &str) -> RpcMessage {
    RpcMessage::Invalid(fault(&Value::Null, RpcErrorCode::Invalid, why))
}

pub(super) fn answer(id: &Value, outcome: RpcResult) -> Value {
    match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcError(code, why)) => fault(id, code, why),
    }
}

pub(crate) fn fault(id: &Value, code: RpcErrorCode, why: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code as i32, "message": why}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_classified() {
        let request = json!({"jsonrpc": "2.0", "id": 0, "method": "ping"});
        assert!(matches!(
            RpcMessage::read(request),
            RpcMessage::Request { .. }
        ));
        let request = json!({"jsonrpc": "2.0", "id": "a", "method": "m", "params": {"x": 1}});
        assert!(
            matches!(RpcMessage::read(request), RpcMessage::Request { params, .. } if params["x"] == 1)
        );
        for taken in [
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}}),
        ] {
            assert_eq!(
                RpcMessage::read(taken.clone()),
                RpcMessage::Unanswered,
                "{taken}"
            );
        }
        for (wrong, code) in [
            (json!(null), -32600),
            (json!("ping"), -32600),
            (json!({"id": 1, "method": "ping"}), -32600),
            (json!({"jsonrpc": "1.0", "id": 1, "method": "ping"}), -32600),
            (
                json!({"jsonrpc": "2.0", "id": null, "method": "ping"}),
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}),
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": [], "method": "ping"}),
                -32600,
            ),
            (json!({"jsonrpc": "2.0", "id": 1, "method": 1}), -32600),
            (json!({"jsonrpc": "2.0", "id": 1}), -32600),
            (json!({"jsonrpc": "2.0"}), -32600),
            (
                json!({"jsonrpc": "2.0", "id": 1, "method": "m", "params": []}),
                -32602,
            ),
        ] {
            let RpcMessage::Invalid(answer) = RpcMessage::read(wrong.clone()) else {
                panic!("{wrong} was taken");
            };
            assert_eq!(answer["error"]["code"], code, "{wrong}");
            assert!(answer.get("id").is_some(), "{wrong}");
        }
    }
}
