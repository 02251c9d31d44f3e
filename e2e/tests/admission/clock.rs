//! Wall clocks that step by an hour, forth and back, while the webhook runs.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tessera_e2e::Lab;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::questions::ask;
use tessera_e2e::scenario::{MINUTE, fixture, webhook_alone};

use super::{answering, bundle, pods_ready, restarts};

/// The library that moves a process's wall clock, and the file that says by how much.
struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    fn build(name: &str) -> anyhow::Result<Self> {
        let directory = tessera_e2e::paths::target().join("lab-tests");
        std::fs::create_dir_all(&directory)?;
        let clock = Self {
            library: directory.join(format!("{name}-clock.so")),
            offset: directory.join(format!("{name}-clock-offset")),
        };
        let source = fixture("clock_offset.c");
        let mut compile = Command::new("cc");
        compile
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&clock.library)
            .arg(&source);
        let compiled = compile
            .status()
            .context("there is no C compiler, which the build needed as well")?;
        anyhow::ensure!(compiled.success(), "{} does not compile", source.display());
        clock.step(0)?;
        Ok(clock)
    }

    fn step(&self, seconds: i64) -> anyhow::Result<()> {
        let new = self.offset.with_extension("new");
        std::fs::write(&new, seconds.to_string())?;
        Ok(std::fs::rename(new, &self.offset)?)
    }

    /// Values by which the chart gives it to the webhook.
    fn values(&self) -> Vec<String> {
        let env = [
            ("LD_PRELOAD", &self.library),
            ("CLOCK_OFFSET_FILE", &self.offset),
        ];
        let env = env.iter().enumerate().flat_map(|(index, (name, path))| {
            [
                format!("env[{index}].name={name}"),
                format!("env[{index}].value={}", path.display()),
            ]
        });
        env.collect()
    }
}

async fn lab(name: &str, clock: &Clock, values: &[&str]) -> anyhow::Result<Lab> {
    let own = clock.values();
    let all = own.iter().map(String::as_str).chain(values.iter().copied());
    let extra: Vec<&str> = all.flat_map(|value| ["--set", value]).collect();
    let lab = webhook_alone(name, Vec::new(), &extra).await?;
    answering(&lab).await?;
    pods_ready(&lab, 2).await?;
    Ok(lab)
}

/// Makes every replica look now: the Secret has changed for it. By itself it looks every 30 s.
async fn look(lab: &Lab) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(lab.client(), NAMESPACE);
    let now = jiff::Timestamp::now().to_string();
    let patch = json!({"metadata": {"annotations": {"test/looked": now}}});
    secrets
        .patch("webhook-ca", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Asks for three seconds, in the middle of which the clock steps and all replicas look: no answer may be missing or wrong.
async fn step(lab: &Lab, clock: &Clock, seconds: i64) -> anyhow::Result<()> {
    let act = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        clock.step(seconds)?;
        look(lab).await
    };
    let (outcome, acted) = tokio::join!(ask(lab, Duration::from_secs(3)), act);
    acted?;
    println!(
        "clock off by {seconds} s: {} answers, {} failed, {} wrong",
        outcome.took.len(),
        outcome.failed.len(),
        outcome.wrong.len()
    );
    let bad = outcome
        .failed
        .first()
        .map(|(_, text)| text)
        .or(outcome.wrong.first());
    assert_eq!(bad, None, "off by {seconds} s");
    pods_ready(lab, 2).await?;
    answering(lab).await?;
    Ok(())
}

#[tokio::test]
async fn an_hour_forth_and_back_changes_nothing_with_usual_certificates() -> anyhow::Result<()> {
    let clock = Clock::build("admission-clock")?;
    let lab = lab("admission-clock", &clock, &["certificates.settle=2s"]).await?;
    let before = bundle(&lab).await?;
    for seconds in [3600, 0, -3600, 0] {
        step(&lab, &clock, seconds).await?;
    }
    assert_eq!(bundle(&lab).await?, before);
    assert_eq!(restarts(&lab).await?, 0);
    Ok(())
}

#[tokio::test]
async fn an_hour_that_ends_every_certificate_is_healed_within_a_minute() -> anyhow::Result<()> {
    let clock = Clock::build("admission-clock-short")?;
    let short = [
        "certificates.settle=2s",
        "certificates.caLifetime=30m",
        "certificates.lifetime=10m",
    ];
    let lab = lab("admission-clock-short", &clock, &short).await?;
    let before = bundle(&lab).await?;
    // By itself, within its 30 s.
    clock.step(3600)?;
    let start = Instant::now();
    lab.wait_for("a new authority", MINUTE, || async {
        let now = bundle(&lab).await.map_err(|error| error.to_string())?;
        if now == before {
            Err("still the old one".to_owned())
        } else {
            Ok(())
        }
    })
    .await?;
    println!("a new authority {:?} after the step", start.elapsed());
    pods_ready(&lab, 2).await?;
    answering(&lab).await?;
    assert!(start.elapsed() < MINUTE);
    for seconds in [0, -3600, 0, 3600] {
        step(&lab, &clock, seconds).await?;
    }
    assert_eq!(restarts(&lab).await?, 0);
    Ok(())
}
