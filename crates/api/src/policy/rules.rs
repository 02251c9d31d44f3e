//! CEL rules of the CRD: what one object can prove alone. Each message says what, where, and what to do.
//!
//! The API server bounds the cost of all rules of a CRD; strings and lists that a rule reads therefore have a maximum in the schema.

use kube::core::{Message, Rule};

fn rule(expression: impl Into<String>, message: impl Into<String>) -> Rule {
    Rule::new(expression).message(Message::Message(message.into()))
}

fn explained(expression: impl Into<String>, message: impl Into<String>) -> Rule {
    Rule::new(expression).message(Message::Expression(message.into()))
}

/// An image that is a complete reference beside a repository or a version.
pub(crate) fn image() -> Rule {
    explained(
        "!has(self.image) || !(self.image.contains(':') || self.image.contains('@')) \
         || ((!has(self.repository) || self.repository == '') && (!has(self.version) || self.version == ''))",
        "\"image '\" + self.image + \"' already is a complete reference: remove repository and version here, or give only the image's name\"",
    )
}

/// `driver.repo` is `driver.repository`.
pub(crate) fn driver_repo() -> Rule {
    explained(
        "!has(self.repo) || !has(self.repository) || self.repo == self.repository",
        "\"driver.repo '\" + self.repo + \"' and driver.repository '\" + self.repository + \"' are the same setting and differ: remove one of them\"",
    )
}

/// `containerRuntime.enabled` is `toolkit.enabled`.
pub(crate) fn toolkit_enabled() -> Rule {
    rule(
        "!has(self.containerRuntime) || !has(self.containerRuntime.enabled) || !has(self.toolkit) || !has(self.toolkit.enabled) \
         || self.containerRuntime.enabled == self.toolkit.enabled",
        "containerRuntime.enabled and toolkit.enabled are the same setting and differ: remove one of them",
    )
}

/// `containerRuntime.cdi.enabled` is `cdi.enabled`.
pub(crate) fn cdi_enabled() -> Rule {
    rule(
        "!has(self.containerRuntime) || !has(self.containerRuntime.cdi) || !has(self.containerRuntime.cdi.enabled) \
         || !has(self.cdi) || !has(self.cdi.enabled) || self.containerRuntime.cdi.enabled == self.cdi.enabled",
        "containerRuntime.cdi.enabled and cdi.enabled are the same setting and differ: remove one of them",
    )
}

/// The NRI plugin hands out devices by CDI.
pub(crate) fn nri_needs_cdi() -> Rule {
    rule(
        "!has(self.nriPluginEnabled) || !self.nriPluginEnabled || !has(self.enabled) || self.enabled",
        "cdi.nriPluginEnabled needs CDI, and cdi.enabled is false: set it to true, or turn the plugin off",
    )
}

/// Inline sharing or a ConfigMap.
pub(crate) fn sharing_or_config_map() -> Rule {
    explained(
        "!has(self.sharing) || !has(self.name) || self.name == ''",
        "\"devicePlugin.config.sharing and devicePlugin.config.name '\" + self.name + \"' are two sources of one configuration: \
         remove one of them, or move the sharing section into the ConfigMap\"",
    )
}

/// Time-slicing or MPS.
pub(crate) fn time_slicing_or_mps() -> Rule {
    rule(
        "!(has(self.timeSlicing) && has(self.mps))",
        "devicePlugin.config.sharing has both timeSlicing and mps, and a card can be shared in one way only: remove one of them",
    )
}

/// At least one shared resource.
pub(crate) fn shared_not_empty() -> Rule {
    rule(
        "size(self) > 0",
        "resources is empty, which the device plugin does not accept: name a resource such as {name: nvidia.com/gpu, replicas: 4}, \
         or remove the section",
    )
}

/// Each shared resource once.
pub(crate) fn shared_unique() -> Rule {
    rule(
        "self.all(a, self.exists_one(b, (a.name.contains('/') ? a.name : 'nvidia.com/' + a.name) \
         == (b.name.contains('/') ? b.name : 'nvidia.com/' + b.name)))",
        "resources names one resource twice (a name without a domain means nvidia.com/): keep one entry for each",
    )
}

/// Name of a shared resource.
pub(crate) fn shared_name() -> Rule {
    explained(
        "self.matches('^(nvidia[.]com/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$') && !self.endsWith('.shared')",
        "\"resource name '\" + self + \"' cannot be shared: write nvidia.com/gpu or nvidia.com/mig-<profile>, without .shared \
         (renameByDefault adds that)\"",
    )
}

/// Replicas.
pub(crate) fn replicas() -> Rule {
    // Not `string(self)`: the API server takes that for unboundedly long, which is over its cost limit.
    explained(
        "self >= 1 && self <= 64",
        "(self == 0 ? 'replicas is 0' : self < 0 ? 'replicas is negative' : 'replicas is more than 64') \
         + ': write how many containers share one card, from 1 (not shared) to 64'",
    )
}

/// Memory of a share.
pub(crate) fn memory_limit() -> Rule {
    explained(
        "self == 'Auto' || self == 'Off' || self.matches('^[1-9][0-9]{0,6}(Mi|Gi)$')",
        "\"memoryLimit '\" + self + \"' is not Auto, Off or an amount of memory: write for example Auto, \\\"Off\\\", 8192Mi or 8Gi\"",
    )
}

/// MIG and time-slicing of whole cards.
pub(crate) fn mig_and_sharing() -> Rule {
    explained(
        "!has(self.mig) || !has(self.mig.strategy) || !(self.mig.strategy in ['single', 'mixed']) || !has(self.devicePlugin) \
         || !has(self.devicePlugin.config) || !has(self.devicePlugin.config.sharing) || !has(self.devicePlugin.config.sharing.timeSlicing) \
         || !has(self.devicePlugin.config.sharing.timeSlicing.resources) \
         || (self.mig.strategy == 'mixed' && self.devicePlugin.config.sharing.timeSlicing.resources.all(r, \
         r.name.startsWith('nvidia.com/mig-') || r.name.startsWith('mig-') || r.replicas == 1)) \
         || self.devicePlugin.config.sharing.timeSlicing.resources.all(r, r.replicas == 1)",
        "\"mig.strategy is \" + self.mig.strategy + \" while devicePlugin.config.sharing.timeSlicing shares whole cards: set mig.strategy \
         to none, or to mixed and share only nvidia.com/mig-<profile> resources\"",
    )
}

/// MIG and MPS.
pub(crate) fn mig_and_mps() -> Rule {
    explained(
        "!has(self.mig) || !has(self.mig.strategy) || !(self.mig.strategy in ['single', 'mixed']) || !has(self.devicePlugin) \
         || !has(self.devicePlugin.config) || !has(self.devicePlugin.config.sharing) || !has(self.devicePlugin.config.sharing.mps)",
        "\"mig.strategy is \" + self.mig.strategy + \" while devicePlugin.config.sharing.mps is set, and the device plugin cannot share MIG \
         instances by MPS: set mig.strategy to none, or remove mps\"",
    )
}

/// Sharing of MIG instances without MIG.
pub(crate) fn mig_names() -> Rule {
    rule(
        "!has(self.mig) || !has(self.mig.strategy) || self.mig.strategy == 'mixed' || !has(self.devicePlugin) \
         || !has(self.devicePlugin.config) || !has(self.devicePlugin.config.sharing) || !has(self.devicePlugin.config.sharing.timeSlicing) \
         || !has(self.devicePlugin.config.sharing.timeSlicing.resources) \
         || self.devicePlugin.config.sharing.timeSlicing.resources.all(r, \
         !(r.name.startsWith('nvidia.com/mig-') || r.name.startsWith('mig-')))",
        "devicePlugin.config.sharing.timeSlicing shares nvidia.com/mig-<profile>, which exists only with mig.strategy mixed: \
         set mig.strategy to mixed, or share nvidia.com/gpu",
    )
}

/// Duration of a scrape.
pub(crate) fn duration(field: &str) -> Rule {
    explained(
        "self.matches('^([0-9]+([.][0-9]+)?(y|w|d|h|m|s|ms))+$|^[0-9]+$') && self != '0s' && self != '0'",
        format!(
            "\"serviceMonitor.{field} '\" + self + \"' is not a positive duration: write for example 15s, 1m or 500ms\""
        ),
    )
}

/// A scrape that takes longer than the interval. Judged here when both are of the units that CEL knows (h, m, s, ms).
pub(crate) fn scrape_timeout() -> Rule {
    let simple = |field: &str| {
        format!("self.serviceMonitor.{field}.matches('^([0-9]+([.][0-9]+)?(h|m|s|ms))+$')")
    };
    explained(
        format!(
            "!has(self.serviceMonitor) || !has(self.serviceMonitor.interval) || !has(self.serviceMonitor.scrapeTimeout) \
             || !{} || !{} || duration(self.serviceMonitor.scrapeTimeout) <= duration(self.serviceMonitor.interval)",
            simple("interval"),
            simple("scrapeTimeout"),
        ),
        "\"serviceMonitor.scrapeTimeout \" + self.serviceMonitor.scrapeTimeout + \" is longer than serviceMonitor.interval \" \
         + self.serviceMonitor.interval + \", which Prometheus refuses: make it the same or shorter\"",
    )
}

/// `dcgm.exporter` is `dcgmExporter`: fields of one value, in groups, so that the message can name them. Lists and maps that differ are
/// found when the policy is resolved.
pub(crate) fn exporter_short_form(fields: &[&str]) -> Rule {
    let same = |field: &&str| {
        let mut given = Vec::new();
        for root in ["self.dcgm.exporter", "self.dcgmExporter"] {
            let mut path = root.to_owned();
            for part in field.split('.') {
                path = format!("{path}.{part}");
                given.push(format!("!has({path})"));
            }
        }
        given.push(format!(
            "self.dcgm.exporter.{field} == self.dcgmExporter.{field}"
        ));
        format!("({})", given.join(" || "))
    };
    let all: Vec<String> = fields.iter().map(same).collect();
    let named: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
    rule(
        format!(
            "!has(self.dcgm) || !has(self.dcgm.exporter) || !has(self.dcgmExporter) || ({})",
            all.join(" && ")
        ),
        format!(
            "dcgm.exporter and dcgmExporter are the same section and differ in {}: give each field in one of them only",
            named.join(" or ")
        ),
    )
}

/// A number or a percentage, as an int-or-string.
pub(crate) fn int_or_percent(path: &str) -> Rule {
    explained(
        "type(self) == int ? self >= 0 : self.matches('^([0-9]{1,4}|[0-9]{1,2}%|100%)$')",
        format!(
            "\"{path} is neither a whole number nor a percentage from 0% to 100%: write for example 1 or 25%\""
        ),
    )
}

/// A number or a percentage, as text.
pub(crate) fn percent_text(path: &str) -> Rule {
    explained(
        "self.matches('^([0-9]{1,4}|[0-9]{1,2}%|100%)$')",
        format!(
            "\"{path} '\" + self + \"' is neither a whole number nor a percentage from 0% to 100%: write for example 1 or 25%\""
        ),
    )
}
