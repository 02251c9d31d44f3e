//! Writes the agent's part of the status: when it differs from what is there, and only then.
//!
//! `lastCheckTime` is the time of the check that led to the write. A heartbeat would be a write each interval; that the agent
//! is alive is told by its readiness, its Lease and `sre_agent_last_check_timestamp_seconds`.

use crate::context::Context;
use crate::error::Error;
use crate::observe::Own;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tessera_api::SREAgent;
use tessera_api::names::controller;
use tessera_api::sreagent::AgentReport;
use tessera_runtime::clients::within;
use tessera_runtime::election::Term;

/// Whether `wanted` says anything that `live` does not.
pub fn differs(live: Option<&AgentReport>, wanted: &AgentReport) -> bool {
    let Some(live) = live else { return true };
    AgentReport {
        last_check_time: None,
        ..live.clone()
    } != AgentReport {
        last_check_time: None,
        ..wanted.clone()
    }
}

/// Writes `report` unless it is there already.
pub async fn write(
    context: &Context,
    term: &Term,
    own: &Own,
    report: &AgentReport,
) -> Result<(), Error> {
    if !differs(own.report.as_ref(), report) {
        return Ok(());
    }
    term.check()?;
    let report = AgentReport {
        last_check_time: Some(tessera_runtime::clock::time()),
        ..report.clone()
    };
    let patch = json!({
        "apiVersion": "aiops.local/v1",
        "kind": "SREAgent",
        "metadata": {"name": context.name, "uid": own.uid},
        "status": {"agent": report},
    });
    let api: Api<SREAgent> = Api::namespaced(context.client.clone(), &context.namespace);
    let params = PatchParams::apply(&controller::field_manager(controller::SRE_AGENT)).force();
    let sent = within(
        context.request_timeout,
        api.patch_status(&context.name, &params, &Patch::Apply(&patch)),
    )
    .await;
    match sent {
        Ok(_) => {
            tracing::info!(
                incidents = report.open_incidents,
                "Reconcile: reported what changed"
            );
            Ok(())
        }
        // The SREAgent is gone (or another one of its name has come): there is nobody to report to.
        Err(error)
            if tessera_runtime::error::is_not_found(&error)
                || tessera_runtime::error::is_conflict(&error) =>
        {
            Ok(())
        }
        Err(error) => Err(Error::Status(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_check_alone_is_no_news() {
        let wanted = AgentReport {
            open_incidents: Some(0),
            ..AgentReport::default()
        };
        let live = AgentReport {
            last_check_time: Some(tessera_runtime::clock::time()),
            ..wanted.clone()
        };
        assert!(!differs(Some(&live), &wanted));
        assert!(differs(None, &wanted));
        assert!(differs(
            Some(&live),
            &AgentReport {
                open_incidents: Some(1),
                ..AgentReport::default()
            }
        ));
    }
}
