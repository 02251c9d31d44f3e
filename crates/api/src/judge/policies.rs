//! A policy beside others.

use kube::ResourceExt;

use super::{
    Finding, Severity,
    case::{Case, others},
};
use crate::{effective, policy::ClusterPolicy, quote::quoted};

/// A new policy that will not be the active one.
pub(super) fn judge(case: &mut Case<'_>, new: &ClusterPolicy) {
    if case.is_update {
        return;
    }
    let others = others(new, case.facts);
    let Some(active) = effective::first(others, |policy| &policy.metadata, new.is_base()) else {
        return;
    };
    let (kind, remedy) = if new.is_base() {
        ("base policy", "change that one, or delete it")
    } else {
        (
            "policy",
            "change that one, or delete it: then this one takes over by itself",
        )
    };
    case.push(Finding {
        severity: Severity::Warn,
        path: "metadata.name".to_owned(),
        value: quoted(&new.name_any()).into_owned(),
        why: format!(
            "is a second {kind}, and the older one, {}, stays active: this one has no effect",
            active.name_any()
        ),
        remedy: remedy.to_owned(),
    });
}
