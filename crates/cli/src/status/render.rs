//! An [`Overview`] for people.

use super::{Agent, Condition, Controller, Operation, Overview, Policy};

/// The whole screen.
pub fn render(overview: &Overview) -> String {
    let mut out = String::new();
    if overview.policies.is_empty() {
        out.push_str("No ClusterPolicy: nothing is asked for. Apply one, or install the chart with clusterPolicy.enabled.\n");
    }
    for policy in &overview.policies {
        out.push_str(&render_policy(policy));
    }
    out.push_str(&format!("\nControllers in {}\n", overview.namespace));
    out.push_str(&table(overview.controllers.iter().map(controller)));
    out.push_str("\nOperands\n");
    if overview.operands.is_empty() {
        out.push_str("  none\n");
    }
    out.push_str(&table(overview.operands.iter().map(|operand| {
        let updating = if operand.updated < operand.desired {
            format!("{} to update", operand.desired - operand.updated)
        } else {
            String::new()
        };
        vec![
            operand.name.clone(),
            format!("{}/{} ready", operand.ready, operand.desired),
            updating,
        ]
    })));
    out.push_str(&nodes(overview));
    out.push_str(&section(
        "Operations",
        overview.operations.iter().map(operation),
    ));
    out.push_str(&section("Agents", overview.agents.iter().map(agent)));
    out
}

fn render_policy(policy: &Policy) -> String {
    let state = if policy.state.is_empty() {
        "not looked at yet: is a controller running?"
    } else {
        &policy.state
    };
    let role = if policy.base {
        " (base, from the chart's values)"
    } else {
        ""
    };
    let mut out = format!("ClusterPolicy {}{role}: {state}\n", policy.name);
    out.push_str(&table(policy.conditions.iter().map(condition)));
    for exception in &policy.exceptions {
        out.push_str(&format!("  {exception}\n"));
    }
    out
}

fn condition(condition: &Condition) -> Vec<String> {
    let stale = if condition.current {
        ""
    } else {
        "(of an older generation) "
    };
    vec![
        condition.kind.clone(),
        condition.status.clone(),
        condition.reason.clone(),
        format!("{stale}{}", condition.message),
    ]
}

fn controller(controller: &Controller) -> Vec<String> {
    let state = match (controller.installed, controller.replicas) {
        (false, _) => "not installed".to_owned(),
        (true, 0) => "stopped (0 replicas)".to_owned(),
        (true, replicas) => format!("{}/{replicas} ready", controller.ready),
    };
    vec![controller.name.clone(), state]
}

fn nodes(overview: &Overview) -> String {
    let nodes = &overview.nodes;
    if nodes.gpu == 0 {
        return "\nGPU nodes: none\n".to_owned();
    }
    let part = |count: usize, what: &str| {
        if count == 0 {
            String::new()
        } else {
            format!(", {count} {what}")
        }
    };
    format!(
        "\nGPU nodes: {}{}{}; {} nvidia.com/gpu allocatable\n",
        nodes.gpu,
        part(nodes.cordoned, "cordoned"),
        part(nodes.not_ready, "not Ready"),
        nodes.allocatable
    )
}

fn operation(operation: &Operation) -> Vec<String> {
    let Operation {
        node,
        operation,
        phase,
        holder,
        reason,
        message,
    } = operation.clone();
    vec![
        node,
        operation,
        phase,
        format!("by {holder}"),
        reason,
        message,
    ]
}

/// `0 incidents`, `1 incident`.
fn counted(count: i32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

fn agent(agent: &Agent) -> Vec<String> {
    vec![
        format!("{}/{}", agent.namespace, agent.name),
        if agent.phase.is_empty() {
            "not looked at yet".to_owned()
        } else {
            agent.phase.clone()
        },
        (if agent.auto_repair {
            "repairs"
        } else {
            "only watches"
        })
        .to_owned(),
        format!(
            "{}, {}",
            counted(agent.unhealthy, "unhealthy node"),
            counted(agent.incidents, "incident")
        ),
        agent.message.clone(),
    ]
}

/// A headed table; nothing without rows.
fn section(title: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let body = table(rows);
    if body.is_empty() {
        body
    } else {
        format!("\n{title}\n{body}")
    }
}

/// Aligned columns, indented.
fn table(rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("  {cell:<width$}"));
        format!("{}\n", cells.collect::<String>().trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Nodes, Operand};
    use super::*;

    #[test]
    fn a_cluster_on_its_way() {
        let overview = Overview {
            namespace: "gpu-operator".into(),
            policies: vec![
                Policy {
                    name: "gpu-cluster-config".into(),
                    state: "notReady".into(),
                    conditions: vec![
                        Condition {
                            kind: "DriverReady".into(),
                            status: "False".into(),
                            reason: "Progressing".into(),
                            message: "2 of 3 nodes are ready; gpu-3 pulls its image".into(),
                            current: true,
                        },
                        Condition {
                            kind: "MigReady".into(),
                            status: "True".into(),
                            reason: "Disabled".into(),
                            ..Condition::default()
                        },
                    ],
                    exceptions: vec!["driver: ImagePullFailed on gpu-3: no such tag".into()],
                    ..Policy::default()
                },
                Policy {
                    name: "cluster-policy".into(),
                    base: true,
                    state: "ignored".into(),
                    ..Policy::default()
                },
            ],
            controllers: vec![
                Controller {
                    name: "driver-controller".into(),
                    installed: true,
                    replicas: 2,
                    ready: 2,
                },
                Controller {
                    name: "sreagent-controller".into(),
                    ..Controller::default()
                },
            ],
            operands: vec![Operand {
                name: "nvidia-driver-daemonset".into(),
                desired: 3,
                ready: 2,
                updated: 1,
                ..Operand::default()
            }],
            nodes: Nodes {
                gpu: 3,
                cordoned: 1,
                not_ready: 0,
                allocatable: 8,
            },
            operations: vec![Operation {
                node: "gpu-3".into(),
                operation: "DriverUpgrade".into(),
                phase: "RestartingDriver".into(),
                holder: "driver-controller".into(),
                reason: "DriverNotReady".into(),
                message: "waits for the driver pod".into(),
            }],
            agents: vec![Agent {
                namespace: "default".into(),
                name: "gpu-monitor-agent".into(),
                phase: "Active".into(),
                auto_repair: true,
                ..Agent::default()
            }],
        };
        insta::assert_snapshot!(render(&overview), @r"
        ClusterPolicy gpu-cluster-config: notReady
          DriverReady  False  Progressing  2 of 3 nodes are ready; gpu-3 pulls its image
          MigReady     True   Disabled     (of an older generation)
          driver: ImagePullFailed on gpu-3: no such tag
        ClusterPolicy cluster-policy (base, from the chart's values): ignored

        Controllers in gpu-operator
          driver-controller    2/2 ready
          sreagent-controller  not installed

        Operands
          nvidia-driver-daemonset  2/3 ready  2 to update

        GPU nodes: 3, 1 cordoned; 8 nvidia.com/gpu allocatable

        Operations
          gpu-3  DriverUpgrade  RestartingDriver  by driver-controller  DriverNotReady  waits for the driver pod

        Agents
          default/gpu-monitor-agent  Active  repairs  0 unhealthy nodes, 0 incidents
        ");
    }

    #[test]
    fn one_is_told_as_one() {
        for (unhealthy, incidents, want) in [
            (0, 1, "0 unhealthy nodes, 1 incident"),
            (1, 2, "1 unhealthy node, 2 incidents"),
        ] {
            let told = agent(&Agent {
                unhealthy,
                incidents,
                ..Agent::default()
            });
            assert!(told.contains(&want.to_owned()), "{told:?}");
        }
    }

    #[test]
    fn an_empty_cluster_says_what_to_do() {
        let text = render(&Overview::default());
        assert!(
            text.starts_with("No ClusterPolicy") && text.contains("GPU nodes: none"),
            "{text}"
        );
    }
}
