//! The start task repository.

pub mod assignment;
pub mod failure;
pub mod lease_release;
pub mod lifecycle;
pub mod repository;

/// Generates the conformance tests of `StartTaskRepository`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`](crate::StorePorts).
#[macro_export]
macro_rules! start_task_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (start_tasks::repository),
            $fresh,
            [
                every_field_is_committed,
                scopes_are_isolated,
                the_same_conversation_is_started_once,
                a_race_starts_one_conversation,
                a_taken_conversation_is_a_conflict,
                a_named_sandbox_must_be_there,
                a_race_never_exceeds_a_cap,
                the_queue_of_one_user_is_bounded,
                a_failed_start_can_be_repeated,
                find_many_keeps_order,
                tasks_are_listed_in_every_order,
                paging_is_stable,
                pages_of_large_requests_end_early,
                foreign_page_tokens_are_refused,
                filters_narrow,
            ]
        );
        $crate::conformance_tests!(
            (start_tasks::lifecycle),
            $fresh,
            [
                a_race_for_a_task_has_one_winner,
                claims_go_by_host_and_age,
                claims_are_fair_among_users,
                a_lease_can_be_extended_and_expires,
                an_update_is_stored,
                only_forward_and_only_once,
                a_stale_worker_changes_nothing,
                ready_erases_the_secrets,
                a_conversation_is_begun_once,
                a_conversation_needs_its_sandbox,
                a_taken_conversation_is_not_begun,
            ]
        );
        $crate::conformance_tests!(
            (start_tasks::failure),
            $fresh,
            [
                a_failure_releases_what_the_task_held,
                a_paused_sandbox_is_left_alone,
                a_failed_start_is_not_adopted,
                a_failure_keeps_what_others_need,
            ]
        );
        $crate::conformance_tests!(
            (start_tasks::lease_release),
            $fresh,
            [
                the_leases_of_a_host_can_be_ended,
                a_lease_can_be_released,
                ended_tasks_have_no_lease_to_release,
                unfinished_tasks_are_counted,
            ]
        );
        $crate::conformance_tests!(
            (start_tasks::assignment),
            $fresh,
            [
                running_sandboxes_are_listed,
                clock_skew_leaves_no_orphaned_sandbox,
                occupancy_is_counted,
                a_race_never_exceeds_the_capacity,
                only_running_sandboxes_are_shared,
                a_named_sandbox_is_resumed_with_the_task,
                a_sub_conversation_needs_its_parent,
                a_named_sandbox_outlives_a_failed_start,
            ]
        );
    };
}
