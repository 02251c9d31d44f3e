use super::*;
use crate::build::build;
use crate::fleet::{Fleet, Placement};
use crate::testing::{configs, labelled, node, policy};
use crate::validate::validate;
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;
use std::sync::Arc;
use tessera_api::names::label;
use tessera_api::{EffectivePolicy, NodeFacts};
use tessera_runtime::apply::Owned;
use tessera_runtime::operands::pod::{PodFacts, Trouble, TroubleKind};
use tessera_runtime::status::Finding;

/// What the controller would see with these nodes, when of each DaemonSet's pods `ready` are ready.
struct Scene {
    policy: EffectivePolicy,
    nodes: Vec<NodeFacts>,
    ready: i32,
    pods: Vec<PodFacts>,
    failures: Failures,
}

impl Scene {
    fn new(policy: EffectivePolicy, nodes: Vec<NodeFacts>) -> Self {
        let ready = i32::try_from(nodes.len()).unwrap();
        Self {
            policy,
            nodes,
            ready,
            pods: Vec::new(),
            failures: Failures::default(),
        }
    }

    fn slice(&self) -> Slice {
        let mut fleet = Fleet::default();
        let places = self
            .nodes
            .iter()
            .filter_map(|node| Some((node.name.clone(), Placement::of(node, &self.policy)?)));
        fleet.rebuild(places);
        let validated = validate(&self.policy, "ns", fleet.census(), &configs(&[]));
        let desired = build(&validated, "ns").desired().unwrap();
        let mut sets = BTreeMap::new();
        for object in desired.objects() {
            let mut value = object.value.clone();
            let covered = self.nodes.iter().filter(|node| {
                node.taints.is_empty() && Placement::of(node, &self.policy).is_some()
            });
            let desired = covered.count();
            value["metadata"]["generation"] = json!(1);
            value["status"] = json!({
                "observedGeneration": 1, "desiredNumberScheduled": desired, "numberReady": self.ready,
                "updatedNumberScheduled": desired, "currentNumberScheduled": desired, "numberMisscheduled": 0,
            });
            if value["kind"] == "DaemonSet" {
                let set = Owned {
                    uid: String::new(),
                    deleting: false,
                    value,
                };
                sets.insert(object.key.name.clone(), Arc::new(set));
            }
        }
        let mut pods: BTreeMap<String, Vec<Arc<PodFacts>>> = BTreeMap::new();
        for pod in &self.pods {
            pods.entry(pod.component.clone())
                .or_default()
                .push(Arc::new(pod.clone()));
        }
        let rolled = Rolled {
            census: fleet.census().clone(),
            sets,
            pods,
        };
        slice(&validated, &rolled, &self.failures, &Survey::default())
    }

    fn said(&self) -> Vec<(bool, Reason, String)> {
        let told = |finding: Finding| {
            (
                finding.status == ConditionStatus::True,
                finding.reason,
                finding.message,
            )
        };
        self.slice().findings.into_iter().map(told).collect()
    }
}

fn trouble(component: &str, node: &str, kind: TroubleKind, message: &str) -> PodFacts {
    PodFacts {
        uid: String::new(),
        name: format!("{component}-{node}"),
        node: node.to_owned(),
        app: String::new(),
        component: component.to_owned(),
        revision: String::new(),
        config_hash: String::new(),
        ready: false,
        deleting: false,
        ip: String::new(),
        restarts: 0,
        created: 0,
        trouble: Some(Trouble {
            kind,
            message: message.to_owned(),
        }),
    }
}

fn defaults() -> EffectivePolicy {
    policy(json!({}))
}

#[test]
fn all_well() {
    let scene = Scene::new(defaults(), vec![node("a"), node("b")]);
    let reasons: Vec<_> = scene
        .said()
        .into_iter()
        .map(|(ready, reason, _)| (ready, reason))
        .collect();
    assert_eq!(reasons, [(true, Reason::Ready); 3]);
    let slice = scene.slice();
    assert_eq!(slice.component.summary.as_deref(), Some("2/2"));
    assert_eq!(slice.component.version.as_deref(), Some("595.91.07"));
    assert_eq!(slice.component.exceptions, []);
    let names: Vec<_> = slice
        .component
        .operands
        .iter()
        .map(|operand| operand.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "nvidia-container-toolkit-daemonset",
            "nvidia-driver-daemonset-ubuntu22.04",
            "nvidia-operator-validator"
        ]
    );
    assert_eq!(outcome(&slice), Outcome::Ready);
}

#[test]
fn no_gpu_node_is_ready() {
    let scene = Scene::new(defaults(), vec![NodeFacts::default()]);
    assert!(
        scene
            .said()
            .iter()
            .all(|(ready, reason, _)| *ready && *reason == Reason::NoGPUNodes),
        "{:?}",
        scene.said()
    );
}

#[test]
fn switched_off_and_invalid() {
    let off = policy(
        json!({"driver": {"enabled": false}, "toolkit": {"image": "x:1", "version": "2"}, "validator": {"enabled": false}}),
    );
    let said = Scene::new(off, vec![node("a")]).said();
    assert_eq!((said[0].0, said[0].1), (true, Reason::Disabled));
    assert_eq!((said[1].0, said[1].1), (false, Reason::InvalidSpec));
    assert!(
        said[1].2.contains("toolkit.image") && said[1].2.ends_with("what ran before keeps running"),
        "{}",
        said[1].2
    );
    assert_eq!(said[2].1, Reason::Disabled);
}

#[test]
fn a_missing_config_map_blocks_the_driver_only() {
    let missing = policy(json!({"driver": {"certConfig": {"name": "ca"}}}));
    let scene = Scene::new(missing, vec![node("a")]);
    let said = scene.said();
    assert_eq!((said[0].0, said[0].1), (false, Reason::ConfigMapNotFound));
    assert!(said[1].0 && said[2].0);
    assert_eq!(
        outcome(&scene.slice()),
        Outcome::Blocked {
            reason: "DriverReady: ConfigMapNotFound".to_owned()
        }
    );
}

#[test]
fn an_image_that_is_not_there_is_named_with_advice() {
    let mut scene = Scene::new(defaults(), vec![node("a"), node("b"), node("c")]);
    scene.ready = 2;
    let cannot = "container nvidia-driver-ctr cannot get its image nvcr.io/nvidia/driver:1-ubuntu22.04: not found";
    scene.pods = vec![trouble(DRIVER, "b", TroubleKind::ImagePull, cannot)];
    let said = scene.said();
    assert_eq!((said[0].0, said[0].1), (false, Reason::ImagePullFailed));
    assert_eq!(
        said[0].2,
        format!(
            "DaemonSet nvidia-driver-daemonset-ubuntu22.04: 2 of 3 pods ready; on b: {cannot}; name a driver.version that is published for \
             this operating system and kernel, or a driver.repository that has it"
        )
    );
    let exception = &scene.slice().component.exceptions[0];
    assert_eq!(
        (
            exception.reason.as_str(),
            exception.count,
            exception.nodes.clone()
        ),
        ("ImagePullFailed", 1, vec!["b".to_owned()])
    );
}

#[test]
fn a_failing_check_is_named() {
    let mut scene = Scene::new(defaults(), vec![node("a")]);
    scene.ready = 0;
    scene.pods = vec![trouble(
        VALIDATOR,
        "a",
        TroubleKind::Crash,
        "container cuda-validation keeps ending: exit code 1 (Error)",
    )];
    let said = scene.said();
    assert_eq!(said[2].1, Reason::ValidationFailed);
    assert!(
        said[2].2.contains("cuda-validation") && said[2].2.contains("kubectl logs"),
        "{}",
        said[2].2
    );
}

#[test]
fn a_pod_on_its_way_is_rolling_out_and_one_that_waits_names_what_for() {
    let mut scene = Scene::new(defaults(), vec![node("a")]);
    scene.ready = 0;
    let runs = "container nvidia-driver-ctr runs but is not ready";
    let waits =
        "init container driver-validation waits for the driver on its node (see DriverReady)";
    scene.pods = vec![
        trouble(DRIVER, "a", TroubleKind::Starting, runs),
        trouble(TOOLKIT, "a", TroubleKind::Dependency, waits),
        trouble(
            VALIDATOR,
            "a",
            TroubleKind::NotReady,
            "container x runs but is not ready",
        ),
    ];
    let said = scene.said();
    let reasons: Vec<Reason> = said.iter().map(|(_, reason, _)| *reason).collect();
    assert_eq!(
        reasons,
        [
            Reason::RollingOut,
            Reason::WaitingForDependency,
            Reason::PodsNotReady
        ]
    );
    assert!(said[0].2.ends_with(&format!("on a: {runs}")), "{said:?}");
    assert!(said[1].2.ends_with(&format!("on a: {waits}")), "{said:?}");
}

#[test]
fn a_taint_is_told_once_and_by_name() {
    let mut tainted = node("b");
    tainted.taints = vec![Taint {
        key: "team".to_owned(),
        value: Some("x".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }];
    let mut scene = Scene::new(defaults(), vec![node("a"), tainted.clone()]);
    scene.ready = 1;
    let said = scene.said();
    assert_eq!((said[0].0, said[0].1), (false, Reason::TaintsNotTolerated));
    assert!(
        said[0].2.starts_with(
            "1 of 2 GPU nodes not covered: on b: taint team=x:NoSchedule is not tolerated"
        ),
        "{}",
        said[0].2
    );
    assert!(said[1].0 && said[2].0, "{said:?}");
    // Without a driver the toolkit tells it.
    let mut scene = Scene::new(
        policy(json!({"driver": {"enabled": false}})),
        vec![node("a"), tainted.clone()],
    );
    scene.ready = 1;
    assert_eq!(scene.said()[1].1, Reason::TaintsNotTolerated);
    // Nothing runs anywhere: each says the same.
    let mut scene = Scene::new(defaults(), vec![tainted.clone()]);
    scene.ready = 0;
    let said = scene.said();
    assert_eq!((said[0].0, said[0].1), (false, Reason::TaintsNotTolerated));
    assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
    // A node that is switched off needs no toleration.
    let key = label::DEPLOY_OPERANDS.to_owned();
    tainted.labels.insert(key, "false".to_owned());
    let mut scene = Scene::new(defaults(), vec![node("a"), tainted]);
    scene.ready = 2;
    assert!(scene.said()[0].0, "{:?}", scene.said()[0]);
}

#[test]
fn an_unknown_system_and_host_drivers() {
    let mut unknown = node("b");
    unknown.os = None;
    let scene = Scene::new(defaults(), vec![node("a"), unknown]);
    assert_eq!(scene.said()[0].1, Reason::UnknownOperatingSystem);
    let host = labelled("a", label::DEPLOY_DRIVER, label::PRE_INSTALLED);
    let scene = Scene::new(defaults(), vec![host]);
    let said = scene.said();
    assert_eq!((said[0].0, said[0].1), (true, Reason::NodesWithHostDriver));
    assert_eq!(scene.slice().component.summary.as_deref(), Some("host"));
    assert_eq!(
        scene.slice().component.exceptions[0].reason,
        "NodesWithHostDriver"
    );
}

#[test]
fn a_refused_write_is_told() {
    let mut scene = Scene::new(defaults(), vec![node("a")]);
    let cannot = "cannot apply DaemonSet ns/x: daemonsets.apps is forbidden";
    scene.failures = Failures(BTreeMap::from([(
        TOOLKIT.to_owned(),
        (Reason::Forbidden, cannot.to_owned()),
    )]));
    assert_eq!(
        scene.said()[1],
        (
            false,
            Reason::Forbidden,
            format!("{cannot}; it is tried again")
        )
    );
}

#[test]
fn a_runtime_class_that_is_in_the_way_is_told() {
    let cannot = "cannot apply RuntimeClass nvidia: field is immutable";
    let failures = Failures(BTreeMap::from([(
        crate::build::RUNTIME_CLASS.to_owned(),
        (Reason::ReconcileFailed, cannot.to_owned()),
    )]));
    for (policy, at) in [
        (defaults(), 1),
        (policy(json!({"toolkit": {"enabled": false}})), 2),
    ] {
        let mut scene = Scene::new(policy, vec![node("a")]);
        scene.failures = failures.clone();
        let said = scene.said();
        let told: Vec<usize> = (0..)
            .zip(&said)
            .filter(|(_, s)| s.2.contains(cannot))
            .map(|(n, _)| n)
            .collect();
        assert_eq!(told, [at], "{said:?}");
    }
}
