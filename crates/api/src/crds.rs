//! The custom resource definitions, for generators and installers.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{ClusterPolicy, NodeOperation, SREAgent};

/// Every CRD of Tessera with the name of the file that holds it.
pub fn crds() -> Vec<(&'static str, CustomResourceDefinition)> {
    vec![
        ("nvidia.com_clusterpolicies.yaml", ClusterPolicy::crd()),
        ("aiops.local_sreagents.yaml", SREAgent::crd()),
        ("aiops.local_nodeoperations.yaml", NodeOperation::crd()),
    ]
}
