//! The attribute `model`: the decoder of a struct, or of an enum of alternatives; or the serialiser of a response.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::{
    Error, Fields, Ident, Item, ItemEnum, ItemStruct, LitStr, Result, Token, Type, Variant,
    parse_quote,
};

use crate::convert::{Sources, Target, into_target};
use crate::document::DocumentPart;
use crate::field::ModelField;

/// The arguments of the attribute.
#[derive(Default)]
pub(crate) struct ModelArguments {
    part: Option<DocumentPart>,
    /// The name of the schema, if it is not the name of the type.
    schema: Option<Ident>,
    denies_unknown: bool,
    shorthand: Option<LitStr>,
    from: Option<Sources>,
    into: Option<Target>,
}

impl Parse for ModelArguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self::default();
        let tokens: TokenStream = input.parse()?;
        syn::meta::parser(|meta| arguments.take(&meta)).parse2(tokens)?;
        Ok(arguments)
    }
}

impl ModelArguments {
    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string);
        match name.as_deref() {
            Some("body") => self.set_part(DocumentPart::Body, meta)?,
            Some("query") => self.set_part(DocumentPart::Query, meta)?,
            Some("response") => self.set_part(DocumentPart::Response, meta)?,
            Some("not_required") if self.part == Some(DocumentPart::Response) => {
                self.part = Some(DocumentPart::UnpromisedResponse);
            }
            Some("deny_unknown_fields") => self.denies_unknown = true,
            Some("shorthand") => self.shorthand = Some(meta.value()?.parse()?),
            Some("from") => self.from = Some(Sources::parse(meta)?),
            Some(into @ ("into" | "into_default")) => {
                let ty = meta.value()?.parse()?;
                let has_others = into == "into_default";
                self.into = Some(Target { ty, has_others });
            }
            _ => {
                let known = "expected `body`, `query`, `response` (and then `not_required`), \
                             `deny_unknown_fields`, `shorthand`, `from`, `into` or `into_default`";
                return Err(meta.error(known));
            }
        }
        Ok(())
    }

    fn set_part(&mut self, part: DocumentPart, meta: &ParseNestedMeta<'_>) -> Result<()> {
        self.part = Some(part);
        if meta.input.peek(Token![=]) {
            self.schema = Some(meta.value()?.parse()?);
        }
        Ok(())
    }

    /// The conversions that the arguments ask for.
    fn conversions(&self, model: &Ident, fields: &[ModelField]) -> TokenStream {
        let from = self
            .from
            .as_ref()
            .map(|sources| sources.conversion(model, fields));
        let into = self
            .into
            .as_ref()
            .map(|target| into_target(model, target, fields));
        quote!(#from #into)
    }
}

pub(crate) fn expand(arguments: &ModelArguments, item: Item) -> Result<TokenStream> {
    match item {
        Item::Struct(item) => expand_struct(arguments, item),
        Item::Enum(item) => expand_union(arguments, item),
        other => Err(Error::new_spanned(other, "a model is a struct or an enum")),
    }
}

fn expand_struct(arguments: &ModelArguments, mut item: ItemStruct) -> Result<TokenStream> {
    let Fields::Named(named) = &mut item.fields else {
        return Err(Error::new_spanned(item, "a model has named fields"));
    };
    let mut fields = Vec::new();
    for field in &mut named.named {
        let read = ModelField::take(field)?;
        if read.is_flat && arguments.part == Some(DocumentPart::Body) {
            let refusal = "a body lists its members itself: the document would nest them";
            return Err(Error::new_spanned(field, refusal));
        }
        let description = arguments
            .part
            .and_then(|part| part.describe(&read, &field.attrs));
        field.attrs.extend(description);
        fields.push(read);
    }
    add_derives(arguments, &mut item.attrs);
    let conversions = arguments.conversions(&item.ident, &fields);
    if arguments.part.is_some_and(DocumentPart::is_response) {
        let is_read = arguments.denies_unknown || arguments.shorthand.is_some();
        if is_read || fields.iter().any(ModelField::is_decoded_specially) {
            let refusal = "a response is not decoded: `decode`, `validate` and arguments for decoders have no effect";
            return Err(Error::new_spanned(item, refusal));
        }
        return Ok(quote!(#item #conversions));
    }
    let reader = decode_fields(&item, &fields);
    let decoder = decoder(arguments, &item, &fields);
    Ok(quote!(#item #conversions #reader #decoder))
}

/// The implementation of `DecodeFields`.
fn decode_fields(item: &ItemStruct, fields: &[ModelField]) -> TokenStream {
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    let readers = fields.iter().map(ModelField::reader);
    let names = fields.iter().map(|field| &field.name);
    let variables = fields.iter().map(ModelField::variable);
    quote! {
        #[automatically_derived]
        impl #impl_generics ::http_api::decode::DecodeFields for #name #type_generics #where_clause {
            fn decode_fields<Model: ::http_api::decode::Decode>(
                object: &mut ::http_api::decode::Object<'_, Model>,
            ) -> ::core::option::Option<Self> {
                #(#readers)*
                ::core::option::Option::Some(Self { #(#names: #variables?,)* })
            }
        }
    }
}

/// The implementation of `Decode`.
fn decoder(arguments: &ModelArguments, item: &ItemStruct, fields: &[ModelField]) -> TokenStream {
    let name = &item.ident;
    let (impl_generics, type_generics, where_clause) = item.generics.split_for_impl();
    let sensitivities = fields.iter().map(ModelField::sensitivity);
    let shorthand = arguments.shorthand.as_ref().map(|key| {
        quote! {
            if value.is_string() {
                let object = ::serde_json::json!({#key: value});
                return <Self as ::http_api::decode::Decode>::decode(&object, at, errors);
            }
        }
    });
    let forbid_extra = arguments
        .denies_unknown
        .then(|| quote!(object.forbid_extra();));
    quote! {
        #[automatically_derived]
        impl #impl_generics ::http_api::decode::Decode for #name #type_generics #where_clause {
            const SENSITIVE: bool = false #(|| #sensitivities)*;

            fn decode(
                value: &::serde_json::Value,
                at: &::http_api::decode::Path<'_>,
                errors: &mut ::http_api::decode::FieldErrors,
            ) -> ::core::option::Option<Self> {
                #shorthand
                let mut object = ::http_api::decode::Object::<Self>::open(value, at, errors)?;
                let decoded = <Self as ::http_api::decode::DecodeFields>::decode_fields(&mut object);
                #forbid_extra
                decoded
            }
        }
    }
}

fn expand_union(arguments: &ModelArguments, mut item: ItemEnum) -> Result<TokenStream> {
    if arguments.denies_unknown || arguments.shorthand.is_some() {
        let refusal = "an enum only takes `body`: the models of its variants say the rest";
        return Err(Error::new_spanned(item, refusal));
    }
    add_derives(arguments, &mut item.attrs);
    let types = item
        .variants
        .iter()
        .map(alternative)
        .collect::<Result<Vec<_>>>()?;
    let name = &item.ident;
    let variants: Vec<_> = item.variants.iter().map(|variant| &variant.ident).collect();
    let labels = variants.iter().map(ToString::to_string);
    Ok(quote! {
        #item

        #[automatically_derived]
        impl ::http_api::decode::Decode for #name {
            const SENSITIVE: bool = false #(|| <#types as ::http_api::decode::Decode>::SENSITIVE)*;

            fn decode(
                value: &::serde_json::Value,
                at: &::http_api::decode::Path<'_>,
                errors: &mut ::http_api::decode::FieldErrors,
            ) -> ::core::option::Option<Self> {
                ::http_api::decode::union(value, at, errors, &[#((#labels, |value, at, errors| {
                    <#types as ::http_api::decode::Decode>::decode(value, at, errors).map(Self::#variants)
                })),*])
            }
        }
    })
}

/// The model of an alternative.
fn alternative(variant: &Variant) -> Result<&Type> {
    match &variant.fields {
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => Ok(&fields.unnamed[0].ty),
        _ => Err(Error::new_spanned(
            variant,
            "an alternative has one member, its model",
        )),
    }
}

/// Adds the derives before other attributes, because those may be theirs.
fn add_derives(arguments: &ModelArguments, attributes: &mut Vec<syn::Attribute>) {
    if let Some(part) = arguments.part {
        attributes.splice(0..0, part.derive());
    }
    if let Some(name) = &arguments.schema {
        attributes.push(parse_quote!(#[schema(as = #name)]));
    }
}
