//! How to look around in a cluster that is ready.

use std::path::Path;

use tessera_e2e::cluster::{Cluster, NAMESPACE};
use tessera_e2e::controlplane::Tool;
use tessera_e2e::lab::Lab;

use super::screen::Screen;

/// For the lab.
pub(super) fn lab(screen: &Screen, lab: &Lab, images: &Path, stays: bool) {
    let tools = lab
        .tools()
        .path(Tool::Kubectl)
        .parent()
        .unwrap_or(Path::new("."));
    let logs = lab.dir().join("log");
    let show = |command: String, what: &str| {
        screen.line(&format!("  {command:<86} {}", screen.paint("2", what)))
    };
    screen.line(&format!(
        "\nLook around:\n\n  export KUBECONFIG={}",
        lab.kubeconfig().display()
    ));
    screen.line(&format!(
        "  export PATH=\"{}:{}:$PATH\"\n",
        tools.display(),
        images.display()
    ));
    show(
        "kubectl get clusterpolicy,sre,nodeoperations".to_owned(),
        "what is asked for and how it is",
    );
    show(
        "kubectl describe clusterpolicy gpu-cluster-config".to_owned(),
        "conditions with reason and next step",
    );
    show(
        format!("kubectl -n {NAMESPACE} get daemonset,deployment,pod"),
        "operands and controllers",
    );
    show(
        "kubectl get nodes -L nvidia.com/gpu.product,nvidia.com/gpu.replicas".to_owned(),
        "the nodes",
    );
    show(
        "kubectl tessera status".to_owned(),
        "all of it on one screen",
    );
    show(
        format!("tail -f {}/pods/*.log", logs.display()),
        "the controllers' logs",
    );
    screen.line("\nBreak something:\n");
    show(
        "kubectl annotate node gpu-00000 sim.tessera.dev/xid=3:79".to_owned(),
        "a card falls off the bus",
    );
    show(
        "kubectl annotate node gpu-00001 sim.tessera.dev/nvidia-device-plugin-daemonset=crash"
            .to_owned(),
        "a plugin crashes",
    );
    show(
        format!("kubectl -n {NAMESPACE} delete daemonset nvidia-dcgm-exporter"),
        "drift",
    );
    screen.line(&format!("\nAll logs: {}", logs.display()));
    screen.line(if stays {
        "\nIt stays; `cargo xtask down` stops it."
    } else {
        "\nCtrl-C stops everything."
    });
}

/// For a cluster of somebody's.
pub(super) fn existing(screen: &Screen, cluster: &Cluster) {
    screen.line(&format!(
        "\nInstalled in {}. It stays; to remove it:",
        cluster.kubeconfig().display()
    ));
    screen.line(&format!("  helm uninstall gpu-operator -n {NAMESPACE}"));
}
