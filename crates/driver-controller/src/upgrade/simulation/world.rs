//! A small cluster: nodes, their driver, validator and GPU pods, NodeOperations; with resource versions, and with checks
//! of what must never happen on every write.

use crate::upgrade::error::UpgradeError;
use crate::upgrade::facts::{KIND, Rules, Want, Wanted, node_state};
use crate::upgrade::run::Scene;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::NodeFacts;
use tessera_api::names::controller;
use tessera_api::nodeoperation::OperationPhase;
use tessera_api::units::IntOrPercent;
use tessera_runtime::election::NotLeading;
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::operation::{NodeState, Operation};

/// Random numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % 1_000_003).unwrap() % sides.max(1)
    }

    pub(super) fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }
}

/// A pod of a user.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Protected by a PodDisruptionBudget until somebody lifts it.
    pub(super) blocked: bool,
    pub(super) ending: bool,
}

#[derive(Clone, Debug)]
pub(super) struct SimNode {
    pub(super) facts: NodeFacts,
    /// Who made the present cordon: the truth that the checks know.
    pub(super) cordoned_by_us: bool,
    pub(super) driver: Option<PodFacts>,
    pub(super) validator: Option<PodFacts>,
    pub(super) jobs: Vec<Job>,
    /// The new driver never gets ready here.
    pub(super) broken: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub(super) second: i64,
    pub(super) version: u64,
    pub(super) template: u64,
    /// Somebody has deleted the DaemonSet, and it is not made again yet.
    pub(super) daemon_set_gone: bool,
    pub(super) nodes: BTreeMap<String, SimNode>,
    pub(super) operations: BTreeMap<String, Operation>,
    /// Acts until the process dies, and whether it dies after the act rather than before.
    pub(super) crash: Option<(usize, bool)>,
    pub(super) requests: BTreeMap<&'static str, usize>,
}

/// The cluster, shared by everybody in it.
#[derive(Clone)]
pub(super) struct World {
    pub(super) cluster: Arc<Mutex<Cluster>>,
    pub(super) rules: Rules,
}

impl Cluster {
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.second).unwrap()
    }

    pub(super) fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            hash: self.template.to_string(),
            version: format!("v{}", self.template),
        }
    }

    pub(super) fn want(&self) -> Want {
        if self.daemon_set_gone {
            Want::Unknown
        } else {
            Want::Driver(self.wanted())
        }
    }

    pub(super) fn add_node(&mut self, name: &str) {
        let version = self.next_version();
        let facts = NodeFacts {
            name: name.into(),
            uid: format!("uid-{version}"),
            resource_version: version,
            ready: true,
            ..NodeFacts::default()
        };
        let node = SimNode {
            facts,
            cordoned_by_us: false,
            driver: None,
            validator: None,
            jobs: Vec::new(),
            broken: false,
        };
        self.nodes.insert(name.into(), node);
    }

    pub(super) fn pod(&mut self, name: &str) -> PodFacts {
        let uid = self.next_version();
        let config_hash = self.template.to_string();
        PodFacts {
            name: format!("{name}-{uid}"),
            uid,
            config_hash,
            created: self.second,
            ..PodFacts::default()
        }
    }

    pub(super) fn states(&self) -> BTreeMap<String, NodeState> {
        self.nodes
            .iter()
            .map(|(name, node)| (name.clone(), node_state(&node.facts)))
            .collect()
    }

    /// DaemonSet controller, kubelets and time.
    pub(super) fn live(&mut self, dice: &mut Dice) {
        self.second += i64::try_from(1 + dice.roll(20)).unwrap();
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            let (driver, validator) = (self.pod("driver"), self.pod("validator"));
            let node = self.nodes.get_mut(&name).unwrap();
            node.jobs.retain(|job| !job.ending);
            if node.driver.as_ref().is_none_or(|pod| pod.deleting) {
                node.driver = Some(driver);
            } else if let Some(pod) = node.driver.as_mut() {
                pod.ready = !node.broken && node.facts.ready;
            }
            let driver_ready = node.driver.as_ref().is_some_and(|pod| pod.ready);
            if node.validator.as_ref().is_none_or(|pod| pod.deleting) {
                node.validator = Some(validator);
            } else if let Some(pod) = node.validator.as_mut() {
                // It checks once: what was ready stays so.
                pod.ready = pod.ready || driver_ready;
            }
        }
    }

    fn check(&self, rules: &Rules) {
        let running = |operation: &&Operation| {
            !operation.is_ended() && operation.phase() != OperationPhase::Tentative
        };
        let active: Vec<&Operation> = self.operations.values().filter(running).collect();
        let upgrades = active
            .iter()
            .filter(|operation| operation.kind() == Some(KIND))
            .count();
        assert!(
            rules
                .budget
                .max_parallel
                .is_none_or(|limit| upgrades <= limit),
            "{upgrades} upgrades at once"
        );
        let ours = self
            .nodes
            .iter()
            .filter(|(_, node)| node.facts.unschedulable && node.cordoned_by_us);
        let mut out: std::collections::BTreeSet<&str> = active
            .iter()
            .map(|operation| operation.node.as_str())
            .collect();
        out.extend(ours.map(|(name, _)| name.as_str()));
        let IntOrPercent::Int(limit) = rules.budget.max_unavailable else {
            panic!("the simulation counts")
        };
        assert!(
            out.len() <= limit as usize,
            "{out:?} are out of service because of us, {limit} may be"
        );
    }
}

impl World {
    /// One write or act: the process may die before or after it.
    pub(super) fn act<T>(
        &self,
        what: &'static str,
        act: impl FnOnce(&mut Cluster) -> T,
    ) -> Result<T, UpgradeError> {
        let mut cluster = self.cluster.lock();
        let dies = match &mut cluster.crash {
            Some((0, after)) => Some(*after),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        let dead = || Err(UpgradeError::NotLeading(NotLeading));
        if dies == Some(false) {
            cluster.crash = None;
            return dead();
        }
        *cluster.requests.entry(what).or_default() += 1;
        let result = act(&mut cluster);
        cluster.check(&self.rules);
        if dies == Some(true) {
            cluster.crash = None;
            return dead();
        }
        Ok(result)
    }

    pub(super) fn conflict() -> UpgradeError {
        UpgradeError::Restless("conflict".into())
    }

    /// A compare-and-swap of an operation.
    pub(super) fn replace(
        &self,
        known: &Operation,
        change: impl FnOnce(&mut Operation, Timestamp),
    ) -> Result<Operation, UpgradeError> {
        self.act("write operation", |cluster| {
            let (version, now) = (cluster.next_version(), cluster.now());
            let Some(current) = cluster.operations.get_mut(&known.node) else {
                return Err(Self::conflict());
            };
            if current.version != known.version {
                return Err(Self::conflict());
            }
            change(current, now);
            current.version = version;
            Ok(current.clone())
        })?
    }

    /// What a process sees of a node that may have been looked at a while ago.
    pub(super) fn scene(&self, name: &str, stale: &Cluster) -> Option<Scene> {
        let cluster = self.cluster.lock();
        let node = stale.nodes.get(name)?.facts.clone();
        let current = cluster.nodes.get(name);
        Some(Scene {
            node,
            want: cluster.want(),
            driver: current.and_then(|node| node.driver.clone()).map(Arc::new),
            validator: current
                .and_then(|node| node.validator.clone())
                .map(Arc::new),
            operation: stale.operations.get(name).cloned(),
        })
    }
}

/// Our name.
pub(super) const US: &str = controller::DRIVER;
