//! Forms of the service's own pages.

use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_TYPE;
use secrecy::{ExposeSecret as _, SecretString};

use super::request_part::{RequestInput, RequestPart};
use crate::problem::Problem;

/// Largest body of a form.
const MAX_FORM_BYTES: usize = 16 * 1024;
const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// The fields of a form. Any may be a password.
#[derive(Debug, Clone)]
pub(crate) struct FormFields(Vec<(String, SecretString)>);

impl FormFields {
    /// The field of this name; empty if it is missing.
    pub(crate) fn secret(&self, name: &str) -> SecretString {
        let field = self.0.iter().find(|(known, _)| known == name);
        field.map_or_else(|| SecretString::from(""), |(_, value)| value.clone())
    }

    /// Like [`FormFields::secret`], for values that the page may show.
    pub(crate) fn text(&self, name: &str) -> String {
        self.secret(name).expose_secret().to_owned()
    }
}

impl RequestPart for FormFields {
    async fn extract(input: &mut RequestInput<'_>) -> Result<Option<Self>, Problem> {
        let sent = input.req.headers().get(CONTENT_TYPE);
        let essence = sent
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split(';').next())
            .unwrap_or_default();
        if !essence.trim().eq_ignore_ascii_case(FORM_TYPE) {
            let detail = format!("The body must be a form ({FORM_TYPE})");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let bytes = input
            .read_body(|limits| limits.body.min(MAX_FORM_BYTES))
            .await?;
        let fields = url::form_urlencoded::parse(&bytes);
        let fields = fields.map(|(name, value)| (name.into_owned(), value.into_owned().into()));
        Ok(Some(Self(fields.collect())))
    }
}
