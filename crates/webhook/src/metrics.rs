//! Metrics with controller-runtime's names, and when the served certificate ends.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tessera_runtime::metrics::Metrics;

use crate::admission::Verdict;

/// `webhook` is the path that was asked, `code` the HTTP status.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    webhook: String,
    code: String,
}

/// `verdict` is `accepted`, `changed` or `refused`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VerdictLabels {
    webhook: &'static str,
    verdict: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WebhookLabels {
    webhook: String,
}

/// This process's own metrics.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    requests: Family<RequestLabels, Counter>,
    in_flight: Family<WebhookLabels, Gauge>,
    latency: Family<WebhookLabels, Histogram, fn() -> Histogram>,
    verdicts: Family<VerdictLabels, Counter>,
    expiry: Gauge<f64, AtomicU64>,
}

/// From 0.1 ms to the server's own limit; an answer usually takes less than one millisecond and should take less than five.
fn latency() -> Histogram {
    Histogram::new([
        0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 3.0,
    ])
}

impl WebhookMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let own = Self {
            requests: Family::default(),
            in_flight: Family::default(),
            latency: Family::new_with_constructor(latency),
            verdicts: Family::default(),
            expiry: Gauge::default(),
        };
        metrics.register(|registry| {
            registry.register(
                "controller_runtime_webhook_requests",
                "Admission requests by path and HTTP status",
                own.requests.clone(),
            );
            registry.register(
                "controller_runtime_webhook_requests_in_flight",
                "Admission requests being answered",
                own.in_flight.clone(),
            );
            registry.register(
                "controller_runtime_webhook_latency_seconds",
                "Time an admission request takes",
                own.latency.clone(),
            );
            registry.register(
                "tessera_webhook_verdicts",
                "Answers by path and by what was said: accepted, changed, refused",
                own.verdicts.clone(),
            );
            registry.register(
                "tessera_webhook_certificate_expiry_timestamp_seconds",
                "When the served certificate ends",
                own.expiry.clone(),
            );
        });
        own
    }

    /// A request to `path` begins.
    pub(crate) fn begins(&self, path: &'static str) {
        self.in_flight.get_or_create(&of(path)).inc();
    }

    /// A request to `path` has been answered.
    pub(crate) fn ended(&self, path: &'static str, code: u16, took: Duration) {
        self.in_flight.get_or_create(&of(path)).dec();
        self.latency
            .get_or_create(&of(path))
            .observe(took.as_secs_f64());
        let labels = RequestLabels {
            webhook: path.to_owned(),
            code: code.to_string(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// What was said on `path`.
    pub(crate) fn said(&self, path: &'static str, verdict: &Verdict) {
        let verdict = match (verdict.refusals.is_empty(), verdict.patch.is_empty()) {
            (false, _) => "refused",
            (true, false) => "changed",
            (true, true) => "accepted",
        };
        let labels = VerdictLabels {
            webhook: path,
            verdict,
        };
        self.verdicts.get_or_create(&labels).inc();
    }

    /// When the served certificate ends, in seconds since 1970.
    pub(crate) fn expires(&self, at: i64) {
        // Exact for the next 285 million years.
        #[allow(clippy::cast_precision_loss)]
        self.expiry.set(at as f64);
    }
}

fn of(path: &str) -> WebhookLabels {
    WebhookLabels {
        webhook: path.to_owned(),
    }
}
