//! Macros with which a request or response type is declared once: the decoder, the bounds, the serialiser, the conversions and
//! the part of the `OpenAPI` document come from one type.
//!
//! **Knows** the syntax of Rust, the readers of `http_api::decode`, the attributes of utoipa, and which types of the domain are
//! texts or enumerations on the wire. **Must never know** a route, the text of an error or the meaning of a value.

mod convert;
mod document;
mod field;
mod model;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Generates what a request or response type needs.
///
/// Arguments:
///
/// * `body` makes a decoder and derives `utoipa::ToSchema`, `query` makes a decoder and derives `utoipa::IntoParams`, `response`
///   derives `Serialize` and `utoipa::ToSchema`; all derive `Debug`. Without any of them there is only a decoder.
///   `body = Name` and `response = Name` name the schema. The bounds and defaults below become attributes of utoipa;
///   `#[schema(…)]` and `#[param(…)]` add the rest. The document shows ids, times, secrets and enumerations of the domain
///   as what they are on the wire.
/// * `deny_unknown_fields` refuses members that the struct does not have. Otherwise they are ignored.
/// * `shorthand = "url"` accepts a text, which stands for an object with this member.
/// * `not_required`: the document does not promise the members `Option<T>` of a response. Otherwise they are required.
/// * `from(found: GitBranch)` implements `From`. With more sources, it adds a function `of` that takes all of them.
///   A source may be a tuple: `from((found, size): (GitBranch, u64))`. Members come from the first source, cloned if it is a
///   reference. `#[from(found.name.len())]` gives another value.
/// * `into = NewSecret` implements the conversion into a type with the same members. `#[into(skip)]` leaves a member out,
///   `#[into(name.trim())]` gives another value; it can use all members by name. `into_default = StartRequest` is for a type
///   with further members, which get their defaults.
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
