//! Which metrics the exporter collects: the user's ConfigMap where it can be used, else what it collected before, else the built-in
//! list. A user's mistake is reported and never reaches a pod. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use tessera_api::{
    Reason,
    effective::hash_of,
    names::{config_map, controller, label},
};

use crate::metrics_csv;

/// Annotation of our metrics ConfigMap: where its content is from.
pub const SOURCE: &str = "aiops.local/metrics-source";
/// Annotation of our metrics ConfigMap: hash of its content, by which a content that somebody has edited is told from a good one.
pub const HASH: &str = "aiops.local/metrics-hash";
/// Value of [`SOURCE`] for the built-in list.
pub const BUILT_IN: &str = "built-in";
/// How many keys of a ConfigMap a message names.
const NAMED_KEYS: usize = 5;

/// A ConfigMap of a user, cut to what matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMap {
    /// Its keys.
    pub keys: BTreeSet<String>,
    /// The text of key `dcgm-metrics.csv`.
    pub csv: Option<String>,
}

impl UserMap {
    /// Reads a ConfigMap; `None` for those that we made ourselves.
    pub fn from_config_map(map: ConfigMap) -> Option<Self> {
        if map
            .labels()
            .get(label::MANAGED_BY)
            .is_some_and(|by| by == controller::DCGM_MONITOR)
        {
            return None;
        }
        let mut data = map.data.unwrap_or_default();
        let csv = data.remove(config_map::DCGM_METRICS_KEY);
        let mut keys: BTreeSet<String> = data
            .into_keys()
            .chain(map.binary_data.unwrap_or_default().into_keys())
            .collect();
        if csv.is_some() {
            keys.insert(config_map::DCGM_METRICS_KEY.to_owned());
        }
        Some(Self { keys, csv })
    }
}

/// A metrics file, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsFile {
    /// The text.
    pub csv: String,
    /// [`BUILT_IN`], or the name of the user's ConfigMap.
    pub source: String,
}

impl MetricsFile {
    /// The annotations by which it can be read back.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (SOURCE.to_owned(), self.source.clone()),
            (HASH.to_owned(), hash_of(&self.csv)),
        ])
    }

    /// What our own ConfigMap holds; `None` if somebody has edited it.
    pub fn read_back(map: &ConfigMap) -> Option<Self> {
        let csv = map
            .data
            .as_ref()?
            .get(config_map::DCGM_METRICS_KEY)?
            .clone();
        let source = map.annotations().get(SOURCE)?.clone();
        let intact = map
            .annotations()
            .get(HASH)
            .is_some_and(|hash| *hash == hash_of(&csv));
        (intact && metrics_csv::check(&csv).is_ok()).then_some(Self { csv, source })
    }
}

/// Why the user's ConfigMap is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsProblem {
    /// `ConfigMapNotFound`, `ConfigKeyNotFound` or `ConfigInvalid`.
    pub reason: Reason,
    /// What is wrong, what runs instead, what to do.
    pub message: String,
}

/// Decides. `wanted` is the name that the policy gives, `found` that ConfigMap, `last` what our own ConfigMap holds.
pub fn choose(
    namespace: &str,
    wanted: Option<&str>,
    found: Option<&UserMap>,
    last: Option<MetricsFile>,
    built_in: impl FnOnce() -> String,
) -> (MetricsFile, Option<MetricsProblem>) {
    let built_in = || MetricsFile {
        csv: built_in(),
        source: BUILT_IN.to_owned(),
    };
    let Some(name) = wanted else {
        return (built_in(), None);
    };
    match usable(namespace, name, found) {
        Ok(csv) => (
            MetricsFile {
                csv,
                source: name.to_owned(),
            },
            None,
        ),
        Err((reason, wrong)) => {
            let kept = last.is_some();
            let file = last.unwrap_or_else(built_in);
            let instead = match (kept, file.source.as_str()) {
                (true, source) if source != BUILT_IN => {
                    format!("the exporter keeps the last good metrics (of ConfigMap {source})")
                }
                _ => "the exporter collects the built-in metrics".to_owned(),
            };
            (
                file,
                Some(MetricsProblem {
                    reason,
                    message: format!("{wrong}; meanwhile {instead}"),
                }),
            )
        }
    }
}

fn usable(
    namespace: &str,
    name: &str,
    found: Option<&UserMap>,
) -> Result<String, (Reason, String)> {
    let key = config_map::DCGM_METRICS_KEY;
    let Some(map) = found else {
        let message = format!(
            "ConfigMap {namespace}/{name}, which dcgmExporter.config.name names, does not exist: create it with key {key}, or remove the name"
        );
        return Err((Reason::ConfigMapNotFound, message));
    };
    let Some(csv) = &map.csv else {
        if map.keys.contains(key) {
            let message =
                format!("ConfigMap {namespace}/{name}, key {key}: it holds binary data, not text");
            return Err((Reason::ConfigInvalid, message));
        }
        let keys: Vec<&str> = map
            .keys
            .iter()
            .take(NAMED_KEYS)
            .map(String::as_str)
            .collect();
        let has = if keys.is_empty() {
            "it is empty".to_owned()
        } else {
            format!("it has {}", keys.join(", "))
        };
        let message = format!("ConfigMap {namespace}/{name} has no key {key} ({has}): add it");
        return Err((Reason::ConfigKeyNotFound, message));
    };
    match metrics_csv::check(csv) {
        Ok(_) => Ok(csv.clone()),
        Err(error) => Err((
            Reason::ConfigInvalid,
            format!("ConfigMap {namespace}/{name}, key {key}, {error}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GOOD: &str = "DCGM_FI_DEV_GPU_TEMP,gauge,t";

    fn map(csv: Option<&str>, keys: &[&str]) -> UserMap {
        UserMap {
            keys: keys.iter().map(ToString::to_string).collect(),
            csv: csv.map(str::to_owned),
        }
    }

    fn decide(
        wanted: Option<&str>,
        found: Option<&UserMap>,
        last: Option<MetricsFile>,
    ) -> (String, String, Option<(Reason, String)>) {
        let (file, problem) = choose("gpu-operator", wanted, found, last, || {
            "BUILT-IN".to_owned()
        });
        (
            file.csv,
            file.source,
            problem.map(|p| (p.reason, p.message)),
        )
    }

    #[test]
    fn a_bad_map_keeps_the_last_good_one() {
        let last = || {
            Some(MetricsFile {
                csv: "LAST".into(),
                source: "mine".into(),
            })
        };
        let good = map(Some(GOOD), &["dcgm-metrics.csv"]);
        let bad = map(Some("garbage"), &["dcgm-metrics.csv"]);
        let binary = map(None, &["dcgm-metrics.csv"]);
        let other_key = map(None, &["metrics", "readme"]);
        let cases = [
            (
                "no name",
                None,
                Some(&good),
                last(),
                "BUILT-IN",
                BUILT_IN,
                None,
            ),
            (
                "good",
                Some("mine"),
                Some(&good),
                last(),
                GOOD,
                "mine",
                None,
            ),
            (
                "bad",
                Some("mine"),
                Some(&bad),
                last(),
                "LAST",
                "mine",
                Some((Reason::ConfigInvalid, "line 1: ")),
            ),
            (
                "bad from the start",
                Some("mine"),
                Some(&bad),
                None,
                "BUILT-IN",
                BUILT_IN,
                Some((Reason::ConfigInvalid, "the built-in metrics")),
            ),
            (
                "missing",
                Some("mine"),
                None,
                last(),
                "LAST",
                "mine",
                Some((Reason::ConfigMapNotFound, "does not exist")),
            ),
            (
                "binary",
                Some("mine"),
                Some(&binary),
                last(),
                "LAST",
                "mine",
                Some((Reason::ConfigInvalid, "binary data")),
            ),
            (
                "wrong key",
                Some("mine"),
                Some(&other_key),
                None,
                "BUILT-IN",
                BUILT_IN,
                Some((Reason::ConfigKeyNotFound, "it has metrics, readme")),
            ),
            (
                "empty",
                Some("mine"),
                Some(&UserMap::default()),
                None,
                "BUILT-IN",
                BUILT_IN,
                Some((Reason::ConfigKeyNotFound, "it is empty")),
            ),
        ];
        for (name, wanted, found, last, csv, source, problem) in cases {
            let (got, from, found) = decide(wanted, found, last);
            assert_eq!((got.as_str(), from.as_str()), (csv, source), "{name}");
            match (problem, found) {
                (None, None) => {}
                (Some((reason, part)), Some((got, message))) => {
                    assert_eq!(got, reason, "{name}");
                    assert!(message.contains(part), "{name}: {message}");
                }
                (want, got) => panic!("{name}: {want:?} {got:?}"),
            }
        }
    }

    #[test]
    fn an_edited_file_is_not_the_last_good_one() {
        let file = MetricsFile {
            csv: GOOD.into(),
            source: "mine".into(),
        };
        let map = |csv: &str| -> ConfigMap {
            serde_json::from_value(json!({"metadata": {"annotations": file.annotations()}, "data": {"dcgm-metrics.csv": csv}})).unwrap()
        };
        assert_eq!(MetricsFile::read_back(&map(GOOD)), Some(file.clone()));
        assert_eq!(
            MetricsFile::read_back(&map("DCGM_FI_DEV_GPU_TEMP,gauge,u")),
            None
        );
        assert_eq!(MetricsFile::read_back(&ConfigMap::default()), None);
    }

    #[test]
    fn our_own_maps_are_no_users_maps() {
        let own: ConfigMap = serde_json::from_value(
            json!({"metadata": {"labels": {label::MANAGED_BY: "dcgm-monitor-controller"}}}),
        )
        .unwrap();
        assert_eq!(UserMap::from_config_map(own), None);
        let binary: ConfigMap = serde_json::from_value(
            json!({"binaryData": {"dcgm-metrics.csv": "AAE="}, "data": {"a": "b"}}),
        )
        .unwrap();
        let read = UserMap::from_config_map(binary).unwrap();
        assert_eq!((read.csv, read.keys.len()), (None, 2));
    }
}
