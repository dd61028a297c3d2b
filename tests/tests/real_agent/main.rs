//! The product's main job with real parts: the real binary, real agent servers (two releases), a scripted model.
//!
//! A suite whose agent server is not installed fails and says how to install it.

mod conversations;
mod crashes;
mod first_use;
mod support;

/// Each story once per release.
macro_rules! stories {
    ($($module:ident::$story:ident),* $(,)?) => {
        mod v1_58_0 {
            $(#[tokio::test]
            async fn $story() {
                crate::$module::$story(acceptance::Version::V1_58_0).await;
            })*
        }
        mod v1_34_0 {
            $(#[tokio::test]
            async fn $story() {
                crate::$module::$story(acceptance::Version::V1_34_0).await;
            })*
        }
    };
}

stories![
    conversations::a_conversation_runs_and_takes_another_message,
    conversations::a_paused_sandbox_costs_nothing_and_goes_on_after_resume,
    conversations::a_deleted_conversation_leaves_nothing_and_stays_deleted,
    conversations::a_model_that_refuses_ends_the_run_and_not_the_service,
    conversations::a_stream_tells_every_status_and_the_title_appears,
    crashes::killed_right_after_the_answer_a_start_is_finished_once,
    crashes::killed_while_waiting_for_the_sandbox_a_start_is_finished_once,
    crashes::killed_while_starting_the_conversation_a_start_is_finished_once,
    crashes::killed_in_the_middle_of_a_run_nothing_is_lost,
    crashes::a_killed_agent_server_is_noticed_and_can_be_resumed,
];
