//! The tables after all migrations. Types that differ between the databases are in `column_types`.

pub(crate) mod codec;
pub(crate) mod column_types;
mod exposed_url_cache;
pub(crate) mod rows;

/// Declares tables whose columns have the types of diesel and of [`column_types`].
macro_rules! tables {
    ($($table:ident $key:tt $columns:tt)*) => {$(
        diesel::table! {
            use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
            use crate::schema::column_types::{Id, Instant, NormalizedJson, VerbatimJson};

            $table $key $columns
        }
    )*};
}

tables! {
    users (id) {
        id -> Text,
        created_at -> Instant,
        deleted_at -> Nullable<Instant>,
        role -> Text,
        password_hash -> Nullable<Text>,
        email -> Nullable<Text>,
        email_verified -> Bool,
        current_organization -> Nullable<Id>,
        disabled_at -> Nullable<Instant>,
    }

    organizations (id) {
        id -> Id,
        name -> Text,
        month_budget -> Nullable<BigInt>,
        created_at -> Instant,
        deleted_at -> Nullable<Instant>,
    }

    memberships (organization_id, user_id) {
        organization_id -> Id,
        user_id -> Text,
        role -> Text,
        created_at -> Instant,
        removed_at -> Nullable<Instant>,
    }

    invitations (id) {
        id -> Id,
        hash -> Text,
        organization_id -> Id,
        email -> Nullable<Text>,
        role -> Text,
        inviter -> Text,
        created_at -> Instant,
        expires_at -> Instant,
    }

    api_keys (id) {
        id -> Id,
        user_id -> Text,
        hash -> Text,
        prefix -> Text,
        created_at -> Instant,
        expires_at -> Nullable<Instant>,
        last_used_at -> Nullable<Instant>,
        name -> Nullable<Text>,
        made_by -> Nullable<Text>,
        organization_id -> Nullable<Id>,
        is_automation -> Bool,
    }

    sessions (id) {
        id -> Id,
        user_id -> Text,
        hash -> Text,
        created_at -> Instant,
        last_seen_at -> Instant,
        expires_at -> Instant,
        address -> Nullable<Text>,
        user_agent -> Nullable<Text>,
    }

    one_time_links (hash) {
        hash -> Text,
        user_id -> Text,
        created_at -> Instant,
        expires_at -> Instant,
    }

    model_spending (owner, day, conversation, model) {
        owner -> Text,
        day -> Integer,
        conversation -> Text,
        model -> Text,
        calls -> BigInt,
        estimated_calls -> BigInt,
        unpriced_calls -> BigInt,
        input -> BigInt,
        cached_input -> BigInt,
        cache_write -> BigInt,
        output -> BigInt,
        cost -> BigInt,
    }

    model_reservations (id) {
        id -> Id,
        owner -> Text,
        day -> Integer,
        conversation -> Text,
        model -> Text,
        amount -> BigInt,
        created_at -> Instant,
    }

    egress_requests (id) {
        id -> Id,
        owner -> Text,
        sandbox_id -> Text,
        host -> Text,
        port -> Integer,
        decision -> Text,
        created_at -> Instant,
        updated_at -> Instant,
    }

    device_logins (hash) {
        hash -> Text,
        code -> Text,
        user_id -> Nullable<Text>,
        created_at -> Instant,
        expires_at -> Instant,
        is_denied -> Bool,
    }

    identities (id) {
        id -> Id,
        provider -> Text,
        subject -> Text,
        user_id -> Text,
        email -> Nullable<Text>,
        created_at -> Instant,
        last_used_at -> Instant,
    }

    audit_log (id) {
        id -> Id,
        at -> Instant,
        actor -> Text,
        key_id -> Nullable<Id>,
        action -> Text,
        object -> Nullable<Text>,
        detail -> Nullable<Text>,
        source -> Nullable<Text>,
        outcome -> Text,
        status -> Nullable<Integer>,
        request_id -> Nullable<Text>,
        count -> BigInt,
        session_id -> Nullable<Id>,
    }

    settings (owner) {
        owner -> Text,
        document -> Text,
        revision -> BigInt,
        updated_at -> Instant,
    }

    sandboxes (id) {
        id -> Text,
        owner -> Text,
        spec_id -> Text,
        host -> Text,
        desired -> Text,
        status -> Text,
        status_detail -> Nullable<Text>,
        key_hash -> Text,
        session_key -> Text,
        secret_key -> Text,
        callback_token_hash -> Nullable<Text>,
        agent_url -> Nullable<Text>,
        exposed_urls -> NormalizedJson,
        workspace -> Nullable<Text>,
        has_proxy -> Bool,
        egress -> Nullable<Text>,
        automation_key -> Nullable<Id>,
        created_at -> Instant,
        updated_at -> Instant,
        paused_at -> Nullable<Instant>,
        is_host_lost -> Bool,
    }

    warm_sandboxes (id) {
        id -> Text,
        spec_id -> Text,
        host -> Text,
        recipe -> Text,
        state -> Text,
        key_hash -> Text,
        session_key -> Text,
        secret_key -> Text,
        agent_url -> Nullable<Text>,
        exposed_urls -> NormalizedJson,
        workspace -> Nullable<Text>,
        has_proxy -> Bool,
        created_at -> Instant,
        updated_at -> Instant,
    }

    conversations (id) {
        id -> Id,
        owner -> Text,
        sandbox_id -> Text,
        title -> Nullable<Text>,
        title_folded -> Nullable<Text>,
        auto_title -> Bool,
        selected_repository -> Nullable<Text>,
        selected_branch -> Nullable<Text>,
        git_provider -> Nullable<Text>,
        started_by -> Nullable<Text>,
        pr_numbers -> NormalizedJson,
        llm_model -> Nullable<Text>,
        agent_kind -> Text,
        metrics -> NormalizedJson,
        parent -> Nullable<Id>,
        is_public -> Nullable<Bool>,
        tags -> VerbatimJson,
        execution_status -> Nullable<Text>,
        status_at -> Nullable<Instant>,
        created_at -> Instant,
        updated_at -> Instant,
        event_count -> BigInt,
        event_bytes -> BigInt,
        shortened_events -> BigInt,
    }

    deleted_conversations (id) {
        id -> Id,
        sandbox_id -> Text,
        deleted_at -> Instant,
        pending -> Bool,
    }

    events (conversation_id, seq) {
        conversation_id -> Id,
        seq -> BigInt,
        event_id -> Text,
        kind -> Text,
        happened_at -> Instant,
        body -> Text,
    }

    start_tasks (id) {
        id -> Id,
        owner -> Text,
        host -> Text,
        status -> Text,
        detail -> Nullable<Text>,
        notes -> VerbatimJson,
        conversation_id -> Id,
        sandbox_id -> Text,
        owns_sandbox -> Bool,
        agent_server_url -> Nullable<Text>,
        request -> VerbatimJson,
        sealed_secrets -> Nullable<Text>,
        timings -> NormalizedJson,
        attempts -> BigInt,
        created_at -> Instant,
        updated_at -> Instant,
        is_open -> Bool,
        begun -> Bool,
        fence -> BigInt,
        lease_until -> Nullable<Instant>,
        request_bytes -> BigInt,
    }

    pending_messages (id) {
        id -> Id,
        owner -> Text,
        conversation_id -> Id,
        place -> BigInt,
        message -> VerbatimJson,
        created_at -> Instant,
        tried_at -> Nullable<Instant>,
        message_bytes -> BigInt,
    }

    idempotency_keys (owner, key) {
        owner -> Text,
        key -> Text,
        fingerprint -> Text,
        answer -> Text,
        given_at -> Instant,
    }

    leases (name) {
        name -> Text,
        holder -> Text,
        ends_at -> Instant,
    }

    hosts (id) {
        id -> Text,
        registered_at -> Instant,
        seen_at -> Nullable<Instant>,
        is_draining -> Bool,
    }

    secrets (owner, name) {
        owner -> Text,
        name -> Text,
        description -> Text,
        value_id -> Id,
        value -> Text,
        created_at -> Instant,
        updated_at -> Instant,
        hosts -> Text,
    }

    vault (name) {
        name -> Text,
        sealed -> Text,
        changed_at -> Instant,
    }

    key_holders (name) {
        name -> Text,
        master_keys -> Text,
        seals_with -> Nullable<Text>,
        seen_at -> Instant,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    conversations,
    deleted_conversations,
    egress_requests,
    events,
    pending_messages,
    sandboxes,
    start_tasks,
    warm_sandboxes,
);

diesel::allow_tables_to_appear_in_same_query!(
    api_keys,
    device_logins,
    identities,
    invitations,
    memberships,
    one_time_links,
    organizations,
    sessions,
    users,
);
