//! The routes, grouped by subject, one file per resource. A handler extracts its input, calls the application once and
//! converts the result.

mod account;
mod configuration;
mod conversation;
mod integration;
mod legacy;
mod sandbox;
mod service;

use actix_web::{HttpRequest, HttpResponse, web};

use crate::extract::state_of;
use crate::problem::Problem;
use crate::route_table::RouteRegistry;

pub(crate) use sandbox::specs::SpecsCache;

/// Registers every route of the public listener. Registering a route also documents it.
pub(crate) fn register(config: &mut impl RouteRegistry) {
    register_frequent(config);
    config
        .service(service::health::alive)
        .service(service::health::health)
        .service(service::health::ready)
        .service(service::health::server_info)
        .service(service::metrics::read)
        .service(legacy::settings::store)
        .service(legacy::settings::add_git_providers)
        .service(legacy::settings::unset_provider_tokens)
        .service(legacy::settings::reset)
        .service(legacy::options::models)
        .service(legacy::options::agents)
        .service(legacy::options::security_analyzers)
        .service(legacy::options::config)
        .service(configuration::web_client::config)
        .service(configuration::catalogue::models)
        .service(configuration::catalogue::providers)
        .service(configuration::settings::store)
        .service(configuration::settings::agent)
        .service(configuration::settings::conversation)
        .service(configuration::profiles::list)
        .service(configuration::profiles::load)
        .service(configuration::profiles::save)
        .service(configuration::profiles::remove)
        .service(configuration::profiles::activate)
        .service(configuration::profiles::rename)
        .service(configuration::git_providers::store)
        .service(configuration::git_providers::unset)
        .service(configuration::secrets::search)
        .service(configuration::secrets::create)
        .service(configuration::secrets::update)
        .service(configuration::secrets::remove)
        .service(legacy::secrets::list)
        .service(legacy::secrets::create)
        .service(legacy::secrets::update)
        .service(legacy::secrets::remove)
        .service(account::users::me)
        .service(account::users::access)
        .service(legacy::front_end::current_key)
        .service(legacy::front_end::agent_profiles)
        .service(integration::git::installations)
        .service(integration::git::repositories)
        .service(integration::git::branches)
        .service(integration::git::suggested_tasks)
        .service(integration::git::git_info)
        .service(configuration::skills::search)
        .service(configuration::skills::marketplace_skills);
    register_organizations(config);
    register_work(config);
    register_legacy(config);
    register_administration(config);
}

/// Registers the most frequent routes first. Routes are tried in order, and each one with `{parameters}` costs a regular
/// expression even when it does not match: a list behind seventeen of them spent 2 % of its time there.
fn register_frequent(config: &mut impl RouteRegistry) {
    config
        .service(legacy::settings::load)
        .service(configuration::settings::load)
        .service(conversation::lifecycle::list)
        .service(conversation::lifecycle::search)
        .service(conversation::lifecycle::count)
        .service(conversation::start_tasks::batch)
        .service(sandbox::lifecycle::search)
        .service(sandbox::lifecycle::batch)
        .service(sandbox::specs::search)
        .service(sandbox::webhooks::conversation)
        .service(sandbox::webhooks::events)
        .service(conversation::events::search);
}

/// Registers users, keys and the audit log.
fn register_administration(config: &mut impl RouteRegistry) {
    config
        .service(account::keys::list)
        .service(account::keys::create)
        .service(account::keys::rotate)
        .service(account::keys::revoke)
        .service(account::administration::list)
        .service(account::administration::create)
        .service(account::administration::load)
        .service(account::administration::update)
        .service(account::administration::remove)
        .service(account::administration::keys)
        .service(account::administration::create_key)
        .service(account::administration::rotate_key)
        .service(account::administration::revoke_key)
        .service(account::usage::own)
        .service(account::usage::of_user)
        .service(account::audit::search)
        .service(sandbox::warm_pool::read);
}

/// Registers the organization that each user has.
fn register_organizations(config: &mut impl RouteRegistry) {
    config
        .service(account::organizations::list)
        .service(account::organizations::me)
        .service(account::organizations::provider_connections)
        .service(account::organizations::list_profiles)
        .service(account::organizations::load_profile)
        .service(account::organizations::save_profile)
        .service(account::organizations::remove_profile)
        .service(account::organizations::activate_profile)
        .service(account::organizations::rename_profile);
}

/// Registers routes for clients of earlier releases: the same operations under other paths or in other forms.
fn register_legacy(config: &mut impl RouteRegistry) {
    config
        .service(legacy::aliases::search_events)
        .service(legacy::aliases::count_events)
        .service(legacy::aliases::batch_events)
        .service(legacy::aliases::report_conversation)
        .service(legacy::aliases::report_events)
        .service(legacy::conversations::list)
        .service(legacy::conversations::load)
        .service(legacy::conversations::config)
        .service(legacy::conversations::update)
        .service(legacy::conversations::remove)
        .service(legacy::user::info)
        .service(legacy::user::repositories)
        .service(legacy::user::branches)
        .service(legacy::user::suggested_tasks)
        .service(legacy::user::installations);
}

/// Registers conversations, start tasks, sandboxes and events.
fn register_work(config: &mut impl RouteRegistry) {
    config
        .service(conversation::lifecycle::start)
        .service(conversation::lifecycle::stream_start)
        .service(conversation::start_tasks::search)
        .service(conversation::start_tasks::count)
        .service(conversation::lifecycle::update)
        .service(conversation::lifecycle::remove)
        .service(conversation::lifecycle::send_message)
        .service(conversation::download::download)
        .service(conversation::workspace::file)
        .service(conversation::workspace::files)
        .service(conversation::workspace::git_changes)
        .service(conversation::workspace::git_diff)
        .service(conversation::workspace::skills)
        .service(conversation::workspace::hooks)
        .service(conversation::workspace::switch_profile)
        .service(conversation::workspace::switch_acp_model)
        .service(conversation::pending_messages::queue)
        .service(sandbox::lifecycle::start)
        .service(sandbox::lifecycle::pause)
        .service(sandbox::lifecycle::resume)
        .service(sandbox::lifecycle::remove)
        .service(sandbox::logs::read)
        .service(sandbox::secrets::list)
        .service(sandbox::secrets::reveal)
        .service(sandbox::specs::batch)
        .service(conversation::events::count)
        .service(conversation::events::batch)
        .service(conversation::event_stream::follow)
        .service(sandbox::secrets::provider_token)
        .service(integration::mcp::ask);
}

/// Registers the routes of the callback listener. None of them takes a user's key: in open mode, every sandbox would be a
/// user.
pub(crate) fn register_callback(config: &mut impl RouteRegistry) {
    config
        .service(service::health::alive)
        .service(sandbox::webhooks::conversation)
        .service(sandbox::webhooks::events)
        .service(legacy::aliases::report_conversation)
        .service(legacy::aliases::report_events)
        .service(sandbox::secrets::list)
        .service(sandbox::secrets::reveal)
        .service(sandbox::secrets::provider_token)
        .service(integration::mcp::ask);
}

/// Registers the routes of the metrics listener, which need no key. They reveal nothing about users and change nothing.
pub(crate) fn register_metrics(config: &mut impl RouteRegistry) {
    config
        .service(service::health::alive)
        .service(service::metrics::read);
}

/// Registers routes that the document does not contain: the documentation, the console, and signed paths.
pub(crate) fn register_docs(config: &mut web::ServiceConfig) {
    config
        .service(service::docs::document)
        .service(service::docs::entry)
        .service(service::docs::page)
        .service(service::console::entry)
        .service(service::console::file)
        .configure(sandbox::signed_paths::register);
}

/// Answers a request without a route: 405 with the methods of the path, or 404.
pub(crate) async fn unmatched(req: HttpRequest) -> Result<HttpResponse, Problem> {
    let surface = state_of(&req)?.surface();
    match surface.and_then(|surface| surface.allowed_methods(req.path())) {
        Some(methods) => Ok(HttpResponse::MethodNotAllowed()
            .insert_header(("Allow", methods))
            .json(serde_json::json!({"detail": "Method Not Allowed"}))),
        None => Err(Problem::not_found()),
    }
}
