//! An SREAgent and the flags -> [`Validated`]: every error of a user is found here.

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use tessera_api::SREAgent;
use tessera_api::effective::hash_of;
use tessera_api::judge::agent_spec;
use tessera_api::sreagent::SREAgentSpec;

use crate::args::Settings;

/// Longest name of an object or label value that is made here.
const MAX_NAME: usize = 63;

/// What an agent is built from.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// The SREAgent's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Name of the agent's namespaced objects.
    pub agent: String,
    /// Whether the agent gets the right to change nodes.
    pub repairs: bool,
    /// Image.
    pub image: String,
    /// Requests and limits.
    pub resources: ResourceRequirements,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
}

/// A spec that cannot be used: everything that is wrong with it, in words for its owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

/// Checks one SREAgent.
///
/// # Errors
/// What its owner has to change.
pub fn validate(object: &SREAgent, settings: &Settings) -> Result<Validated, Invalid> {
    let spec = &object.spec;
    // The admission webhook refuses the same; an object may be older than it.
    let wrong: Vec<String> = agent_spec(spec).iter().map(ToString::to_string).collect();
    if !wrong.is_empty() {
        return Err(Invalid(wrong.join("; ")));
    }
    let agent = spec.agent.clone().unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    Ok(Validated {
        agent: agent_name(&name),
        repairs: repairs(spec, &namespace, settings),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        image: agent.image.unwrap_or_else(|| settings.image.clone()),
        resources: crate::build::resources(agent.resources),
        tolerations: agent.tolerations.unwrap_or_default(),
        name,
        namespace,
    })
}

/// Whether the right to repair is given.
pub fn repairs(spec: &SREAgentSpec, namespace: &str, settings: &Settings) -> bool {
    spec.may_repair() && settings.may_repair_from(namespace)
}

/// Name of an agent's objects in its namespace.
pub fn agent_name(sreagent: &str) -> String {
    bounded(
        &format!("sre-agent-{}", sreagent.replace('.', "-")),
        sreagent,
    )
}

/// Name of a cluster-wide binding; a namespace has no dot, so the first dot parts it from the name.
pub fn binding_name(namespace: &str, sreagent: &str, role: &str) -> String {
    let suffix = format!("-{role}");
    let stem = format!("tessera-sre-agent-{namespace}.{sreagent}");
    if stem.len() + suffix.len() <= MAX_NAME {
        return format!("{stem}{suffix}");
    }
    let hash = hash_of(&(namespace, sreagent));
    let keep = MAX_NAME.saturating_sub(suffix.len() + hash.len() + 1);
    format!("{}-{hash}{suffix}", cut(&stem, keep))
}

/// At most 63 characters, unique by a hash of `unique` where something was cut or replaced.
fn bounded(text: &str, unique: &str) -> String {
    if text.len() <= MAX_NAME && !unique.contains('.') {
        return text.to_owned();
    }
    let hash = hash_of(&unique);
    format!(
        "{}-{hash}",
        cut(text, MAX_NAME.saturating_sub(hash.len() + 1))
    )
}

fn cut(text: &str, keep: usize) -> &str {
    text.get(..keep.min(text.len()))
        .unwrap_or(text)
        .trim_end_matches(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn object(spec: &serde_json::Value) -> SREAgent {
        serde_json::from_value(json!({"apiVersion": "aiops.local/v1", "kind": "SREAgent",
            "metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": spec}))
        .unwrap()
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let cases = [
            (
                json!({"agent": {"image": " "}}),
                "spec.agent.image: ` ` is empty; name an image or leave the field out",
            ),
            (
                json!({"nodeSelector": {"matchExpressions": [{"key": "gpu", "operator": "Near", "values": ["x"]}]}}),
                "spec.nodeSelector: ",
            ),
        ];
        for (spec, want) in cases {
            let error = validate(&object(&spec), &Settings::default())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(want), "{error}");
        }
        assert!(validate(&object(&json!({})), &Settings::default()).is_ok());
    }

    #[test]
    fn rights_need_the_spec_and_the_namespace() {
        let all = Settings::default();
        let none = Settings {
            repair_namespaces: Some(["x".to_owned()].into()),
            ..Settings::default()
        };
        let repairs =
            |spec, settings: &Settings| validate(&object(&spec), settings).unwrap().repairs;
        assert!(repairs(json!({"autoRepair": true}), &all));
        assert!(!repairs(json!({"autoRepair": true}), &none));
        assert!(!repairs(json!({}), &all) && !repairs(json!({"autoRepair": false}), &all));
    }

    #[test]
    fn names_of_the_input() {
        assert_eq!(
            agent_name("gpu-monitor-agent"),
            "sre-agent-gpu-monitor-agent"
        );
        assert_eq!(
            binding_name("gpu-operator", "sre", "observe"),
            "tessera-sre-agent-gpu-operator.sre-observe"
        );
        assert_ne!(
            binding_name("a", "b-c", "observe"),
            binding_name("a-b", "c", "observe")
        );
    }

    proptest! {
        #[test]
        fn names_are_short_valid_and_unique(
            one in ("[a-z]([a-z0-9-]{0,61}[a-z0-9])?", "[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?"),
            two in ("[a-z]([a-z0-9-]{0,61}[a-z0-9])?", "[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?"),
        ) {
            let names = |(namespace, name): &(String, String)| {
                (agent_name(name), binding_name(namespace, name, "observe"), binding_name(namespace, name, "repair"))
            };
            let (agent, observe, repair) = names(&one);
            for name in [&agent, &observe, &repair] {
                prop_assert!(name.len() <= MAX_NAME);
            }
            prop_assert!(!agent.contains('.') && !agent.ends_with('-'));
            prop_assert_ne!(&observe, &repair);
            if one != two {
                prop_assert_ne!(&observe, &names(&two).1);
            }
            if one.1 != two.1 {
                prop_assert_ne!(&agent, &names(&two).0);
            }
        }
    }
}
