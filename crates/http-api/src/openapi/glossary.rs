//! Descriptions of members that occur in many schemas with one meaning.
//!
//! A member's own documentation takes precedence. Tests ensure that every member of the document has a description, and that
//! every entry here is used.

use serde_json::{Map, Value};

/// Members and parameters by name, and schemas (which start with a capital letter).
pub(super) const MEANINGS: &[(&str, &str)] = &[
    ("APP_MODE", "Always `oss`."),
    ("Detail", "An error with a text."),
    ("ENABLE_BILLING", "Always false."),
    ("FEATURE_FLAGS", "Features that front ends show."),
    (
        "HIDE_LLM_SETTINGS",
        "Whether front ends hide the settings of the model.",
    ),
    ("HTTPValidationError", "All errors of a request."),
    (
        "LegacyHTTPValidationError",
        "All errors of a request to a legacy operation.",
    ),
    (
        "LegacyValidationError",
        "One error of a request to a legacy operation.",
    ),
    ("ValidationError", "One error of a request."),
    (
        "accumulated_token_usage",
        "Tokens since the start of the conversation.",
    ),
    ("acp_providers", "Providers of ACP agents."),
    ("active", "The active profile; null if there is none."),
    (
        "active_agent_profile_id",
        "Always null: there are no agent profiles.",
    ),
    (
        "active_agent_profile_revision",
        "Always null: there are no agent profiles.",
    ),
    (
        "active_profile",
        "The active profile; null if there is none.",
    ),
    ("agent", "The agent's name."),
    ("agent_profile_id", "The profile of an agent."),
    ("agent_type", "The kind of agent."),
    (
        "allow_user_llm_configuration",
        "Whether users can choose their model.",
    ),
    ("api_key_set", "Whether a key is stored."),
    ("async", "Whether the agent continues meanwhile."),
    ("auth_url", "Always null: front ends log in with a key."),
    ("available_models", "The available models."),
    ("avatar_url", "The URL of the picture."),
    (
        "base_url_env_var",
        "The environment variable for its endpoint.",
    ),
    ("branches", "The branches of this page."),
    (
        "cache_prompt",
        "Whether the model's vendor may keep the prompt up to here.",
    ),
    ("cache_read_tokens", "Tokens read from the vendor's cache."),
    (
        "cache_write_tokens",
        "Tokens written to the vendor's cache.",
    ),
    ("command", "The command."),
    ("commit_sha", "The latest commit."),
    ("company", "The company in the user's profile."),
    ("completion_tokens", "Tokens that the model generated."),
    (
        "confirmation_mode",
        "Whether the agent asks before it acts.",
    ),
    ("content", "Texts and images, in order."),
    ("context_window", "Tokens that fit in the model's context."),
    (
        "conversation_id",
        "The conversation, in any spelling of a UUID.",
    ),
    ("created_at", "When it was created, in UTC."),
    ("custom_secrets", "Secrets by name."),
    ("default_model", "The model that is used if none is chosen."),
    (
        "default_sandbox_spec_id",
        "The default spec of new sandboxes.",
    ),
    ("deployment_mode", "Always null."),
    ("description", "The purpose."),
    ("detail", "The error."),
    (
        "disabled_skills",
        "Skills that are disabled in conversations.",
    ),
    ("disk", "The disk with the data directory."),
    ("display_name", "The name to show."),
    ("email", "The user's email address."),
    ("email_enabled", "Always false."),
    ("email_verified", "Whether the email address is verified."),
    ("enable_acp", "Whether front ends offer ACP agents."),
    ("enable_automations", "Always false."),
    ("enable_billing", "Always false."),
    (
        "enable_default_condenser",
        "Whether long histories are summarized.",
    ),
    ("enable_jira", "Always false."),
    ("enable_jira_dc", "Always false."),
    ("enable_linear", "Always false."),
    ("enable_onboarding", "Always false."),
    (
        "enable_proactive_conversation_starters",
        "Whether a front end proposes conversations.",
    ),
    (
        "enable_solvability_analysis",
        "Whether issues are assessed before work on them starts.",
    ),
    (
        "enable_sound_notifications",
        "Whether a front end plays sounds.",
    ),
    ("error_message", "A text shown on top of every page."),
    (
        "execution_status",
        "State of the agent; null unless the sandbox runs or is paused.",
    ),
    ("faulty_models", "Models that front ends warn of."),
    ("feature_flags", "Features that front ends show."),
    ("free", "Free bytes."),
    (
        "git_full_clone",
        "Whether clones contain the whole history.",
    ),
    ("git_provider", "The git provider."),
    ("git_user_email", "The email address in commits."),
    ("git_user_name", "The author name in commits."),
    ("github_app_slug", "Always null."),
    ("gitlab_enabled", "Always false."),
    ("has_next_page", "Whether more pages follow."),
    ("hide_billing_page", "Whether front ends hide the page."),
    (
        "hide_integrations_page",
        "Whether front ends hide the page of git providers.",
    ),
    (
        "hide_llm_settings",
        "Whether front ends hide the settings of the model.",
    ),
    ("hide_personal_workspaces", "Always false."),
    ("hide_users_page", "Whether front ends hide the page."),
    ("hooks", "The hooks."),
    ("id", "The id."),
    (
        "inherited_marketplaces",
        "Skill marketplaces from outside of the user's settings.",
    ),
    ("initial_message", "The first message."),
    ("io", "Bytes that this process has read and written."),
    ("is_public", "Whether everyone can read it."),
    ("issue_number", "The number of the issue or pull request."),
    ("jira_dc_oauth_host", "Always null."),
    ("jira_dc_service_account_config_error", "Always null."),
    ("jira_dc_service_account_email", "Always null."),
    ("jira_dc_service_account_managed", "Always false."),
    ("key", "The key in the settings."),
    ("key_id", "The id of the record of a key."),
    ("kind", "The kind."),
    ("label", "The name to show."),
    ("language", "The language of a front end."),
    ("last_updated_at", "When it last changed, in UTC."),
    (
        "launched_agent_profile",
        "The agent's profile at the start, if any.",
    ),
    ("llm_api_key_set", "Whether a model's key is stored."),
    (
        "llm_base_url",
        "The model's endpoint; null for the vendor's own.",
    ),
    ("llm_model", "The model, as `vendor/model`."),
    ("llm_profiles", "Saved configurations of models."),
    ("loc", "The path to the refused value."),
    ("login", "The name at the provider."),
    ("main_branch", "The branch that is checked out by default."),
    (
        "maintenance_start_time",
        "The announced start of a maintenance, in UTC.",
    ),
    ("matcher", "The pattern of tools that it applies to."),
    ("matchers", "Hooks by the tools that they apply to."),
    (
        "max_budget_per_task",
        "Dollars after which a conversation stops.",
    ),
    ("max_iterations", "Steps after which a conversation stops."),
    ("mcp_config", "MCP servers for the agent."),
    ("memory", "Memory of this process."),
    ("message", "A text about the result."),
    ("metrics", "The cost of the conversation."),
    ("model", "The model, as `vendor/model`."),
    ("msg", "The text of the error."),
    ("msg_id", "A stable id, which front ends translate."),
    ("name", "The name."),
    ("org_id", "The organization."),
    (
        "organization_id",
        "The user's own organization, as `/api/organizations` lists it.",
    ),
    ("owner_type", "The kind of owner."),
    ("parameters", "The parameters of the plugin."),
    ("per_turn_token", "Tokens of the latest turn."),
    ("percent", "The used share, in percent."),
    ("plugins", "Plugins for the agent."),
    (
        "pr_number",
        "Numbers of the pull requests that the conversation concerns.",
    ),
    (
        "processors",
        "Callback processors of the conversation's events.",
    ),
    ("profiles", "All profiles."),
    ("prompt_tokens", "Tokens that the model read."),
    ("provider_tokens", "Tokens of git providers."),
    (
        "provider_tokens_set",
        "The host of every git provider that a token is stored for.",
    ),
    (
        "public",
        "Whether everyone may read the conversation; kept for front ends.",
    ),
    ("read_bytes", "Bytes read."),
    ("reasoning_tokens", "Tokens of the model's reasoning."),
    ("recaptcha_site_key", "Always null."),
    ("ref", "A branch, tag or commit; null for the default."),
    ("registered_marketplaces", "Skill marketplaces."),
    (
        "remote_runtime_resource_factor",
        "Kept for front ends; without effect.",
    ),
    ("repo", "The repository, as `owner/repo`."),
    ("request", "The request; values of secrets are masked."),
    ("resources", "The resource usage of this process."),
    ("revision", "The revision."),
    ("role", "The role of the sender."),
    ("rss", "Bytes in memory."),
    (
        "runtime_status",
        "Status of the sandbox, for front ends of the 1.3 line.",
    ),
    ("sandbox_api_key", "Kept for front ends; masked."),
    (
        "sandbox_base_container_image",
        "Kept for front ends; without effect.",
    ),
    (
        "sandbox_grouping_strategy",
        "Which conversations share a sandbox.",
    ),
    ("sandbox_id", "The sandbox."),
    (
        "sandbox_runtime_container_image",
        "Kept for front ends; without effect.",
    ),
    ("sandbox_status", "Status of the sandbox."),
    ("search_api_key", "The key of the search service; masked."),
    (
        "search_api_key_set",
        "Whether a key of the search service is stored.",
    ),
    ("secret_name", "The name of the secret."),
    ("secrets_store", "Kept for front ends; empty."),
    ("security_analyzer", "The analyzer of the risk of actions."),
    ("selected_branch", "The branch that is checked out."),
    (
        "selected_repository",
        "The repository that is cloned, as `owner/repo`.",
    ),
    ("skills", "All skills."),
    ("slack_enabled", "Always false."),
    ("stargazers_count", "The number of stars."),
    ("status", "The status."),
    (
        "sub_conversation_ids",
        "Conversations that are parts of this one.",
    ),
    (
        "suggested_task",
        "A task of a git provider that provides the first message.",
    ),
    ("system_message_suffix", "Appended to the system prompt."),
    ("tags", "Tags by name, of the agent and of the service."),
    ("task_type", "The kind of task."),
    ("text", "The text."),
    ("title", "The title."),
    ("total", "Total bytes."),
    ("trigger", "What started the conversation."),
    ("triggers", "Words that trigger the skill."),
    ("type", "The type."),
    ("updated_at", "When it last changed, in UTC."),
    ("used", "Bytes in use."),
    (
        "user_consents_to_analytics",
        "Whether a front end may report usage.",
    ),
    ("user_id", "The name of the user."),
    (
        "user_version",
        "The version of the settings' layout; kept for front ends.",
    ),
    (
        "v1_enabled",
        "Always true; front ends of the 1.3 line require it.",
    ),
    ("vms", "Bytes of address space."),
    ("write_bytes", "Bytes written."),
];

fn meaning(name: &str) -> Option<&'static str> {
    let found = MEANINGS.binary_search_by(|(known, _)| (*known).cmp(name));
    found.ok().map(|index| MEANINGS[index].1)
}

/// Describes every member, schema and parameter that has no description.
pub(super) fn explain(document: &mut Value) {
    let schemas = document.pointer_mut("/components/schemas");
    for (name, schema) in schemas.and_then(Value::as_object_mut).into_iter().flatten() {
        describe(name, schema);
    }
    members(document);
}

fn members(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let named = map.get_mut("properties").and_then(Value::as_object_mut);
            for (name, member) in named.into_iter().flatten() {
                describe(name, member);
            }
            let parameters = map.get_mut("parameters").and_then(Value::as_array_mut);
            for parameter in parameters.into_iter().flatten() {
                if let Some(name) = parameter["name"].as_str().map(str::to_owned) {
                    describe(&name, parameter);
                }
            }
            map.values_mut().for_each(members);
        }
        Value::Array(list) => list.iter_mut().for_each(members),
        _ => {}
    }
}

fn describe(name: &str, what: &mut Value) {
    let Value::Object(what) = what else { return };
    let silent = |what: &Map<String, Value>| {
        let text = what.get("description").and_then(Value::as_str);
        text.is_none_or(str::is_empty)
    };
    if silent(what)
        && let Some(meaning) = meaning(name)
    {
        what.insert("description".to_owned(), meaning.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_are_sorted_and_used() {
        assert!(MEANINGS.is_sorted_by(|one, other| one.0 < other.0));
        let document = crate::openapi_document().to_string();
        for (name, meaning) in MEANINGS {
            let used = document.contains(&Value::from(*meaning).to_string());
            assert!(used, "`{name}` is explained, and nothing needs it");
        }
    }
}
