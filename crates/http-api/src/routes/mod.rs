//! The routes, grouped by subject, one file per resource. A handler extracts its input, calls the application once and
//! converts the result.

mod account;
mod configuration;
mod conversation;
mod integration;
mod legacy;
mod sandbox;
pub(crate) mod service;

use actix_web::{HttpRequest, HttpResponse, web};

use crate::problem::Problem;
use crate::route_registry::RouteRegistry;
use crate::state::state_of;

/// Calls `service` for each handler, in this order.
macro_rules! register {
    ($config:ident { $($folder:ident::$file:ident: $($handler:ident),+;)+ }) => {
        $($($config.service($folder::$file::$handler);)+)+
    };
}

/// Registers every route of the public listener. Registering a route also documents it.
pub(crate) fn register(config: &mut impl RouteRegistry) {
    register_frequent(config);
    register!(config {
        service::health: alive, health, ready, server_info;
        service::metrics: read;
        legacy::settings: store, add_git_providers, unset_provider_tokens, reset;
        legacy::options: models, agents, security_analyzers, config;
        configuration::web_client: config;
        configuration::catalogue: models, providers;
        configuration::settings: store, agent, conversation;
        configuration::profiles: list, load, save, remove, activate, rename;
        configuration::git_providers: store, unset;
        configuration::secrets: search, create, update, remove;
        legacy::secrets: list, create, update, remove;
        account::users: me, access;
        account::sessions: authenticate, log_out, list, end, change_password;
        account::identities: list, unlink;
        legacy::front_end: current_key, analytics_events, automation_health;
        integration::git: installations, repositories, branches, suggested_tasks, git_info;
        configuration::skills: search, marketplace_skills;
        account::members: accept, accept_page, count, invite, invitations, withdraw, list, load, update, remove;
        account::organizations: list, create, load, update, remove, me, switch;
        configuration::agent_profiles: list, load, save, remove, rename, activate;
        configuration::provider_connections: list, create, update, remove;
        configuration::profiles: list_profiles, load_profile, save_profile, remove_profile,
            activate_profile, rename_profile;
        conversation::lifecycle: start, stream_start;
        conversation::start_tasks: search, count;
        conversation::lifecycle: update, remove, send_message;
        conversation::download: download;
        conversation::workspace: file, files, git_changes, git_diff, skills, hooks, switch_profile,
            switch_acp_model;
        conversation::pending_messages: queue;
        sandbox::lifecycle: start, pause, resume, remove;
        sandbox::logs: read;
        sandbox::egress_requests: search, approve, deny, remove;
        sandbox::cloud_proxy: forward;
        sandbox::secrets: list, reveal;
        sandbox::specs: batch;
        conversation::events: count, batch;
        conversation::event_stream: follow;
        sandbox::secrets: provider_token;
        integration::mcp: ask;
        conversation::events: search_events, count_events, batch_events;
        legacy::aliases: report_conversation, report_events;
        legacy::conversations: list, load, config, update, remove;
        legacy::user: info, repositories, branches, suggested_tasks, installations;
        account::keys: list, create, rotate, revoke;
        account::administration: list, create, load, update, remove, keys, create_key, rotate_key,
            revoke_key;
        account::links: create;
        account::usage: own, of_user;
        account::spending: own, of_everybody;
        account::audit: search;
        sandbox::warm_pool: read;
        sandbox::hosts: list, update, remove;
        conversation::start_tasks: search_all;
    });
}

/// Registers the most frequent routes first. Routes are tried in order, and each one with `{parameters}` costs a regular
/// expression even when it does not match: a list behind seventeen of them spent 2 % of its time there.
fn register_frequent(config: &mut impl RouteRegistry) {
    register!(config {
        legacy::settings: load;
        configuration::settings: load;
        conversation::lifecycle: list, search, count;
        conversation::start_tasks: batch;
        sandbox::lifecycle: search, batch;
        sandbox::specs: search;
        sandbox::webhooks: conversation, events;
        conversation::events: search;
    });
}

/// Registers the routes of the callback listener. None of them takes a user's key there: in open mode, every sandbox would be
/// a user.
pub(crate) fn register_callback(config: &mut impl RouteRegistry) {
    register!(config {
        service::health: alive;
        sandbox::webhooks: conversation, events;
        legacy::aliases: report_conversation, report_events;
        sandbox::secrets: list, reveal, provider_token;
        integration::mcp: ask;
    });
}

/// Registers the routes of the listener for the automations service, which takes its keys only.
pub(crate) fn register_for_automations(config: &mut impl RouteRegistry) {
    register!(config {
        service::health: alive;
        account::users: me;
        sandbox::lifecycle: batch, start, pause, resume, remove;
        configuration::agent_profiles: list, load;
    });
}

/// Registers the routes of the metrics listener, which need no key. They reveal nothing about users and change nothing.
pub(crate) fn register_metrics(config: &mut impl RouteRegistry) {
    register!(config {
        service::health: alive;
        service::metrics: read;
    });
}

/// Registers routes that the document does not contain: the documentation, the console and the settings pages, the pages for
/// signing in, and signed paths.
pub(crate) fn register_docs(config: &mut web::ServiceConfig) {
    config
        .service(service::docs::document)
        .service(service::docs::entry)
        .service(service::docs::page)
        .configure(service::console::register)
        .configure(service::sign_in::register)
        .configure(service::device_login::register)
        .configure(service::single_sign_on::register)
        .configure(sandbox::signed_paths::register);
}

/// Registers the model calls of sandboxes. Their paths are those of the models' providers, so they are not documented.
pub(crate) fn register_models(config: &mut web::ServiceConfig) {
    config.service(sandbox::models::model_call);
}

/// Registers the git calls of sandboxes. Their paths are those of the hosts, so they are not documented.
pub(crate) fn register_git(config: &mut web::ServiceConfig) {
    config.service(sandbox::git::git_call);
}

/// Registers the paths of the automations service. They are those of an unmodified package, so they are not documented.
pub(crate) fn register_automations(config: &mut web::ServiceConfig) {
    config.service(integration::automations::forward);
}

/// Registers what runs of automations need on the callback listener, with keys of the automations service.
pub(crate) fn register_runs(config: &mut web::ServiceConfig) {
    config
        .service(account::users::me)
        .service(integration::automations::forward);
}

/// Registers the route by which the automations service gets keys.
pub(crate) fn register_automation_keys(config: &mut web::ServiceConfig) {
    config.service(integration::automations::issue_key);
}

/// Answers a request without a route: 405 with the methods of the path, the web application, or 404.
pub(crate) async fn unmatched(req: HttpRequest) -> Result<HttpResponse, Problem> {
    let state = state_of(&req)?;
    let surface = state.surface();
    match surface.and_then(|surface| surface.allowed_methods(req.path())) {
        Some(methods) => Ok(HttpResponse::MethodNotAllowed()
            .insert_header(("Allow", methods))
            .json(serde_json::json!({"detail": "Method Not Allowed"}))),
        None => service::web_app::answer(&req, state)
            .await?
            .ok_or_else(Problem::not_found),
    }
}
