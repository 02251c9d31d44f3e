//! `NodeOperation` (aiops.local/v1alpha1): what is being done to a node, by whom, and how far it is; also the node's lock
//! (DESIGN section 2.4). It has no spec: nobody orders an operation by editing one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::{CustomResource, KubeSchema, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::{names::annotation, policy::fields::choice};

/// Nothing: all of a NodeOperation is status.
#[derive(
    CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize,
)]
#[kube(
    group = "aiops.local",
    version = "v1alpha1",
    kind = "NodeOperation",
    plural = "nodeoperations",
    shortname = "nodeop",
    category = "gpu",
    no_spec,
    status = "NodeOperationStatus",
    derive = "PartialEq",
    doc = "What is being done to the node of the same name, by whom, and how far it is. A node without one is left in peace.",
    printcolumn(name = "Operation", type_ = "string", json_path = ".status.operation"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Holder", type_ = "string", json_path = ".status.holder"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since"),
    printcolumn(
        name = "Deadline",
        type_ = "string",
        json_path = ".status.deadline",
        priority = 1
    ),
    printcolumn(
        name = "Attempts",
        type_ = "integer",
        json_path = ".status.attempts",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        priority = 1
    )
)]
pub struct NodeOperationSpec {}

choice! {
    /// What is done to the node.
    OperationKind {
        /// Another driver.
        DriverUpgrade = "DriverUpgrade",
        /// Another MIG layout.
        MigChange = "MigChange",
        /// Isolation and repair by an SREAgent.
        Repair = "Repair",
    }
}

choice! {
    /// How far an operation is.
    OperationPhase {
        /// Created; may not act yet: the budget is being checked.
        Tentative = "Tentative",
        /// Admitted by the budget; may act.
        Active = "Active",
        /// The node takes no new pods.
        Cordoned = "Cordoned",
        /// Waiting for jobs to end.
        WaitingForJobs = "WaitingForJobs",
        /// Pods that use GPUs are evicted.
        EvictingPods = "EvictingPods",
        /// The whole node is drained.
        Draining = "Draining",
        /// The driver pod was deleted and its successor starts.
        RestartingDriver = "RestartingDriver",
        /// The MIG manager changes the layout.
        ApplyingLayout = "ApplyingLayout",
        /// Waiting for a repair by others (reset, reboot, exchange).
        AwaitingRepair = "AwaitingRepair",
        /// The result is checked.
        Validating = "Validating",
        /// Clean again, watched before release.
        Probation = "Probation",
        /// The node is given back.
        Uncordoning = "Uncordoning",
        /// Ended well.
        Done = "Done",
        /// Ended badly; the node stays as it is, see reason and message.
        Failed = "Failed",
        /// Given up before anything was done.
        Withdrawn = "Withdrawn",
    }
}

impl OperationPhase {
    /// Whether the operation is over, so that its object may be taken over.
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Withdrawn)
    }

    /// Whether the operation may have taken the node out of service, and so counts against the budget. Tentative ones count too
    /// (DESIGN 2.4); a failed one does, for its node stays cordoned. An unknown phase counts.
    pub const fn counts_against_budget(self) -> bool {
        !matches!(self, Self::Done | Self::Withdrawn)
    }
}

choice! {
    /// Why an operation is where it is.
    OperationReason {
        /// The driver pod is not what the policy says.
        DriverOutdated = "DriverOutdated",
        /// The node's layout is not what its label says.
        LayoutOutdated = "LayoutOutdated",
        /// A fatal signal of a card.
        FatalFault = "FatalFault",
        /// Somebody asked for it.
        Requested = "Requested",
        /// The budget has no room.
        BudgetExceeded = "BudgetExceeded",
        /// Under way.
        InProgress = "InProgress",
        /// Jobs still run.
        JobsRunning = "JobsRunning",
        /// A PodDisruptionBudget allows no eviction now.
        DisruptionBudget = "DisruptionBudget",
        /// A pod may not be evicted (no controller, or emptyDir data).
        PodNotEvictable = "PodNotEvictable",
        /// Evicted pods are still ending.
        PodsTerminating = "PodsTerminating",
        /// The driver is not ready yet.
        DriverNotReady = "DriverNotReady",
        /// The validator is not ready yet.
        ValidatorNotReady = "ValidatorNotReady",
        /// The MIG manager has not finished.
        LayoutPending = "LayoutPending",
        /// The fault signal is still there.
        FaultPresent = "FaultPresent",
        /// The signal is gone; the node is watched.
        Watching = "Watching",
        /// Somebody else cordoned the node; it is left alone.
        ForeignCordon = "ForeignCordon",
        /// The node is not Ready.
        NodeNotReady = "NodeNotReady",
        /// The deadline has passed.
        DeadlineExceeded = "DeadlineExceeded",
        /// A container keeps crashing.
        CrashLooping = "CrashLooping",
        /// An image cannot be pulled.
        ImagePullFailed = "ImagePullFailed",
        /// The MIG manager says failed.
        LayoutFailed = "LayoutFailed",
        /// The node has gone.
        NodeGone = "NodeGone",
        /// What was wanted is no longer wanted.
        NoLongerNeeded = "NoLongerNeeded",
        /// A human is needed.
        ManualRequired = "ManualRequired",
        /// Ended well.
        Succeeded = "Succeeded",
    }
}

/// All of a NodeOperation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOperationStatus {
    /// What is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationKind>,
    /// Who does it: the controller's name (for an agent `sre-agent/<namespace>/<name>`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<OperationPhase>,
    /// Why it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OperationReason>,
    /// In words: cause and next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it leads to, e.g. the driver version or the layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// When the operation began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// When it came to its phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When the phase is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// How often it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// What it waits for, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub blockers: Vec<Blocker>,
    /// How the node was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<Found>,
    /// What must be undone before the operation ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub undo: Vec<Undo>,
}

/// An object that holds an operation up.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// Kind, e.g. Pod, PodDisruptionBudget, Node.
    pub kind: String,
    /// Namespace, empty for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// How it holds the operation up, and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How the node was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// It was cordoned already: then it is not uncordoned at the end.
    #[serde(default)]
    pub cordoned_before: bool,
    /// The boot that it ran, to see a reboot.
    #[serde(default, rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// The driver or layout that it had.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

choice! {
    /// A thing that must be undone.
    UndoAct {
        /// Make the node schedulable again.
        Uncordon = "Uncordon",
        /// Take our taint away.
        RemoveTaint = "RemoveTaint",
        /// Give a paused deploy label its value back.
        RestoreLabel = "RestoreLabel",
    }
}

/// A thing that must be undone before the operation ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Undo {
    /// What.
    pub act: UndoAct,
    /// Label or taint key.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Its value before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

impl NodeOperation {
    /// A new operation on a node, owned by the node, with its holder in annotation [`annotation::HOLDER`]: status is a subresource,
    /// so between creation and the first status write the annotation alone says whose it is.
    pub fn on_node(node: &str, node_uid: &str, holder: &str) -> Self {
        let mut operation = Self::new(node, NodeOperationSpec {});
        operation.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: node.to_owned(),
            uid: node_uid.to_owned(),
            controller: Some(false),
            block_owner_deletion: None,
        }]);
        operation
            .annotations_mut()
            .insert(annotation::HOLDER.into(), holder.to_owned());
        operation
    }

    /// How far it is: one without status yet is Tentative.
    pub fn phase(&self) -> OperationPhase {
        self.status
            .as_ref()
            .and_then(|s| s.phase)
            .unwrap_or(OperationPhase::Tentative)
    }

    /// Who holds it: status, else the annotation of its creation.
    pub fn holder(&self) -> Option<&str> {
        let status = self.status.as_ref().and_then(|s| s.holder.as_deref());
        status.or_else(|| {
            self.annotations()
                .get(annotation::HOLDER)
                .map(String::as_str)
        })
    }
}
