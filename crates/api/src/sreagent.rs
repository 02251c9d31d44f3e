//! `SREAgent` (aiops.local/v1): one agent that watches GPU nodes and, if allowed, repairs them.

use k8s_openapi::{
    api::core::v1::Toleration,
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time},
};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::policy::{Resources, fields::choice};

/// What an agent should do.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "aiops.local",
    version = "v1",
    kind = "SREAgent",
    plural = "sreagents",
    singular = "sreagent",
    shortname = "sre",
    category = "gpu",
    namespaced,
    status = "SREAgentStatus",
    derive = "PartialEq",
    doc = "An agent that watches GPU nodes, reports faults, and repairs nodes when autoRepair allows it.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "AutoRepair", type_ = "boolean", json_path = ".spec.autoRepair"),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.agent.nodes.observed"
    ),
    printcolumn(
        name = "Unhealthy",
        type_ = "integer",
        json_path = ".status.agent.nodes.unhealthy"
    ),
    printcolumn(
        name = "Incidents",
        type_ = "integer",
        json_path = ".status.agent.openIncidents"
    ),
    printcolumn(
        name = "LastCheck",
        type_ = "date",
        json_path = ".status.agent.lastCheckTime",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SREAgentSpec {
    /// Watch GPUs: scrape exporters, apply GPU rules. Default true; false leaves node and pod checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_enable: Option<bool>,
    /// Act on nodes. Default false: the same rules run and say what they would do; no right to act is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_repair: Option<bool>,
    /// Seconds between checks, 5 to 3600. Default 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = monitor_interval())]
    pub monitor_interval: Option<i32>,
    /// Start no new act; recovery goes on. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Nodes to watch. Default those with label nvidia.com/gpu.present=true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// The agent's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentPodSpec>,
}

fn monitor_interval() -> kube::core::Rule {
    kube::core::Rule::new("self >= 5 && self <= 3600").message(kube::core::Message::Expression(
        "(self < 5 ? 'monitorInterval is less than 5' : 'monitorInterval is more than 3600') \
         + ' seconds: write a number from 5 to 3600'"
            .into(),
    ))
}

impl SREAgentSpec {
    /// Bounds of `monitorInterval`, seconds.
    pub const MONITOR_INTERVAL: std::ops::RangeInclusive<i32> = 5..=3600;
    /// Default of `monitorInterval`, seconds.
    pub const DEFAULT_MONITOR_INTERVAL: i32 = 30;

    /// Whether GPUs are watched (default true).
    pub fn watches_gpus(&self) -> bool {
        self.gpu_enable.unwrap_or(true)
    }

    /// Whether the agent may act (default false).
    pub fn may_repair(&self) -> bool {
        self.auto_repair.unwrap_or(false)
    }

    /// Whether no new act may start (default false).
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or(false)
    }

    /// Time between checks; a value stored before the bounds existed is brought within them.
    pub fn interval(&self) -> std::time::Duration {
        let seconds = self
            .monitor_interval
            .unwrap_or(Self::DEFAULT_MONITOR_INTERVAL);
        let bounded = seconds.clamp(
            *Self::MONITOR_INTERVAL.start(),
            *Self::MONITOR_INTERVAL.end(),
        );
        std::time::Duration::from_secs(u64::from(bounded.unsigned_abs()))
    }
}

/// The agent's pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentPodSpec {
    /// Complete image reference. Default: the controller's `--agent-image`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub image: Option<String>,
    /// Requests and limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Tolerations.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tolerations: Option<Vec<Toleration>>,
}

/// What an agent is doing, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum SREAgentPhase {
    /// The agent's pod is not available yet.
    Pending,
    /// It watches nodes; GPUs are not watched.
    Observing,
    /// It says what it would do.
    DryRun,
    /// It acts.
    Active,
    /// It starts nothing new.
    Suspended,
    /// Too many nodes are unhealthy: it acts no more until that is over.
    BreakerOpen,
    /// It cannot do its work.
    Degraded,
    /// A phase that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unrecognised,
}

choice! {
    /// Reasons of an SREAgent's conditions.
    SREAgentReason {
        /// All is well.
        AsExpected = "AsExpected",
        /// The agent's pod is not available yet.
        Deploying = "Deploying",
        /// The agent's pod cannot run.
        AgentUnavailable = "AgentUnavailable",
        /// The spec cannot be used; what was made of an earlier one stays.
        InvalidSpec = "InvalidSpec",
        /// An object of the agent could not be written.
        ApplyFailed = "ApplyFailed",
        /// The agent may act.
        Allowed = "Allowed",
        /// autoRepair is false.
        AutoRepairOff = "AutoRepairOff",
        /// This namespace may not have agents that repair.
        RepairNotPermitted = "RepairNotPermitted",
        /// The right to repair is being given.
        BindingPending = "BindingPending",
        /// Nothing new starts.
        Suspended = "Suspended",
        /// Too much is wrong at once.
        BreakerOpen = "BreakerOpen",
        /// gpuEnable is false.
        GpuDisabled = "GpuDisabled",
        /// The agent has not reported yet.
        NotReported = "NotReported",
        /// Some exporters give no usable data.
        TelemetryStale = "TelemetryStale",
        /// Nodes have incidents.
        IncidentsOpen = "IncidentsOpen",
    }
}

impl SREAgentReason {
    /// Whether condition RepairsAllowed with this reason means that the agent has the rights to act.
    pub const fn has_rights(self) -> bool {
        matches!(self, Self::Allowed | Self::Suspended | Self::BreakerOpen)
    }
}

/// Status: the controller's part, and `agent`, which the agent writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SREAgentStatus {
    /// Generation that the controller has acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// In one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<SREAgentPhase>,
    /// Ready, AgentAvailable, RepairsAllowed, TelemetryHealthy, NodesHealthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// What the agent itself reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentReport>,
}

/// What the agent reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    /// When it last looked; written only together with a change, so it is not a heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_check_time: Option<Time>,
    /// Nodes by state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// What it could scrape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<TelemetryReport>,
    /// Present while too much is wrong at once: no further node is isolated; recovery and release go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
    /// Open incidents, also those that the list below has no room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_incidents: Option<i32>,
    /// Open incidents, the worst and oldest first, at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["id".into()]))]
    pub incidents: Vec<Incident>,
}

/// Nodes by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCounts {
    /// All that are watched.
    pub observed: i32,
    /// Without an incident.
    pub healthy: i32,
    /// With an incident, in whatever state.
    pub unhealthy: i32,
    /// With a signal that is not confirmed yet.
    pub suspect: i32,
    /// Cordoned by the agent.
    pub isolated: i32,
    /// Being drained by the agent.
    pub draining: i32,
    /// Waiting for a repair by others.
    pub awaiting_repair: i32,
    /// Clean, and watched before release.
    pub probation: i32,
    /// In need of a human.
    pub manual: i32,
}

/// What could be scraped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TelemetryReport {
    /// Exporters that answered.
    pub scraped: i32,
    /// Exporters that did not, or whose data is old.
    pub stale: i32,
    /// Metrics that rules need and no exporter has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub missing_metrics: Vec<String>,
    /// Nodes without usable data, and why; at most 20. Their GPUs count as unknown, never as faulty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub stale_nodes: Vec<StaleNode>,
}

/// A node whose telemetry cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaleNode {
    /// Node.
    pub node: String,
    /// Why, in words without addresses or counters.
    pub cause: String,
}

/// Why the agent isolates no further node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// TooManyUnhealthy, SameSignature or Blind.
    pub reason: String,
    /// In words.
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// One fault of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Incident {
    /// Stable for the life of the incident.
    pub id: String,
    /// Node.
    pub node: String,
    /// Cards, if known.
    #[serde(default, rename = "gpuUUIDs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub gpu_uuids: Vec<String>,
    /// What was seen, e.g. `xid-79`.
    pub signature: String,
    /// A application, W watch, R reset, B reboot, S service.
    #[serde(rename = "class")]
    pub class: String,
    /// Where it stands, e.g. Suspect, Isolated, Probation.
    pub state: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// What the agent will do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_action: Option<String>,
    /// What it would do if autoRepair were true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_do: Option<String>,
    /// The guard rail that holds it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
}
