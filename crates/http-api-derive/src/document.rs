//! What the document says of a field, as attributes of utoipa.

use proc_macro2::{TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::{Attribute, Expr, ExprLit, Meta, Type, parse_quote};

use crate::field::{AbsentValue, FieldRule, ModelField, RuleBounds, type_argument};

/// The part of the document that a model becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentPart {
    Body,
    Query,
}

impl DocumentPart {
    /// The attributes of the type.
    pub(crate) fn derive(self) -> Vec<Attribute> {
        match self {
            Self::Body => vec![parse_quote!(#[derive(::utoipa::ToSchema)])],
            Self::Query => vec![
                parse_quote!(#[derive(::utoipa::IntoParams)]),
                parse_quote!(#[into_params(parameter_in = Query)]),
            ],
        }
    }

    const fn attribute(self) -> &'static str {
        match self {
            Self::Body => "schema",
            Self::Query => "param",
        }
    }

    /// The attribute of a field, given those that it has already; they take precedence.
    pub(crate) fn describe(self, field: &ModelField, own: &[Attribute]) -> Option<Attribute> {
        let stated = |word: &str| own.iter().any(|one| mentions(one, self.attribute(), word));
        if stated("ignore") {
            return None;
        }
        let mut entries: Vec<TokenStream> = Vec::new();
        if field.is_flat && self == Self::Query {
            entries.push(quote!(ignore));
        }
        if field.is_renamed {
            let key = &field.key;
            entries.push(quote!(rename = #key));
        }
        if (field.absent.is_some() || field.is_not_null) && !stated("required") {
            entries.push(quote!(required = false));
        }
        if let Some(AbsentValue::Expression(value)) = &field.absent
            && is_literal(value)
            && !stated("default")
        {
            entries.push(quote!(default = #value));
        }
        for rule in &field.rules {
            match rule {
                FieldRule::Length(bounds) if field.is_list() => {
                    push_bounds(&mut entries, bounds, "min_items", "max_items");
                }
                FieldRule::Length(bounds) => {
                    push_bounds(&mut entries, bounds, "min_length", "max_length");
                }
                FieldRule::Range(bounds) => push_bounds(&mut entries, bounds, "minimum", "maximum"),
                FieldRule::Custom(_) => {}
            }
        }
        if !stated("value_type") {
            entries.extend(shown_type(field).map(|ty| quote!(value_type = #ty)));
        }
        if is_secret(field.value_type()) && !stated("format") {
            entries.push(quote!(format = Password));
        }
        let attribute = format_ident!("{}", self.attribute());
        (!entries.is_empty()).then(|| parse_quote!(#[#attribute(#(#entries),*)]))
    }
}

/// The type that the document names, where it is not the type of the field.
fn shown_type(field: &ModelField) -> Option<TokenStream> {
    let value = field.value_type();
    let shown = if is_secret(value) {
        quote!(String)
    } else {
        quote!(#value)
    };
    if field.patch_type().is_some()
        || (is_secret(value) && field.optional_type().is_some() && !field.is_not_null)
    {
        Some(quote!(Option<#shown>))
    } else if field.is_not_null || is_secret(value) {
        Some(shown)
    } else {
        None
    }
}

fn is_secret(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "SecretString"))
        && type_argument(ty, "SecretString").is_none()
}

/// Adds the bounds that are literals: utoipa takes no others.
fn push_bounds(entries: &mut Vec<TokenStream>, bounds: &RuleBounds, min: &str, max: &str) {
    for (bound, word) in [(&bounds.min, min), (&bounds.max, max)] {
        if let Some(bound) = bound.as_ref().filter(|bound| is_literal(bound)) {
            let word = format_ident!("{word}");
            entries.push(quote!(#word = #bound));
        }
    }
}

const fn is_literal(value: &Expr) -> bool {
    matches!(value, Expr::Lit(ExprLit { .. }))
}

/// Whether `attribute` is named `name` and has an entry `word`.
fn mentions(attribute: &Attribute, name: &str, word: &str) -> bool {
    let Meta::List(list) = &attribute.meta else {
        return false;
    };
    list.path.is_ident(name)
        && list
            .tokens
            .clone()
            .into_iter()
            .any(|token| matches!(token, TokenTree::Ident(entry) if entry == word))
}
