//! Lists of single sandboxes.

use domain::egress_list::SandboxEgress;

use super::super::EgressLimits;
use super::*;

/// Lists of one sandbox.
#[async_trait]
impl EgressLimits for SandboxEgress {
    async fn of(&self, sandbox: &SandboxId) -> Result<SandboxEgress, BoxError> {
        assert_eq!(sandbox.as_str(), "sandbox-1");
        Ok(self.clone())
    }
}

#[tokio::test]
async fn a_sandbox_has_the_list_of_its_template_and_within_it_that_of_its_owner() {
    let list = |text: Option<&str>| text.map(|text| text.parse().unwrap());
    // Names that do not resolve are allowed where the answer is 502.
    for (template, own, name, status) in [
        (None, None, "a.invalid", 502),
        (None, None, "b.invalid", 403),
        (Some("b.invalid"), None, "a.invalid", 403),
        (Some("b.invalid"), None, "b.invalid", 502),
        (None, Some("b.invalid"), "a.invalid", 403),
        (None, Some("b.invalid"), "b.invalid", 403),
        (None, Some("public"), "a.invalid", 502),
        (None, Some("public"), "b.invalid", 403),
        (Some("public"), Some("b.invalid"), "b.invalid", 502),
        (Some("public"), Some("b.invalid"), "a.invalid", 403),
        (Some("public"), Some(""), "a.invalid", 403),
        (Some(""), None, "a.invalid", 403),
    ] {
        let lists = SandboxEgress {
            template: list(template),
            own: list(own),
        };
        let rules = EgressRules::parse(["a.invalid"]).unwrap();
        let proxy = Arc::new(EgressProxy::new(rules).with_limits(Arc::new(lists)));
        for line in [format!("CONNECT {name}:443"), format!("GET http://{name}/")] {
            let request = format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n");
            let response = exchange(&proxy, request.as_bytes()).await;
            assert!(
                response.starts_with(&format!("HTTP/1.1 {status}")),
                "{template:?} {own:?} {line}: {response}"
            );
        }
    }
}

#[tokio::test]
async fn an_owner_approves_hosts_that_the_own_list_lacks() {
    let owner = Owner {
        approved: vec!["a.invalid:443".to_owned()],
        asked: Mutex::default(),
    };
    let rules = EgressRules::parse(["public"]).unwrap();
    let lists = SandboxEgress {
        template: None,
        own: Some("b.invalid".parse().unwrap()),
    };
    let proxy = EgressProxy::new(rules)
        .with_limits(Arc::new(lists))
        .with_approvals(Arc::new(owner));
    let proxy = Arc::new(proxy);
    for (name, status) in [("a.invalid", 502), ("b.invalid", 502), ("c.invalid", 403)] {
        let request = format!("CONNECT {name}:443 HTTP/1.1\r\nHost: x\r\n\r\n");
        let response = exchange(&proxy, request.as_bytes()).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{name}: {response}"
        );
    }
}
