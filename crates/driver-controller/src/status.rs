//! What the policy's status says about driver, toolkit and validator: pure.

mod component;
mod findings;

use crate::build::{DRIVER, TOOLKIT, VALIDATOR};
use crate::observe::Rolled;
use crate::upgrade::Survey;
use crate::validate::Validated;
use std::collections::BTreeMap;
use tessera_api::conditions::{ConditionStatus, Reason};
use tessera_runtime::apply::WriteError;
use tessera_runtime::operands::{Rollout, Verdict, judge};
use tessera_runtime::status::Slice;
use tessera_runtime::{Class, Classify, Outcome};

/// What could not be written, by component: the first error's reason and sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures(BTreeMap<String, (Reason, String)>);

impl Failures {
    /// Of one pass of the engine.
    pub fn of(failed: &[WriteError]) -> Self {
        let mut first = BTreeMap::new();
        for error in failed {
            let reason = if error.class() == Class::Forbidden {
                Reason::Forbidden
            } else {
                Reason::ReconcileFailed
            };
            let component = error.component.clone().unwrap_or_default();
            first
                .entry(component)
                .or_insert_with(|| (reason, error.to_string()));
        }
        Self(first)
    }

    fn get(&self, component: &str) -> Option<&(Reason, String)> {
        self.0.get(component)
    }
}

/// The slice. It is made from what is there after the objects have been applied.
pub fn slice(
    validated: &Validated<'_>,
    rolled: &Rolled,
    failures: &Failures,
    upgrades: &Survey,
) -> Slice {
    let driver = verdict(rolled, DRIVER, false);
    let toolkit = verdict(rolled, TOOLKIT, true);
    let validator = verdict(rolled, VALIDATOR, true);
    let findings = vec![
        findings::driver(
            validated,
            rolled,
            failures,
            driver.as_ref(),
            upgrades.condition(),
        ),
        findings::toolkit(validated, rolled, failures, toolkit.as_ref()),
        findings::validator(validated, rolled, failures, validator.as_ref()),
    ];
    let verdicts = [driver.as_ref(), toolkit.as_ref(), validator.as_ref()];
    Slice {
        findings,
        component: component::status(validated, rolled, verdicts, upgrades),
    }
}

/// What the log says about the reconcile.
pub fn outcome(slice: &Slice) -> Outcome {
    let waiting = slice
        .findings
        .iter()
        .find(|finding| finding.status != ConditionStatus::True);
    match waiting {
        None => Outcome::Ready,
        Some(finding) if needs_a_person(finding.reason) => Outcome::Blocked {
            reason: format!("{}: {}", finding.component, finding.reason),
        },
        Some(finding) => Outcome::Progressing {
            reason: format!("{}: {}", finding.component, finding.reason),
            requeue: None,
        },
    }
}

fn needs_a_person(reason: Reason) -> bool {
    [
        Reason::InvalidSpec,
        Reason::ConfigMapNotFound,
        Reason::ConfigKeyNotFound,
        Reason::ConfigInvalid,
        Reason::TaintsNotTolerated,
        Reason::UnknownOperatingSystem,
        Reason::UnsupportedRuntime,
        Reason::UpgradeFailed,
        Reason::UpgradeHalted,
    ]
    .contains(&reason)
}

/// Judges all DaemonSets of a component together. `None`: there are none.
fn verdict(rolled: &Rolled, component: &str, wait_for_update: bool) -> Option<Verdict> {
    let sets: Vec<(&String, Rollout)> = rolled
        .sets
        .iter()
        .filter(|(_, set)| set.label(tessera_api::names::label::COMPONENT) == Some(component))
        .map(|(name, set)| (name, Rollout::of(set)))
        .collect();
    let (name, _) = sets.first()?;
    let name = match sets.len() {
        1 => (*name).clone(),
        more => format!("{name} and {} more", more - 1),
    };
    let sum = Rollout::sum(sets.iter().map(|(_, rollout)| *rollout));
    let pods = rolled
        .pods
        .get(component)
        .map(Vec::as_slice)
        .unwrap_or_default();
    Some(judge(&name, sum, pods, wait_for_update))
}

#[cfg(test)]
mod tests;
