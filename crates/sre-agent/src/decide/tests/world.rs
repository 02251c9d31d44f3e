//! A little cluster for timelines: what the agent sees, and what its acts do to it.

use super::super::*;
use crate::dcgm::{Gpu, Sample};
use crate::report::{self, Report};
use crate::snapshot::{NodeView, OperationView, Telemetry};
use jiff::SignedDuration;

pub(in crate::decide::tests) const HOLDER: &str = "sre-agent/default/a";

/// A little cluster: what the agent sees, and what its acts do to it.
pub(in crate::decide::tests) struct World {
    pub(in crate::decide::tests) snapshot: Snapshot,
    pub(in crate::decide::tests) memory: Memory,
    pub(in crate::decide::tests) policy: Policy,
    pub(in crate::decide::tests) now: Timestamp,
    pub(in crate::decide::tests) reports: Vec<Report>,
}

impl World {
    pub(in crate::decide::tests) fn new(nodes: usize) -> Self {
        let mut snapshot = Snapshot::default();
        for index in 0..nodes {
            let name = format!("n{index}");
            let view = NodeView {
                uid: format!("uid-{name}"),
                selected: true,
                boot_id: "boot-1".into(),
                created: Some(at(-10_000)),
                capacity: Some(2),
                allocatable: Some(2),
                labelled: Some(2),
                ..NodeView::default()
            };
            snapshot.nodes.insert(name.clone(), view);
            let mut sample = Sample::default();
            for gpu in 0..2 {
                let healthy = Gpu {
                    xid: Some(0),
                    temperature: Some(50.0),
                    remap_failed: Some(false),
                    remap_pending: Some(false),
                    recovery_action: Some(0),
                    ..Gpu::default()
                };
                sample.gpus.insert(format!("GPU-{index}-{gpu}"), healthy);
            }
            snapshot.telemetry.insert(name, Telemetry::Good(sample));
        }
        let policy = Policy {
            watch_gpus: true,
            may_act: true,
            auto_repair: true,
            suspended: false,
            interval: SignedDuration::from_secs(30),
            probation: SignedDuration::from_secs(600),
            boot_grace: SignedDuration::from_secs(600),
        };
        Self {
            snapshot,
            memory: Memory::default(),
            policy,
            now: at(0),
            reports: Vec::new(),
        }
    }

    pub(in crate::decide::tests) fn gpu(&mut self, node: usize, gpu: usize) -> &mut Gpu {
        match self.snapshot.telemetry.get_mut(&format!("n{node}")) {
            Some(Telemetry::Good(sample)) => {
                sample.gpus.get_mut(&format!("GPU-{node}-{gpu}")).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::decide::tests) fn node(&mut self, node: usize) -> &mut NodeView {
        self.snapshot.nodes.get_mut(&format!("n{node}")).unwrap()
    }

    /// One check, an interval later; its acts take effect at once.
    pub(in crate::decide::tests) fn check(&mut self) -> Plan {
        self.now += self.policy.interval;
        let plan = decide(&self.snapshot, &mut self.memory, &self.policy, self.now);
        for act in &plan.acts {
            self.carry_out(act);
        }
        let told = report::build(
            &self.snapshot,
            &mut self.memory,
            &plan,
            &self.policy,
            self.now,
        );
        self.reports.push(told);
        plan
    }

    pub(in crate::decide::tests) fn checks(&mut self, count: usize) -> Plan {
        (1..count).for_each(|_| drop(self.check()));
        self.check()
    }

    pub(in crate::decide::tests) fn carry_out(&mut self, act: &Act) {
        let name = act.node().to_owned();
        let phase_is_ended = OperationPhase::is_ended;
        let mut set = |phase: OperationPhase, reason, target: Option<String>| {
            let old = self.snapshot.operations.get(&name);
            let target = target
                .or_else(|| old.map(|old| old.target.clone()))
                .unwrap_or_default();
            let same = old.is_some_and(|old| old.phase == phase);
            let since = if same {
                old.and_then(|old| old.since)
            } else {
                Some(self.now)
            };
            let attempts = old.map_or(1, |old| {
                match old.phase.is_ended() && !phase_is_ended(phase) {
                    true if old.target == target => old.attempts + 1,
                    true => 1,
                    false => old.attempts,
                }
            });
            let operation = OperationView {
                ours: true,
                attempts,
                holder: HOLDER.into(),
                phase,
                reason: Some(reason),
                since,
                target,
            };
            self.snapshot.operations.insert(name.clone(), operation);
        };
        match act {
            Act::Isolate { signature, .. } => {
                set(
                    OperationPhase::AwaitingRepair,
                    OperationReason::FaultPresent,
                    Some(signature.to_string()),
                );
                self.snapshot.nodes.get_mut(&name).unwrap().unschedulable = true;
            }
            Act::Move {
                phase,
                reason,
                signature,
                ..
            } => set(*phase, *reason, Some(signature.to_string())),
            Act::Release { phase, reason, .. } => {
                set(*phase, *reason, None);
                self.snapshot.nodes.get_mut(&name).unwrap().unschedulable = false;
            }
            Act::Expire { .. } => drop(self.snapshot.operations.remove(&name)),
        }
    }

    pub(in crate::decide::tests) fn states(&self) -> Vec<String> {
        let report = self.reports.last().unwrap();
        report
            .status
            .incidents
            .iter()
            .map(|i| format!("{} {} {}", i.node, i.signature, i.state))
            .collect()
    }

    pub(in crate::decide::tests) fn told(&self) -> Vec<&'static str> {
        self.reports
            .iter()
            .flat_map(|report| &report.notices)
            .map(|notice| notice.reason)
            .collect()
    }

    pub(in crate::decide::tests) fn isolated(&self) -> Vec<&str> {
        let held = self
            .snapshot
            .operations
            .iter()
            .filter(|(_, operation)| operation.is_our_work());
        held.map(|(name, _)| name.as_str()).collect()
    }

    pub(in crate::decide::tests) fn stop(&self, node: &str) -> Option<&str> {
        let incidents = &self.reports.last()?.status.incidents;
        incidents
            .iter()
            .find(|incident| incident.node == node)?
            .blocked_by
            .as_deref()?
            .split(':')
            .next()
    }
}

pub(in crate::decide::tests) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}
