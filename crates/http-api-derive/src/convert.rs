//! The conversions of a model: from what the application answers, and into what it takes.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Ident, Pat, Result, Token, Type, parenthesized};

use crate::field::ModelField;

/// The values that a response is made of: parameters of a function.
pub(crate) struct Sources(Vec<(Pat, Type)>);

impl Sources {
    /// Parses `(name: Type, …)`. A pattern may stand instead of a name.
    pub(crate) fn parse(meta: &ParseNestedMeta<'_>) -> Result<Self> {
        let content;
        parenthesized!(content in meta.input);
        let sources: Punctuated<_, Token![,]> = content.parse_terminated(
            |input: ParseStream<'_>| {
                let pattern = Pat::parse_single(input)?;
                input.parse::<Token![:]>()?;
                Ok((pattern, input.parse()?))
            },
            Token![,],
        )?;
        if sources.is_empty() {
            return Err(meta.error("expected `name: Type`"));
        }
        Ok(Self(sources.into_iter().collect()))
    }

    /// `From` for one source, a function `of` for several.
    pub(crate) fn conversion(&self, model: &Ident, fields: &[ModelField]) -> TokenStream {
        let (pattern, ty) = &self.0[0];
        let source = match pattern {
            Pat::Tuple(parts) => &parts.elems[0],
            name => name,
        };
        let members = fields.iter().map(|field| {
            let name = &field.name;
            match (&field.from, ty) {
                (Some(value), _) => quote!(#name: #value),
                (None, Type::Reference(_)) => {
                    quote!(#name: ::core::clone::Clone::clone(&#source.#name))
                }
                (None, _) => quote!(#name: #source.#name),
            }
        });
        if self.0.len() == 1 {
            return quote! {
                #[automatically_derived]
                impl ::core::convert::From<#ty> for #model {
                    fn from(#pattern: #ty) -> Self {
                        Self { #(#members),* }
                    }
                }
            };
        }
        let parameters = self.0.iter().map(|(pattern, ty)| quote!(#pattern: #ty));
        quote! {
            impl #model {
                /// Converts what the application answers.
                pub fn of(#(#parameters),*) -> Self {
                    Self { #(#members),* }
                }
            }
        }
    }
}

/// The type that a request becomes. It has members of the same names.
pub(crate) struct RequestTarget {
    pub(crate) ty: Type,
    /// Whether it has further members, which get their defaults.
    pub(crate) has_others: bool,
}

pub(crate) fn into_target(
    model: &Ident,
    target: &RequestTarget,
    fields: &[ModelField],
) -> TokenStream {
    let patterns = fields.iter().map(|field| {
        let name = &field.name;
        let ignored = field.into.is_none().then(|| quote!(: _));
        quote!(#name #ignored)
    });
    let members = fields.iter().filter_map(|field| {
        let (name, value) = (&field.name, field.into.as_ref()?);
        Some(quote!(#name: #value))
    });
    let ty = &target.ty;
    let others = target
        .has_others
        .then(|| quote!(..::core::default::Default::default()));
    quote! {
        #[automatically_derived]
        impl ::core::convert::From<#model> for #ty {
            fn from(input: #model) -> Self {
                let #model { #(#patterns),* } = input;
                Self { #(#members,)* #others }
            }
        }
    }
}
