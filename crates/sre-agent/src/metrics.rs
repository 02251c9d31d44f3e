//! The agent's own metrics. Those about nodes are computed anew in each check, so that none outlives its node.

use crate::decide::Plan;
use crate::memory::Memory;
use crate::report::Report;
use crate::snapshot::{Snapshot, Telemetry};
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tessera_runtime::metrics::Metrics as Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NodeState {
    node: String,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Node {
    node: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Fault {
    signature: String,
    class: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "the field is the metric's label")]
struct Action {
    action: &'static str,
    result: &'static str,
    dry_run: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Name {
    name: String,
}

type Float = Gauge<f64, AtomicU64>;

/// All of them.
#[derive(Clone)]
pub struct Metrics {
    node_state: Family<NodeState, Gauge>,
    faults: Family<Fault, Counter>,
    actions: Family<Action, Counter>,
    blocked: Family<Reason, Counter>,
    breaker_open: Gauge,
    unhealthy_ratio: Float,
    scrape_failures: Counter,
    telemetry_age: Family<Node, Float>,
    missing: Family<Name, Gauge>,
    incidents: Gauge,
    last_check: Float,
    loop_seconds: Histogram,
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> Self {
        let metrics = Self {
            node_state: Family::default(),
            faults: Family::default(),
            actions: Family::default(),
            blocked: Family::default(),
            breaker_open: Gauge::default(),
            unhealthy_ratio: Float::default(),
            scrape_failures: Counter::default(),
            telemetry_age: Family::default(),
            missing: Family::default(),
            incidents: Gauge::default(),
            last_check: Float::default(),
            loop_seconds: Histogram::new(exponential_buckets(0.005, 2.5, 9)),
        };
        let m = metrics.clone();
        registry.register(move |r| {
            r.register(
                "sre_agent_node_state",
                "1 for the state that a watched node is in",
                m.node_state,
            );
            r.register(
                "sre_agent_gpu_faults",
                "Faults that occurred, by signature and class",
                m.faults,
            );
            r.register(
                "sre_agent_actions",
                "Acts on nodes, done or (dry_run) only planned",
                m.actions,
            );
            r.register(
                "sre_agent_actions_blocked",
                "Isolations that a guard rail stopped, by guard rail and check",
                m.blocked,
            );
            r.register(
                "sre_agent_breaker_open",
                "1 while the circuit breaker is open",
                m.breaker_open,
            );
            r.register(
                "sre_agent_unhealthy_ratio",
                "Share of watched nodes with an incident",
                m.unhealthy_ratio,
            );
            r.register(
                "sre_agent_scrape_failures",
                "Exporter answers that could not be used",
                m.scrape_failures,
            );
            r.register(
                "sre_agent_telemetry_age_seconds",
                "Age of a node's last usable GPU data",
                m.telemetry_age,
            );
            r.register(
                "sre_agent_missing_metric",
                "1 for a metric that rules need and no exporter has",
                m.missing,
            );
            r.register("sre_agent_incidents", "Open incidents", m.incidents);
            r.register(
                "sre_agent_last_check_timestamp_seconds",
                "When the last check ended, seconds since 1970",
                m.last_check,
            );
            r.register(
                "sre_agent_loop_seconds",
                "Time that one check takes",
                m.loop_seconds,
            );
        });
        metrics
    }

    /// Takes over what one check found.
    pub fn checked(
        &self,
        snapshot: &Snapshot,
        memory: &Memory,
        plan: &Plan,
        report: &Report,
        now: Timestamp,
        took: Duration,
    ) {
        self.node_state.clear();
        for (node, state) in &report.states {
            self.node_state
                .get_or_create(&NodeState {
                    node: node.clone(),
                    state,
                })
                .set(1);
        }
        for (_, occurrence) in &plan.occurrences {
            let (signature, class) = (occurrence.signature.to_string(), occurrence.class.letter());
            self.faults.get_or_create(&Fault { signature, class }).inc();
        }
        for stop in plan.stops.values() {
            self.blocked
                .get_or_create(&Reason {
                    reason: stop.reason(),
                })
                .inc();
        }
        self.breaker_open.set(i64::from(memory.breaker.is_some()));
        let counts = report.status.nodes.clone().unwrap_or_default();
        let share = if counts.observed > 0 {
            f64::from(counts.unhealthy) / f64::from(counts.observed)
        } else {
            0.0
        };
        self.unhealthy_ratio.set(share);
        let failed = snapshot
            .telemetry
            .values()
            .filter(|telemetry| !matches!(telemetry, Telemetry::Good(_)))
            .count();
        self.scrape_failures
            .inc_by(u64::try_from(failed).unwrap_or_default());
        self.telemetry_age.clear();
        for (node, known) in &memory.nodes {
            if let Some(last) = known.telemetry.last_good {
                self.telemetry_age
                    .get_or_create(&Node { node: node.clone() })
                    .set(now.duration_since(last).as_secs_f64());
            }
        }
        self.missing.clear();
        for name in report
            .status
            .telemetry
            .iter()
            .flat_map(|telemetry| &telemetry.missing_metrics)
        {
            self.missing
                .get_or_create(&Name { name: name.clone() })
                .set(1);
        }
        self.incidents
            .set(i64::from(report.status.open_incidents.unwrap_or_default()));
        self.last_check.set(now.as_duration().as_secs_f64());
        self.loop_seconds.observe(took.as_secs_f64());
    }

    /// Counts an act.
    pub fn acted(&self, action: &'static str, result: &'static str) {
        self.actions
            .get_or_create(&Action {
                action,
                result,
                dry_run: "false",
            })
            .inc();
    }

    /// Counts an act that would have been done.
    pub fn would_have_acted(&self, action: &'static str) {
        self.actions
            .get_or_create(&Action {
                action,
                result: "planned",
                dry_run: "true",
            })
            .inc();
    }
}
