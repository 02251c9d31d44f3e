//! RuntimeClasses: the names by which pods ask for the runtimes that the toolkit configures.

use super::RUNTIME_CLASS;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use tessera_api::EffectivePolicy;
use tessera_api::names::{label, runtime_class};

/// The policy's RuntimeClass; with CDI those of its two modes too; none with NRI, which needs none.
pub fn all(policy: &EffectivePolicy) -> Vec<RuntimeClass> {
    if policy.cdi.nri {
        return Vec::new();
    }
    let mut names = BTreeSet::from([policy.runtime_class.as_str()]);
    if policy.cdi.enabled {
        names.extend([runtime_class::NVIDIA_CDI, runtime_class::NVIDIA_LEGACY]);
    }
    names.into_iter().map(class).collect()
}

fn class(name: &str) -> RuntimeClass {
    RuntimeClass {
        handler: name.to_owned(),
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(
                label::COMPONENT.to_owned(),
                RUNTIME_CLASS.to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        ..RuntimeClass::default()
    }
}
