//! Lists of large files (`objects/batch` of the LFS API), which name the address of each file and the headers to send there.

use serde_json::Value;
use url::Url;

use super::paths::through_service;

/// Whether a request asks for files to download.
pub(super) fn is_download(request: &[u8]) -> bool {
    let request: Option<Value> = serde_json::from_slice(request).ok();
    request.is_some_and(|request| request["operation"] == "download")
}

/// The list with the host's own addresses replaced by the service's. Some hosts (Gitea, GitLab) repeat the caller's
/// credentials in it; those are left out. Addresses elsewhere, such as signed ones of a storage, stay. `None` if the list
/// is not valid.
pub(super) fn through_the_service(
    list: &[u8],
    base: &Url,
    address: &str,
    credentials: Option<&str>,
) -> Option<Vec<u8>> {
    let mut list: Value = serde_json::from_slice(list).ok()?;
    let objects = list.get_mut("objects").and_then(Value::as_array_mut);
    for object in objects.into_iter().flatten() {
        let actions = object.get_mut("actions").and_then(Value::as_object_mut);
        for action in actions.into_iter().flat_map(|actions| actions.values_mut()) {
            change(action, base, address, credentials);
        }
    }
    serde_json::to_vec(&list).ok()
}

fn change(action: &mut Value, base: &Url, address: &str, credentials: Option<&str>) {
    let place = action["href"].as_str();
    let own = place.and_then(|place| through_service(base, address, place));
    let is_own = own.is_some();
    if let Some(own) = own {
        action["href"] = own.into();
    }
    let Some(headers) = action.get_mut("header").and_then(Value::as_object_mut) else {
        return;
    };
    headers.retain(|name, value| {
        let is_credentials =
            name.eq_ignore_ascii_case("authorization") && (is_own || value.as_str() == credentials);
        !is_credentials
    });
}
