//! The tables, as both migrations make them. Times are microseconds since the Unix epoch in a BIGINT: exact on both
//! databases, sorts as time does, needs no SQL type of our own, and half the size of RFC 3339 text in every index.

diesel::table! {
    users (id) {
        id -> Text,
        created_at -> BigInt,
        deleted_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    api_keys (id) {
        id -> Text,
        user_id -> Text,
        hash -> Text,
        prefix -> Text,
        created_at -> BigInt,
        expires_at -> Nullable<BigInt>,
        last_used_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    settings (owner) {
        owner -> Text,
        document -> Text,
        revision -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
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
        agent_url -> Nullable<Text>,
        exposed_urls -> Text,
        workspace -> Nullable<Text>,
        created_at -> BigInt,
        updated_at -> BigInt,
        paused_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    conversations (id) {
        id -> Text,
        owner -> Text,
        sandbox_id -> Text,
        title -> Nullable<Text>,
        title_folded -> Nullable<Text>,
        auto_title -> Bool,
        selected_repository -> Nullable<Text>,
        selected_branch -> Nullable<Text>,
        git_provider -> Nullable<Text>,
        started_by -> Nullable<Text>,
        pr_numbers -> Text,
        llm_model -> Nullable<Text>,
        agent_kind -> Text,
        metrics -> Text,
        parent -> Nullable<Text>,
        is_public -> Nullable<Bool>,
        tags -> Text,
        execution_status -> Nullable<Text>,
        status_at -> Nullable<BigInt>,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    deleted_conversations (id) {
        id -> Text,
        sandbox_id -> Text,
        deleted_at -> BigInt,
        pending -> Bool,
    }
}

diesel::table! {
    events (conversation_id, seq) {
        conversation_id -> Text,
        seq -> BigInt,
        event_id -> Text,
        kind -> Text,
        happened_at -> BigInt,
        body -> Text,
    }
}

diesel::table! {
    start_tasks (id) {
        id -> Text,
        owner -> Text,
        host -> Text,
        status -> Text,
        detail -> Nullable<Text>,
        notes -> Text,
        conversation_id -> Text,
        sandbox_id -> Text,
        owns_sandbox -> Bool,
        agent_server_url -> Nullable<Text>,
        request -> Text,
        sealed_secrets -> Nullable<Text>,
        timings -> Text,
        attempts -> BigInt,
        created_at -> BigInt,
        updated_at -> BigInt,
        is_open -> Bool,
        begun -> Bool,
        fence -> BigInt,
        lease_until -> Nullable<BigInt>,
    }
}

diesel::table! {
    idempotency_keys (owner, key) {
        owner -> Text,
        key -> Text,
        fingerprint -> Text,
        answer -> Text,
        given_at -> BigInt,
    }
}

diesel::table! {
    leases (name) {
        name -> Text,
        holder -> Text,
        ends_at -> BigInt,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    conversations,
    deleted_conversations,
    events,
    sandboxes,
    start_tasks,
);
