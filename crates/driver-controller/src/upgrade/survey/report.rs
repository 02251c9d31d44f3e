//! What a survey means for the policy's status.

use super::{Standing, Survey, Why};
use tessera_api::conditions::Reason;
use tessera_api::policy::{NodeExceptions, UpgradeProgress};

impl Survey {
    fn count(&self, is: impl Fn(&Standing) -> bool) -> usize {
        self.standings
            .values()
            .filter(|standing| is(standing))
            .count()
    }

    /// Nodes that are being upgraded.
    pub fn in_progress(&self) -> usize {
        self.count(|standing| matches!(standing, Standing::InProgress))
    }

    /// Nodes that wait.
    pub fn pending(&self) -> usize {
        self.count(|standing| matches!(standing, Standing::Pending { .. }))
    }

    /// Nodes whose upgrade failed.
    pub fn failed(&self) -> usize {
        self.count(|standing| matches!(standing, Standing::Failed { .. }))
    }

    /// For the status; `None` while no node is, or has to be, upgraded.
    pub fn progress(&self) -> Option<UpgradeProgress> {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let (pending, in_progress, failed) = (self.pending(), self.in_progress(), self.failed());
        (pending + in_progress + failed > 0).then(|| UpgradeProgress {
            target: self.versions.iter().cloned().collect::<Vec<_>>().join(", "),
            pending: number(pending),
            in_progress: number(in_progress),
            done: number(self.done),
            failed: number(failed),
        })
    }

    /// For the status: nodes that failed, or that will not be upgraded without somebody's help.
    pub fn exceptions(&self) -> Vec<NodeExceptions> {
        let found = self
            .standings
            .iter()
            .filter_map(|(node, standing)| match standing {
                Standing::Failed { message } => {
                    Some(("UpgradeFailed", node.clone(), message.clone()))
                }
                Standing::Pending { why, message } => why
                    .exception()
                    .map(|why| (why, node.clone(), message.clone())),
                Standing::Current | Standing::InProgress => None,
            });
        NodeExceptions::group(found)
    }

    /// When nothing moves: a node that waits, and for what; that holds all up.
    fn obstacle(&self) -> Option<(&str, &str)> {
        let mut waiting = self
            .standings
            .iter()
            .filter_map(|(node, standing)| match standing {
                Standing::Pending { why, message } => Some((node.as_str(), *why, message.as_str())),
                Standing::Failed { .. } | Standing::Current | Standing::InProgress => None,
            });
        let moves = waiting
            .clone()
            .any(|(_, why, _)| matches!(why, Why::Next | Why::Retrying));
        let (node, _, message) = waiting.next().filter(|_| !moves)?;
        Some((node, message))
    }

    /// What the condition of the driver should say about upgrades, the most important first; `None` if nothing.
    pub fn condition(&self) -> Option<(Reason, String)> {
        let named = |is: &dyn Fn(&Standing) -> bool| {
            let names = self
                .standings
                .iter()
                .filter(|(_, standing)| is(standing))
                .map(|(node, _)| node.as_str());
            let names: Vec<&str> = names.collect();
            let more = names.len().saturating_sub(5);
            let rest = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            (!names.is_empty()).then(|| {
                format!(
                    "{}{rest}",
                    names.iter().take(5).copied().collect::<Vec<_>>().join(", ")
                )
            })
        };
        let failed = self
            .standings
            .iter()
            .find_map(|(node, standing)| match standing {
                Standing::Failed { message } => Some(format!("{node}: {message}")),
                Standing::Current | Standing::Pending { .. } | Standing::InProgress => None,
            });
        let waits = named(&|standing| matches!(standing, Standing::Pending { .. }));
        if let Some(failed) = failed {
            let halted = self.halted.as_ref().filter(|_| waits.is_some());
            return Some(match halted {
                Some(halted) => (Reason::UpgradeHalted, format!("{halted}. {failed}")),
                None => (Reason::UpgradeFailed, failed),
            });
        }
        let off = named(&|standing| {
            matches!(
                standing,
                Standing::Pending {
                    why: Why::AutoUpgradeOff,
                    ..
                }
            )
        });
        if let Some(nodes) = off {
            let message = format!(
                "driver.upgradePolicy.autoUpgrade is false, so these nodes keep their old driver: {nodes}"
            );
            return Some((Reason::DriverUpgradePending, message));
        }
        let runs = named(&|standing| matches!(standing, Standing::InProgress));
        match (runs, waits) {
            // Without names: they would be old before the text may be written again.
            (Some(_), _) => Some((
                Reason::DriverUpgradeInProgress,
                "nodes are being upgraded; `kubectl get nodeoperations` shows which, and how far"
                    .to_owned(),
            )),
            (None, Some(nodes)) => Some((
                Reason::DriverUpgradeInProgress,
                match self.obstacle() {
                    Some((node, why)) => format!("waiting to be upgraded: {nodes}; {node}: {why}"),
                    None => format!("waiting to be upgraded: {nodes}"),
                },
            )),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(standings: &[(&str, Why)]) -> String {
        let standing = |(node, why): &(&str, Why)| {
            let message = format!("because of {why:?}");
            ((*node).to_owned(), Standing::Pending { why: *why, message })
        };
        let survey = Survey {
            standings: standings.iter().map(standing).collect(),
            ..Survey::default()
        };
        survey.condition().unwrap().1
    }

    #[test]
    fn when_nothing_moves_the_obstacle_is_told() {
        assert_eq!(
            told(&[("a", Why::BudgetExceeded), ("b", Why::Skipped)]),
            "waiting to be upgraded: a, b; a: because of BudgetExceeded"
        );
        assert_eq!(
            told(&[("a", Why::Next), ("b", Why::BudgetExceeded)]),
            "waiting to be upgraded: a, b"
        );
    }
}
