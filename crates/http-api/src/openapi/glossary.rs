//! Descriptions of members that occur in many schemas with one meaning.
//!
//! A member's own documentation takes precedence. Tests ensure that every member of the document has a description, and that
//! every entry here is used.

use serde_json::{Map, Value};

/// Members and parameters by name, and schemas (which start with a capital letter).
pub(super) const MEANINGS: &[(&str, &str)] = &[
    ("APP_MODE", "Always `oss`."),
    ("AgentType", "What kind of agent works."),
    (
        "AppConversationStartTaskStatus",
        "How far a start has come.",
    ),
    ("ConversationExecutionStatus", "What the agent is doing."),
    ("ConversationTrigger", "Where a conversation came from."),
    ("Detail", "A refusal in words."),
    ("ENABLE_BILLING", "Always false."),
    ("FEATURE_FLAGS", "What front ends show."),
    (
        "HIDE_LLM_SETTINGS",
        "Whether front ends leave out the settings of the model.",
    ),
    (
        "HTTPValidationError",
        "Everything that is wrong with a request.",
    ),
    (
        "LegacyHTTPValidationError",
        "Everything that is wrong with a request, on a legacy operation.",
    ),
    (
        "LegacyValidationError",
        "One thing that is wrong with a request, on a legacy operation.",
    ),
    ("OwnerType", "Who owns a repository."),
    ("ProviderType", "A git provider."),
    ("SandboxStatus", "How a sandbox is."),
    ("TaskType", "What a suggested task is about."),
    ("ValidationError", "One thing that is wrong with a request."),
    (
        "accumulated_token_usage",
        "Tokens since the conversation began.",
    ),
    ("acp_providers", "Agents that are programs of their own."),
    (
        "active",
        "The profile in force; null if the settings are no profile's.",
    ),
    (
        "active_agent_profile_id",
        "Always null: agents have no profiles of their own here.",
    ),
    (
        "active_agent_profile_revision",
        "Always null: agents have no profiles of their own here.",
    ),
    (
        "active_profile",
        "The profile in force; null if the settings are no profile's.",
    ),
    ("agent", "The agent's name."),
    ("agent_profile_id", "The profile of an agent."),
    ("agent_type", "What kind of agent works."),
    (
        "allow_user_llm_configuration",
        "Whether users choose their model.",
    ),
    ("api_key_set", "Whether a key is stored with it."),
    ("async", "Whether the agent goes on meanwhile."),
    ("auth_url", "Always null: front ends log in with a key."),
    ("available_models", "The models that it offers."),
    ("avatar_url", "Where the picture is."),
    (
        "base_url_env_var",
        "The variable in which it takes an endpoint.",
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
    ("command", "What is run."),
    ("commit_sha", "The latest commit."),
    ("company", "Where the person works, as they say."),
    ("completion_tokens", "Tokens that the model wrote."),
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
    ("created_at", "When it was made, in UTC."),
    ("custom_secrets", "Secrets by name."),
    (
        "default_model",
        "The model that it uses when none is chosen.",
    ),
    (
        "default_sandbox_spec_id",
        "The spec of sandboxes that are started without one.",
    ),
    ("deployment_mode", "Always null."),
    ("description", "What it is for, in words."),
    ("detail", "What is wrong."),
    ("disabled_skills", "Skills that conversations do not get."),
    ("disk", "The disk with the data directory."),
    ("display_name", "The name to show."),
    ("email", "The user's address."),
    ("email_enabled", "Always false."),
    (
        "email_verified",
        "Whether the address was found to be the user's.",
    ),
    (
        "enable_acp",
        "Whether front ends offer agents that are programs of their own.",
    ),
    ("enable_automations", "Always false."),
    ("enable_billing", "Always false."),
    (
        "enable_default_condenser",
        "Whether long histories are summed up.",
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
        "Whether issues are judged before they are worked on.",
    ),
    (
        "enable_sound_notifications",
        "Whether a front end makes a sound.",
    ),
    ("error_message", "Shown on top of every page."),
    (
        "execution_status",
        "What the agent is doing; null unless the sandbox runs or is paused.",
    ),
    ("faulty_models", "Models that front ends warn of."),
    ("feature_flags", "What front ends show."),
    ("free", "Bytes that are free."),
    ("git_full_clone", "Whether clones have the whole history."),
    ("git_provider", "The git provider."),
    ("git_user_email", "The address that commits carry."),
    ("git_user_name", "The name that commits carry."),
    ("github_app_slug", "Always null."),
    ("gitlab_enabled", "Always false."),
    ("has_next_page", "Whether there are more."),
    (
        "hide_billing_page",
        "Whether front ends leave out the page.",
    ),
    (
        "hide_integrations_page",
        "Whether front ends leave out the page of git providers.",
    ),
    (
        "hide_llm_settings",
        "Whether front ends leave out the settings of the model.",
    ),
    ("hide_personal_workspaces", "Always false."),
    ("hide_users_page", "Whether front ends leave out the page."),
    ("hooks", "What is run."),
    ("id", "What identifies it."),
    (
        "inherited_marketplaces",
        "Marketplaces of skills from outside the user's settings.",
    ),
    ("initial_message", "The first message."),
    ("io", "What this process read and wrote."),
    ("is_public", "Whether everybody can read it."),
    ("issue_number", "The number of the issue or pull request."),
    ("jira_dc_oauth_host", "Always null."),
    ("jira_dc_service_account_config_error", "Always null."),
    ("jira_dc_service_account_email", "Always null."),
    ("jira_dc_service_account_managed", "Always false."),
    ("key", "What settings call it."),
    ("key_id", "The id of the record of a key."),
    ("kind", "Which one it is."),
    ("label", "The name to show."),
    ("language", "The language of a front end."),
    ("last_updated_at", "When it last changed, in UTC."),
    (
        "launched_agent_profile",
        "The profile of the agent at the start, if it had one.",
    ),
    ("llm_api_key_set", "Whether a model's key is stored."),
    (
        "llm_base_url",
        "The model's endpoint; null for the vendor's own.",
    ),
    ("llm_model", "The model, as `vendor/model`."),
    ("llm_profiles", "Saved configurations of models."),
    ("loc", "The way to the refused value."),
    ("login", "The name at the provider."),
    ("main_branch", "The branch that is checked out by default."),
    (
        "maintenance_start_time",
        "Maintenance is announced to begin then, in UTC.",
    ),
    ("matcher", "The tools that it is for."),
    ("matchers", "What is run for which tools."),
    (
        "max_budget_per_task",
        "Dollars after which a conversation stops.",
    ),
    ("max_iterations", "Steps after which a conversation stops."),
    ("mcp_config", "MCP servers for the agent."),
    ("memory", "Memory of this process."),
    ("message", "What happened, in words."),
    ("metrics", "What the conversation has cost."),
    ("model", "The model, as `vendor/model`."),
    ("msg", "What is wrong, in words."),
    (
        "msg_id",
        "A stable word for it; front ends have its translation.",
    ),
    ("name", "The name."),
    ("org_id", "The organization."),
    (
        "organization_id",
        "The user's own organization, as `/api/organizations` lists it.",
    ),
    ("owner_type", "Who owns it."),
    ("parameters", "What the plugin is given."),
    ("per_turn_token", "Tokens of the latest turn."),
    ("percent", "The part in use, in percent."),
    ("plugins", "Plugins for the agent."),
    ("pr_number", "Pull requests that the conversation is about."),
    (
        "processors",
        "What else happens with the conversation's events.",
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
        "Whether everybody may read the conversation; kept for front ends.",
    ),
    ("read_bytes", "Bytes read."),
    ("reasoning_tokens", "Tokens that the model thought with."),
    ("recaptcha_site_key", "Always null."),
    ("ref", "A branch, tag or commit; null for the default."),
    ("registered_marketplaces", "Marketplaces of skills."),
    (
        "remote_runtime_resource_factor",
        "Kept for front ends; without effect.",
    ),
    ("repo", "The repository, as `owner/repo`."),
    (
        "request",
        "What was asked for; values of secrets are masked.",
    ),
    ("resources", "What this process uses."),
    ("revision", "Which revision of it."),
    ("role", "Who speaks."),
    ("rss", "Bytes in memory."),
    (
        "runtime_status",
        "How the sandbox is, as front ends of the 1.3 line read it.",
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
    ("sandbox_status", "How the sandbox is."),
    ("search_api_key", "The key of the search service; masked."),
    (
        "search_api_key_set",
        "Whether a key of the search service is stored.",
    ),
    ("secret_name", "The name of the secret."),
    ("secrets_store", "Kept for front ends; empty."),
    ("security_analyzer", "What judges the risk of actions."),
    ("selected_branch", "The branch that is checked out."),
    (
        "selected_repository",
        "The repository that is cloned, as `owner/repo`.",
    ),
    ("skills", "All skills."),
    ("slack_enabled", "Always false."),
    ("stargazers_count", "How many people starred it."),
    ("status", "How it is."),
    (
        "sub_conversation_ids",
        "Conversations that are parts of this one.",
    ),
    (
        "suggested_task",
        "A task of a git provider that makes the first message.",
    ),
    ("system_message_suffix", "Appended to the system prompt."),
    ("tags", "Words by name, the agent's and ours."),
    ("task_type", "What the task is about."),
    ("text", "The text."),
    ("title", "The title."),
    ("total", "Bytes in all."),
    ("trigger", "Where the conversation came from."),
    ("triggers", "Words that call it up."),
    ("type", "Which one it is."),
    ("updated_at", "When it last changed, in UTC."),
    ("used", "Bytes in use."),
    (
        "user_consents_to_analytics",
        "Whether a front end may report use.",
    ),
    ("user_id", "The name of the user."),
    (
        "user_version",
        "The version of the settings' layout; kept for front ends.",
    ),
    (
        "v1_enabled",
        "Always true; front ends of the 1.3 line look for it.",
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
    fn meanings_are_in_order_and_each_is_needed() {
        assert!(MEANINGS.is_sorted_by(|one, other| one.0 < other.0));
        let document = crate::openapi_document().to_string();
        for (name, meaning) in MEANINGS {
            let used = document.contains(&Value::from(*meaning).to_string());
            assert!(used, "`{name}` is explained, and nothing needs it");
        }
    }
}
