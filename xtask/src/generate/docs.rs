//! References: every value of every chart, every flag of every process.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;

use super::{COMPONENTS, Outputs, chart};

/// All references.
pub(super) fn all(root: &Path) -> anyhow::Result<Outputs> {
    let mut outputs = Outputs::new();
    outputs.insert("docs/reference/values.md".into(), values(root)?);
    outputs.insert("docs/reference/flags.md".into(), flags());
    Ok(outputs)
}

const FLAGS_HEAD: &str = "<!-- Written by `cargo xtask generate` from the programs' own definitions; do not edit. -->

# Flags of the processes

Every flag is also an environment variable. Durations are written as `10m`, `30s`, `1h30m`, or a number of seconds.
";

/// A table a process. What all of them have comes first and once.
fn flags() -> String {
    let programs = [
        tessera_driver_controller::args::Args::command(),
        tessera_device_plugin_controller::args::Args::command(),
        tessera_dcgm_monitor_controller::args::Args::command(),
        tessera_sreagent_controller::args::Args::command(),
        tessera_sre_agent::args::Args::command(),
        tessera_webhook::args::Args::command(),
    ];
    let shared: BTreeSet<String> = Shared::command()
        .get_arguments()
        .map(|arg| arg.get_id().to_string())
        .collect();
    let mut text = FLAGS_HEAD.to_owned();
    text.push_str("\n## All processes\n\n");
    text.push_str(&flag_table(&Shared::command(), &BTreeSet::new()));
    for program in programs {
        let about = program
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        text.push_str(&format!(
            "\n## {}\n\n{}.\n",
            program.get_name(),
            about.trim_end_matches('.')
        ));
        let table = flag_table(&program, &shared);
        if !table.is_empty() {
            text.push_str(&format!("\n{table}"));
        }
    }
    text
}

/// The flags that all processes have, alone.
#[derive(clap::Parser)]
struct Shared {
    #[command(flatten)]
    runtime: tessera_runtime::args::RuntimeArgs,
}

/// Empty when there is no flag but those in `without`.
fn flag_table(program: &clap::Command, without: &BTreeSet<String>) -> String {
    let shown = |arg: &&clap::Arg| {
        !arg.is_hide_set() && !without.contains(arg.get_id().as_str()) && arg.get_long().is_some()
    };
    let row = |arg: &clap::Arg| {
        let env = arg
            .get_env()
            .map(|name| format!("`{}`", name.to_string_lossy()))
            .unwrap_or_default();
        // The identity's default is the machine's name.
        let fixed = arg.get_id() != "pod_name";
        let defaults: Vec<_> = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        let default = if fixed {
            code(&defaults.join(","))
        } else {
            "host name and process id".to_owned()
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        format!(
            "| `--{}` | {env} | {default} | {} |\n",
            arg.get_long().unwrap_or_default(),
            help.replace('|', "\\|")
        )
    };
    let rows: String = program.get_arguments().filter(shown).map(row).collect();
    if rows.is_empty() {
        rows
    } else {
        format!("| flag | environment | default | meaning |\n|---|---|---|---|\n{rows}")
    }
}

const VALUES_HEAD: &str = "<!-- Written by `cargo xtask generate` from charts/*/values.yaml; do not edit. -->

# Values of the charts

`helm install gpu-operator charts/gpu-operator -n gpu-operator --create-namespace -f values.yaml` takes the values of the first table.
Below `driverController`, `devicePluginController`, `dcgmMonitorController`, `sreagentController` and `webhook` it takes those of the component's chart.
A value that is misspelt or of the wrong type is refused with its path.
";

fn values(root: &Path) -> anyhow::Result<String> {
    let mut text = VALUES_HEAD.to_owned();
    // The controllers' values differ by a line or two; the first table stands for all of them.
    let tables = [
        (
            "gpu-operator",
            "charts/gpu-operator".into(),
            "The umbrella chart.",
            &[][..],
        ),
        (
            COMPONENTS[0],
            chart(COMPONENTS[0]),
            "The charts of the controllers, all with these values.",
            &[],
        ),
        (
            COMPONENTS[3],
            chart(COMPONENTS[3]),
            "As the other controllers, and:",
            &["agentImage", "repairNamespaces"],
        ),
        (
            COMPONENTS[4],
            chart(COMPONENTS[4]),
            "As the controllers but for what they do with leases and reconciles, and:",
            &[
                "validator",
                "mutator",
                "certificates",
                "ports.webhook",
                "networkPolicy",
            ],
        ),
        ("crds", chart("crds"), "The definitions.", &[]),
    ];
    for (name, directory, what, own) in tables {
        let path = root.join(directory).join("values.yaml");
        let yaml = std::fs::read_to_string(&path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        // Of those that only differ, what they have beyond the others.
        let wanted =
            |value: &Value| own.is_empty() || own.iter().any(|start| value.path.starts_with(start));
        text.push_str(&format!(
            "\n## {name}\n\n{what}\n\n| value | default | meaning |\n|---|---|---|\n"
        ));
        for value in parse(&yaml).into_iter().filter(wanted) {
            text.push_str(&format!(
                "| `{}` | {} | {} |\n",
                value.path,
                code(&value.default),
                value.meaning.replace('|', "\\|")
            ));
        }
    }
    Ok(text)
}

fn code(default: &str) -> String {
    if default.is_empty() {
        String::new()
    } else {
        format!("`{default}`")
    }
}

/// One documented value.
#[derive(Debug, PartialEq, Eq)]
struct Value {
    path: String,
    default: String,
    meaning: String,
}

/// Reads `values.yaml` line by line: a comment belongs to the key below it; a blank line ends it. Keys that only hold other
/// keys are listed when they have a comment.
fn parse(yaml: &str) -> Vec<Value> {
    let mut values = Vec::new();
    let mut parents: Vec<(usize, String)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in yaml.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if trimmed.is_empty() || trimmed.starts_with("# ---") {
            comment.clear();
        } else if let Some(text) = trimmed.strip_prefix('#') {
            comment.push(text.trim());
        } else if let Some((key, default)) = trimmed
            .split_once(':')
            .filter(|(key, _)| !key.starts_with('-'))
        {
            parents.retain(|(depth, _)| *depth < indent);
            let path = parents
                .iter()
                .map(|(_, name)| name.as_str())
                .chain([key])
                .collect::<Vec<_>>()
                .join(".");
            parents.push((indent, key.to_owned()));
            if !default.trim().is_empty() || !comment.is_empty() {
                values.push(Value {
                    path,
                    default: default.trim().to_owned(),
                    meaning: comment.join(" "),
                });
            }
            comment.clear();
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_with_their_comments() {
        let yaml = "# Head, not a value.\n\nimage:\n  # Host of\n  # the registry.\n  registry: \"\"\n  tag: v1\n# Parts.\ncrds:\n  enabled: true\n";
        let got: Vec<_> = parse(yaml)
            .into_iter()
            .map(|value| (value.path, value.default, value.meaning))
            .collect();
        let want = [
            ("image.registry", "\"\"", "Host of the registry."),
            ("image.tag", "v1", ""),
            ("crds", "", "Parts."),
            ("crds.enabled", "true", ""),
        ];
        assert_eq!(
            got,
            want.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()))
        );
    }
}
