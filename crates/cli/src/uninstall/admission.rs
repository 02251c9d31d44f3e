//! Admission: its configuration goes before everything else, its certificate authority after its pods.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use tessera_api::names::{admission, controller};

use super::Run;
use super::objects::{Kind, delete};

/// The webhook configurations. By name, because the API server asks nobody about them, and they may be all that is left.
pub const CONFIGURATIONS: [&str; 1] = [admission::CONFIGURATION];

/// Deletes the configurations, so that no API server asks a webhook that goes. Deleted and not emptied: replicas that still run fill
/// an empty one, but none of them makes one.
pub(super) async fn close(run: &Run) -> anyhow::Result<()> {
    if !run.has(controller::WEBHOOK) {
        return Ok(());
    }
    let names = CONFIGURATIONS.map(|name| (String::new(), name.to_owned()));
    for kind in [
        Kind::of::<ValidatingWebhookConfiguration>(false),
        Kind::of::<MutatingWebhookConfiguration>(false),
    ] {
        delete(run, &kind, &names).await?;
    }
    Ok(())
}

/// Deletes the certificate authority.
pub(super) async fn forget_authority(run: &Run) -> anyhow::Result<()> {
    if !run.has(controller::WEBHOOK) {
        return Ok(());
    }
    let name = (run.namespace.clone(), admission::CA_SECRET.to_owned());
    delete(run, &Kind::of::<Secret>(true), &[name]).await
}
