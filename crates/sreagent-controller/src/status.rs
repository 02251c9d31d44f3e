//! What is seen and done -> the controller's part of an SREAgent's status. Pure: the same input gives the same status, and
//! times change only with what they are about.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tessera_api::SREAgent;
use tessera_api::sreagent::{AgentReport, SREAgentPhase, SREAgentReason as Reason, SREAgentStatus};

use crate::args::Settings;
use crate::observe::Observed;
use crate::validate::{binding_name, repairs};

/// Condition types, in the order in which they are written.
pub const TYPES: [&str; 5] = [
    "Ready",
    "AgentAvailable",
    "RepairsAllowed",
    "TelemetryHealthy",
    "NodesHealthy",
];

/// How many names a message tells.
const NAMED: usize = 3;

/// One condition before it has times.
type Finding = (Option<bool>, Reason, String);

/// What a reconcile has to report besides what is observed.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// The spec cannot be used.
    Invalid(String),
    /// An object could not be written.
    Apply(String),
}

/// The status without `agent`, which is the agent's.
pub fn status(
    object: &SREAgent,
    observed: &Observed,
    trouble: Option<&Trouble>,
    settings: &Settings,
    now: &Time,
) -> SREAgentStatus {
    let previous = object.status.clone().unwrap_or_default();
    let report = previous.agent.as_ref();
    let available = availability(observed);
    let findings = [
        ready(trouble, &available),
        available.clone(),
        rights(object, observed, report, settings),
        telemetry(object, report, &available),
        nodes(report, &available),
    ];
    let phase = phase(object, trouble, &findings, report);
    let generation = object.metadata.generation;
    let conditions = TYPES.into_iter().zip(findings).map(|(type_, finding)| {
        condition(
            previous.conditions.iter().find(|have| have.type_ == type_),
            type_,
            finding,
            generation,
            now,
        )
    });
    SREAgentStatus {
        observed_generation: generation,
        phase: Some(phase),
        conditions: conditions.collect(),
        agent: None,
    }
}

fn condition(
    old: Option<&Condition>,
    type_: &str,
    finding: Finding,
    generation: Option<i64>,
    now: &Time,
) -> Condition {
    let (is_true, reason, message) = finding;
    let status = is_true.map_or("Unknown", |up| if up { "True" } else { "False" });
    let since = old
        .filter(|old| old.status == status)
        .map(|old| old.last_transition_time.clone());
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.as_str().to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: since.unwrap_or_else(|| now.clone()),
    }
}

fn ready(trouble: Option<&Trouble>, available: &Finding) -> Finding {
    match trouble {
        Some(Trouble::Invalid(why)) => (
            Some(false),
            Reason::InvalidSpec,
            format!("{why}; what was made of an earlier spec stays as it is"),
        ),
        Some(Trouble::Apply(why)) => (Some(false), Reason::ApplyFailed, why.clone()),
        None if available.0 == Some(true) => {
            (Some(true), Reason::AsExpected, "the agent runs".to_owned())
        }
        None => available.clone(),
    }
}

fn availability(observed: &Observed) -> Finding {
    let Some(deployment) = &observed.deployment else {
        return (
            Some(false),
            Reason::Deploying,
            "the agent's Deployment is not there yet".to_owned(),
        );
    };
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    if is_available(deployment) {
        return (
            Some(true),
            Reason::AsExpected,
            format!("Deployment {name} is available"),
        );
    }
    let trouble = observed
        .pods
        .iter()
        .filter(|pod| !pod.deleting)
        .find_map(|pod| pod.trouble.as_ref());
    match trouble {
        Some(trouble) if is_lasting(trouble.kind) => {
            let message = format!("the agent's pod cannot run: {}", trouble.message);
            (Some(false), Reason::AgentUnavailable, message)
        }
        // What passes by itself in seconds is not told step by step: each would be a write.
        Some(_) => (
            Some(false),
            Reason::Deploying,
            format!("Deployment {name} has no available pod yet"),
        ),
        None => match stuck(deployment) {
            Some(why) => (
                Some(false),
                Reason::AgentUnavailable,
                format!("Deployment {name} makes no pod: {why}"),
            ),
            None => (
                Some(false),
                Reason::Deploying,
                format!("Deployment {name} has no available pod yet"),
            ),
        },
    }
}

/// Available, and not an older template's.
fn is_available(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else {
        return false;
    };
    let seen = status.observed_generation >= deployment.metadata.generation;
    seen && status.available_replicas.unwrap_or(0) >= 1 && status.updated_replicas.unwrap_or(0) >= 1
}

fn is_lasting(kind: tessera_runtime::operands::pod::TroubleKind) -> bool {
    use tessera_runtime::operands::pod::TroubleKind as Kind;
    match kind {
        Kind::ImagePull | Kind::Crash | Kind::Config | Kind::Rejected | Kind::Unschedulable => true,
        Kind::NotReady | Kind::Dependency | Kind::Starting | Kind::Terminating => false,
    }
}

/// Why the Deployment cannot even make a pod (a quota, an admission rule).
fn stuck(deployment: &Deployment) -> Option<String> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let failure = conditions
        .iter()
        .find(|c| c.type_ == "ReplicaFailure" && c.status == "True")?;
    failure.message.clone()
}

fn rights(
    object: &SREAgent,
    observed: &Observed,
    report: Option<&AgentReport>,
    settings: &Settings,
) -> Finding {
    let meta = &object.metadata;
    let (namespace, name) = (
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    );
    let no = |reason, message: &str| (Some(false), reason, message.to_owned());
    if !object.spec.may_repair() {
        return no(
            Reason::AutoRepairOff,
            "autoRepair is false: the agent says what it would do and has no right to do it",
        );
    }
    if !repairs(&object.spec, namespace, settings) {
        let message = "SREAgents of this namespace may not repair nodes; the controller's --repair-namespaces names those that may";
        return no(Reason::RepairNotPermitted, message);
    }
    if !observed
        .bindings
        .contains(&binding_name(namespace, name, "repair"))
    {
        return no(Reason::BindingPending, "the right to repair is being given");
    }
    if object.spec.is_suspended() {
        return no(
            Reason::Suspended,
            "spec.suspend is true: nothing new starts, recovery goes on",
        );
    }
    match report.and_then(|report| report.breaker.as_ref()) {
        Some(breaker) => no(
            Reason::BreakerOpen,
            &format!("{}: {}", breaker.reason, breaker.message),
        ),
        None => (
            Some(true),
            Reason::Allowed,
            "the agent may isolate nodes".to_owned(),
        ),
    }
}

/// Why nothing is known: absence of data never means healthy.
fn unknown(report: Option<&AgentReport>, available: &Finding) -> Option<Finding> {
    if available.0 != Some(true) {
        return Some((
            None,
            Reason::AgentUnavailable,
            "the agent does not run, so nobody looks".to_owned(),
        ));
    }
    report.is_none().then(|| {
        (
            None,
            Reason::NotReported,
            "the agent has not reported yet".to_owned(),
        )
    })
}

fn telemetry(object: &SREAgent, report: Option<&AgentReport>, available: &Finding) -> Finding {
    if !object.spec.watches_gpus() {
        return (
            None,
            Reason::GpuDisabled,
            "gpuEnable is false: no exporter is asked".to_owned(),
        );
    }
    if let Some(unknown) = unknown(report, available) {
        return unknown;
    }
    let telemetry = report
        .and_then(|report| report.telemetry.clone())
        .unwrap_or_default();
    let observed = report
        .and_then(|report| report.nodes.as_ref())
        .map_or(0, |nodes| nodes.observed);
    if telemetry.stale == 0 && telemetry.scraped == 0 && observed > 0 {
        return (
            None,
            Reason::NotReported,
            "no exporter has given data yet".to_owned(),
        );
    }
    if telemetry.stale == 0 {
        let blind = match telemetry.missing_metrics.as_slice() {
            [] => String::new(),
            missing => format!("; no exporter has {}", missing.join(", ")),
        };
        return (
            Some(true),
            Reason::AsExpected,
            format!("{} exporters give usable data{blind}", telemetry.scraped),
        );
    }
    let named = telemetry
        .stale_nodes
        .iter()
        .take(NAMED)
        .map(|stale| format!("{}: {}", stale.node, stale.cause));
    let message = format!(
        "{} of {} exporters give no usable data: {}{}",
        telemetry.stale,
        telemetry.stale.saturating_add(telemetry.scraped),
        named.collect::<Vec<_>>().join("; "),
        more(telemetry.stale)
    );
    (Some(false), Reason::TelemetryStale, message)
}

fn nodes(report: Option<&AgentReport>, available: &Finding) -> Finding {
    if let Some(unknown) = unknown(report, available) {
        return unknown;
    }
    let report = report.cloned().unwrap_or_default();
    let open = report.open_incidents.unwrap_or(0);
    if open > 0 {
        let named = report
            .incidents
            .iter()
            .take(NAMED)
            .map(|one| format!("{} {} ({})", one.node, one.signature, one.state));
        let message = format!(
            "{open} open incidents: {}{}",
            named.collect::<Vec<_>>().join(", "),
            more(open)
        );
        return (Some(false), Reason::IncidentsOpen, message);
    }
    let telemetry = report.telemetry.unwrap_or_default();
    if telemetry.stale > 0 && telemetry.scraped == 0 {
        return (
            None,
            Reason::TelemetryStale,
            "no exporter gives usable data".to_owned(),
        );
    }
    let observed = report.nodes.unwrap_or_default().observed;
    (
        Some(true),
        Reason::AsExpected,
        format!("no incident on {observed} nodes"),
    )
}

fn more(total: i32) -> String {
    let rest = usize::try_from(total).unwrap_or(0).saturating_sub(NAMED);
    if rest == 0 {
        String::new()
    } else {
        format!(" and {rest} more")
    }
}

fn phase(
    object: &SREAgent,
    trouble: Option<&Trouble>,
    findings: &[Finding; 5],
    report: Option<&AgentReport>,
) -> SREAgentPhase {
    let [_, available, rights, telemetry, _] = findings;
    if trouble.is_some() || available.1 == Reason::AgentUnavailable {
        return SREAgentPhase::Degraded;
    }
    if available.0 != Some(true) {
        return SREAgentPhase::Pending;
    }
    let scraped = report
        .and_then(|report| report.telemetry.as_ref())
        .map_or(0, |telemetry| telemetry.scraped);
    if telemetry.1 == Reason::TelemetryStale && scraped == 0 {
        return SREAgentPhase::Degraded;
    }
    if object.spec.is_suspended() {
        return SREAgentPhase::Suspended;
    }
    if rights.1 == Reason::BreakerOpen {
        SREAgentPhase::BreakerOpen
    } else if rights.1 == Reason::BindingPending {
        SREAgentPhase::Pending
    } else if !object.spec.watches_gpus() {
        SREAgentPhase::Observing
    } else if rights.1 == Reason::Allowed {
        SREAgentPhase::Active
    } else {
        SREAgentPhase::DryRun
    }
}

/// Whether `live` already says what `wanted` does; the agent's part is not compared.
pub fn says(live: Option<&SREAgentStatus>, wanted: &SREAgentStatus) -> bool {
    live.is_some_and(|live| {
        SREAgentStatus {
            agent: None,
            ..live.clone()
        } == *wanted
    })
}

#[cfg(test)]
mod tests;
