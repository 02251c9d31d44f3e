//! Values that several sections share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use super::fields::{choice, section};

choice! {
    /// When the kubelet pulls an image.
    PullPolicy {
        /// At each start.
        Always = "Always",
        /// Only when the node does not have it.
        IfNotPresent = "IfNotPresent",
        /// Never: the node must have it.
        Never = "Never",
    }
}

/// An environment variable (no `valueFrom`, as in NVIDIA's API).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EnvVar {
    /// Name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Value. Default empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

section! {
    /// Requests and limits of a container.
    Resources {
        /// The most that the container may use.
        #[schemars(schema_with = "quantities")]
        limits: BTreeMap<String, Quantity>,
        /// What is set aside for it.
        #[schemars(schema_with = "quantities")]
        requests: BTreeMap<String, Quantity>,
    }
}

/// Quantities by resource, without the two kilobytes of explanation that the type has at each of its many places.
fn quantities(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": { "x-kubernetes-int-or-string": true },
    })
}

section! {
    /// Times and counts of a probe; what it calls is up to the controller.
    Probe {
        /// Seconds from the container's start to the first probe.
        #[schemars(range(min = 0))]
        initial_delay_seconds: i32,
        /// Seconds until a probe has failed. At least 1.
        #[schemars(range(min = 1))]
        timeout_seconds: i32,
        /// Seconds between probes. At least 1.
        #[schemars(range(min = 1))]
        period_seconds: i32,
        /// Successes in a row that make it successful again. At least 1; must be 1 for liveness and startup.
        #[schemars(range(min = 1))]
        success_threshold: i32,
        /// Failures in a row that make it failed. At least 1.
        #[schemars(range(min = 1))]
        failure_threshold: i32,
    }
}

section! {
    /// An image that is not an operand of its own.
    ImageSource {
        /// Registry and path.
        #[schemars(length(max = 512))]
        repository: String,
        /// Name of the image, or alone a complete reference.
        #[schemars(length(max = 512))]
        image: String,
        /// Tag or digest.
        #[schemars(length(max = 128))]
        version: String,
        /// When the kubelet pulls. Default IfNotPresent.
        image_pull_policy: PullPolicy,
        /// Names of Secrets in the operands' namespace.
        image_pull_secrets: Vec<String>,
    }
}

section! {
    /// The init container that prepares a node for another driver.
    #[x_kube(validation = crate::policy::rules::image())]
    DriverManagerSpec {
        /// Registry and path.
        #[schemars(length(max = 512))]
        repository: String,
        /// Name of the image, or alone a complete reference.
        #[schemars(length(max = 512))]
        image: String,
        /// Tag or digest.
        #[schemars(length(max = 128))]
        version: String,
        /// When the kubelet pulls. Default IfNotPresent.
        image_pull_policy: PullPolicy,
        /// Names of Secrets in the operands' namespace.
        image_pull_secrets: Vec<String>,
        /// Its environment, e.g. ENABLE_AUTO_DRAIN.
        env: Vec<EnvVar>,
    }
}

section! {
    /// A ConfigMap by name.
    ConfigMapName {
        /// Name of a ConfigMap in the operands' namespace.
        #[schemars(length(max = 253))]
        name: String,
    }
}

section! {
    /// A switch.
    Switch {
        /// On or off.
        enabled: bool,
    }
}

/// The fields that all operands share, borrowed.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "named and documented as in the section")]
pub struct CommonFields<'a> {
    pub enabled: Option<bool>,
    pub repository: Option<&'a str>,
    pub image: Option<&'a str>,
    pub version: Option<&'a str>,
    pub image_pull_policy: Option<PullPolicy>,
    pub image_pull_secrets: &'a [String],
    pub resources: Option<&'a Resources>,
    pub args: &'a [String],
    pub env: &'a [EnvVar],
    pub host_network: Option<bool>,
}

/// Access to the shared fields of any operand's section.
pub trait OperandFields {
    /// The shared fields.
    fn common(&self) -> CommonFields<'_>;
}
