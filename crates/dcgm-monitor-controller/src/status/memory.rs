//! The exporter's best known trouble: it is ended for its memory on nodes with many cards, and monitoring is blind exactly there.

use tessera_api::{
    effective::Operand,
    units::{parse_quantity, quantity},
};
use tessera_runtime::operands::Verdict;

use crate::build::DEFAULT_MEMORY_LIMIT;

/// What the kubelet writes.
const KILLED: &str = "OOMKilled";

/// The verdict, with the next step if the reason is memory: twice the limit in force.
pub(super) fn with_advice(verdict: Verdict, operand: &Operand) -> Verdict {
    if verdict.ready || !verdict.message.contains(KILLED) {
        return verdict;
    }
    let Some(limit) = limit_mib(operand) else {
        return verdict;
    };
    let message = format!(
        "{}; its memory limit of {limit}Mi is too small for this node: set dcgmExporter.resources.limits.memory to {}Mi or more",
        verdict.message,
        limit * 2
    );
    Verdict { message, ..verdict }
}

fn limit_mib(operand: &Operand) -> Option<u64> {
    let bytes = match &operand.resources {
        None => parse_quantity(DEFAULT_MEMORY_LIMIT).ok()?,
        Some(resources) => quantity(resources.limits.as_ref()?.get("memory")?).ok()?,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked: up to an exbibyte"
    )]
    (1.0..=1e18)
        .contains(&bytes)
        .then(|| (bytes / 1_048_576.0).ceil() as u64)
}
