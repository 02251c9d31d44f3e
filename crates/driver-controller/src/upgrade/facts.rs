//! What the upgrade machine looks at, as plain data.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tessera_api::names::{annotation, label};
use tessera_api::nodeoperation::OperationKind;
use tessera_api::units::IntOrPercent;
use tessera_api::{EffectivePolicy, NodeFacts};
use tessera_runtime::drain::{Force, is_marked};
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::operation::{Budget, NodeState};

/// The kind of our operations.
pub const KIND: OperationKind = OperationKind::DriverUpgrade;

/// How long a new driver may take to become ready. NVIDIA's startup probe gives up after 21 minutes (60 s and 120 times
/// 10 s), and the image has to be pulled before.
const RESTART_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long the validator may take: what NVIDIA's operator allows (hard-coded there).
const VALIDATION_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How often a driver container may restart before its node counts as failed: NVIDIA's number.
pub const MAX_RESTARTS: i32 = 10;

/// The driver that a node should run: the template of its pool's DaemonSet as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Annotation `aiops.local/config-hash` of the template.
    pub hash: String,
    /// The driver's version, for people.
    pub version: String,
}

impl Wanted {
    /// As a NodeOperation's target: two templates have different ones.
    pub fn target(&self) -> String {
        format!("{} ({})", self.version, self.hash)
    }
}

/// Which driver a node should have from us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// None: the driver is off, the node brings its own, or is no GPU node.
    Nothing,
    /// One, but its DaemonSet is not there (deleted, or not made yet) or cannot be told: what is under way waits.
    Unknown,
    /// This one.
    Driver(Wanted),
}

/// Whose cordon a node is under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cordon {
    /// Nobody's.
    None,
    /// Ours.
    Ours,
    /// Somebody else's: left alone.
    Foreign,
}

/// One GPU node.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Facts {
    /// Name.
    pub node: String,
    /// The kubelet reports Ready.
    pub ready: bool,
    /// Whose cordon it is under.
    pub cordon: Cordon,
    /// It carries our mark, cordoned or not.
    pub marked: bool,
    /// It is kept out of upgrades by a label.
    pub skip: bool,
    /// Somebody asked for an upgrade of this node.
    pub requested: bool,
    /// NVIDIA's upgrade state label.
    pub state: Option<String>,
    /// Its driver as it should be, if that is known.
    pub wanted: Option<Wanted>,
    /// It should have no driver from us.
    pub driverless: bool,
    /// Its driver pod.
    pub driver: Option<Arc<PodFacts>>,
    /// Whether a validator should run on it.
    pub validated: bool,
    /// Its validator pod.
    pub validator: Option<Arc<PodFacts>>,
}

impl Facts {
    /// Of a node and what should and does run on it.
    pub fn of(
        node: &NodeFacts,
        want: Want,
        driver: Option<Arc<PodFacts>>,
        validator: Option<Arc<PodFacts>>,
        rules: &Rules,
    ) -> Self {
        let marked = is_marked(node, KIND);
        let cordon = match (node.unschedulable, marked) {
            (false, _) => Cordon::None,
            (true, true) => Cordon::Ours,
            (true, false) => Cordon::Foreign,
        };
        let state = node.label(label::UPGRADE_STATE).map(str::to_owned);
        let asked = node
            .annotations
            .get(annotation::UPGRADE_REQUESTED)
            .is_some_and(|value| value == "true");
        let deploys = node
            .label(label::DEPLOY_VALIDATOR)
            .is_none_or(|value| value == "true" || value.starts_with("paused"));
        Self {
            node: node.name.clone(),
            ready: node.ready,
            cordon,
            marked,
            skip: node.label(label::UPGRADE_SKIP) == Some("true"),
            // NVIDIA's documentation tells people to set the label so to try a failed node again.
            requested: asked || state.as_deref() == Some(state::REQUIRED),
            state,
            driverless: want == Want::Nothing,
            wanted: match want {
                Want::Driver(wanted) => Some(wanted),
                Want::Nothing | Want::Unknown => None,
            },
            driver,
            validated: rules.validator && deploys,
            validator,
        }
    }

    /// Its driver pod was made from another template. A node without a driver pod gets its first one: no upgrade.
    pub fn outdated(&self) -> bool {
        match (&self.driver, &self.wanted) {
            (Some(driver), Some(wanted)) => driver.config_hash != wanted.hash,
            _ => false,
        }
    }

    /// Its driver has to be restarted.
    pub fn needs_restart(&self) -> bool {
        self.wanted.is_some() && (self.outdated() || self.requested)
    }

    /// What an operation on it leads to now.
    pub fn target(&self) -> String {
        match &self.wanted {
            Some(wanted) => wanted.target(),
            None if self.driverless => "no driver".to_owned(),
            None => "unknown".to_owned(),
        }
    }
}

/// How the budget sees a node.
pub fn node_state(node: &NodeFacts) -> NodeState {
    NodeState {
        ready: node.ready,
        cordoned: node.unschedulable,
        cordoned_by: node.annotations.get(annotation::CORDONED_BY).cloned(),
    }
}

/// Values of NVIDIA's upgrade state label. We write it together with a cordon only, for those who look at it.
pub mod state {
    /// Set by people: try again.
    pub const REQUIRED: &str = "upgrade-required";
    /// Under way: the node is cordoned.
    pub const UNDER_WAY: &str = "pod-restart-required";
    /// Ended well.
    pub const DONE: &str = "upgrade-done";
    /// Ended badly.
    pub const FAILED: &str = "upgrade-failed";
}

/// How upgrades go: the policy's `driver.upgradePolicy`, and our limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Begin without being asked. If not, nothing is ever begun.
    pub auto: bool,
    /// How much may be disturbed at once.
    pub budget: Budget,
    /// Failed nodes at which no further node is begun.
    pub failures: usize,
    /// Selector of the jobs to wait for; empty: none.
    pub jobs: String,
    /// Longest wait for them; `None` is for ever.
    pub jobs_limit: Option<Duration>,
    /// How hard GPU pods are treated.
    pub eviction: Force,
    /// Longest wait for them to leave; `None` is for ever.
    pub eviction_limit: Option<Duration>,
    /// What follows when they have not left.
    pub drain: Option<DrainRules>,
    /// Longest wait for the new driver.
    pub restart_limit: Duration,
    /// Longest wait for the validator.
    pub validation_limit: Duration,
    /// Whether validators run at all.
    pub validator: bool,
    /// Resource names given to GPUs besides NVIDIA's.
    pub renamed: BTreeSet<String>,
}

/// A drain of the whole node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainRules {
    /// Which pods; empty: all.
    pub selector: String,
    /// How hard they are treated.
    pub force: Force,
    /// Longest wait; `None` is for ever.
    pub limit: Option<Duration>,
}

impl Default for Rules {
    /// Without a policy: nothing is begun, and what is under way gives its node back.
    fn default() -> Self {
        let gentle = Force {
            unmanaged: false,
            empty_dir: false,
        };
        Self {
            auto: false,
            budget: Budget {
                max_parallel: Some(1),
                max_unavailable: IntOrPercent::Percent(25),
            },
            failures: 1,
            jobs: String::new(),
            jobs_limit: None,
            eviction: gentle,
            eviction_limit: Some(Duration::from_secs(300)),
            drain: None,
            restart_limit: RESTART_LIMIT,
            validation_limit: VALIDATION_LIMIT,
            validator: false,
            renamed: BTreeSet::new(),
        }
    }
}

impl Rules {
    /// Of a policy.
    pub fn of(policy: &EffectivePolicy) -> Self {
        let upgrade = &policy.driver.upgrade;
        let limit = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
        let drain = DrainRules {
            selector: upgrade.drain.pod_selector.clone(),
            force: Force {
                unmanaged: upgrade.drain.force,
                empty_dir: upgrade.drain.delete_empty_dir,
            },
            limit: limit(upgrade.drain.timeout_seconds),
        };
        let parallel = usize::try_from(upgrade.max_parallel_upgrades).unwrap_or(usize::MAX);
        Self {
            auto: upgrade.auto_upgrade,
            budget: Budget {
                max_parallel: (parallel > 0).then_some(parallel),
                max_unavailable: upgrade.max_unavailable,
            },
            jobs: upgrade.wait_pod_selector.clone(),
            jobs_limit: limit(upgrade.wait_timeout_seconds),
            eviction: Force {
                unmanaged: upgrade.pod_deletion.force,
                empty_dir: upgrade.pod_deletion.delete_empty_dir,
            },
            eviction_limit: limit(upgrade.pod_deletion.timeout_seconds),
            drain: upgrade.drain.enable.then_some(drain),
            validator: policy.validator.operand.enabled,
            ..Self::default()
        }
    }
}
