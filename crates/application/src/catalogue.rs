//! Names of language models for settings pages, as known to the agent server of this build (`cargo xtask models`).
//! Other names work too if the agent server knows them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use domain::error::StoreError;
use domain::page::{Page, PageRequest, PageToken};

const MODELS_TEXT: &str = include_str!("../../../config/models.txt");
const VERIFIED_MARK: char = '*';
const FIRST_PROVIDER: &str = "openhands";

static CATALOGUE: LazyLock<ModelCatalogue> = LazyLock::new(|| ModelCatalogue::parse(MODELS_TEXT));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogueModel {
    /// The full name as in settings: `provider/name`, or the bare name.
    pub whole: &'static str,
    /// The part before the first slash.
    pub provider: Option<&'static str>,
    /// The part after the first slash.
    pub name: &'static str,
    /// Whether agents are known to work with the model.
    pub is_verified: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelProvider {
    /// The name, as in full names of models.
    pub name: &'static str,
    pub is_verified: bool,
}

/// A search; absent fields match everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogueFilter {
    /// Part of the name (of models: without the provider), in any case.
    pub text: Option<String>,
    /// Verified ones or others only.
    pub is_verified: Option<bool>,
    pub provider: Option<String>,
}

#[derive(Debug)]
pub struct ModelCatalogue {
    /// Sorted by full name.
    models: Vec<CatalogueModel>,
    /// `openhands` first, then verified providers, then others, each group sorted.
    providers: Vec<ModelProvider>,
}

impl ModelCatalogue {
    /// The list of this build.
    pub fn embedded() -> &'static Self {
        &CATALOGUE
    }

    fn parse(text: &'static str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let models: Vec<_> = lines
            .filter(|line| !line.is_empty())
            .map(parse_model)
            .collect();
        let mut verified = BTreeMap::new();
        for model in &models {
            if let Some(provider) = model.provider {
                *verified.entry(provider).or_default() |= model.is_verified;
            }
        }
        let providers = verified.into_iter();
        let mut providers: Vec<_> = providers
            .map(|(name, is_verified)| ModelProvider { name, is_verified })
            .collect();
        providers.sort_by_key(|provider| (provider.name != FIRST_PROVIDER, !provider.is_verified));
        Self { models, providers }
    }

    /// Matching models, by full name.
    pub fn models(
        &self,
        filter: &CatalogueFilter,
        page: &PageRequest,
    ) -> Result<Page<CatalogueModel>, StoreError> {
        let provider = filter.provider.as_deref();
        let matches = |model: &CatalogueModel| {
            filter.allows(model.name, model.is_verified)
                && provider.is_none_or(|wanted| model.provider == Some(wanted))
        };
        page_of(&self.models, page, |model| model.whole, matches)
    }

    /// Matching providers: `openhands`, verified ones, others.
    pub fn providers(
        &self,
        filter: &CatalogueFilter,
        page: &PageRequest,
    ) -> Result<Page<ModelProvider>, StoreError> {
        let matches = |provider: &ModelProvider| filter.allows(provider.name, provider.is_verified);
        page_of(&self.providers, page, |provider| provider.name, matches)
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.models.iter().map(|model| model.whole).collect()
    }
}

impl CatalogueFilter {
    fn allows(&self, name: &str, is_verified: bool) -> bool {
        let text = self.text.as_ref().map(|text| text.to_lowercase());
        self.is_verified.is_none_or(|wanted| wanted == is_verified)
            && text.is_none_or(|text| name.to_lowercase().contains(&text))
    }
}

fn parse_model(line: &'static str) -> CatalogueModel {
    let whole = line.strip_prefix(VERIFIED_MARK).unwrap_or(line);
    let (provider, name) = match whole.split_once('/') {
        Some((provider, name)) => (Some(provider), name),
        None => (None, whole),
    };
    CatalogueModel {
        whole,
        provider,
        name,
        is_verified: line.starts_with(VERIFIED_MARK),
    }
}

/// One page of the matches in a list; its token is the last name on it.
pub fn page_of<T: Clone>(
    all: &[T],
    page: &PageRequest,
    name: impl Fn(&T) -> &str,
    matches: impl Fn(&T) -> bool,
) -> Result<Page<T>, StoreError> {
    let start = match &page.after {
        None => 0,
        Some(token) => {
            let last = all.iter().position(|item| name(item) == token.0);
            last.ok_or(StoreError::InvalidPageToken)? + 1
        }
    };
    let mut rest = all[start..].iter().filter(|item| matches(item)).cloned();
    let items: Vec<T> = rest.by_ref().take(page.limit.get()).collect();
    let next = items.last().filter(|_| rest.next().is_some());
    let next = next.map(|item| PageToken(name(item).to_owned()));
    Ok(Page { items, next })
}

#[cfg(test)]
mod tests {
    use domain::page::PageLimit;

    use super::*;

    const SMALL: &str = "# facts\nA/x/y\n*a/One\na/two\nbare\n*openhands/One\nz/three\n";

    fn page(limit: i64, after: Option<&str>) -> PageRequest {
        PageRequest {
            after: after.map(|text| PageToken(text.to_owned())),
            limit: PageLimit::new(limit).unwrap(),
        }
    }

    fn whole(page: &Page<CatalogueModel>) -> Vec<&'static str> {
        page.items.iter().map(|model| model.whole).collect()
    }

    #[test]
    fn names_are_split_at_the_first_slash() {
        let catalogue = ModelCatalogue::parse(SMALL);
        let all = catalogue
            .models(&CatalogueFilter::default(), &page(100, None))
            .unwrap();
        assert_eq!(
            whole(&all),
            [
                "A/x/y",
                "a/One",
                "a/two",
                "bare",
                "openhands/One",
                "z/three"
            ]
        );
        assert_eq!(
            (all.items[0].provider, all.items[0].name),
            (Some("A"), "x/y")
        );
        assert_eq!((all.items[3].provider, all.items[3].name), (None, "bare"));
        assert_eq!(all.next, None);
    }

    #[test]
    fn filters_add_up() {
        let catalogue = ModelCatalogue::parse(SMALL);
        let find = |text: Option<&str>, is_verified, provider: Option<&str>| {
            let filter = CatalogueFilter {
                text: text.map(str::to_owned),
                is_verified,
                provider: provider.map(str::to_owned),
            };
            whole(&catalogue.models(&filter, &page(100, None)).unwrap())
        };
        assert_eq!(find(Some("ONE"), None, None), ["a/One", "openhands/One"]);
        assert_eq!(find(Some("one"), Some(true), Some("a")), ["a/One"]);
        assert_eq!(find(None, Some(false), Some("a")), ["a/two"]);
        assert_eq!(find(None, None, Some("A")), ["A/x/y"]);
        // The filter text does not match the provider.
        assert_eq!(find(Some("openhands"), None, None), [""; 0]);
    }

    #[test]
    fn pages_are_linked_and_foreign_tokens_are_refused() {
        let catalogue = ModelCatalogue::parse(SMALL);
        let verified = CatalogueFilter {
            is_verified: Some(false),
            ..CatalogueFilter::default()
        };
        let first = catalogue.models(&verified, &page(2, None)).unwrap();
        assert_eq!(whole(&first), ["A/x/y", "a/two"]);
        let token = first.next.unwrap().0;
        let second = catalogue.models(&verified, &page(2, Some(&token))).unwrap();
        assert_eq!(whole(&second), ["bare", "z/three"]);
        assert_eq!(second.next, None);
        for foreign in ["", "!!!", "Mg"] {
            let refused = catalogue.models(&verified, &page(2, Some(foreign)));
            assert!(matches!(refused, Err(StoreError::InvalidPageToken)));
        }
    }

    #[test]
    fn providers_come_in_the_order_of_front_ends() {
        let catalogue = ModelCatalogue::parse(SMALL);
        let all = catalogue
            .providers(&CatalogueFilter::default(), &page(100, None))
            .unwrap();
        let names: Vec<_> = all.items.iter().map(|p| (p.name, p.is_verified)).collect();
        assert_eq!(
            names,
            [("openhands", true), ("a", true), ("A", false), ("z", false)]
        );
    }

    #[test]
    fn the_embedded_names_are_sorted_and_have_verified_ones() {
        let catalogue = ModelCatalogue::embedded();
        assert!(catalogue.models.len() > 1000);
        assert!(catalogue.models.is_sorted_by(|a, b| a.whole < b.whole));
        let begins: Vec<_> = catalogue.providers.iter().take(2).map(|p| p.name).collect();
        assert_eq!(begins, ["openhands", "anthropic"]);
        assert!(catalogue.models.iter().all(|model| {
            !model.name.is_empty() && model.provider.is_none_or(|provider| !provider.is_empty())
        }));
    }
}
