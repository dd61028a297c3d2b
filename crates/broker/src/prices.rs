//! What tokens cost.

use std::collections::HashMap;
use std::sync::LazyLock;

use domain::agent::spending::TokenPrice;

/// Known prices, in thousandths of a US dollar per million tokens: what the providers asked on 2026-11-27, as the library
/// that agents call models with lists it (`litellm`, `model_prices_and_context_window`, without surcharges for long inputs).
const KNOWN: &str = include_str!("prices.csv");

static TABLE: LazyLock<HashMap<&'static str, TokenPrice>> =
    LazyLock::new(|| KNOWN.lines().skip(1).filter_map(line).collect());

fn line(text: &'static str) -> Option<(&'static str, TokenPrice)> {
    let mut fields = text.split(',');
    let name = fields.next()?;
    let mut price = || fields.next()?.parse().ok();
    let price = TokenPrice {
        input: price()?,
        cached_input: price()?,
        cache_write: price()?,
        output: price()?,
    };
    Some((name, price))
}

/// The prices of an operator, before the known ones.
#[derive(Debug, Clone, Default)]
pub struct PriceList(HashMap<String, TokenPrice>);

impl PriceList {
    /// Prices from [`parse_price`]. Of several with one name, the last one counts.
    pub fn new(own: impl IntoIterator<Item = (String, TokenPrice)>) -> Self {
        Self(own.into_iter().collect())
    }

    /// The name under which a call is recorded, and its price. `reported` is the model that the provider names in its
    /// answer: an agent may ask for another one than its settings say.
    pub fn find<'a>(
        &self,
        configured: &'a str,
        reported: Option<&'a str>,
    ) -> (String, Option<TokenPrice>) {
        let provider = configured.split_once('/').map(|(provider, _)| provider);
        let names = reported.into_iter().chain([configured]);
        for name in names {
            let name = name.to_ascii_lowercase();
            let full = provider.map(|provider| format!("{provider}/{name}"));
            let bare = name.rsplit('/').next().unwrap_or_default().to_owned();
            for candidate in full.into_iter().chain([name, bare]) {
                if let Some(price) = self.exact(&candidate) {
                    return (candidate, Some(price));
                }
            }
        }
        (configured.to_owned(), None)
    }

    fn exact(&self, name: &str) -> Option<TokenPrice> {
        self.0.get(name).or_else(|| TABLE.get(name)).copied()
    }
}

/// Reads a price of the form `MODEL=INPUT/OUTPUT` or `MODEL=INPUT/CACHED_INPUT/CACHE_WRITE/OUTPUT`, in US dollars per million
/// tokens. Of two prices, the first one is that of cached and written input, too.
pub fn parse_price(text: &str) -> Option<(String, TokenPrice)> {
    let (name, prices) = text.rsplit_once('=')?;
    let prices: Option<Vec<u64>> = prices.split('/').map(thousandths).collect();
    let [input, cached_input, cache_write, output] = match *prices? {
        [input, output] => [input, input, input, output],
        [input, cached, write, output] => [input, cached, write, output],
        _ => return None,
    };
    let name = name.trim().to_ascii_lowercase();
    let price = TokenPrice {
        input,
        cached_input,
        cache_write,
        output,
    };
    (!name.is_empty()).then_some((name, price))
}

/// A price in dollars with at most three places, in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, places) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 6 || places.len() > 3 {
        return None;
    }
    (is_number(whole) && is_number(places))
        .then(|| format!("{whole}{places:0<3}").parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(input: u64, cached_input: u64, cache_write: u64, output: u64) -> TokenPrice {
        TokenPrice {
            input,
            cached_input,
            cache_write,
            output,
        }
    }

    #[test]
    fn every_known_price_is_read() {
        assert_eq!(TABLE.len(), KNOWN.lines().count() - 1);
    }

    #[test]
    fn the_model_of_the_answer_counts_if_its_price_is_known() {
        let known = PriceList::default();
        let gpt = price(1_250, 125, 1_250, 10_000);
        for (configured, reported, name, found) in [
            ("openai/gpt-5", None, "gpt-5", Some(gpt)),
            (
                "openai/gpt-5-nano",
                Some("gpt-5-2025-08-07"),
                "gpt-5-2025-08-07",
                Some(gpt),
            ),
            ("litellm_proxy/openai/GPT-5", None, "gpt-5", Some(gpt)),
            ("openai/gpt-5", Some("made-up"), "gpt-5", Some(gpt)),
            ("openai/mine", Some("made-up"), "openai/mine", None),
            (
                "deepseek/deepseek-v3",
                None,
                "deepseek/deepseek-v3",
                Some(price(270, 70, 0, 1_100)),
            ),
        ] {
            let answer = known.find(configured, reported);
            assert_eq!(
                answer,
                (name.to_owned(), found),
                "{configured} {reported:?}"
            );
        }
    }

    #[test]
    fn own_prices_come_first() {
        let entries = ["gpt-5=1/0.25/2/3.125", "llama3:8b=0.1/0.5"];
        let own = PriceList::new(entries.into_iter().filter_map(parse_price));
        let found = own.find("openai/gpt-5", None).1;
        assert_eq!(found, Some(price(1_000, 250, 2_000, 3_125)));
        let found = own.find("hosted_vllm/llama3:8b", None).1;
        assert_eq!(found, Some(price(100, 100, 100, 500)));
        for bad in [
            "",
            "x",
            "x=",
            "=1/2",
            "x=1",
            "x=1/2/3",
            "x=-1/2",
            "x=1.2345/2",
            "x=0.1/.5",
            "x=1e3/2",
            "x=9999999/1",
        ] {
            assert_eq!(parse_price(bad), None, "{bad}");
        }
    }
}
