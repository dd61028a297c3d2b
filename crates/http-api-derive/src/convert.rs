//! The conversions of a model: from what the application answers, and into what it takes.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Ident, Result, Token, Type, parenthesized};

use crate::field::{IntoValue, ModelField};

/// The values that a response is made of, by name.
pub(crate) struct Sources(Vec<(Ident, Type)>);

impl Sources {
    /// Parses `(name: Type, …)`.
    pub(crate) fn parse(meta: &ParseNestedMeta<'_>) -> Result<Self> {
        let content;
        parenthesized!(content in meta.input);
        let sources: Punctuated<_, Token![,]> = content.parse_terminated(
            |input: ParseStream<'_>| {
                let name = input.parse()?;
                input.parse::<Token![:]>()?;
                Ok((name, input.parse()?))
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
        let (source, ty) = &self.0[0];
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
                    fn from(#source: #ty) -> Self {
                        Self { #(#members),* }
                    }
                }
            };
        }
        let parameters = self.0.iter().map(|(name, ty)| quote!(#name: #ty));
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

/// The conversion of a request into `target`, which has members of the same names.
pub(crate) fn into_target(model: &Ident, target: &Type, fields: &[ModelField]) -> TokenStream {
    let patterns = fields.iter().map(|field| {
        let name = &field.name;
        match &field.into {
            IntoValue::Skipped => quote!(#name: _),
            IntoValue::Same | IntoValue::Expression(_) => quote!(#name),
        }
    });
    let members = fields.iter().filter_map(|field| {
        let name = &field.name;
        match &field.into {
            IntoValue::Skipped => None,
            IntoValue::Same => Some(quote!(#name)),
            IntoValue::Expression(value) => Some(quote!(#name: #value)),
        }
    });
    quote! {
        #[automatically_derived]
        impl ::core::convert::From<#model> for #target {
            fn from(input: #model) -> Self {
                let #model { #(#patterns),* } = input;
                Self { #(#members),* }
            }
        }
    }
}
