//! Tests the Kubernetes backend on a real cluster.

use crate::run::{cargo, run};
use crate::suites::{has_nextest, runner};

/// The cluster, which `kubectl` finds as well: `$KUBECONFIG`, or `~/.kube/config`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct KubernetesArgs {
    /// An image of agent servers that the cluster can pull, with `python3`.
    #[arg(long)]
    image: String,
    /// The namespace of the sandboxes, which must exist.
    #[arg(long, default_value = "agent-workspace-sandboxes")]
    namespace: String,
    /// What makes pods. Without it, both are tested: the cluster needs the resource `Sandbox`.
    #[arg(long, value_enum)]
    engine: Option<PodMaker>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PodMaker {
    AgentSandbox,
    Pods,
}

pub(crate) fn test(args: &KubernetesArgs) -> anyhow::Result<()> {
    let tests = match args.engine {
        None => "",
        Some(PodMaker::AgentSandbox) => "agent_sandbox::",
        Some(PodMaker::Pods) => "pods::",
    };
    let mut command = if has_nextest() {
        let mut command = runner();
        let filter =
            format!("package(sandbox-kubernetes) & binary(any_cluster) & test(/^{tests}/)");
        command.args(["--workspace", "--filterset", &filter]);
        command
    } else {
        let mut command = cargo();
        command.args(["test", "--package", "sandbox-kubernetes"]);
        command.args(["--test", "any_cluster", "--", tests]);
        command
    };
    run(command
        .env("TEST_KUBERNETES_IMAGE", &args.image)
        .env("TEST_KUBERNETES_NAMESPACE", &args.namespace))
}
