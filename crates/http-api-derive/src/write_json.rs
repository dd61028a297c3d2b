//! The derive of `WriteJson`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt as _;
use syn::{Data, DeriveInput, Error, Field, Fields, LitByteStr, Result};

pub(crate) fn expand(item: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &item.data else {
        return Err(Error::new_spanned(
            item,
            "`WriteJson` is derived for structs",
        ));
    };
    let Fields::Named(named) = &data.fields else {
        return Err(Error::new_spanned(item, "`WriteJson` needs named fields"));
    };
    let mut members = Vec::new();
    for (index, field) in named.named.iter().enumerate() {
        members.push(member(field, if index == 0 { '{' } else { ',' })?);
    }
    let name = &item.ident;
    Ok(quote! {
        #[automatically_derived]
        impl ::http_api::dto::json_lists::WriteJson for #name {
            fn write(&self, out: &mut ::std::vec::Vec<u8>) -> ::serde_json::Result<()> {
                #(#members)*
                out.push(b'}');
                ::core::result::Result::Ok(())
            }
        }
    })
}

/// The statements that write a member, with its name as a literal.
fn member(field: &Field, separator: char) -> Result<TokenStream> {
    if let Some(attribute) = field.attrs.iter().find(|one| one.path().is_ident("serde")) {
        return Err(Error::new_spanned(
            attribute,
            "`WriteJson` does not read serde's attributes",
        ));
    }
    let Some(name) = &field.ident else {
        return Err(Error::new_spanned(field, "`WriteJson` needs named fields"));
    };
    let head = format!("{separator}\"{}\":", name.unraw());
    let head = LitByteStr::new(head.as_bytes(), name.span());
    let write = if field
        .attrs
        .iter()
        .any(|one| one.path().is_ident("write_json"))
    {
        quote!(::http_api::dto::json_lists::WriteJson::write(&self.#name, out)?;)
    } else {
        quote!(::serde_json::to_writer(&mut *out, &self.#name)?;)
    };
    Ok(quote! {
        out.extend_from_slice(#head);
        #write
    })
}
