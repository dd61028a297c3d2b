//! The life of a sandbox on a real engine.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use support::Lab;

#[tokio::test]
async fn the_image_is_there() {
    let lab = Lab::new().await;
    assert!(lab.docker.inspect_image(support::IMAGE).await.is_ok());
}
