//! The fields of a model: how each one is read and checked.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::{
    Attribute, Error, Expr, ExprLit, Field, GenericArgument, Ident, Lit, LitStr, PathArguments,
    Result, Token, Type, parse_quote,
};

/// Inclusive bounds of a `length` or `range`.
#[derive(Default)]
pub(crate) struct RuleBounds {
    pub(crate) min: Option<Expr>,
    pub(crate) max: Option<Expr>,
}

impl RuleBounds {
    fn parse(meta: &ParseNestedMeta<'_>) -> Result<Self> {
        let mut bounds = Self::default();
        meta.parse_nested_meta(|meta| {
            let bound = match meta.path.get_ident() {
                Some(name) if name == "min" => &mut bounds.min,
                Some(name) if name == "max" => &mut bounds.max,
                _ => return Err(meta.error("expected `min` or `max`")),
            };
            *bound = Some(meta.value()?.parse()?);
            Ok(())
        })?;
        if bounds.min.is_none() && bounds.max.is_none() {
            return Err(meta.error("expected `min` or `max`"));
        }
        Ok(bounds)
    }

    fn range(&self) -> TokenStream {
        match (&self.min, &self.max) {
            (min, Some(max)) => quote!(#min..=#max),
            (min, None) => quote!(#min..),
        }
    }
}

/// One entry of `#[validate(…)]`.
pub(crate) enum FieldRule {
    Length(RuleBounds),
    Range(RuleBounds),
    Custom(Expr),
}

/// A field with its attributes.
pub(crate) struct ModelField {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// The name on the wire.
    pub(crate) key: String,
    pub(crate) is_renamed: bool,
    /// The value of an absent member.
    pub(crate) absent: Option<Expr>,
    pub(crate) is_flat: bool,
    pub(crate) is_not_null: bool,
    with: Option<Expr>,
    pub(crate) rules: Vec<FieldRule>,
    /// The value in a response, if it is not the member of the same name.
    pub(crate) from: Option<Expr>,
    /// The value of the member of the target of `into`; `None` leaves it out.
    pub(crate) into: Option<Expr>,
}

/// The attributes of fields that only this macro understands.
const FIELD_ATTRIBUTES: [&str; 4] = ["decode", "validate", "from", "into"];

impl ModelField {
    /// Reads the attributes of a field, and removes those that only this macro understands.
    pub(crate) fn take(field: &mut Field) -> Result<Self> {
        let Some(name) = field.ident.clone() else {
            return Err(Error::new_spanned(field, "a model has named fields"));
        };
        let mut read = Self {
            key: name.unraw().to_string(),
            into: Some(parse_quote!(#name)),
            name,
            ty: field.ty.clone(),
            is_renamed: false,
            absent: None,
            is_flat: false,
            is_not_null: false,
            with: None,
            rules: Vec::new(),
            from: None,
        };
        for attribute in &field.attrs {
            let path = attribute.path();
            if path.is_ident("decode") {
                attribute.parse_nested_meta(|meta| read.take_decode(&meta))?;
            } else if path.is_ident("validate") {
                attribute.parse_nested_meta(|meta| read.take_validate(&meta))?;
            } else if path.is_ident("from") {
                read.from = Some(attribute.parse_args()?);
            } else if path.is_ident("into") {
                read.into = match attribute.parse_args()? {
                    Expr::Path(skip) if skip.path.is_ident("skip") => None,
                    value => Some(value),
                };
            }
        }
        let is_ours = |one: &Attribute| {
            FIELD_ATTRIBUTES
                .iter()
                .any(|name| one.path().is_ident(name))
        };
        field.attrs.retain(|attribute| !is_ours(attribute));
        read.check(field)?;
        Ok(read)
    }

    /// Whether the field has attributes for the decoder.
    pub(crate) fn is_decoded_specially(&self) -> bool {
        let has_decode = self.is_renamed
            || self.is_flat
            || self.is_not_null
            || self.absent.is_some()
            || self.with.is_some();
        has_decode || !self.rules.is_empty()
    }

    /// Refuses attributes without effect.
    fn check(&self, field: &Field) -> Result<()> {
        let is_read_elsewhere = self.absent.is_some() || self.is_not_null || self.is_renamed;
        let refusal = if self.is_flat && (is_read_elsewhere || !self.rules.is_empty()) {
            "the model that is flattened names, checks and replaces its own members"
        } else if self.is_not_null && self.absent.is_some() {
            "`default` already forbids null, unless the type allows it"
        } else if self.is_not_null && self.optional_type().is_none() {
            "`not_null` is for `Option<T>`"
        } else {
            return Ok(());
        };
        Err(Error::new_spanned(field, refusal))
    }

    fn take_decode(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string);
        match name.as_deref() {
            Some("rename") => {
                self.key = meta.value()?.parse::<LitStr>()?.value();
                self.is_renamed = true;
            }
            Some("default") if meta.input.peek(Token![=]) => {
                self.absent = Some(meta.value()?.parse()?);
            }
            Some("default") => {
                self.absent = Some(parse_quote!(::core::default::Default::default()));
            }
            Some("flatten") => self.is_flat = true,
            Some("not_null") => self.is_not_null = true,
            Some("with") => self.with = Some(meta.value()?.parse()?),
            _ => {
                return Err(
                    meta.error("expected `rename`, `default`, `flatten`, `not_null` or `with`")
                );
            }
        }
        Ok(())
    }

    fn take_validate(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string);
        let rule = match name.as_deref() {
            Some("length") => FieldRule::Length(RuleBounds::parse(meta)?),
            Some("range") => FieldRule::Range(RuleBounds::parse(meta)?),
            Some("custom") => {
                let mut function = None;
                meta.parse_nested_meta(|meta| {
                    if !meta.path.is_ident("function") {
                        return Err(meta.error("expected `function`"));
                    }
                    function = Some(meta.value()?.parse()?);
                    Ok(())
                })?;
                FieldRule::Custom(function.ok_or_else(|| meta.error("`function` is missing"))?)
            }
            _ => return Err(meta.error("expected `length`, `range` or `custom`")),
        };
        self.rules.push(rule);
        Ok(())
    }

    /// `T` of a field `Option<T>`.
    pub(crate) fn optional_type(&self) -> Option<&Type> {
        type_argument(&self.ty, "Option")
    }

    /// `T` of a field `Patch<T>`.
    pub(crate) fn patch_type(&self) -> Option<&Type> {
        type_argument(&self.ty, "Patch")
    }

    /// The type of the value that rules apply to.
    pub(crate) fn value_type(&self) -> &Type {
        self.optional_type()
            .or(self.patch_type())
            .unwrap_or(&self.ty)
    }

    /// Whether `length` counts items, not characters.
    pub(crate) fn is_list(&self) -> bool {
        type_argument(self.value_type(), "Vec").is_some()
    }

    /// Whether a value of this field is or contains a secret.
    pub(crate) fn sensitivity(&self) -> TokenStream {
        let ty = self.value_type();
        quote!(<#ty as ::http_api::decode::Decode>::SENSITIVE)
    }

    /// The variable with the decoded member.
    pub(crate) fn variable(&self) -> Ident {
        format_ident!("member_{}", self.name.unraw())
    }

    /// The statements that read and check the member.
    pub(crate) fn reader(&self) -> TokenStream {
        let (variable, key) = (self.variable(), &self.key);
        let read = self.read_expression();
        let rules = self.rules.iter().map(|rule| self.rule_statement(rule));
        let convert = self.with.as_ref().map(|with| {
            let with = if self.optional_type().is_some() {
                quote!(|value| value.map(#with).transpose())
            } else {
                quote!(#with)
            };
            quote!(let #variable = object.convert(#key, #variable, #with);)
        });
        quote! {
            let #variable = #read;
            #(#rules)*
            #convert
        }
    }

    fn read_expression(&self) -> TokenStream {
        let (ty, key) = (&self.ty, &self.key);
        if self.is_flat {
            return quote!(<#ty as ::http_api::decode::DecodeFields>::decode_fields(object));
        }
        if let Some(value) = &self.absent {
            let is_text = matches!(
                value,
                Expr::Lit(ExprLit {
                    lit: Lit::Str(_),
                    ..
                })
            );
            let value = if is_text {
                quote!(::std::borrow::ToOwned::to_owned(#value))
            } else {
                quote!(#value)
            };
            return quote!(object.default::<#ty>(#key, || #value));
        }
        match (self.optional_type(), self.patch_type()) {
            (Some(inner), _) if self.is_not_null => quote!(object.not_null::<#inner>(#key)),
            (Some(inner), _) => quote!(object.optional::<#inner>(#key)),
            (None, Some(inner)) => quote!(object.patch::<#inner>(#key)),
            (None, None) => quote!(object.required::<#ty>(#key)),
        }
    }

    fn rule_statement(&self, rule: &FieldRule) -> TokenStream {
        let (variable, key, ty) = (self.variable(), &self.key, self.value_type());
        let rule = match rule {
            FieldRule::Length(bounds) => {
                let range = bounds.range();
                let rule = if self.is_list() {
                    quote!(items)
                } else {
                    quote!(characters)
                };
                quote!(::http_api::decode::#rule(#range))
            }
            FieldRule::Range(bounds) => {
                let range = bounds.range();
                quote!(::http_api::decode::bounds(#range))
            }
            FieldRule::Custom(function) => {
                quote!(|value| ::http_api::decode::refusal(#function(value)))
            }
        };
        let value = if self.optional_type().is_some() {
            quote!(#variable.as_ref().and_then(::core::option::Option::as_ref))
        } else if self.patch_type().is_some() {
            quote!(match &#variable {
                ::core::option::Option::Some(::http_api::decode::Patch::Set(value)) => {
                    ::core::option::Option::Some(value)
                }
                _ => ::core::option::Option::None,
            })
        } else {
            quote!(#variable.as_ref())
        };
        quote!(object.rule::<#ty>(#key, #value, #rule);)
    }
}

/// `T` of a type `name<T>`.
pub(crate) fn type_argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path
        .path
        .segments
        .last()
        .filter(|segment| segment.ident == name)?;
    match &last.arguments {
        PathArguments::AngleBracketed(arguments) => {
            arguments.args.iter().find_map(|one| match one {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            })
        }
        _ => None,
    }
}
