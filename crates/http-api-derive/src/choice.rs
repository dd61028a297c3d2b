//! The derive of `Choice`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, LitStr, Result, Variant};

/// How serde spells the variants of an enum.
#[derive(Clone, Copy)]
enum RenameRule {
    AsWritten,
    Lowercase,
    ScreamingSnake,
}

impl RenameRule {
    fn of(attributes: &[Attribute]) -> Result<Self> {
        let Some(rule) = serde_value(attributes, "rename_all")? else {
            return Ok(Self::AsWritten);
        };
        match rule.value().as_str() {
            "lowercase" => Ok(Self::Lowercase),
            "SCREAMING_SNAKE_CASE" => Ok(Self::ScreamingSnake),
            _ => Err(Error::new_spanned(
                rule,
                "expected `lowercase` or `SCREAMING_SNAKE_CASE`",
            )),
        }
    }

    fn apply(self, name: &str) -> String {
        match self {
            Self::AsWritten => name.to_owned(),
            Self::Lowercase => name.to_ascii_lowercase(),
            Self::ScreamingSnake => {
                let mut word = String::new();
                for (index, letter) in name.char_indices() {
                    if index > 0 && letter.is_ascii_uppercase() {
                        word.push('_');
                    }
                    word.push(letter.to_ascii_uppercase());
                }
                word
            }
        }
    }
}

/// The text of `#[serde(key = "…")]`.
fn serde_value(attributes: &[Attribute], key: &str) -> Result<Option<LitStr>> {
    let mut found = None;
    for attribute in attributes.iter().filter(|one| one.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            let is_wanted = meta.path.is_ident(key);
            if meta.input.peek(syn::Token![=]) {
                let value: syn::Expr = meta.value()?.parse()?;
                if is_wanted {
                    found = Some(syn::parse2(quote!(#value))?);
                }
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn is_literal(attributes: &[Attribute]) -> Result<bool> {
    let mut is_literal = false;
    for attribute in attributes
        .iter()
        .filter(|one| one.path().is_ident("choice"))
    {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("literal") {
                return Err(meta.error("expected `literal`"));
            }
            is_literal = true;
            Ok(())
        })?;
    }
    Ok(is_literal)
}

fn word_of(variant: &Variant, rule: RenameRule) -> Result<String> {
    if !variant.fields.is_empty() {
        return Err(Error::new_spanned(variant, "a word has no data"));
    }
    let own = serde_value(&variant.attrs, "rename")?;
    Ok(own.map_or_else(
        || rule.apply(&variant.ident.to_string()),
        |word| word.value(),
    ))
}

pub(crate) fn expand(item: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &item.data else {
        return Err(Error::new_spanned(item, "`Choice` is derived for enums"));
    };
    let rule = RenameRule::of(&item.attrs)?;
    let words = data.variants.iter().map(|variant| word_of(variant, rule));
    let words = words.collect::<Result<Vec<_>>>()?;
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let kind = if is_literal(&item.attrs)? {
        quote!(Literal)
    } else {
        quote!(Enum)
    };
    let name = &item.ident;
    Ok(quote! {
        #[automatically_derived]
        impl ::http_api::decode::Choice for #name {
            const KIND: ::http_api::decode::ChoiceKind = ::http_api::decode::ChoiceKind::#kind;
            const CHOICES: &'static [(&'static str, Self)] = &[#((#words, Self::#variants)),*];
        }
    })
}
