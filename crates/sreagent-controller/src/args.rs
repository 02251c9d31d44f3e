//! Flags.

use clap::Parser;
use std::collections::BTreeSet;
use tessera_runtime::args::RuntimeArgs;

/// Makes one repair agent for each SREAgent.
#[derive(Parser, Clone, Debug)]
#[command(name = "sreagent-controller", version)]
pub struct Args {
    /// Common flags.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Image of the agents, unless an SREAgent names its own.
    #[arg(long, env = "SRE_AGENT_IMAGE", default_value = concat!("ghcr.io/tessera-gpu/tessera/sre-agent:", env!("CARGO_PKG_VERSION")))]
    pub agent_image: String,
    /// Pull secrets of the agents' pods, comma-separated; they are looked up in each SREAgent's namespace.
    #[arg(long, env = "SRE_AGENT_IMAGE_PULL_SECRETS", value_delimiter = ',')]
    pub agent_image_pull_secrets: Vec<String>,
    /// Namespaces whose SREAgents may repair nodes, comma-separated; `*` is all of them. Elsewhere autoRepair is not honoured.
    #[arg(
        long,
        env = "REPAIR_NAMESPACES",
        default_value = "*",
        value_delimiter = ','
    )]
    pub repair_namespaces: Vec<String>,
    /// Handed on to the agents: clean time before an isolated node is released.
    #[arg(long, env = "SRE_AGENT_PROBATION_SECONDS", hide = true)]
    pub agent_probation_seconds: Option<String>,
    /// Handed on to the agents: time after a node's boot in which it is not isolated.
    #[arg(long, env = "SRE_AGENT_BOOT_GRACE_SECONDS", hide = true)]
    pub agent_boot_grace_seconds: Option<String>,
}

/// What the flags say about agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Image, unless an SREAgent names its own.
    pub image: String,
    /// Pull secrets of the pods.
    pub pull_secrets: Vec<String>,
    /// Namespaces that may repair; `None` is all.
    pub repair_namespaces: Option<BTreeSet<String>>,
    /// Log level of the agents: that of this controller.
    pub log_level: String,
    /// `text` or `json`, as this controller's.
    pub log_format: &'static str,
    /// Further flags of the agents.
    pub extra_args: Vec<String>,
}

impl Settings {
    /// Whether SREAgents of a namespace may repair nodes.
    pub fn may_repair_from(&self, namespace: &str) -> bool {
        self.repair_namespaces
            .as_ref()
            .is_none_or(|allowed| allowed.contains(namespace))
    }
}

impl Args {
    /// What they say about agents.
    pub fn settings(&self) -> Settings {
        let named: BTreeSet<String> = names(&self.repair_namespaces).collect();
        let flag = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!("--{name}={value}"))
        };
        let extra = [
            flag("probation-seconds", &self.agent_probation_seconds),
            flag("boot-grace-seconds", &self.agent_boot_grace_seconds),
        ];
        Settings {
            image: self.agent_image.clone(),
            pull_secrets: names(&self.agent_image_pull_secrets).collect(),
            repair_namespaces: (!named.contains("*")).then_some(named),
            log_level: self.runtime.log_level.clone(),
            log_format: match self.runtime.log_format {
                tessera_runtime::args::LogFormat::Text => "text",
                tessera_runtime::args::LogFormat::Json => "json",
            },
            extra_args: extra.into_iter().flatten().collect(),
        }
    }
}

/// Without blanks around them, and without empty ones.
fn names(list: &[String]) -> impl Iterator<Item = String> {
    let trimmed = list.iter().map(|name| name.trim());
    trimmed.filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(args: &[&str]) -> Settings {
        Args::parse_from(std::iter::once(&"test").chain(args)).settings()
    }

    #[test]
    fn all_namespaces_may_repair_unless_some_are_named() {
        assert!(settings(&[]).may_repair_from("anything"));
        let some = settings(&["--repair-namespaces=gpu-operator, team"]);
        assert!(some.may_repair_from("team") && !some.may_repair_from("anything"));
        let none = settings(&["--repair-namespaces="]);
        assert!(!none.may_repair_from("anything"));
    }

    #[test]
    fn pull_secrets_are_a_list() {
        let given = settings(&["--agent-image-pull-secrets=one, two"]);
        assert_eq!(given.pull_secrets, ["one", "two"]);
        let none = settings(&["--agent-image-pull-secrets="]);
        assert!(none.pull_secrets.is_empty());
    }

    #[test]
    fn test_settings_are_handed_on() {
        assert_eq!(
            settings(&["--agent-probation-seconds=5"]).extra_args,
            ["--probation-seconds=5"]
        );
    }
}
