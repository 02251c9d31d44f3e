//! Prometheus metrics with controller-runtime's and client-go's names, so that existing dashboards work.

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

mod host;

/// `controller` and `result` (success, error, requeue_after).
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: String,
}

/// `controller` and `reason`, the variant of the error.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    controller: String,
    reason: String,
}

/// `method` and `code` of an API request; code 0 is no answer.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    code: String,
}

/// `kind` of a watch.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

/// `name` as client-go labels its queues and leases.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NameLabels {
    name: String,
}

/// `kind` and `action` (applied, deleted, skipped) of owned objects.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ObjectLabels {
    kind: String,
    action: String,
}

type Seconds = Gauge<f64, AtomicU64>;

/// All metrics of one process.
pub struct Metrics {
    controller: String,
    registry: Mutex<Registry>,
    reconciles: Family<ResultLabels, Counter>,
    errors: Family<ReasonLabels, Counter>,
    duration: Family<NameLabels, Histogram, fn() -> Histogram>,
    active: Family<NameLabels, Gauge>,
    workers: Family<NameLabels, Gauge>,
    depth: Family<NameLabels, Gauge>,
    adds: Family<NameLabels, Counter>,
    retries: Family<NameLabels, Counter>,
    leader: Family<NameLabels, Gauge>,
    requests: Family<RequestLabels, Counter>,
    watch_errors: Family<KindLabels, Counter>,
    stored: Family<KindLabels, Gauge>,
    objects: Family<ObjectLabels, Counter>,
}

fn seconds_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.5, 12))
}

impl Metrics {
    /// Registers everything; `controller` is the label value of this process.
    pub fn new(controller: &str) -> Self {
        let metrics = Self {
            controller: controller.to_owned(),
            registry: Mutex::new(Registry::default()),
            reconciles: Family::default(),
            errors: Family::default(),
            duration: Family::new_with_constructor(seconds_histogram),
            active: Family::default(),
            workers: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            leader: Family::default(),
            requests: Family::default(),
            watch_errors: Family::default(),
            stored: Family::default(),
            objects: Family::default(),
        };
        metrics.register_all();
        metrics
    }

    fn register_all(&self) {
        self.register(|r| {
            r.register(
                "controller_runtime_reconcile",
                "Reconciliations by result",
                self.reconciles.clone(),
            );
            r.register(
                "controller_runtime_reconcile_errors",
                "Reconciliations that failed, by reason",
                self.errors.clone(),
            );
            r.register(
                "controller_runtime_reconcile_time_seconds",
                "Time a reconciliation takes",
                self.duration.clone(),
            );
            r.register(
                "controller_runtime_active_workers",
                "Reconciliations running now",
                self.active.clone(),
            );
            r.register(
                "controller_runtime_max_concurrent_reconciles",
                "Most reconciliations at a time",
                self.workers.clone(),
            );
            r.register(
                "workqueue_depth",
                "Keys that wait to be reconciled",
                self.depth.clone(),
            );
            r.register(
                "workqueue_adds",
                "Keys added to the queue",
                self.adds.clone(),
            );
            r.register(
                "workqueue_retries",
                "Keys tried again after an error",
                self.retries.clone(),
            );
            r.register(
                "leader_election_master_status",
                "1 while this process leads",
                self.leader.clone(),
            );
            r.register(
                "rest_client_requests",
                "API requests by method and code (0: no answer)",
                self.requests.clone(),
            );
            r.register(
                "tessera_watch_errors",
                "Watches that broke, by kind",
                self.watch_errors.clone(),
            );
            r.register(
                "tessera_store_objects",
                "Objects held in memory, by kind",
                self.stored.clone(),
            );
            r.register(
                "tessera_owned_objects",
                "Writes of owned objects, by kind and action",
                self.objects.clone(),
            );
        });
    }

    /// Registers further metrics of one process.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    fn name(&self) -> NameLabels {
        NameLabels {
            name: self.controller.clone(),
        }
    }

    pub(crate) fn reconciled(&self, result: &str, took: Duration) {
        let labels = ResultLabels {
            controller: self.controller.clone(),
            result: result.to_owned(),
        };
        self.reconciles.get_or_create(&labels).inc();
        self.duration
            .get_or_create(&self.name())
            .observe(took.as_secs_f64());
    }

    pub(crate) fn failed(&self, reason: &str) {
        let labels = ReasonLabels {
            controller: self.controller.clone(),
            reason: reason.to_owned(),
        };
        self.errors.get_or_create(&labels).inc();
        self.retries.get_or_create(&self.name()).inc();
    }

    pub(crate) fn queue(&self, depth: usize, active: usize) {
        self.depth
            .get_or_create(&self.name())
            .set(i64::try_from(depth).unwrap_or(i64::MAX));
        self.active
            .get_or_create(&self.name())
            .set(i64::try_from(active).unwrap_or(i64::MAX));
    }

    pub(crate) fn added(&self) {
        self.adds.get_or_create(&self.name()).inc();
    }

    pub(crate) fn set_workers(&self, workers: u16) {
        self.workers
            .get_or_create(&self.name())
            .set(i64::from(workers));
    }

    pub(crate) fn set_leader(&self, leads: bool) {
        self.leader
            .get_or_create(&self.name())
            .set(i64::from(leads));
    }

    pub(crate) fn request(&self, method: &str, code: u16) {
        let labels = RequestLabels {
            method: method.to_owned(),
            code: code.to_string(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn watch_error(&self, kind: &str) {
        self.watch_errors
            .get_or_create(&KindLabels {
                kind: kind.to_owned(),
            })
            .inc();
    }

    pub(crate) fn set_stored(&self, kind: &str, count: usize) {
        let labels = KindLabels {
            kind: kind.to_owned(),
        };
        self.stored
            .get_or_create(&labels)
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn object(&self, kind: &str, action: &str) {
        let labels = ObjectLabels {
            kind: kind.to_owned(),
            action: action.to_owned(),
        };
        self.objects.get_or_create(&labels).inc();
    }

    /// The exposition text, process metrics included.
    ///
    /// # Errors
    /// When the encoder cannot write, which for a `String` means a defect.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &self.registry.lock())?;
        text.push_str(&host::process_text());
        Ok(text)
    }
}

/// A gauge of seconds or ratios.
pub fn float_gauge() -> Family<Vec<(String, String)>, Seconds> {
    Family::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_controller_runtime_and_the_process() {
        let metrics = Metrics::new("test");
        metrics.reconciled("success", Duration::from_millis(3));
        metrics.failed("Forbidden");
        metrics.request("PATCH", 200);
        metrics.set_leader(true);
        let text = metrics.encode().unwrap();
        for want in [
            "controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1",
            "controller_runtime_reconcile_errors_total{controller=\"test\",reason=\"Forbidden\"} 1",
            "controller_runtime_reconcile_time_seconds_bucket",
            "rest_client_requests_total{method=\"PATCH\",code=\"200\"} 1",
            "leader_election_master_status{name=\"test\"} 1",
            "process_resident_memory_bytes ",
            "process_cpu_seconds_total ",
        ] {
            assert!(text.contains(want), "{want} is not in\n{text}");
        }
    }
}
