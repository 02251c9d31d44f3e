//! What the containers of a Pod ask for.

use std::fmt;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tessera_api::names::RESOURCE_PREFIX;
use tessera_api::units;

/// Environment variable by which HAMi-core limits every card of a process; with `_<i>`, one card.
pub(super) const VARIABLE: &str = "CUDA_DEVICE_MEMORY_LIMIT";

/// HAMi's resource for memory, in MiB.
pub(super) const GPUMEM: &str = "nvidia.com/gpumem";

/// HAMi's other resources. No node advertises any of them: HAMi's scheduler counts them itself.
pub(super) const OTHERS: [&str; 3] = [
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
];

/// A container that asks for `nvidia.com` resources.
#[derive(Clone, Debug)]
pub(super) struct Ask<'a> {
    /// `containers` or `initContainers`; sidecars are among the latter.
    pub(super) list: &'static str,
    /// Its place there.
    pub(super) index: usize,
    /// The container.
    pub(super) container: &'a Container,
    /// Cards, MIG instances or shares of them, with how many.
    pub(super) cards: Vec<(&'a str, u32)>,
    /// HAMi's resources, with what is asked for.
    pub(super) foreign: Vec<(&'a str, &'a Quantity)>,
}

impl fmt::Display for Ask<'_> {
    /// `spec.containers[0] (train)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (list, index, name) = (self.list, self.index, &self.container.name);
        write!(f, "spec.{list}[{index}] ({name})")
    }
}

impl<'a> Ask<'a> {
    fn of(list: &'static str, index: usize, container: &'a Container) -> Option<Self> {
        let resources = container.resources.as_ref()?;
        // Requests and limits of such resources are equal, or the API server refuses the Pod.
        let limits = resources.limits.iter().flatten();
        let requests = resources.requests.iter().flatten().filter(|(key, _)| {
            let limits = resources.limits.as_ref();
            !limits.is_some_and(|limits| limits.contains_key(*key))
        });
        let (mut cards, mut foreign) = (Vec::new(), Vec::new());
        for (key, quantity) in limits.chain(requests) {
            if !key.starts_with(RESOURCE_PREFIX) {
                continue;
            }
            if key == GPUMEM || OTHERS.contains(&key.as_str()) {
                foreign.push((key.as_str(), quantity));
            } else if let Some(count) = units::count(quantity).filter(|count| *count > 0) {
                cards.push((key.as_str(), count));
            }
        }
        (!cards.is_empty() || !foreign.is_empty()).then_some(Self {
            list,
            index,
            container,
            cards,
            foreign,
        })
    }

    /// Whether the container sets a variable itself, whatever its value comes from.
    pub(super) fn sets(&self, variable: &str) -> bool {
        let mut env = self.container.env.iter().flatten();
        env.any(|one| one.name == variable)
    }

    /// The limits that the container sets itself as plain text: variable, value, MiB. What cannot be read is left out: it is the
    /// business of whoever reads the variable.
    pub(super) fn own_limits(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.container.env.iter().flatten().filter_map(|one| {
            let rest = one.name.strip_prefix(VARIABLE)?;
            let is_limit = rest.is_empty()
                || rest
                    .strip_prefix('_')
                    .is_some_and(|index| index.parse::<u32>().is_ok());
            let value = one.value.as_deref().filter(|_| is_limit)?;
            Some((one.name.as_str(), value, mebibytes(value)?))
        })
    }
}

/// All containers that ask for `nvidia.com` resources, in the order of the Pod.
pub(super) fn of(spec: &PodSpec) -> Vec<Ask<'_>> {
    let lists = [
        (
            "initContainers",
            spec.init_containers.as_deref().unwrap_or_default(),
        ),
        ("containers", spec.containers.as_slice()),
    ];
    lists
        .into_iter()
        .flat_map(|(list, containers)| {
            let numbered = containers.iter().enumerate();
            numbered.filter_map(move |(index, container)| Ask::of(list, index, container))
        })
        .collect()
}

/// An amount as HAMi-core reads it: a whole number, of bytes or with `k`, `m` or `g`, each 1024 of the one before.
fn mebibytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number = number.parse::<u64>().ok()?;
    match unit.to_ascii_lowercase().as_str() {
        "g" => number.checked_mul(1024),
        "m" => Some(number),
        "k" => Some(number / 1024),
        "" => Some(number / (1024 * 1024)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        for (text, want) in [
            ("2g", Some(2048)),
            ("2G", Some(2048)),
            ("3000m", Some(3000)),
            ("2048k", Some(2)),
            ("1073741824", Some(1024)),
            ("0", Some(0)),
            ("", None),
            ("3000Mi", None),
            ("-1m", None),
            ("99999999999999999999g", None),
            ("18446744073709551615g", None),
        ] {
            assert_eq!(mebibytes(text), want, "{text}");
        }
    }
}
