//! What goes wrong around the service, with a stub agent server that fails on demand.

mod capacity;
mod chaos;
mod crashes;
mod deletion;
mod full_disk;
mod life;
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

/// Each story with processes and with containers. What is not here has nothing to do with the kind of sandbox.
macro_rules! stories {
    ($($module:ident::$story:ident),* $(,)?) => {
        mod process {
            $(#[tokio::test]
            async fn $story() {
                crate::$module::$story(acceptance::Sandboxing::Process).await;
            })*
        }
        mod docker {
            $(#[tokio::test]
            async fn $story() {
                crate::$module::$story(acceptance::Sandboxing::docker()).await;
            })*
        }
    };
}

stories![
    capacity::of_fifty_starts_at_once_exactly_the_cap_is_accepted,
    capacity::the_cap_of_the_installation_counts_everybody,
    capacity::one_conversation_id_asked_for_many_times_at_once_is_one_conversation,
    chaos::rows_and_processes_agree_after_any_storm,
    crashes::every_accepted_start_is_finished_exactly_once_wherever_the_service_is_killed,
    crashes::a_deletion_that_was_accepted_is_done_wherever_the_service_is_killed,
    deletion::a_user_is_deleted_with_everything_while_the_service_runs,
    deletion::a_user_is_deleted_while_the_service_is_down,
    listing::a_hundred_conversations_in_ten_sandboxes_are_listed_without_a_call_to_one,
    runs::an_agent_server_that_dies_in_a_run_is_an_error_with_a_cause_and_can_be_resumed,
    runs::what_happened_while_the_service_was_down_is_fetched,
    runs::a_sandbox_that_hangs_makes_nobody_else_wait,
    runs::a_service_that_was_asked_to_stop_adopts_its_sandboxes_when_it_is_back,
    runs::a_sandbox_whose_process_ended_while_the_service_was_down_is_an_error,
    warm::a_start_takes_the_warm_one_also_after_a_crash,
    starts::an_agent_server_that_never_answers_is_given_up_at_the_deadline,
    starts::an_agent_server_that_dies_at_its_first_start_is_started_again,
    starts::an_agent_server_that_always_dies_fails_the_start_with_its_last_words,
];
