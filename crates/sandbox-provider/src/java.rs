//! The forward proxy for Java, which reads neither the variables nor the certificates of other programs.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// Options of every Java machine. It repeats them on standard error.
pub(crate) const OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// Java's own format ("JKS"), which all releases read.
const MAGIC: u32 = 0xFEED_FEED;
const VERSION: u32 = 2;
const CERTIFICATE: u32 = 2;
/// The password that programs try first. The store has no secrets.
const PASSWORD: &str = "changeit";

/// Where the certificates of a PEM file are for Java: beside it.
pub fn java_trust_store_path(certificates: &str) -> String {
    let stem = certificates.strip_suffix(".pem").unwrap_or(certificates);
    format!("{stem}.jks")
}

/// The proxy, the hosts that are reached without it (separated by commas), and the file of trusted certificates.
pub(crate) fn options(proxy: &str, direct: &str, certificates: &str) -> String {
    let (host, port) = proxy.rsplit_once(':').unwrap_or((proxy, "80"));
    let direct = direct.replace("127.0.0.1", "127.*").replace(',', "|");
    let store = java_trust_store_path(certificates);
    // Maven (3.9) sends nothing through the proxy of these options without one more.
    format!(
        "-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port} \
         -Dhttp.nonProxyHosts={direct} -Daether.connector.http.useSystemProperties=true \
         \"-Djavax.net.ssl.trustStore={store}\" -Djavax.net.ssl.trustStoreType=JKS"
    )
}

/// The certificates of a PEM file as Java reads them. What is no certificate is left out.
pub fn java_trust_store(pem: &[u8]) -> Vec<u8> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).flatten().collect();
    let mut store = Vec::new();
    for number in [MAGIC, VERSION, length(&certificates)] {
        store.extend(number.to_be_bytes());
    }
    for (number, certificate) in (1..).zip(&certificates) {
        let number: u32 = number;
        store.extend(CERTIFICATE.to_be_bytes());
        add_text(&mut store, &number.to_string());
        // When it was added.
        store.extend(0_u64.to_be_bytes());
        add_text(&mut store, "X.509");
        store.extend(length(certificate).to_be_bytes());
        store.extend_from_slice(certificate);
    }
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    let password = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes);
    digest.update(&password.collect::<Vec<u8>>());
    digest.update(b"Mighty Aphrodite");
    digest.update(&store);
    store.extend_from_slice(digest.finish().as_ref());
    store
}

fn length<T>(all: &[T]) -> u32 {
    u32::try_from(all.len()).unwrap_or(u32::MAX)
}

/// With its length in two bytes; it is short.
fn add_text(store: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    store.extend(length.to_be_bytes());
    store.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_the_proxy_and_what_goes_past_it() {
        let text = options(
            "10.0.2.2:3128",
            "localhost,127.0.0.1,service.test,::1",
            "/a b/.certificates.pem",
        );
        let expected = "-Dhttp.proxyHost=10.0.2.2 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=10.0.2.2 \
             -Dhttps.proxyPort=3128 -Dhttp.nonProxyHosts=localhost|127.*|service.test|::1 \
             -Daether.connector.http.useSystemProperties=true \
             \"-Djavax.net.ssl.trustStore=/a b/.certificates.jks\" -Djavax.net.ssl.trustStoreType=JKS";
        assert_eq!(text, expected);
    }
}
