//! The measurements, each from rest to rest.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tessera_api::ClusterPolicy;
use tessera_api::names::controller::WEBHOOK;
use tessera_api::policy::State;

use super::{Bench, Row};
use crate::audit::{Class, Requests};
use crate::cluster::NAMESPACE;
use crate::nodes;
use crate::questions::{self, Histogram, Latencies};
use crate::scenario::{
    CONTROLLERS, MINUTE, USER_POLICY, controller_requests, count, counted, input, lines, node_name,
    owned_objects, pods_by_node, policy, policy_ready, policy_until,
};

/// Seconds without a write after which nothing more is to come: a count that differs is written when it has stood for 15 s
/// (`tessera_runtime::status::pacing`).
const REST: u32 = 20;

/// Kinds that are watched, over all controllers; the budget of reads is three each.
const WATCHED_KINDS: usize = 10;

impl Bench<'_> {
    /// Fifty questions a second, as the webhook and as the API server time its answers (issue "Admission": 5 and 10 ms).
    pub(super) async fn admission(&mut self) -> anyhow::Result<()> {
        let before = Latencies::read(self.lab).await?;
        let outcome = questions::ask(self.lab, Duration::from_secs(20)).await;
        let took = Latencies::read(self.lab).await?.since(&before);
        let wrong = outcome.wrong.len() + outcome.failed.len();
        let millis = |histogram: &Histogram| histogram.quantile(0.99) * 1000.0;
        let client = outcome.percentile(99).as_secs_f64() * 1000.0;
        self.rows.extend([
            Row::count("50 questions a second for 20 s: failed or wrong", wrong, 0)
                .with_detail(|| format!("{:#?} {:#?}", outcome.wrong, outcome.failed)),
            Row::figure("  p99 in the server", millis(&took.server), "ms", Some(5.0)),
            Row::figure(
                "  p99 as the API server sees it",
                millis(&took.api_server),
                "ms",
                Some(10.0),
            ),
            Row::figure(
                "  p99 of the whole request, as its client sees it",
                client,
                "ms",
                None,
            ),
        ]);
        Ok(())
    }

    /// From the creation of the policy until nothing is sent any more.
    pub(super) async fn converge(&mut self) -> anyhow::Result<()> {
        let cpu = self.cpu();
        let policies: Api<ClusterPolicy> = Api::all(self.lab.client());
        let text = std::fs::read_to_string(input("cluster-policy.yaml"))?;
        let mut wanted: ClusterPolicy = serde_saphyr::from_str(&text)?;
        // As in the values, of which no base policy is made here.
        wanted.spec.mig_manager.get_or_insert_default().enabled = Some(false);
        let (created_at, started) = (Timestamp::now(), Instant::now());
        policies.create(&PostParams::default(), &wanted).await?;
        let operands_ready = self.until_ready(started).await?;
        let ready = started.elapsed();
        let requests = self.calm(REST).await?;
        let total = Requests::of(&requests);
        let last_created = requests
            .iter()
            .filter(|request| request.code == 201 && request.class() == Class::Write)
            .map(|request| request.at.duration_since(created_at).as_secs_f64())
            .fold(0.0, f64::max);
        let settled = ready.saturating_sub(operands_ready).as_secs_f64();
        let writes = owned_objects(self.lab).await?.len() + self.plan.nodes + 20;
        let all = || format!("{total}\n{}", lines(&requests, Class::Write));
        let rows = [
            Row::figure(
                "created to all objects existing",
                last_created,
                "s",
                Some(1.0),
            ),
            Row::figure("created to state: ready", ready.as_secs_f64(), "s", None),
            Row::figure(
                "last operand ready to state: ready",
                settled,
                "s",
                Some(1.0),
            ),
            Row::count("writes to converge", total.writes, writes).with_detail(all),
            Row::count("reads to converge", total.reads, 3 * WATCHED_KINDS)
                .with_detail(|| lines(&requests, Class::Read)),
            Row::count("refused for want of a right", total.denied, 0),
            Row::figure(
                "CPU to converge, all processes",
                self.cpu() - cpu,
                "s",
                None,
            ),
        ];
        self.rows.extend(rows);
        Ok(())
    }

    /// Waits for the policy; returns when every operand's DaemonSet said that all its pods are ready.
    async fn until_ready(&self, started: Instant) -> anyhow::Result<Duration> {
        let sets: Api<DaemonSet> = Api::namespaced(self.lab.client(), NAMESPACE);
        let mut operands = None;
        loop {
            let ready = policy(self.lab, USER_POLICY)
                .await?
                .and_then(|policy| policy.status)
                .is_some_and(|status| status.state == Some(State::Ready));
            let list = sets.list(&ListParams::default()).await?.items;
            let done = !list.is_empty() && list.iter().all(|set| is_done(set, self.plan.nodes));
            // Until its nodes are labelled, a DaemonSet wants no pod: only the last time counts.
            operands = operands
                .filter(|_| done)
                .or(done.then(|| started.elapsed()));
            if ready {
                return Ok(operands.unwrap_or_else(|| started.elapsed()));
            }
            anyhow::ensure!(
                started.elapsed() < self.patience(),
                "the policy is not ready after {:?}",
                started.elapsed()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A minute of rest with two full passes in it, and what the processes use then.
    pub(super) async fn idle(&mut self) -> anyhow::Result<()> {
        let cpu = self.cpu();
        tokio::time::sleep(MINUTE).await;
        let (requests, _) = controller_requests(&mut self.audit)?;
        self.requests("60 s converged, with two full resyncs", 0, &requests);
        let used = self.cpu() - cpu;
        let usage = [self.ours(), self.usage_of(&[WEBHOOK])].concat();
        let memory: f64 = usage.iter().map(|usage| usage.pss_mib).sum();
        let budget = match self.plan.nodes {
            0..=3 => 60.0,
            4..=100 => 65.0,
            _ => 80.0,
        };
        let each = || {
            let lines = usage
                .iter()
                .map(|u| format!("  {:.1} MiB {}", u.pss_mib, u.name));
            lines.collect::<Vec<_>>().join("\n")
        };
        let what = format!("memory (PSS) of all {} processes", usage.len());
        let rows = [
            Row::figure("CPU in these 60 s, all processes", used, "s", None),
            Row::figure(&what, memory, "MiB", Some(budget)).with_detail(each),
        ];
        self.rows.extend(rows);
        Ok(())
    }

    /// An unrelated label and condition, then a deleted operand pod.
    pub(super) async fn small_events(&mut self) -> anyhow::Result<()> {
        let node = node_name(0);
        let all: Api<Node> = Api::all(self.lab.client());
        let label = json!({"metadata": {"labels": {"example.com/rack": "7"}}});
        let condition = json!({"status": {"conditions": [
            {"type": "Unrelated", "status": "True", "reason": "Test", "message": "x"}]}});
        let params = PatchParams::default();
        all.patch(&node, &params, &Patch::Merge(label)).await?;
        all.patch_status(&node, &params, &Patch::Strategic(condition))
            .await?;
        let requests = self.calm(REST).await?;
        self.requests("an unrelated node label and condition", 0, &requests);

        let pods: Api<Pod> = Api::namespaced(self.lab.client(), NAMESPACE);
        let exporters = pods_by_node(self.lab, "nvidia-dcgm-exporter").await?;
        let victim = exporters.get(&node).context("the node has no exporter")?;
        pods.delete(&victim.name_any(), &DeleteParams::default())
            .await?;
        let requests = self.calm(REST).await?;
        self.requests("one operand pod deleted", 4, &requests);
        Ok(())
    }

    /// One more node.
    pub(super) async fn join(&mut self) -> anyhow::Result<()> {
        let one = nodes::gpu_nodes_from(self.plan.nodes, 1);
        self.lab.add_nodes(one).await?;
        self.plan.nodes += 1;
        counted(self.lab, USER_POLICY, i32::try_from(self.plan.nodes)?).await?;
        let requests = self.calm(REST).await?;
        self.requests("one GPU node joins", 4, &requests);
        Ok(())
    }

    /// Every pod of every controller is replaced.
    pub(super) async fn restart(&mut self) -> anyhow::Result<()> {
        let before: Vec<String> = self.ours().into_iter().map(|usage| usage.name).collect();
        let started = Instant::now();
        for verb in ["restart", "status"] {
            for controller in CONTROLLERS {
                let target = format!("deployment/{controller}");
                self.lab
                    .kubectl_ok(&["-n", NAMESPACE, "rollout", verb, &target])
                    .await?;
            }
        }
        let took = started.elapsed().as_secs_f64();
        let requests = self.calm(REST).await?;
        let after: Vec<String> = self.ours().into_iter().map(|usage| usage.name).collect();
        anyhow::ensure!(
            !after.iter().any(|name| before.contains(name)),
            "a process was not replaced: {before:?} {after:?}"
        );
        let writes = count(&requests, Class::Write);
        let rows = [
            Row::figure("all controllers rolled", took, "s", None),
            Row::count("writes caused by it", writes, 0)
                .with_detail(|| lines(&requests, Class::Write)),
        ];
        self.rows.extend(rows);
        Ok(())
    }

    /// Another driver version on every node, eight at a time.
    pub(super) async fn upgrade(&mut self) -> anyhow::Result<()> {
        let change = json!({"spec": {"driver": {
            "version": "550.54.15",
            "upgradePolicy": {"autoUpgrade": true, "maxParallelUpgrades": 8, "maxUnavailable": "100%"},
        }}});
        let policies: Api<ClusterPolicy> = Api::all(self.lab.client());
        let started = Instant::now();
        let change = Patch::Merge(change);
        policies
            .patch(USER_POLICY, &PatchParams::default(), &change)
            .await?;
        let nodes = i32::try_from(self.plan.nodes)?;
        let upgraded = |policy: &ClusterPolicy| {
            let status = policy.status.as_ref();
            let driver = status.and_then(|status| status.driver.as_ref());
            driver.and_then(|driver| driver.updated) == Some(nodes)
        };
        let patience = self.patience() * 3;
        let what = "every driver is new";
        policy_until(self.lab, USER_POLICY, what, patience, upgraded).await?;
        policy_ready(self.lab, USER_POLICY, patience).await?;
        let took = started.elapsed().as_secs_f64();
        let requests = self.calm(REST).await?;
        // The DaemonSet's own change and the policy's status are not a node's.
        let of_nodes = requests
            .iter()
            .filter(|request| !request.resource.starts_with("clusterpolicies"))
            .filter(|request| matches!(request.class(), Class::Write | Class::Read))
            .count();
        let per_node = of_nodes.div_ceil(self.plan.nodes);
        let rows = [
            Row::figure("driver upgrade of all nodes, 8 at a time", took, "s", None),
            Row::count("requests to upgrade one node", per_node, 15)
                .with_detail(|| Requests::of(&requests).to_string()),
        ];
        self.rows.extend(rows);
        Ok(())
    }

    /// A minute in which the pods of three operands never become ready.
    pub(super) async fn broken_minute(&mut self) -> anyhow::Result<()> {
        const BROKEN: [&str; 3] = [
            "nvidia-driver-daemonset",
            "nvidia-device-plugin-daemonset",
            "nvidia-dcgm-exporter",
        ];
        let all: Api<Node> = Api::all(self.lab.client());
        let faults: serde_json::Map<String, serde_json::Value> = BROKEN
            .iter()
            .map(|app| (format!("sim.tessera.dev/{app}"), "never-ready".into()))
            .collect();
        let fault = Patch::Merge(json!({"metadata": {"annotations": faults}}));
        for node in nodes::gpu_nodes(self.plan.nodes) {
            all.patch(&node.name_any(), &PatchParams::default(), &fault)
                .await?;
        }
        self.audit.skip()?;
        let pods: Api<Pod> = Api::namespaced(self.lab.client(), NAMESPACE);
        for app in BROKEN {
            let labelled = ListParams::default().labels(&format!("app={app}"));
            pods.delete_collection(&DeleteParams::default(), &labelled)
                .await?;
        }
        tokio::time::sleep(MINUTE).await;
        let (requests, _) = controller_requests(&mut self.audit)?;
        self.requests("60 s in which pods cannot start", 6, &requests);
        Ok(())
    }
}

fn is_done(set: &DaemonSet, nodes: usize) -> bool {
    let status = set.status.clone().unwrap_or_default();
    let desired = status.desired_number_scheduled;
    // A DaemonSet for nodes of another kind has none.
    let on_all = i32::try_from(nodes) == Ok(desired) || desired == 0;
    on_all && status.number_ready == desired
}
