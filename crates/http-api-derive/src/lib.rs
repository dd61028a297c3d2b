//! Macros with which a request type is declared once: the decoder, the bounds and the part of the `OpenAPI` document come from
//! one type.
//!
//! **Knows** the syntax of Rust, the readers of `http_api::decode` and the attributes of utoipa. **Must never know** a route,
//! the text of an error or the meaning of a value.

mod choice;
mod document;
mod field;
mod model;
mod write_json;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Generates the decoder of a struct, or of an enum of alternatives, and with `body` or `query` its part of the document.
///
/// Arguments:
///
/// * `body` also derives `utoipa::ToSchema`, `query` also derives `utoipa::IntoParams`. The bounds and defaults below become
///   their attributes; `#[schema(…)]` and `#[param(…)]` add the rest.
/// * `deny_unknown_fields` refuses members that the struct does not have. Otherwise they are ignored.
/// * `shorthand = "url"` accepts a text, which stands for an object with this member.
///
/// A model is sensitive exactly if the type of a member is.
///
/// Members are read, and their errors listed, in the order of the fields. `Option<T>` may be absent or null. `Patch<T>`
/// distinguishes both. Other members are required, except with `default`.
///
/// * `#[decode(rename = "kind__eq")]`: the name on the wire.
/// * `#[decode(default)]`, `#[decode(default = 100)]`: the value of an absent member. Null is not absent.
/// * `#[decode(not_null)]`: an `Option<T>` that may be absent but not null.
/// * `#[decode(flatten)]`: the members of another model, read from the same object.
/// * `#[decode(with = check)]`: a function from the value to `Result<value, error>`. The error becomes a `value_error`.
/// * `#[validate(length(min = 1, max = 64))]`: characters of a text, or items of a list.
/// * `#[validate(range(min = 1, max = 3600))]`: the size of a number.
/// * `#[validate(custom(function = check))]`: a function from a reference to `Result<(), error>`, like `with`.
///
/// Rules apply to the value of an `Option` or `Patch` if there is one.
///
/// The variants of an enum have one member each, the model of an alternative. The first alternative that fits wins. If none
/// fits, the errors of each are listed under the name of its variant.
#[proc_macro_attribute]
pub fn model(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as model::ModelArguments);
    let item = parse_macro_input!(item as syn::Item);
    let expanded = model::expand(&arguments, item);
    expanded
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Implements `http_api::decode::Choice` for an enum without data. The words are those of serde
/// (`#[serde(rename = "…")]`, `#[serde(rename_all = "…")]`), so that the document and responses use the same ones.
///
/// `#[choice(literal)]` marks an enum that is a literal in the reference: its error has another `type`.
#[proc_macro_derive(Choice, attributes(choice, serde))]
pub fn choice(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::DeriveInput);
    let expanded = choice::expand(&item);
    expanded
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Implements `http_api::dto::json_lists::WriteJson`: the same bytes as serde's, with the names of the fields as literals.
///
/// `#[write_json]` marks a field whose type also implements it.
#[proc_macro_derive(WriteJson, attributes(write_json, serde))]
pub fn write_json(item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as syn::DeriveInput);
    let expanded = write_json::expand(&item);
    expanded
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
