//! Lists of git providers by page number, as older front ends request them.
//!
//! Pages of providers are linked by tokens, so a page is reached through those before it. The page number is bounded;
//! users who look for something search.

use domain::git::GitProvider;
use domain::git::{GitBranch, GitError, GitPage, GitPageRequest, GitRepository, RepositoryQuery};
use domain::id::OwnerId;
use futures::future::join_all;

use super::{GitService, GitServiceError};

pub const MAX_PAGE_NUMBER: u32 = 20;

/// A page number; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageNumber {
    /// 1 to [`MAX_PAGE_NUMBER`]; later pages are empty.
    pub number: u32,
    /// Items of a page, 1 to 100.
    pub length: usize,
}

/// A page, and whether another one follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedPage<T> {
    pub items: Vec<T>,
    pub has_next: bool,
}

impl<T> NumberedPage<T> {
    const NONE: Self = Self {
        items: Vec::new(),
        has_next: false,
    };
}

impl GitService {
    /// Lists repositories of a provider; without a provider, of all with a stored token. Providers that fail are left
    /// out if another one succeeds.
    pub async fn numbered_repositories(
        &self,
        user: &OwnerId,
        provider: Option<GitProvider>,
        installation: Option<&str>,
        page: PageNumber,
    ) -> Result<NumberedPage<GitRepository>, GitServiceError> {
        let query = RepositoryQuery {
            text: None,
            installation: installation.map(str::to_owned),
            sort: None,
        };
        let of = async |provider| {
            let page_of = async |request| self.repositories(user, provider, &query, &request).await;
            read_up_to(page, page_of).await
        };
        if let Some(provider) = provider {
            return of(provider).await;
        }
        let accesses = self.accesses(user).await?;
        let answers = join_all(accesses.iter().map(|access| of(access.provider))).await;
        let (mut all, mut failure, mut has_answer) = (NumberedPage::NONE, None, false);
        for answer in answers {
            match answer {
                Ok(page) => {
                    has_answer = true;
                    all.items.extend(page.items);
                    all.has_next |= page.has_next;
                }
                Err(GitServiceError::Provider(GitError::Unsupported { .. })) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            Some(error) if !has_answer => Err(error),
            _ => Ok(all),
        }
    }

    /// Lists branches of a repository; without a provider, of the first one that knows it.
    pub async fn numbered_branches(
        &self,
        user: &OwnerId,
        provider: Option<GitProvider>,
        repository: &str,
        page: PageNumber,
    ) -> Result<NumberedPage<GitBranch>, GitServiceError> {
        let of = async |provider| {
            let page_of = async |request| {
                self.branches(user, provider, (repository, ""), &request)
                    .await
            };
            read_up_to(page, page_of).await
        };
        if let Some(provider) = provider {
            return of(provider).await;
        }
        let mut failure = None;
        for access in self.accesses(user).await? {
            match of(access.provider).await {
                Ok(found) => return Ok(found),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(GitServiceError::NotConnected(None)))
    }

    /// Lists at most 100 installations of a provider; without a provider, of the first with a stored token.
    pub async fn all_installations(
        &self,
        user: &OwnerId,
        provider: Option<GitProvider>,
    ) -> Result<Vec<String>, GitServiceError> {
        let provider = if let Some(provider) = provider {
            provider
        } else {
            let first = self.accesses(user).await?.into_iter().next();
            first.ok_or(GitServiceError::NotConnected(None))?.provider
        };
        let page = GitPageRequest {
            after: None,
            limit: 100,
        };
        Ok(self.installations(user, provider, &page).await?.items)
    }
}

/// Reads pages up to the requested one.
async fn read_up_to<T>(
    to: PageNumber,
    page_of: impl AsyncFn(GitPageRequest) -> Result<GitPage<T>, GitServiceError>,
) -> Result<NumberedPage<T>, GitServiceError> {
    if to.number > MAX_PAGE_NUMBER {
        return Ok(NumberedPage::NONE);
    }
    let mut request = GitPageRequest {
        after: None,
        limit: to.length,
    };
    for _ in 1..to.number {
        let Some(next) = page_of(request.clone()).await?.next else {
            return Ok(NumberedPage::NONE);
        };
        request.after = Some(next);
    }
    let page = page_of(request).await?;
    Ok(NumberedPage {
        items: page.items,
        has_next: page.next.is_some() && to.number < MAX_PAGE_NUMBER,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of the numbers below 45, whose tokens are where they begin.
    async fn numbers(request: GitPageRequest) -> Result<GitPage<usize>, GitServiceError> {
        let from = request.after.map_or(0, |text| text.parse().unwrap());
        let end = (from + request.limit).min(45);
        Ok(GitPage {
            items: (from..end).collect(),
            next: (end < 45).then(|| end.to_string()),
        })
    }

    #[tokio::test]
    async fn pages_by_their_numbers() {
        for (number, length, first, count, has_next) in [
            (1, 20, Some(0), 20, true),
            (2, 20, Some(20), 20, true),
            (3, 20, Some(40), 5, false),
            (4, 20, None, 0, false),
            (20, 2, Some(38), 2, false),
            (21, 2, None, 0, false),
            (u32::MAX, 1, None, 0, false),
        ] {
            let page = read_up_to(PageNumber { number, length }, numbers)
                .await
                .unwrap();
            let found = (page.items.first().copied(), page.items.len(), page.has_next);
            assert_eq!(found, (first, count, has_next), "page {number} of {length}");
        }
    }
}
