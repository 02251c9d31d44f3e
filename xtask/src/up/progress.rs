//! What is shown of a cluster on its way to ready, and whether it is there.

use std::collections::BTreeMap;
use std::time::Duration;

use kubectl_tessera::status::{Condition, Overview, Policy};
use tessera_api::conditions::ComponentCondition;

use super::screen::{Mark, Row};

/// How far it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Everything that the inputs ask for.
    Ready,
    /// What is missing and why, one sentence each.
    Waiting(Vec<String>),
}

impl Verdict {
    pub(super) fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
}

/// Ready: the user's policy says so about its newest generation, every installed controller is available, and the agent works.
pub(super) fn verdict(overview: &Overview) -> Verdict {
    let mut waiting = Vec::new();
    for controller in overview
        .controllers
        .iter()
        .filter(|controller| controller.installed && controller.ready < controller.replicas)
    {
        waiting.push(format!(
            "Deployment {}: {} of {} replicas are ready",
            controller.name, controller.ready, controller.replicas
        ));
    }
    match active(overview) {
        None => waiting.push("no ClusterPolicy is active: is a controller running?".to_owned()),
        Some(policy) => policy_reasons(policy, &mut waiting),
    }
    match overview.agents.as_slice() {
        [] => waiting.push("there is no SREAgent".to_owned()),
        agents => {
            let idle = agents
                .iter()
                .filter(|agent| matches!(agent.phase.as_str(), "" | "Pending" | "Degraded"));
            waiting.extend(idle.map(|agent| {
                format!(
                    "SREAgent {}/{} is {}: {}",
                    agent.namespace,
                    agent.name,
                    or(&agent.phase, "not looked at yet"),
                    agent.message
                )
            }));
        }
    }
    if waiting.is_empty() {
        Verdict::Ready
    } else {
        Verdict::Waiting(waiting)
    }
}

fn policy_reasons(policy: &Policy, waiting: &mut Vec<String>) {
    let stale = policy
        .conditions
        .iter()
        .any(|condition| condition.kind == "Ready" && !condition.current);
    if policy.state == "ready" && !stale {
        return;
    }
    let before = waiting.len();
    let open = policy.conditions.iter().filter(|condition| {
        condition.status != "True" && !matches!(condition.kind.as_str(), "Ready" | "Supported")
    });
    waiting.extend(open.map(|condition| {
        format!(
            "{}: {}: {}",
            condition.kind, condition.reason, condition.message
        )
    }));
    waiting.extend(policy.exceptions.iter().cloned());
    if waiting.len() == before {
        let ready = policy
            .conditions
            .iter()
            .find(|condition| condition.kind == "Ready");
        let words = ready.map_or("no controller has reported on it", |condition| {
            condition.message.as_str()
        });
        waiting.push(format!(
            "ClusterPolicy {} is {}: {words}",
            policy.name,
            or(&policy.state, "not looked at yet")
        ));
    }
}

/// The policy in force: a user's before the chart's.
fn active(overview: &Overview) -> Option<&Policy> {
    let candidates = || {
        overview
            .policies
            .iter()
            .filter(|policy| policy.state != "ignored")
    };
    candidates()
        .find(|policy| !policy.base)
        .or_else(|| candidates().next())
}

fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

/// The whole table.
pub(super) fn table(overview: &Overview, elapsed: Duration) -> Vec<Row> {
    let mut rows = Vec::new();
    let policy = active(overview);
    let (name, state) = policy.map_or(("none", "absent"), |policy| {
        (policy.name.as_str(), or(&policy.state, "not looked at yet"))
    });
    let mark = if state == "ready" {
        Mark::Good
    } else {
        Mark::Busy
    };
    rows.push(Row::title(
        &format!("ClusterPolicy {name}"),
        state,
        mark,
        &format!("{:.1} s", elapsed.as_secs_f64()),
    ));
    let conditions = policy
        .map(|policy| policy.conditions.as_slice())
        .unwrap_or_default();
    // In the order in which a node is brought up, whoever reported first.
    for kind in ComponentCondition::COMPONENTS {
        rows.extend(
            conditions
                .iter()
                .filter(|condition| condition.kind == kind.as_str())
                .map(condition),
        );
    }
    rows.extend(
        conditions
            .iter()
            .filter(|condition| condition.kind == "Supported")
            .map(condition),
    );
    rows.push(Row::head("Controllers", "ready"));
    for controller in overview
        .controllers
        .iter()
        .filter(|controller| controller.installed)
    {
        let mark = if controller.ready >= controller.replicas {
            Mark::Good
        } else {
            Mark::Busy
        };
        rows.push(Row::item(
            mark,
            &controller.name,
            &format!("{}/{}", controller.ready, controller.replicas),
            "",
        ));
    }
    rows.push(Row::head("Operands", "ready"));
    for operand in &overview.operands {
        let mark = match (operand.desired, operand.ready.min(operand.updated)) {
            (0, _) => Mark::Plain,
            (desired, good) if good >= desired => Mark::Good,
            _ => Mark::Busy,
        };
        let outdated = operand.desired - operand.updated;
        let note = if outdated > 0 {
            format!("{outdated} to update")
        } else {
            String::new()
        };
        rows.push(Row::item(
            mark,
            &operand.name,
            &format!("{}/{}", operand.ready, operand.desired),
            &note,
        ));
    }
    for agent in &overview.agents {
        let mark = if matches!(agent.phase.as_str(), "Active" | "Observing" | "DryRun") {
            Mark::Good
        } else {
            Mark::Busy
        };
        rows.push(Row::title(
            &format!("SREAgent {}", agent.name),
            or(&agent.phase, "not looked at yet"),
            mark,
            &agent.message,
        ));
    }
    let nodes = &overview.nodes;
    let note = format!(
        "{} cordoned, {} not ready, {} nvidia.com/gpu to give",
        nodes.cordoned, nodes.not_ready, nodes.allocatable
    );
    rows.push(Row::title(
        "GPU nodes",
        &nodes.gpu.to_string(),
        Mark::Plain,
        &note,
    ));
    rows
}

fn condition(condition: &Condition) -> Row {
    let mark = match (condition.status.as_str(), condition.current) {
        ("True", true) => Mark::Good,
        ("False", _) if matches!(condition.reason.as_str(), "Failed" | "Invalid" | "Degraded") => {
            Mark::Bad
        }
        _ => Mark::Busy,
    };
    // What is good needs no explanation.
    let message = if mark == Mark::Good {
        ""
    } else {
        condition.message.as_str()
    };
    Row::item(mark, &condition.kind, &condition.reason, message)
}

/// The same as independent facts, for output that is not a terminal: each is printed when it changes.
pub(super) fn facts(overview: &Overview) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for policy in &overview.policies {
        facts.insert(
            format!("ClusterPolicy {}", policy.name),
            or(&policy.state, "not looked at yet").to_owned(),
        );
        for condition in &policy.conditions {
            facts.insert(
                format!("ClusterPolicy {} {}", policy.name, condition.kind),
                format!(
                    "{} {}: {}",
                    condition.status, condition.reason, condition.message
                ),
            );
        }
    }
    for controller in overview
        .controllers
        .iter()
        .filter(|controller| controller.installed)
    {
        facts.insert(
            format!("Deployment {}", controller.name),
            format!("{}/{} ready", controller.ready, controller.replicas),
        );
    }
    for operand in &overview.operands {
        let text = format!(
            "{}/{} ready, {} updated",
            operand.ready, operand.desired, operand.updated
        );
        facts.insert(format!("DaemonSet {}", operand.name), text);
    }
    for agent in &overview.agents {
        facts.insert(
            format!("SREAgent {}", agent.name),
            format!(
                "{} {}",
                or(&agent.phase, "not looked at yet"),
                agent.message
            ),
        );
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubectl_tessera::status::{Agent, Controller};

    fn overview(state: &str) -> Overview {
        Overview {
            policies: vec![Policy {
                name: "mine".to_owned(),
                state: state.to_owned(),
                conditions: vec![Condition {
                    kind: "DriverReady".to_owned(),
                    status: if state == "ready" { "True" } else { "False" }.to_owned(),
                    reason: "Progressing".to_owned(),
                    message: "2 of 3 pods are ready".to_owned(),
                    current: true,
                }],
                ..Policy::default()
            }],
            controllers: vec![Controller {
                name: "driver-controller".to_owned(),
                installed: true,
                replicas: 2,
                ready: 2,
            }],
            agents: vec![Agent {
                name: "a".to_owned(),
                phase: "Active".to_owned(),
                ..Agent::default()
            }],
            ..Overview::default()
        }
    }

    #[test]
    fn what_is_not_ready_is_named_with_its_reason() {
        assert_eq!(verdict(&overview("ready")), Verdict::Ready);
        let Verdict::Waiting(reasons) = verdict(&overview("notReady")) else {
            panic!("ready")
        };
        assert_eq!(reasons, ["DriverReady: Progressing: 2 of 3 pods are ready"]);
        let Verdict::Waiting(reasons) = verdict(&Overview::default()) else {
            panic!("ready")
        };
        assert_eq!(reasons.len(), 2, "{reasons:?}");
    }
}
