//! Conformance tests of `ConversationRepository`: lists. See `rows`, `reports` and `deletion` for the rest.

use std::cell::RefCell;

use domain::conversation::{
    Conversation, ConversationChange, ConversationFilter, ConversationOrder, ConversationView,
    Trigger,
};
use domain::error::StoreError;
use domain::page::{MAX_PAGE_BYTES, PageRequest};
use domain::patch::Patch;
use domain::user::scope::Scope;

use crate::fixtures::{
    after, at, conversation, conversation_id, foreign_tokens, page, read_all_pages, sandbox_id,
    scope,
};
use crate::{StorePorts, assert_is};

fn titled(n: u64, title: Option<&str>) -> Conversation {
    Conversation {
        title: title.map(str::to_owned),
        ..conversation(n, "alice", "s", at(0))
    }
}

fn all() -> ConversationFilter {
    ConversationFilter {
        include_sub_conversations: true,
        ..ConversationFilter::default()
    }
}

/// The numbers of the conversations, as in `conversation_id(n)`.
fn numbers(views: &[ConversationView]) -> Vec<u64> {
    views
        .iter()
        .map(|view| view.conversation.id.uuid().as_u64_pair().1)
        .collect()
}

async fn search(
    ports: &StorePorts,
    scope: &Scope,
    filter: &ConversationFilter,
    page: &PageRequest,
) -> domain::page::Page<ConversationView> {
    let found = ports.conversations.search(scope, filter, page).await;
    found.expect("search")
}

/// Searches with a filter and checks that `count` agrees.
async fn matching_numbers(ports: &StorePorts, filter: ConversationFilter) -> Vec<u64> {
    let alice = scope("alice");
    let found = search(ports, &alice, &filter, &page(100)).await;
    let count = ports.conversations.count(&alice, &filter).await.unwrap();
    assert_eq!(u64::try_from(found.items.len()).unwrap(), count);
    let mut found = numbers(&found.items);
    found.sort_unstable();
    found
}

/// Pages are ordered newest first, ties by id, and stay stable when rows are added and deleted in between.
pub async fn paging_is_stable(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    for (n, created) in [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3)] {
        ports
            .insert_conversation(&conversation(n, "alice", "s", at(created)))
            .await;
    }
    let alice = scope("alice");
    let first = search(ports, &alice, &all(), &page(2)).await;
    assert_eq!(numbers(&first.items), [5, 4]);
    ports
        .insert_conversation(&conversation(6, "alice", "s", at(9)))
        .await;
    // The row that the token points at is deleted, too.
    let deleted = ports
        .conversations
        .delete(&alice, conversation_id(4), at(9))
        .await;
    assert!(deleted.unwrap());
    let second = search(ports, &alice, &all(), &after(2, first.next)).await;
    assert_eq!(numbers(&second.items), [3, 2]);
    let third = search(ports, &alice, &all(), &after(2, second.next)).await;
    assert_eq!((numbers(&third.items), third.next), (vec![1], None));
    let all_pages = read_all_pages(9, async |token| {
        search(ports, &alice, &all(), &after(1, token)).await
    });
    assert_eq!(numbers(&all_pages.await), [6, 5, 3, 2, 1]);
}

/// All four orders, ties by id, page by page. A token of one order is not valid for another.
pub async fn conversations_are_listed_in_every_order(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    for (n, created, updated) in [(1, 1, 9), (2, 2, 4), (3, 2, 4), (4, 3, 1)] {
        ports
            .insert_conversation(&Conversation {
                updated_at: at(updated),
                ..conversation(n, "alice", "s", at(created))
            })
            .await;
    }
    let alice = scope("alice");
    for (order, expected) in [
        (ConversationOrder::CreatedAt, [1, 2, 3, 4]),
        (ConversationOrder::CreatedAtDesc, [4, 3, 2, 1]),
        (ConversationOrder::UpdatedAt, [4, 2, 3, 1]),
        (ConversationOrder::UpdatedAtDesc, [1, 3, 2, 4]),
    ] {
        for include_sub_conversations in [false, true] {
            let filter = ConversationFilter {
                include_sub_conversations,
                order,
                ..ConversationFilter::default()
            };
            for size in [1, 3, 4] {
                let walked = read_all_pages(9, async |token| {
                    search(ports, &alice, &filter, &after(size, token)).await
                });
                assert_eq!(numbers(&walked.await), expected, "{order:?} by {size}");
            }
        }
    }
    assert_eq!(
        ConversationOrder::default(),
        ConversationOrder::CreatedAtDesc
    );
    let first = search(ports, &alice, &all(), &page(1)).await;
    let by_update = ConversationFilter {
        order: ConversationOrder::UpdatedAtDesc,
        ..all()
    };
    let found = ports
        .conversations
        .search(&alice, &by_update, &after(1, first.next))
        .await;
    assert_is!(found, Err(StoreError::InvalidPageToken));
}

/// A page of long titles ends early, and all pages together contain every conversation once and in order.
pub async fn pages_of_long_titles_end_early(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let half = MAX_PAGE_BYTES / 2;
    for (size, n) in [half, half, half, MAX_PAGE_BYTES + 1, 1]
        .into_iter()
        .zip(1..)
    {
        ports
            .insert_conversation(&titled(n, Some(&"x".repeat(size))))
            .await;
    }
    let alice = scope("alice");
    for filter in [ConversationFilter::default(), all()] {
        let seen = RefCell::new(Vec::new());
        let all_pages = read_all_pages(9, async |token| {
            let found = search(ports, &alice, &filter, &after(9, token)).await;
            seen.borrow_mut().push(found.items.len());
            found
        });
        assert_eq!(numbers(&all_pages.await), [5, 4, 3, 2, 1]);
        assert_eq!(seen.into_inner(), [1, 1, 2, 1]);
    }
}

/// A foreign token, or one of another list, is refused.
pub async fn foreign_page_tokens_are_refused(ports: &StorePorts) {
    for id in ["s", "t"] {
        ports.insert_sandbox(id, "alice").await;
    }
    let sandboxes = ports.sandboxes.search(&scope("alice"), &page(1)).await;
    let mut tokens = foreign_tokens();
    tokens.push(sandboxes.unwrap().next.expect("a second page"));
    for token in tokens {
        let answer = ports
            .conversations
            .search(&scope("alice"), &all(), &after(5, Some(token)))
            .await;
        assert_is!(answer, Err(StoreError::InvalidPageToken));
    }
}

/// A title is found by any part of it, regardless of case, also beyond ASCII; `%` and `_` have no special meaning.
pub async fn titles_are_searched_literally(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    for (n, title) in [
        (1, Some("100% sure")),
        (2, Some("100 things")),
        (3, Some("snake_case")),
        (4, Some("snakeXcase")),
        (5, Some("GRÖSSE ΟΔΟΣ")),
        (6, Some("back\\slash")),
        (7, None),
        (8, Some("")),
    ] {
        ports.insert_conversation(&titled(n, title)).await;
    }
    for (search_term, expected) in [
        ("100%", vec![1]),
        ("0% S", vec![1]),
        ("%", vec![1]),
        ("_", vec![3]),
        ("SNAKE_case", vec![3]),
        ("grösse", vec![5]),
        ("οδος", vec![5]),
        ("\\", vec![6]),
        ("s", vec![1, 2, 3, 4, 5, 6]),
        ("nothing", vec![]),
        ("'; --", vec![]),
        ("", vec![1, 2, 3, 4, 5, 6, 8]),
    ] {
        let filter = ConversationFilter {
            title_contains: Some(search_term.to_owned()),
            ..all()
        };
        assert_eq!(
            matching_numbers(ports, filter).await,
            expected,
            "{search_term:?}"
        );
    }
    // A search term of any length only fails to match.
    let filter = ConversationFilter {
        title_contains: Some("x%_".repeat(100_000)),
        ..all()
    };
    assert_eq!(matching_numbers(ports, filter).await, Vec::<u64>::new());
}

/// A search finds the new title and not the old one.
pub async fn a_changed_title_is_searched(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let id = ports.insert_conversation(&titled(1, Some("Old"))).await;
    let change = ConversationChange {
        title: Patch::Set("ÉTUDE".to_owned()),
        ..ConversationChange::default()
    };
    ports
        .conversations
        .update(&scope("alice"), id, &change, at(1))
        .await
        .unwrap();
    for (search_term, found) in [("old", 0), ("étude", 1)] {
        let filter = ConversationFilter {
            title_contains: Some(search_term.to_owned()),
            ..all()
        };
        assert_eq!(
            matching_numbers(ports, filter).await.len(),
            found,
            "{search_term}"
        );
    }
}

/// Filters by time and sandbox, alone and combined.
pub async fn time_and_sandbox_filters_combine(ports: &StorePorts) {
    for id in ["s", "t"] {
        ports.insert_sandbox(id, "alice").await;
    }
    for n in 1..=4_u64 {
        let sandbox = if n < 4 { "s" } else { "t" };
        let created = at(i64::try_from(n).unwrap());
        ports
            .insert_conversation(&Conversation {
                updated_at: created.plus(std::time::Duration::from_secs(10)),
                ..conversation(n, "alice", sandbox, created)
            })
            .await;
    }
    let filter = ConversationFilter {
        created_from: Some(at(2)),
        ..all()
    };
    assert_eq!(matching_numbers(ports, filter).await, [2, 3, 4]);
    let filter = ConversationFilter {
        created_before: Some(at(2)),
        ..all()
    };
    assert_eq!(matching_numbers(ports, filter).await, [1]);
    let filter = ConversationFilter {
        updated_from: Some(at(12)),
        updated_before: Some(at(14)),
        ..all()
    };
    assert_eq!(matching_numbers(ports, filter).await, [2, 3]);
    let filter = ConversationFilter {
        sandbox_id: Some(sandbox_id("s")),
        created_from: Some(at(2)),
        ..all()
    };
    assert_eq!(matching_numbers(ports, filter).await, [2, 3]);
}

/// Filters by repository and trigger compare the whole value.
pub async fn filters_name_repository_and_trigger(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    for (n, repository, trigger) in [
        (1, Some("o/r"), Some(Trigger::Gui)),
        (2, Some("o/r2"), Some(Trigger::Slack)),
        (3, None, None),
        (4, Some("o/r"), Some(Trigger::Slack)),
    ] {
        ports
            .insert_conversation(&Conversation {
                selected_repository: repository.map(str::to_owned),
                trigger,
                ..conversation(n, "alice", "s", at(i64::try_from(n).unwrap()))
            })
            .await;
    }
    for (repository, trigger, expected) in [
        (Some("o/r"), None, vec![1, 4]),
        (Some("O/R"), None, vec![]),
        (Some("o/"), None, vec![]),
        (None, Some(Trigger::Slack), vec![2, 4]),
        (Some("o/r"), Some(Trigger::Slack), vec![4]),
    ] {
        let filter = ConversationFilter {
            selected_repository: repository.map(str::to_owned),
            trigger,
            ..all()
        };
        let found = matching_numbers(ports, filter).await;
        assert_eq!(found, expected, "{repository:?} {trigger:?}");
    }
}

/// Lists omit sub-conversations unless asked, and show them as children of their parent, oldest first.
pub async fn children_are_shown_with_their_parent(ports: &StorePorts) {
    ports.insert_sandbox("s", "alice").await;
    let parent = ports.insert_conversation(&titled(1, None)).await;
    for (n, created) in [(5, 1), (3, 2), (4, 2)] {
        ports
            .insert_conversation(&Conversation {
                parent: Some(parent),
                updated_at: at(9 - created),
                ..conversation(n, "alice", "s", at(created))
            })
            .await;
    }
    let children = [5, 3, 4].map(conversation_id);
    let alice = scope("alice");
    let listed = search(ports, &alice, &ConversationFilter::default(), &page(9)).await;
    assert_eq!(numbers(&listed.items), [1]);
    assert_eq!(listed.items[0].children, children);
    let found = ports.conversations.find(&alice, parent).await.unwrap();
    assert_eq!(found.unwrap().children, children);
    let many = ports
        .conversations
        .find_many(&alice, &[children[0], parent])
        .await
        .unwrap();
    assert_eq!(many[0].as_ref().unwrap().children, []);
    assert_eq!(many[1].as_ref().unwrap().children, children);
    assert_eq!(
        matching_numbers(ports, ConversationFilter::default()).await,
        [1],
        "`count` omits sub-conversations, too"
    );
    assert_eq!(matching_numbers(ports, all()).await, [1, 3, 4, 5]);
    for include_sub_conversations in [true, false] {
        let children_filter = ConversationFilter {
            parent: Some(parent),
            include_sub_conversations,
            ..ConversationFilter::default()
        };
        assert_eq!(matching_numbers(ports, children_filter).await, [3, 4, 5]);
    }
}

/// Generates the conformance tests of `ConversationRepository`. `$fresh` is a future of a value
/// that derefs to [`StorePorts`].
#[macro_export]
macro_rules! conversation_repository_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (conversations::search),
            $fresh,
            [
                paging_is_stable,
                pages_of_long_titles_end_early,
                foreign_page_tokens_are_refused,
                conversations_are_listed_in_every_order,
                titles_are_searched_literally,
                a_changed_title_is_searched,
                time_and_sandbox_filters_combine,
                filters_name_repository_and_trigger,
                children_are_shown_with_their_parent,
            ]
        );
        $crate::conformance_tests!(
            (conversations::rows),
            $fresh,
            [
                every_field_is_stored,
                scopes_are_isolated,
                pull_requests_are_recorded,
                find_many_keeps_order,
                a_change_applies_only_to_its_fields,
                adoption_takes_only_what_is_free,
                adoption_needs_the_sandbox,
                a_sandbox_lists_its_conversations,
                unsettled_conversations_are_listed,
            ]
        );
        $crate::conformance_tests!(
            (conversations::reports),
            $fresh,
            [
                an_older_status_does_not_overwrite_a_newer_one,
                totals_never_decrease,
                a_chosen_title_stays,
                tags_and_model_are_merged,
                a_report_changes_only_its_fields,
                reports_of_others_change_nothing,
                conversations_of_a_stopped_sandbox_are_settled,
            ]
        );
        $crate::conformance_tests!(
            (conversations::deletion),
            $fresh,
            [
                sub_conversations_are_deleted_with_their_parent,
                deleted_messages_stay_deleted,
                an_unneeded_sandbox_is_deleted_too,
                a_shared_sandbox_stays_with_a_pending_deletion,
                a_sandbox_that_a_start_needs_stays,
                an_unfinished_start_ends_with_its_conversation,
                others_are_unaffected,
                a_failed_start_of_another_user_stays,
                pending_deletions_are_listed_while_sandboxes_run,
            ]
        );
    };
}
