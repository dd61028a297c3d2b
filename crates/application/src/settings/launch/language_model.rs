//! The language model of a start: the user's, or that of the request.

use domain::agent::LlmConfig;
use serde_json::{Map, Value};

use crate::settings::agent_document::LLM_API_KEY;
use crate::settings::fields;
use crate::settings::llm;
use crate::settings::model::Settings;

/// A setting is missing for a start; the text names it. It contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MissingSettings(pub String);

/// Fields of the model document that are not passed as options.
const NON_OPTION_FIELDS: [&str; 4] = ["model", "base_url", "api_key", "usage_id"];

pub(in crate::settings) fn language_model(
    settings: &Settings,
    model_override: Option<&str>,
) -> Result<LlmConfig, MissingSettings> {
    let agent = settings.connected_agent()?;
    let model_override = model_override.map(str::trim).filter(|m| !m.is_empty());
    let default_model = agent.effective("llm.model");
    let own_model = agent.llm_model();
    let before = own_model.or(default_model.as_str()).unwrap_or_default();
    let model = model_override.unwrap_or(before);
    let base_url = llm::settled_endpoint(
        before,
        model,
        agent.llm_base_url().map(str::to_owned),
        false,
    );
    let api_key = agent.llm_api_key().cloned();
    if api_key.is_none() && base_url.is_none() {
        if model_override.is_none() && own_model.is_none() {
            return Err(MissingSettings(
                "No language model is configured. Set llm_model and llm_api_key in the settings."
                    .to_owned(),
            ));
        }
        if !needs_no_key(settings, model) {
            return Err(MissingSettings(format!(
                "The model '{}' needs a key. Set llm_api_key in the settings.",
                short(model)
            )));
        }
    }
    if let (Some(_), None, Some(of), Some(vendor)) = (
        &api_key,
        &base_url,
        &agent.key_vendor,
        llm::vendor_of(model),
    ) && *of != vendor
    {
        return Err(MissingSettings(format!(
            "The stored llm_api_key was set for '{}' models and is not sent to '{}'. Set llm_api_key for the model \
             '{}' in the settings.",
            short(of),
            short(&vendor),
            short(model)
        )));
    }
    Ok(LlmConfig {
        model: model.to_owned(),
        base_url,
        api_key,
        options: options(settings),
        secret_options: agent
            .secrets
            .iter()
            .filter(|(pointer, _)| pointer.as_str() != LLM_API_KEY)
            .filter_map(|(pointer, secret)| {
                Some((pointer.strip_prefix("/llm/")?.to_owned(), secret.clone()))
            })
            .collect(),
    })
}

/// Whether the model needs no key: local models, and those with other credentials.
fn needs_no_key(settings: &Settings, model: &str) -> bool {
    llm::works_without_key(model)
        || settings.agent.effective("llm.auth_type") == "subscription"
        || settings.agent.text("llm.ollama_base_url").is_some()
}

/// The user's readable options of the model.
fn options(settings: &Settings) -> Map<String, Value> {
    let overlay = &settings.agent.overlay;
    fields::AGENT
        .fields
        .iter()
        .filter(|f| !f.secret && f.parts().0 == Some("llm"))
        .filter(|f| !NON_OPTION_FIELDS.contains(&f.parts().1))
        .filter_map(|f| {
            let value = f.coerce(fields::set_value(overlay, f)?).ok()?;
            Some((f.parts().1.to_owned(), value))
        })
        .collect()
}

/// User text in a message, shortened.
pub(super) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
