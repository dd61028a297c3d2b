//! Path and query parameters.

use actix_web::{FromRequest, HttpRequest, web};
use domain::id::{ConversationId, SandboxId};
use serde_json::{Map, Value};

use super::request_part::{RequestInput, RequestPart};
use crate::decode::{Decode, Path};
use crate::problem::Problem;

/// A path parameter type with a fixed name.
pub trait NamedParam: Decode {
    /// The name between the braces of the route.
    const NAME: &'static str;
    /// Whether an invalid text answers 404, as for ids that are free text on the wire. Otherwise it answers 422.
    const UNKNOWN_IF_INVALID: bool = false;
}

impl NamedParam for ConversationId {
    const NAME: &'static str = "conversation_id";
}

impl NamedParam for SandboxId {
    const NAME: &'static str = "sandbox_id";
    const UNKNOWN_IF_INVALID: bool = true;
}

/// The path parameter `{T::NAME}`.
#[derive(Debug, Clone)]
pub struct PathParam<T>(pub T);

impl<T: NamedParam> RequestPart for PathParam<T> {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let given = path_values(input.req)?;
        let value = given.get(T::NAME).ok_or_else(|| {
            Problem::internal(format!("the route has no parameter {{{}}}", T::NAME))
        })?;
        let decoded = T::decode(
            value,
            &Path::path_params().key(T::NAME).of_type::<T>(),
            &mut input.errors,
        );
        if decoded.is_none() && T::UNKNOWN_IF_INVALID {
            return Err(Problem::not_found());
        }
        Ok(decoded.map(Self))
    }
}

/// All path parameters as one model, for routes that have several.
#[derive(Debug, Clone)]
pub struct PathParams<T>(pub T);

impl<T: Decode> RequestPart for PathParams<T> {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let given = Value::Object(path_values(input.req)?);
        Ok(T::decode(&given, &Path::path_params(), &mut input.errors).map(Self))
    }
}

fn path_values(req: &HttpRequest) -> Result<Map<String, Value>, Problem> {
    // The names from the route, and the percent-decoded values; both in the order of the route.
    let values = web::Path::<Vec<String>>::extract(req).into_inner();
    let values = values.map_err(|error| Problem::internal(format!("path parameters: {error}")))?;
    let names = req.match_info().iter().map(|(name, _)| name.to_owned());
    Ok(names
        .zip(values.into_inner().into_iter().map(Value::from))
        .collect())
}

/// The query parameters as one model, read with [`crate::decode::Object`]. List members take every value of a repeated
/// parameter, others the last one. Unknown parameters are ignored.
#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<T: Decode> RequestPart for Query<T> {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let given = query_values(input.req.query_string());
        Ok(T::decode(&given, &Path::query(), &mut input.errors).map(Self))
    }
}

/// Each name with the list of its values.
fn query_values(query: &str) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for (name, text) in url::form_urlencoded::parse(query.as_bytes()) {
        let texts = all
            .entry(name.into_owned())
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(texts) = texts {
            texts.push(text.into_owned().into());
        }
    }
    Value::Object(all)
}
