//! Parses image names: the registry, and the exact reference to pull.

use crate::config::RegistryCredentials;

/// The registry of names without a host.
const HUB: &str = "docker.io";
/// The name under which the engine stores the credentials of [`HUB`].
const HUB_LOGIN: &str = "https://index.docker.io/v1/";

/// The reference to pull. Without a tag or digest the engine would pull all tags.
pub(super) fn with_tag(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains([':', '@']) {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

/// The registry of an image by Docker's rules: the first part is a host if it cannot be anything else.
pub(super) fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host == "localhost" || host.contains(['.', ':']) => host_of(host),
        _ => HUB,
    }
}

/// The server address of the credentials, if they belong to this image's registry.
pub(super) fn login(image: &str, credentials: &RegistryCredentials) -> Option<String> {
    let host = registry(image);
    (host_of(&credentials.server) == host).then(|| match host {
        HUB => HUB_LOGIN.to_owned(),
        host => host.to_owned(),
    })
}

/// The host of a registry in any notation.
fn host_of(server: &str) -> &str {
    let server = ["https://", "http://"]
        .iter()
        .find_map(|scheme| server.strip_prefix(scheme))
        .unwrap_or(server);
    match server.split('/').next().unwrap_or(server) {
        "index.docker.io" | "registry-1.docker.io" => HUB,
        host => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_gets_latest() {
        for (image, pulled) in [
            ("busybox", "busybox:latest"),
            ("busybox:1", "busybox:1"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest"),
            ("127.0.0.1:5000/a/b:2", "127.0.0.1:5000/a/b:2"),
            ("a/b@sha256:0123", "a/b@sha256:0123"),
        ] {
            assert_eq!(with_tag(image), pulled);
        }
    }

    #[test]
    fn credentials_go_to_their_own_registry_only() {
        let address = |server: &str, image: &str| {
            let credentials = RegistryCredentials {
                server: server.to_owned(),
                username: "me".to_owned(),
                password: "x".into(),
            };
            login(image, &credentials)
        };
        let expected = |text: &str| Some(text.to_owned());
        assert_eq!(address("ghcr.io", "ghcr.io/a/b:1"), expected("ghcr.io"));
        assert_eq!(
            address("https://ghcr.io/", "ghcr.io/a/b:1"),
            expected("ghcr.io")
        );
        assert_eq!(
            address("127.0.0.1:5000", "127.0.0.1:5000/a"),
            expected("127.0.0.1:5000")
        );
        for hub in ["docker.io", "index.docker.io", HUB_LOGIN] {
            for image in [
                "busybox",
                "a/b:1",
                "docker.io/a/b:1",
                "index.docker.io/a/b:1",
            ] {
                assert_eq!(address(hub, image), expected(HUB_LOGIN), "{hub} {image}");
            }
        }
        for image in [
            "busybox",
            "evil.io/ghcr.io/a:1",
            "ghcr.io:443/a/b",
            "ghcr.io.evil.io/a",
        ] {
            assert_eq!(address("ghcr.io", image), None, "{image}");
        }
    }
}
