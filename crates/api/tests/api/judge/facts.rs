//! Fields against each other and against nodes.

use std::sync::Arc;

use tessera_api::{NodeFacts, nodes::ContainerRuntime};

use super::{facts, node, said, table, with_map};

#[test]
fn the_device_list_strategy_goes_with_cdi() {
    let spec = |value: &str, cdi: bool| {
        format!(
            "cdi: {{enabled: {cdi}}}\ndevicePlugin: {{env: [{{name: DEVICE_LIST_STRATEGY, value: '{value}'}}]}}"
        )
    };
    for (value, cdi, want) in [
        ("cdi-annotations,cdi-cri", true, None),
        ("cdi-cri, envvar", true, None),
        ("envvar", false, None),
        ("volume-mounts", false, None),
        (
            "envvar",
            true,
            Some(
                "sets DEVICE_LIST_STRATEGY to `envvar` while cdi.enabled is true, and containers get no device without a CDI strategy; remove it, write cdi-annotations,cdi-cri, or set cdi.enabled to false",
            ),
        ),
        (
            "cdi-cri",
            false,
            Some(
                "sets DEVICE_LIST_STRATEGY to `cdi-cri` while cdi.enabled is false, and no runtime is set up to resolve CDI devices; remove it, write envvar, or set cdi.enabled to true",
            ),
        ),
        (
            "cdi",
            true,
            Some(
                "sets DEVICE_LIST_STRATEGY to `cdi`, which the device plugin does not know (cdi), so that it does not start; remove it (cdi.enabled decides), or write some of envvar, volume-mounts, cdi-annotations, cdi-cri",
            ),
        ),
        (
            "",
            true,
            Some("sets DEVICE_LIST_STRATEGY to ``, which the device plugin does not know (empty)"),
        ),
    ] {
        let found = said(&spec(value, cdi), &facts(&[]));
        match want {
            None => assert_eq!(found, Vec::<String>::new(), "{value} {cdi}"),
            Some(want) => assert!(
                found.len() == 1
                    && found[0].starts_with("refuse: spec.devicePlugin.env: ")
                    && found[0].contains(want),
                "{value} {cdi}: {found:#?}"
            ),
        }
    }
}

#[test]
fn the_nri_plugin_needs_cdi_the_toolkit_and_a_runtime() {
    let found = said("cdi: {enabled: false, nriPluginEnabled: true}", &facts(&[]));
    assert!(
        found[0].starts_with(
            "refuse: spec.cdi.nriPluginEnabled: `true` the NRI plugin hands out devices by CDI"
        ),
        "{found:#?}"
    );
    let found = said(
        "cdi: {nriPluginEnabled: true}\ntoolkit: {enabled: false}",
        &facts(&[]),
    );
    assert_eq!(
        found,
        [
            "refuse: spec.cdi.nriPluginEnabled: `true` has no effect while toolkit.enabled is false, as the NRI plugin runs in the toolkit's pods; set \
          toolkit.enabled to true, or turn the NRI plugin off"
        ]
    );
    let with = |name: &str, runtime: &str, version: &str| {
        let mut facts: NodeFacts = (*node(name, &[("gpu.product", "Tesla-T4")])).clone();
        facts.runtime = ContainerRuntime {
            name: runtime.to_owned(),
            version: version.to_owned(),
        };
        Arc::new(facts)
    };
    let known = facts(&[
        with("a", "containerd", "1.7.29"),
        with("b", "containerd", "1.7.30"),
        with("c", "containerd", "2.0.5"),
        with("d", "containerd", "2.1.0-k3s1"),
        with("e", "cri-o", "1.33.9"),
        with("f", "", ""),
    ]);
    let found = said(
        "cdi: {nriPluginEnabled: true}\noperator: {runtimeClass: x}",
        &known,
    );
    assert_eq!(
        found,
        [
            "warn: spec.cdi.nriPluginEnabled: `true` asks for more than the runtimes of some nodes have: a (containerd 1.7.29), c (containerd 2.0.5), e (cri-o 1.33.9); \
             upgrade to containerd 1.7.30, 2.1 or CRI-O 1.34, or turn the NRI plugin off",
            "warn: spec.operator.runtimeClass: `x` has no effect while cdi.nriPluginEnabled is true, as there are no RuntimeClasses then; remove it",
        ]
    );
}

#[test]
fn fields_without_effect() {
    table(
        &facts(&[]),
        &[
            (
                "cdi: {default: true}",
                &[
                    "warn: spec.cdi.default: `true` is deprecated by NVIDIA and has no effect; remove it: cdi.enabled decides",
                ],
            ),
            (
                "operator: {defaultRuntime: containerd}",
                &[
                    "warn: spec.operator.defaultRuntime: `containerd` is deprecated by NVIDIA and has no effect; remove it: the runtime of each node is detected",
                ],
            ),
            (
                "driver: {useOpenKernelModules: true}",
                &[
                    "warn: spec.driver.useOpenKernelModules: `true` is deprecated by NVIDIA and has no effect; write driver.kernelModuleType: open instead",
                ],
            ),
            (
                "sandboxWorkloads: {enabled: true}",
                &[
                    "warn: spec.sandboxWorkloads.enabled: `true` is accepted and kept, but Tessera does not act on it; remove it, or see condition Supported of the policy",
                ],
            ),
            ("sandboxWorkloads: {enabled: false}", &[]),
            (
                "devicePlugin: {config: {default: a}}",
                &[
                    "warn: spec.devicePlugin.config.default: `a` has no effect, as it names a key of the ConfigMap devicePlugin.config.name, and there is none; remove it, or name the ConfigMap",
                ],
            ),
            (
                "devicePlugin: {mps: {root: /mps}}",
                &[
                    "warn: spec.devicePlugin.mps.root: `/mps` has no effect, as no card is shared by MPS; remove it",
                ],
            ),
            (
                "driver: {licensingConfig: {configMapName: l}}",
                &[
                    "warn: spec.driver.licensingConfig.configMapName: `l` is deprecated by NVIDIA, as a licence is no matter for a ConfigMap; put it into a Secret and write licensingConfig.secretName",
                ],
            ),
        ],
    );
}

#[test]
fn images() {
    let two = "spec.toolkit.image: image `r.example/t:1` is a complete reference already";
    for (spec, want) in [
        ("toolkit: {image: 'r.example/t:1', version: '2'}", two),
        (
            "toolkit: {version: 'a b'}",
            "spec.toolkit.image: version `a b` is not valid in an image reference",
        ),
        (
            "driver: {manager: {image: 'm:1', version: '2'}}",
            "spec.driver.manager.image: image `m:1` is a complete reference already",
        ),
    ] {
        let found = said(spec, &facts(&[]));
        assert!(
            found.len() == 1 && found[0].starts_with("refuse: ") && found[0].contains(want),
            "{found:#?}"
        );
    }
    let digest = format!("sha256:{}", "0af9".repeat(16));
    let good = [
        "toolkit: {image: 'r.example:5000/t:1'}".to_owned(),
        format!("toolkit: {{repository: r.example/a, image: t, version: '{digest}'}}"),
        format!("driver: {{image: 'R.example/d:v1@{digest}'}}"),
        "toolkit: {version: v1}".to_owned(),
    ];
    for spec in good {
        assert_eq!(said(&spec, &facts(&[])), Vec::<String>::new(), "{spec}");
    }
    let tag = "write a tag of letters, digits and `_`, `.`, `-`, at most 128 characters, or a digest (sha256:...)";
    let name = "write registry and path in lower-case letters, digits and `.`, `_`, `-`, such as nvcr.io/nvidia/driver";
    let hex = "write sha256: and 64 hexadecimal digits, as the registry gives them";
    for (spec, want) in [
        (
            "toolkit: {version: 'v1/2'}",
            format!(
                "spec.toolkit.version: `v1/2` is not a tag, so that no kubelet takes the image (nvcr.io/nvidia/k8s/container-toolkit:v1/2); {tag}"
            ),
        ),
        (
            "toolkit: {version: '-v1'}",
            format!(
                "spec.toolkit.version: `-v1` is not a tag, so that no kubelet takes the image (nvcr.io/nvidia/k8s/container-toolkit:-v1); {tag}"
            ),
        ),
        (
            "gfd: {image: 'r.example/g:'}",
            format!(
                "spec.gfd.image: `r.example/g:` is not a tag, so that no kubelet takes the image (r.example/g:); {tag}"
            ),
        ),
        (
            "toolkit: {version: 'sha256:12'}",
            format!(
                "spec.toolkit.version: `sha256:12` is not a digest, so that no kubelet takes the image (nvcr.io/nvidia/k8s/container-toolkit@sha256:12); {hex}"
            ),
        ),
        (
            "dcgm: {image: 'r.example/D'}",
            format!(
                "spec.dcgm.image: `r.example/D` is not the name of an image, so that no kubelet takes the image (r.example/D); {name}"
            ),
        ),
        (
            "driver: {repository: 'https://r.example'}",
            format!(
                "spec.driver.repository: `https://r.example` is not the name of an image, so that no kubelet takes the image (https://r.example/driver:595.91.07); {name}"
            ),
        ),
    ] {
        assert_eq!(said(spec, &facts(&[])), [format!("refuse: {want}")]);
    }
}

/// P7 and P8: what single does with uneven instances is told with the nodes' names.
#[test]
fn strategy_single_and_uneven_instances() {
    let capable = |name: &str, labels: &[(&str, &str)]| {
        let mut all = vec![
            ("gpu.product", "NVIDIA-A100-SXM4-40GB"),
            ("mig.capable", "true"),
        ];
        all.extend(labels);
        node(name, &all)
    };
    let known = facts(&[
        capable("a", &[("mig.config", "all-balanced")]),
        capable(
            "b",
            &[("mig.config", "all-1g.5gb"), ("mig-1g.5gb.count", "7")],
        ),
        capable(
            "c",
            &[("mig-1g.5gb.count", "2"), ("mig-2g.10gb.count", "1")],
        ),
        capable(
            "d",
            &[("mig-1g.5gb.count", "2"), ("mig-2g.10gb.count", "0")],
        ),
    ]);
    let want = "warn: spec.mig.strategy: `single` needs nodes whose MIG instances are all alike; the device plugin advertises none on \
                others: a (layout all-balanced), c (1g.5gb, 2g.10gb); write mig.strategy: mixed, or choose an even layout for them by label \
                nvidia.com/mig.config";
    assert_eq!(said("mig: {strategy: single}", &known), [want]);
    assert_eq!(said("mig: {strategy: mixed}", &known), Vec::<String>::new());
    let layouts = "{version: v1, mig-configs: {even: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}], \
                   odd: [{devices: [0], mig-enabled: true, mig-devices: {1g.5gb: 7}}, {devices: [1], mig-enabled: true, mig-devices: {2g.10gb: 3}}]}}";
    let own = facts(&[
        capable("a", &[("mig.config", "odd")]),
        capable("b", &[("mig.config", "even")]),
    ]);
    let found = said(
        "mig: {strategy: single}\nmigManager: {config: {name: l}}",
        &with_map(own, "l", &[("config.yaml", layouts)]),
    );
    assert!(
        found.len() == 1 && found[0].contains("advertises none on others: a (layout odd);"),
        "{found:#?}"
    );
}
