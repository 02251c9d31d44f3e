//! `crds`: the custom resource definitions that this binary carries.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{Condition as _, conditions};
use kube::{Api, ResourceExt as _};
use sha2::{Digest as _, Sha256};

use crate::connect;

/// On every definition: a hash of its spec, so that an older one is known without comparing schemas.
pub const SCHEMA_HASH: &str = "aiops.local/schema-hash";

/// Field manager of definitions that this program applies.
const MANAGER: &str = "kubectl-tessera";

/// How long the API server may take to serve a new kind.
const ESTABLISHED: Duration = Duration::from_secs(30);

/// Time between two looks at a definition that is not served yet.
const POLL: Duration = Duration::from_millis(200);

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create the definitions in the cluster, or bring older ones up to date.
    Apply,
    /// Print the definitions as YAML, without a cluster.
    Print,
}

/// Every definition with the name of its file, labelled, and with the hash of its spec.
///
/// # Errors
/// A spec cannot be serialised, which no input can cause.
pub fn definitions() -> anyhow::Result<Vec<(&'static str, CustomResourceDefinition)>> {
    let finish = |(file, mut crd): (&'static str, CustomResourceDefinition)| {
        let spec = serde_json::to_vec(&crd.spec)?;
        let hash = Sha256::digest(&spec)
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        crd.annotations_mut().insert(SCHEMA_HASH.to_owned(), hash);
        crd.labels_mut()
            .insert("app.kubernetes.io/part-of".to_owned(), "tessera".to_owned());
        Ok((file, crd))
    };
    tessera_api::crds().into_iter().map(finish).collect()
}

/// Runs the command.
///
/// # Errors
/// The API server refused a definition or does not serve it in time.
pub async fn run(connect: &connect::Args, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Apply => apply(connect.client().await?).await,
        Command::Print => {
            for (_, crd) in definitions()? {
                println!("---\n{}", to_yaml(&crd)?);
            }
            Ok(())
        }
    }
}

/// YAML as files hold it.
///
/// # Errors
/// The value cannot be serialised.
pub fn to_yaml(value: &impl serde::Serialize) -> anyhow::Result<String> {
    serde_saphyr::to_string(value).context("the definition cannot be written as YAML")
}

async fn apply(client: kube::Client) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client);
    for (_, crd) in definitions()? {
        let name = crd.name_any();
        let live = api
            .get_opt(&name)
            .await
            .with_context(|| format!("CustomResourceDefinition {name} cannot be read"))?;
        let hash = |crd: &CustomResourceDefinition| crd.annotations().get(SCHEMA_HASH).cloned();
        if live.as_ref().and_then(hash) == hash(&crd) {
            println!("{name} is up to date");
            continue;
        }
        // Whoever created it (helm, kubectl), its schema is ours to say.
        api.patch(
            &name,
            &PatchParams::apply(MANAGER).force(),
            &Patch::Apply(&crd),
        )
        .await
        .with_context(|| format!("CustomResourceDefinition {name} was refused"))?;
        until_established(&api, &name).await?;
        println!(
            "{name} {}",
            if live.is_some() {
                "brought up to date"
            } else {
                "created"
            }
        );
    }
    Ok(())
}

async fn until_established(api: &Api<CustomResourceDefinition>, name: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + ESTABLISHED;
    loop {
        let live = api
            .get(name)
            .await
            .with_context(|| format!("CustomResourceDefinition {name} cannot be read"))?;
        if conditions::is_crd_established().matches_object(Some(&live)) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!(
                "{name} is not served after {ESTABLISHED:?}: look at `kubectl describe crd {name}`"
            );
        }
        tokio::time::sleep(POLL).await;
    }
}
