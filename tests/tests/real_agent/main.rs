//! The service's main use with real parts: the real binary and real agent servers (two releases) as processes and in
//! containers. Only the model is scripted.
//!
//! A suite whose agent server, image or engine is missing fails and says how to get it.

mod acp;
mod clusters;
mod conversations;
mod crashes;
mod engine;
mod first_use;
mod front_end;
mod git_limits;
mod grouping;
mod inside;
mod mcp;
mod proxied;
mod pull_requests;
mod repositories;
mod sdk;
mod secrets;
mod support;
mod upgrade;
mod warm;

/// Runs scenarios on the newest release, and those of `older` on the older one too. `cargo xtask nightly` runs all of them,
/// also the ignored ones, on both.
macro_rules! scenarios {
    (release: $setup:path, older: [$($older:tt)*], newest: [$($newest:tt)*], nightly: [$($nightly:tt)*]) => {
        mod v1_58_0 {
            scenarios!(tests: $setup, V1_58_0, $($older)* $($newest)*);
            scenarios!(nightly: $setup, V1_58_0, $($nightly)*);
        }
        mod v1_34_0 {
            scenarios!(tests: $setup, V1_34_0, $($older)*);
            scenarios!(nightly: $setup, V1_34_0, $($newest)* $($nightly)*);
        }
    };
    (tests: $setup:path, $version:ident, $($module:ident::$scenario:ident),* $(,)?) => {
        $(#[tokio::test]
        async fn $scenario() {
            crate::$module::$scenario($setup(acceptance::Version::$version)).await;
        })*
    };
    (nightly: $setup:path, $version:ident, $($module:ident::$scenario:ident),* $(,)?) => {
        $(#[tokio::test]
        #[ignore = "a part of `cargo xtask nightly`"]
        async fn $scenario() {
            crate::$module::$scenario($setup(acceptance::Version::$version)).await;
        })*
    };
}

// The suite `crash_points` kills the service at every point of a start, with a stub. Here it is killed where the agent
// server matters most.

/// Processes as most users have them. The older release starts in [`of_upgrades`] too.
mod process {
    scenarios!(release: crate::support::Setup::forked,
        older: [],
        newest: [
            conversations::a_sandbox_works_from_its_start_to_its_deletion,
            crashes::killed_in_the_middle_of_a_run_nothing_is_lost,
            crashes::a_killed_agent_server_is_noticed_and_can_be_resumed,
            repositories::secrets_go_to_their_hosts_only,
        ],
        nightly: [
            crashes::killed_right_after_the_answer_a_start_is_finished_once,
            crashes::killed_while_waiting_for_the_sandbox_a_start_is_finished_once,
            crashes::killed_while_starting_the_conversation_a_start_is_finished_once,
        ]
    );
}

mod docker {
    scenarios!(release: crate::support::Setup::docker,
        older: [],
        newest: [
            conversations::a_sandbox_works_from_its_start_to_its_deletion,
            repositories::secrets_go_to_their_hosts_only,
        ],
        nightly: [
            crashes::killed_in_the_middle_of_a_run_nothing_is_lost,
            crashes::killed_right_after_the_answer_a_start_is_finished_once,
            crashes::killed_while_waiting_for_the_sandbox_a_start_is_finished_once,
            crashes::killed_while_starting_the_conversation_a_start_is_finished_once,
            crashes::a_killed_agent_server_is_noticed_and_can_be_resumed,
        ]
    );
}

/// Processes without isolation, which an operator may choose.
mod of_unconfined_processes {
    scenarios!(tests: crate::support::Setup::unconfined, V1_58_0,
        conversations::a_conversation_runs_and_takes_another_message,
    );
}

/// Pods of a simulated cluster.
mod of_clusters {
    #[tokio::test]
    async fn a_conversation_runs_in_a_pod() {
        crate::clusters::a_conversation_runs_in_a_pod().await;
    }
}

/// Repositories: every scenario with processes, the whole preparation also in containers (`cargo xtask nightly`).
mod of_repositories {
    mod process {
        scenarios!(release: crate::support::Setup::forked,
            older: [],
            newest: [
                repositories::an_agent_finds_its_repository_prepared,
                repositories::a_missing_branch_a_wrong_name_and_a_wrong_token_have_different_causes,
                repositories::killed_while_it_clones_a_start_is_finished_with_one_clone,
                git_limits::an_agent_pushes_its_own_branch_only,
            ],
            nightly: [repositories::what_takes_too_long_is_ended,]
        );
    }
    mod docker {
        scenarios!(nightly: crate::support::Setup::docker, V1_58_0,
            repositories::an_agent_finds_its_repository_prepared,
        );
    }
}

/// What a start passes to the agent server: every scenario with processes; in containers only those that depend on the
/// backend (`cargo xtask nightly`).
mod of_launches {
    mod process {
        scenarios!(release: crate::support::Setup::forked,
            older: [],
            newest: [
                acp::a_program_is_the_agent,
                acp::a_program_that_ends_is_a_cause_a_person_understands,
                mcp::the_agent_calls_tools_over_every_transport,
                grouping::conversations_share_a_sandbox_and_not_a_directory,
                inside::the_inside_of_a_sandbox_is_shown_and_its_model_switched,
            ],
            nightly: [
                mcp::a_broken_mcp_server_costs_a_note,
                grouping::a_planning_agent_writes_its_plan_where_front_ends_look,
            ]
        );
    }
    mod docker {
        scenarios!(release: crate::support::Setup::docker,
            older: [],
            newest: [],
            nightly: [
                acp::a_program_is_the_agent,
                mcp::the_agent_calls_tools_over_every_transport,
            ]
        );
    }
}

/// Sandboxes that booted ahead of time.
mod of_warm_sandboxes {
    mod process {
        scenarios!(release: crate::support::Setup::process,
            older: [], newest: [warm::a_start_takes_no_boot,], nightly: []
        );
    }
    mod docker {
        scenarios!(nightly: crate::support::Setup::docker, V1_58_0, warm::a_start_takes_no_boot);
    }
}

/// The service's own tools, which call a provider: with one release and backend, because the agent's transport is the same
/// everywhere.
mod of_tools {
    scenarios!(tests: crate::support::Setup::process, V1_58_0,
        pull_requests::the_agent_opens_one,
    );
}

/// Clients on another machine, through a proxy: each proxy with one release (`cargo xtask nightly`). Most suites go through nginx
/// anyway.
mod of_proxies {
    mod process {
        scenarios!(nightly: crate::support::Setup::process, V1_58_0, proxied::a_socket_through_nginx);
        mod older {
            scenarios!(nightly: crate::support::Setup::process, V1_34_0, proxied::a_socket_through_haproxy);
        }
    }
    mod docker {
        scenarios!(nightly: crate::support::Setup::docker, V1_58_0, proxied::a_socket_through_nginx);
    }
}

/// Programs of other projects.
mod of_clients {
    mod process {
        scenarios!(tests: crate::support::Setup::process, V1_58_0,
            front_end::a_front_end_reads_and_writes_where_the_agent_works,
        );
    }
    mod docker {
        scenarios!(nightly: crate::support::Setup::docker, V1_58_0,
            front_end::a_front_end_reads_and_writes_where_the_agent_works,
        );
    }
    scenarios!(release: crate::support::Setup::process,
        older: [], newest: [sdk::a_program_of_the_sdk_works_in_a_sandbox,], nightly: []
    );
}

/// Conversations that begin with one release and continue with the other one, newer or older.
mod of_upgrades {
    mod process {
        scenarios!(tests: crate::support::Setup::forked, V1_34_0,
            upgrade::a_paused_sandbox_goes_on_with_the_release_of_now,
        );
        mod back {
            scenarios!(nightly: crate::support::Setup::forked, V1_58_0,
                upgrade::what_an_older_release_cannot_read_is_reported_and_kept,
            );
        }
    }
    mod docker {
        scenarios!(nightly: crate::support::Setup::docker, V1_34_0,
            upgrade::a_paused_sandbox_goes_on_with_the_release_of_now,
        );
        mod back {
            scenarios!(nightly: crate::support::Setup::docker, V1_58_0,
                upgrade::a_paused_sandbox_goes_on_with_the_release_of_now,
            );
        }
    }
}
