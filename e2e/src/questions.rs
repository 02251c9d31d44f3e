//! Questions to the webhook at a steady rate, and how long its answers take: as its clients, the API server and it itself see it.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tessera_api::ClusterPolicy;

use crate::cluster::{Cluster, NAMESPACE};
use crate::scenario::controller_pods;
use crate::{Lab, http_get};

/// One question every 20 ms.
const PACE: Duration = Duration::from_millis(20);

/// What came of many questions.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Policies let in, as they had to be.
    pub accepted: usize,
    /// Policies refused, as they had to be.
    pub refused: usize,
    /// Pods let in.
    pub pods: usize,
    /// Answers that are wrong: a bad one accepted, a good one refused.
    pub wrong: Vec<String>,
    /// No answer of the webhook, and when.
    pub failed: Vec<(Duration, String)>,
    /// How long each took as seen by the client, in order.
    pub took: Vec<Duration>,
}

impl Outcome {
    /// What so many of a hundred were faster than.
    pub fn percentile(&self, percent: usize) -> Duration {
        let last = self.took.len().saturating_sub(1);
        self.took
            .get(last * percent / 100)
            .copied()
            .unwrap_or_default()
    }
}

/// What is asked about, in turn.
#[derive(Clone, Copy)]
enum About {
    GoodPolicy,
    BadPolicy,
    Pod,
}

/// Asks 50 times a second for so long, with dry runs: about policies that are good, that must be refused, and about Pods that share a card.
pub async fn ask(lab: &Lab, time: Duration) -> Outcome {
    let start = Instant::now();
    let mut ticks = tokio::time::interval(PACE);
    let mut tasks = tokio::task::JoinSet::new();
    let turns = [
        About::GoodPolicy,
        About::BadPolicy,
        About::Pod,
        About::BadPolicy,
    ];
    for about in turns.into_iter().cycle() {
        if start.elapsed() >= time {
            break;
        }
        ticks.tick().await;
        let client = lab.client();
        let at = start.elapsed();
        tasks.spawn(async move {
            let asked = Instant::now();
            let answer = match about {
                About::GoodPolicy => {
                    create(
                        Api::<ClusterPolicy>::all(client),
                        policy("535.104.05", "cdi-cri"),
                    )
                    .await
                }
                About::BadPolicy => {
                    create(
                        Api::<ClusterPolicy>::all(client),
                        policy("535.104.05", "cdi-everything"),
                    )
                    .await
                }
                About::Pod => create(Api::<Pod>::namespaced(client, "default"), pod()).await,
            };
            (about, at, asked.elapsed(), answer)
        });
    }
    let mut outcome = Outcome::default();
    while let Some(Ok((about, at, took, answer))) = tasks.join_next().await {
        outcome.took.push(took);
        outcome.count(about, at, answer);
    }
    outcome.took.sort();
    outcome
}

impl Outcome {
    fn count(&mut self, about: About, at: Duration, answer: Result<(), String>) {
        match (about, answer) {
            (About::GoodPolicy, Ok(())) => self.accepted += 1,
            (About::Pod, Ok(())) => self.pods += 1,
            (About::BadPolicy, Ok(())) => {
                self.wrong.push(format!("{at:?}: a bad one was accepted"));
            }
            (About::BadPolicy, Err(text)) if text.contains("denied the request") => {
                self.refused += 1;
            }
            (_, Err(text)) if text.contains("denied the request") => {
                self.wrong.push(format!("{at:?}: {text}"));
            }
            (_, Err(text)) => self.failed.push((at, text)),
        }
    }
}

async fn create<K>(api: Api<K>, object: Value) -> Result<(), String>
where
    K: kube::Resource + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object: K = serde_json::from_value(object).map_err(|error| error.to_string())?;
    let created = api.create(&params, &object).await;
    created.map(drop).map_err(|error| error.to_string())
}

fn policy(driver: &str, strategy: &str) -> Value {
    let env = json!([{"name": "DEVICE_LIST_STRATEGY", "value": strategy}]);
    json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "load"},
        "spec": {"driver": {"version": driver}, "devicePlugin": {"env": env}},
    })
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "load"},
        "spec": {"containers": [{"name": "a", "image": "lab-dummy", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    })
}

/// A histogram as Prometheus counts: upper bound in seconds, and how many were not longer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram(Vec<(f64, f64)>);

impl Histogram {
    /// Reads a metric's series that hold all of `labels`, as they are written; several are added up.
    pub fn read(text: &str, metric: &str, labels: &[&str]) -> Self {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        let prefix = format!("{metric}_bucket{{");
        for line in text.lines().filter(|line| line.starts_with(&prefix)) {
            let bound = line
                .split_once("le=\"")
                .and_then(|(_, rest)| rest.split_once('"'))
                .and_then(|(bound, _)| bound.replace("+Inf", "inf").parse::<f64>().ok());
            let count = line
                .rsplit(' ')
                .next()
                .and_then(|count| count.parse::<f64>().ok());
            let (Some(bound), Some(count)) = (bound, count) else {
                continue;
            };
            if !labels.iter().all(|label| line.contains(label)) {
                continue;
            }
            match buckets
                .iter_mut()
                .find(|(known, _)| known.total_cmp(&bound).is_eq())
            {
                Some((_, sum)) => *sum += count,
                None => buckets.push((bound, count)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self(buckets)
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bound: f64| {
            let same = earlier
                .0
                .iter()
                .find(|(known, _)| known.total_cmp(&bound).is_eq());
            same.map_or(0.0, |(_, count)| *count)
        };
        Self(
            self.0
                .iter()
                .map(|(bound, count)| (*bound, count - before(*bound)))
                .collect(),
        )
    }

    /// How many there are.
    pub fn count(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, count)| *count)
    }

    /// Seconds that this share of all stayed under, as Prometheus's `histogram_quantile` tells it: even within a bucket.
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = self.count() * share;
        let (mut lower, mut below) = (0.0, 0.0);
        for (bound, count) in &self.0 {
            if *count >= rank && *count > below {
                let part = (rank - below) / (count - below);
                return if bound.is_finite() {
                    lower + (bound - lower) * part
                } else {
                    lower
                };
            }
            (lower, below) = (*bound, *count);
        }
        lower
    }
}

/// How long answers took.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// As the webhook's replicas count it, from the first byte of a question.
    pub server: Histogram,
    /// As the API server counts it, connection and all.
    pub api_server: Histogram,
}

impl Latencies {
    /// All answers so far of the replicas that run now.
    ///
    /// # Errors
    /// Somebody does not answer.
    pub async fn read(cluster: &Cluster) -> anyhow::Result<Self> {
        let mut all = String::new();
        for pod in controller_pods(cluster, "webhook").await? {
            let path = "jsonpath={.status.podIP}";
            let ip = cluster
                .kubectl_ok(&["-n", NAMESPACE, "get", "pod", &pod, "-o", path])
                .await?;
            all += &http_get(&format!("{ip}:8080"), "/metrics").await?;
        }
        let text = cluster.kubectl_ok(&["get", "--raw", "/metrics"]).await?;
        Ok(Self {
            server: Histogram::read(&all, "controller_runtime_webhook_latency_seconds", &[]),
            api_server: Histogram::read(
                &text,
                "apiserver_admission_webhook_admission_duration_seconds",
                &[".aiops.local\""],
            ),
        })
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            server: self.server.since(&earlier.server),
            api_server: self.api_server.since(&earlier.api_server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let text = |counts: [u32; 3]| {
            let [a, b, c] = counts;
            format!(
                "m_bucket{{name=\"x.aiops.local\",le=\"0.005\"}} {a}\nm_bucket{{name=\"x.aiops.local\",le=\"0.025\"}} {b}\n\
                 m_bucket{{name=\"x.aiops.local\",le=\"+Inf\"}} {c}\nm_bucket{{name=\"other\",le=\"0.005\"}} 7\nm_sum{{}} 1\n"
            )
        };
        let read = |counts| Histogram::read(&text(counts), "m", &[".aiops.local\""]);
        let near = |found: f64, want: f64| (found - want).abs() < 1e-9;
        assert!(near(read([100, 100, 100]).quantile(0.99), 0.00495));
        assert!(near(read([98, 100, 100]).quantile(0.99), 0.015));
        assert!(near(read([0, 0, 100]).quantile(0.99), 0.025));
        assert!(near(Histogram::default().quantile(0.99), 0.0));
        let later = read([198, 200, 200]).since(&read([100, 100, 100]));
        assert_eq!(later, read([98, 100, 100]));
        assert!(near(
            Histogram::read(&text([1, 2, 3]), "m", &[]).count(),
            3.0
        ));
    }
}
