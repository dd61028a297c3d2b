//! Faults around the service, with a stub agent server that fails on demand.

mod capacity;
mod chaos;
mod crashes;
mod deletion;
mod full_disk;
mod lifecycle;
mod listing;
mod pending;
mod ports;
mod runs;
mod secrets;
mod starts;
mod support;
mod users;
mod warm;
mod writers;

/// Runs each scenario with processes and with containers; with containers those of `processes` in `cargo xtask nightly`, as
/// they are about rows and requests more than about sandboxes. Tests outside of these lists do not depend on the kind of
/// sandbox.
macro_rules! scenarios {
    (both: [$($module:ident::$scenario:ident,)*], processes: [$($other_module:ident::$other:ident,)*]) => {
        mod process {
            $(#[tokio::test]
            async fn $scenario() {
                crate::$module::$scenario(acceptance::Sandboxing::Process).await;
            })*
            $(#[tokio::test]
            async fn $other() {
                crate::$other_module::$other(acceptance::Sandboxing::Process).await;
            })*
        }
        mod docker {
            $(#[tokio::test]
            async fn $scenario() {
                crate::$module::$scenario(acceptance::Sandboxing::docker()).await;
            })*
            $(#[tokio::test]
            #[ignore = "a part of `cargo xtask nightly`"]
            async fn $other() {
                crate::$other_module::$other(acceptance::Sandboxing::docker()).await;
            })*
        }
    };
}

scenarios![
    both: [
        chaos::rows_and_processes_agree_after_random_requests_and_kills,
        crashes::accepted_deletion_completes_after_a_kill_at_any_point,
        runs::agent_server_that_dies_in_a_run_is_reported_as_error_and_can_be_resumed,
        runs::stopped_service_adopts_its_sandboxes_at_the_next_start,
        runs::sandbox_that_ended_during_a_downtime_is_reported_as_error,
        warm::start_claims_the_warm_sandbox_after_a_crash,
        starts::agent_server_that_always_dies_fails_the_start_with_its_last_output,
    ],
    processes: [
        capacity::fifty_concurrent_starts_are_accepted_up_to_the_user_limit,
        capacity::installation_limit_counts_the_sandboxes_of_all_users,
        capacity::concurrent_starts_with_one_conversation_id_make_one_conversation,
        crashes::accepted_start_completes_exactly_once_after_a_kill_at_any_point,
        deletion::user_is_deleted_with_all_data_while_the_service_runs,
        deletion::user_is_deleted_while_the_service_is_down,
        listing::lists_are_answered_without_calls_to_sandboxes,
        runs::events_of_a_downtime_are_fetched_after_the_restart,
        runs::hanging_sandbox_does_not_delay_others,
        starts::silent_agent_server_fails_the_start_at_the_deadline,
        starts::agent_server_that_dies_at_its_first_start_is_started_again,
    ]
];
