//! What the document says of a field, as attributes of utoipa.

use proc_macro2::{TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::{Attribute, Expr, ExprLit, Meta, Type, parse_quote};

use crate::field::{FieldRule, ModelField, RuleBounds, type_argument};

/// The part of the document that a model becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentPart {
    Body,
    Query,
    Response,
    /// A response whose members `Option<T>` are not required.
    UnpromisedResponse,
}

impl DocumentPart {
    pub(crate) const fn is_response(self) -> bool {
        matches!(self, Self::Response | Self::UnpromisedResponse)
    }

    /// The attributes of the type.
    pub(crate) fn derive(self) -> Vec<Attribute> {
        let debug = parse_quote!(#[derive(::core::fmt::Debug)]);
        match self {
            Self::Body => vec![debug, parse_quote!(#[derive(::utoipa::ToSchema)])],
            Self::Query => vec![
                debug,
                parse_quote!(#[derive(::utoipa::IntoParams)]),
                parse_quote!(#[into_params(parameter_in = Query)]),
            ],
            Self::Response | Self::UnpromisedResponse => vec![
                debug,
                parse_quote!(#[derive(::serde::Serialize, ::utoipa::ToSchema)]),
            ],
        }
    }

    const fn attribute(self) -> &'static str {
        match self {
            Self::Query => "param",
            Self::Body | Self::Response | Self::UnpromisedResponse => "schema",
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
        let shown = shown_type(&field.ty).filter(|_| !stated("value_type"));
        // An optional parameter is absent, never null.
        let is_absent_only = field.is_not_null
            || self == Self::Query && shown.is_some() && field.optional_type().is_some();
        if stated("required") {
            // The field decides.
        } else if field.absent.is_some() || is_absent_only {
            entries.push(quote!(required = false));
        } else if self == Self::Response && field.optional_type().is_some() {
            entries.push(quote!(required));
        }
        if let Some(value) = &field.absent
            && is_literal(value)
            && !stated("default")
        {
            entries.push(quote!(default = #value));
        }
        push_rules(&mut entries, field);
        if let Some(format) = shown.as_ref().and_then(|shown| shown.format)
            && !stated("format")
        {
            let format = format_ident!("{format}");
            entries.push(quote!(format = #format));
        }
        if is_absent_only && !stated("value_type") {
            let value = field.value_type();
            let ty = shown_type(value).map_or_else(|| quote!(#value), |shown| shown.ty);
            entries.push(quote!(value_type = #ty));
        } else if let Some(ShownType { ty, .. }) = shown {
            entries.push(quote!(value_type = #ty));
        }
        let attribute = format_ident!("{}", self.attribute());
        (!entries.is_empty()).then(|| parse_quote!(#[#attribute(#(#entries),*)]))
    }
}

/// What the document shows instead of a type that utoipa does not know.
struct ShownType {
    ty: TokenStream,
    format: Option<&'static str>,
}

/// What is shown instead of `ty`, also inside of `Option` and `Vec`; `None` if utoipa knows the type.
fn shown_type(ty: &Type) -> Option<ShownType> {
    if let Some(inner) = type_argument(ty, "Patch") {
        let optional: Type = parse_quote!(Option<#inner>);
        let known = ShownType {
            ty: quote!(#optional),
            format: None,
        };
        return Some(shown_type(&optional).unwrap_or(known));
    }
    for container in ["Option", "Vec"] {
        if let Some(inner) = type_argument(ty, container) {
            let shown = shown_type(inner)?;
            let (container, inner) = (format_ident!("{container}"), shown.ty);
            let ty = quote!(#container<#inner>);
            return Some(ShownType { ty, ..shown });
        }
    }
    let Type::Path(path) = ty else { return None };
    let name = path.path.segments.last()?.ident.to_string();
    let (ty, format) = match name.as_str() {
        "SecretString" => (quote!(String), Some("Password")),
        "Timestamp" => (quote!(String), Some("DateTime")),
        "SaturatedInt" => (quote!(i64), None),
        "AuditActor" | "PageToken" | "SecretText" => (quote!(String), None),
        id if id.ends_with("Id") => (quote!(String), None),
        // The enumerations in `dto::enums`.
        "AgentType" | "AuditOutcome" | "ConversationOrder" | "EgressDecision" | "EventOrder"
        | "ExecutionStatus" | "GitProvider" | "HostStatus" | "MailDelivery" | "MemberRole"
        | "OwnerType" | "Role" | "SandboxStatus" | "StartStatus" | "StartTaskOrder"
        | "SuggestedTaskType" | "Trigger" => {
            let schema = format_ident!("{name}Schema");
            (quote!(::http_api::dto::enums::#schema), None)
        }
        _ => return None,
    };
    Some(ShownType { ty, format })
}

fn push_rules(entries: &mut Vec<TokenStream>, field: &ModelField) {
    for rule in &field.rules {
        match rule {
            FieldRule::Length(bounds) if field.is_list() => {
                push_bounds(entries, bounds, "min_items", "max_items");
            }
            FieldRule::Length(bounds) => push_bounds(entries, bounds, "min_length", "max_length"),
            FieldRule::Range(bounds) => push_bounds(entries, bounds, "minimum", "maximum"),
            FieldRule::Custom(_) => {}
        }
    }
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
