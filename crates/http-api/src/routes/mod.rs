//! The routes, one file per resource. A handler extracts, calls one verb of the application and converts the answer.

mod administration;
mod aliases;
mod app_conversation_inside;
mod app_conversations;
mod audit;
mod catalogue;
mod console;
mod docs;
mod download;
mod event_stream;
mod events;
mod front_end;
mod git;
mod git_providers;
mod health;
mod keys;
mod legacy_conversations;
mod legacy_options;
mod legacy_secrets;
mod legacy_settings;
mod legacy_user;
mod mcp;
mod metrics;
mod organizations;
mod outlet;
mod page_security;
mod pending_messages;
mod process_stats;
mod profiles;
mod registry;
mod sandbox_logs;
mod sandbox_secrets;
mod sandbox_specs;
mod sandboxes;
mod secrets;
mod settings;
mod signed;
mod skills;
mod start_tasks;
mod usage;
mod users;
mod warm;
mod web_client;
mod webhooks;

use actix_web::{HttpRequest, HttpResponse, web};

use crate::extract::state_of;
use crate::problem::Problem;

pub use process_stats::open_io_counters;
pub(crate) use process_stats::{ProcessSample, ProcessStats};
pub(crate) use registry::{RouteRegistry, RouteTable};
pub(crate) use sandbox_specs::SpecsCache;

/// Registers every route. What is registered here is documented; nothing else exists.
pub(crate) fn register(config: &mut impl RouteRegistry) {
    register_frequent(config);
    config
        .service(health::alive)
        .service(health::health)
        .service(health::ready)
        .service(health::server_info)
        .service(metrics::read)
        .service(legacy_settings::store)
        .service(legacy_settings::add_git_providers)
        .service(legacy_settings::unset_provider_tokens)
        .service(legacy_settings::reset)
        .service(legacy_options::models)
        .service(legacy_options::agents)
        .service(legacy_options::security_analyzers)
        .service(legacy_options::config)
        .service(web_client::config)
        .service(catalogue::models)
        .service(catalogue::providers)
        .service(settings::store)
        .service(settings::agent)
        .service(settings::conversation)
        .service(profiles::list)
        .service(profiles::load)
        .service(profiles::save)
        .service(profiles::remove)
        .service(profiles::activate)
        .service(profiles::rename)
        .service(git_providers::store)
        .service(git_providers::unset)
        .service(secrets::search)
        .service(secrets::create)
        .service(secrets::update)
        .service(secrets::remove)
        .service(legacy_secrets::list)
        .service(legacy_secrets::create)
        .service(legacy_secrets::update)
        .service(legacy_secrets::remove)
        .service(users::me)
        .service(users::access)
        .service(front_end::current_key)
        .service(front_end::agent_profiles)
        .service(git::installations)
        .service(git::repositories)
        .service(git::branches)
        .service(git::suggested_tasks)
        .service(git::git_info)
        .service(skills::search)
        .service(skills::marketplace_skills);
    register_organizations(config);
    register_work(config);
    register_legacy(config);
    register_administration(config);
}

/// What is asked all the time. One route after the other is tried, and each with `{parameters}` is a regular expression, which
/// costs something also where it does not match: a list behind seventeen of them spent 2 % of its time there.
fn register_frequent(config: &mut impl RouteRegistry) {
    config
        .service(legacy_settings::load)
        .service(settings::load)
        .service(app_conversations::list)
        .service(app_conversations::search)
        .service(app_conversations::count)
        .service(start_tasks::batch)
        .service(sandboxes::search)
        .service(sandboxes::batch)
        .service(sandbox_specs::search)
        .service(webhooks::conversation)
        .service(webhooks::events)
        .service(events::search);
}

/// Users, keys, and who did what.
fn register_administration(config: &mut impl RouteRegistry) {
    config
        .service(keys::list)
        .service(keys::create)
        .service(keys::rotate)
        .service(keys::revoke)
        .service(administration::list)
        .service(administration::create)
        .service(administration::load)
        .service(administration::update)
        .service(administration::remove)
        .service(administration::keys)
        .service(administration::create_key)
        .service(administration::rotate_key)
        .service(administration::revoke_key)
        .service(usage::own)
        .service(usage::of_user)
        .service(audit::search)
        .service(warm::read);
}

/// The organization that each user has.
fn register_organizations(config: &mut impl RouteRegistry) {
    config
        .service(organizations::list)
        .service(organizations::me)
        .service(organizations::provider_connections)
        .service(organizations::list_profiles)
        .service(organizations::load_profile)
        .service(organizations::save_profile)
        .service(organizations::remove_profile)
        .service(organizations::activate_profile)
        .service(organizations::rename_profile);
}

/// What clients of earlier releases call: the same things under other paths, or in other words.
fn register_legacy(config: &mut impl RouteRegistry) {
    config
        .service(aliases::search_events)
        .service(aliases::count_events)
        .service(aliases::batch_events)
        .service(aliases::report_conversation)
        .service(aliases::report_events)
        .service(legacy_conversations::list)
        .service(legacy_conversations::load)
        .service(legacy_conversations::config)
        .service(legacy_conversations::update)
        .service(legacy_conversations::remove)
        .service(legacy_user::info)
        .service(legacy_user::repositories)
        .service(legacy_user::branches)
        .service(legacy_user::suggested_tasks)
        .service(legacy_user::installations);
}

/// Conversations, the tasks that start them, sandboxes and events.
fn register_work(config: &mut impl RouteRegistry) {
    config
        .service(app_conversations::start)
        .service(app_conversations::stream_start)
        .service(start_tasks::search)
        .service(start_tasks::count)
        .service(app_conversations::update)
        .service(app_conversations::remove)
        .service(app_conversations::send_message)
        .service(download::download)
        .service(app_conversation_inside::file)
        .service(app_conversation_inside::files)
        .service(app_conversation_inside::git_changes)
        .service(app_conversation_inside::git_diff)
        .service(app_conversation_inside::skills)
        .service(app_conversation_inside::hooks)
        .service(app_conversation_inside::switch_profile)
        .service(app_conversation_inside::switch_acp_model)
        .service(pending_messages::queue)
        .service(sandboxes::start)
        .service(sandboxes::pause)
        .service(sandboxes::resume)
        .service(sandboxes::remove)
        .service(sandbox_logs::read)
        .service(sandbox_secrets::list)
        .service(sandbox_secrets::reveal)
        .service(sandbox_specs::batch)
        .service(events::count)
        .service(events::batch)
        .service(event_stream::follow)
        .service(sandbox_secrets::provider_token)
        .service(mcp::ask);
}

/// Registers what sandboxes may call, for a listener of their own. Nothing that takes a user's key: where requests need
/// none, every sandbox would be a user.
pub(crate) fn register_callback(config: &mut impl RouteRegistry) {
    config
        .service(health::alive)
        .service(webhooks::conversation)
        .service(webhooks::events)
        .service(aliases::report_conversation)
        .service(aliases::report_events)
        .service(sandbox_secrets::list)
        .service(sandbox_secrets::reveal)
        .service(sandbox_secrets::provider_token)
        .service(mcp::ask);
}

/// Registers what may be read without a key where only the operator's own machines come. Nothing there says anything of a
/// user, and nothing can be done.
pub(crate) fn register_metrics(config: &mut impl RouteRegistry) {
    config.service(health::alive).service(metrics::read);
}

/// Registers what is not part of the documentation: what serves it, the console, and what sandboxes serve.
pub(crate) fn register_docs(config: &mut web::ServiceConfig) {
    config
        .service(docs::document)
        .service(docs::entry)
        .service(docs::page)
        .service(console::entry)
        .service(console::file)
        .configure(signed::register);
}

/// What no route takes: 405 with the methods that would have been, or 404.
pub(crate) async fn unmatched(req: HttpRequest) -> Result<HttpResponse, Problem> {
    let surface = state_of(&req)?.surface();
    match surface.and_then(|surface| surface.allowed(req.path())) {
        Some(methods) => Ok(HttpResponse::MethodNotAllowed()
            .insert_header(("Allow", methods))
            .json(serde_json::json!({"detail": "Method Not Allowed"}))),
        None => Err(Problem::not_found()),
    }
}
