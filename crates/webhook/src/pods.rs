//! Pods that ask for GPUs: each container that takes a time-sliced share of a card is told how much of its memory to use, and what
//! the device plugin would refuse on the node is refused before the Pod exists. Pure.
//!
//! The limit is `CUDA_DEVICE_MEMORY_LIMIT_<i>`, as HAMi-core reads it. CUDA itself does not, so a limit is advisory unless the nodes
//! say that they enforce it.

mod asks;
mod fleet;
mod patch;
mod placement;
mod wishes;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tessera_api::names::{admission, annotation, label};
use tessera_api::shares::{LEAST_USABLE, automatic_limit};
use tessera_api::units::{self, MemoryLimit};

pub use fleet::{Fleet, Member};

use crate::admission::Verdict;
use asks::{Ask, GPUMEM, VARIABLE};
use fleet::{Offer, Way};
use patch::Edits;
use placement::Placement;
use wishes::Wishes;

/// Schedulers that give cards away by themselves, limits included.
pub const OTHER_SCHEDULERS: [&str; 2] = ["hami-scheduler", "kai-scheduler"];

/// Labels by which a Pod, or a namespace for all of its Pods, says that nobody is to look at it: ours and HAMi's.
pub const OPT_OUTS: [&str; 2] = [admission::OPT_OUT, "hami.io/webhook"];

/// No node has more cards than this.
const MOST_CARDS: u32 = 64;

/// What is to be said of a Pod that is to be created, and changed in it.
pub fn judge(pod: &Pod, fleet: &Fleet) -> Verdict {
    let Some(spec) = pod.spec.as_ref().filter(|_| !is_foreign(pod)) else {
        return Verdict::default();
    };
    let wishes = Wishes::of(pod);
    let mut case = Case {
        fleet,
        placement: Placement::of(spec),
        verdict: Verdict {
            refusals: wishes.refusals.clone(),
            ..Verdict::default()
        },
        wishes,
        edits: Edits::of(pod),
        sharing: BTreeSet::new(),
        enforced: None,
    };
    for ask in asks::of(spec) {
        case.container(&ask);
    }
    case.close()
}

fn is_foreign(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref());
    let ignored = |key: &str| {
        pod.labels()
            .get(key)
            .is_some_and(|value| value == admission::IGNORE)
    };
    scheduler.is_some_and(|name| OTHER_SCHEDULERS.contains(&name))
        || OPT_OUTS.iter().any(|key| ignored(key))
}

/// Where a number comes from.
enum Source {
    /// The Pod says so, at this place.
    Pod(String),
    /// The policy.
    Policy,
}

struct Case<'a> {
    fleet: &'a Fleet,
    placement: Placement<'a>,
    wishes: Wishes<'a>,
    verdict: Verdict,
    edits: Edits<'a>,
    /// Containers that take a share.
    sharing: BTreeSet<&'a str>,
    /// Whether all limits that were added are enforced; none: none was added.
    enforced: Option<bool>,
}

impl<'a> Case<'a> {
    fn container(&mut self, ask: &Ask<'a>) {
        let offers: Vec<(&str, u32, Vec<Offer>)> = ask
            .cards
            .iter()
            .map(|(name, count)| (*name, *count, self.fleet.offers(name, &self.placement)))
            .collect();
        for (name, count, offers) in &offers {
            self.one_each(ask, name, *count, offers);
        }
        let by_turns = |offers: &[Offer]| offers.iter().any(|offer| offer.way == Way::Turns);
        let sliced = offers.iter().find(|(.., offers)| by_turns(offers));
        let amount = self.foreign(ask, sliced.is_some());
        let Some((name, count, offers)) = sliced else {
            return;
        };
        self.sharing.insert(&ask.container.name);
        self.own_limits(ask, offers);
        if ask.sets(VARIABLE) {
            return;
        }
        let indices: Vec<u32> = (0..(*count).min(MOST_CARDS))
            .filter(|index| !ask.sets(&format!("{VARIABLE}_{index}")))
            .collect();
        if indices.is_empty() {
            return;
        }
        if ask.cards.len() > 1 {
            self.warn(ask, "got no memory limit, as it takes several kinds of cards, and which of them is the first one is not known");
            return;
        }
        let Some(limit) = self.limit(ask, name, offers, amount) else {
            return;
        };
        for index in &indices {
            let variable = format!("{VARIABLE}_{index}");
            self.edits.set(ask, &variable, &format!("{limit}m"));
        }
        let all = |offers: &[Offer]| offers.iter().all(|offer| offer.enforced);
        self.enforced = Some(self.enforced.unwrap_or(true) && all(offers));
    }

    /// The plugin refuses more than one share on the node, where the Pod then ends as failed and its owner makes the next one.
    fn one_each(&mut self, ask: &Ask<'_>, name: &str, count: u32, offers: &[Offer]) {
        let refuses = |offer: &Offer| offer.way != Way::Whole && offer.one_each;
        if count < 2 || offers.is_empty() || !offers.iter().all(refuses) {
            return;
        }
        let replicas: BTreeSet<u32> = offers.iter().map(|offer| offer.replicas).collect();
        let replicas: Vec<String> = replicas.iter().map(ToString::to_string).collect();
        self.verdict.refusals.push(format!(
            "{ask}.resources.limits[{name}]: `{count}` is more than the one share that a container can have: {name} is one of {} shares of \
             a card, the device plugin refuses more on the node, and two shares are neither two cards nor twice the time; ask for 1, for \
             whole cards on nodes that do not share them, or set failRequestsGreaterThanOne to false in the policy",
            replicas.join(" or ")
        ));
    }

    /// HAMi's resources, where HAMi is not: the Pod would stay Pending for ever. Returns its amount of memory, MiB.
    fn foreign(&mut self, ask: &Ask<'a>, takes_share: bool) -> Option<u32> {
        if self.fleet.hami {
            return None;
        }
        let mut amount = None;
        for (name, value) in &ask.foreign {
            let remedy = match (*name, units::count(value)) {
                (GPUMEM, Some(mebibytes @ 1..)) if takes_share => {
                    amount = Some(mebibytes);
                    self.edits.drop_resource(ask, name);
                    let key = wishes::key(&ask.container.name);
                    let text = if self.wishes.container(&ask.container.name).is_some() {
                        format!(
                            "no longer asks for {name}: {mebibytes}, as HAMi, whose resource it is, does not run here; annotation {key} says the limit"
                        )
                    } else {
                        self.edits.annotate(&key, &format!("{mebibytes}Mi"));
                        format!(
                            "asks for {name}: {mebibytes}, which became annotation {key}, as HAMi, whose resource it is, does not run here"
                        )
                    };
                    self.warn(ask, &text);
                    continue;
                }
                (GPUMEM, Some(0) | None) => "write a whole number of MiB from 1",
                (GPUMEM, Some(_)) if ask.cards.is_empty() => {
                    "ask for a share of a card as well (nvidia.com/gpu: 1)"
                }
                (GPUMEM, Some(_)) => {
                    "remove it: what the container asks for is a whole card with all of its memory"
                }
                _ => {
                    "remove it; the memory of a time-sliced share is limited by annotation aiops.local/gpu-memory-limit"
                }
            };
            self.verdict.refusals.push(format!(
                "{ask}.resources.limits[{name}]: `{}` cannot be had: it is a resource of HAMi, which does not run here, and the Pod \
                 would stay Pending; {remedy}",
                value.0
            ));
        }
        amount
    }

    /// Limits of the user's own, which stay as they are: one that no card has is refused.
    fn own_limits(&mut self, ask: &Ask<'_>, offers: &[Offer]) {
        let Some(most) = most(offers) else {
            return;
        };
        for (variable, value, mebibytes) in ask.own_limits() {
            if mebibytes > most {
                self.verdict.refusals.push(format!(
                    "{ask}.env[{variable}]: `{value}` is more than the {most} MiB of any card on which the Pod can run; write at most {most}m"
                ));
            }
        }
    }

    /// The limit of a container's share, MiB.
    fn limit(
        &mut self,
        ask: &Ask<'_>,
        name: &str,
        offers: &[Offer],
        amount: Option<u32>,
    ) -> Option<u32> {
        let name_of = &ask.container.name;
        let annotated = |key: &str| Source::Pod(format!("metadata.annotations[{key}]"));
        let own = self.wishes.container(name_of);
        let (limit, source) = if let Some(limit) = own {
            (limit, annotated(&wishes::key(name_of)))
        } else if let Some(mebibytes) = amount {
            let place = format!("{ask}.resources.limits[{GPUMEM}]");
            (MemoryLimit::MiB(mebibytes), Source::Pod(place))
        } else if let Some(limit) = self.wishes.pod() {
            (limit, annotated(annotation::MEMORY_LIMIT))
        } else {
            (self.fleet.limit, Source::Policy)
        };
        match limit {
            MemoryLimit::Off => None,
            MemoryLimit::MiB(limit) => self.fits(ask, limit, &source, offers).then_some(limit),
            MemoryLimit::Auto => match automatic_limit(offers.iter().map(Offer::share)) {
                Ok(limit) => Some(limit),
                Err(why) => {
                    self.warn(
                        ask,
                        &format!("got no memory limit for its share of {name}, as {why}"),
                    );
                    None
                }
            },
        }
    }

    /// Whether a number can be kept on some card.
    fn fits(&mut self, ask: &Ask<'_>, limit: u32, source: &Source, offers: &[Offer]) -> bool {
        let too_much = most(offers).filter(|most| u64::from(limit) > *most);
        match (source, too_much) {
            (Source::Pod(place), Some(most)) => {
                self.verdict.refusals.push(format!(
                    "{place}: `{limit}` MiB is more than the {most} MiB of any card on which the Pod can run; write at most {most}Mi, or Auto"
                ));
                false
            }
            (Source::Policy, Some(most)) => {
                self.warn(ask, &format!("got no memory limit, as the {limit} MiB of the policy's memoryLimit are more than the {most} MiB of any card on which it can run"));
                false
            }
            (Source::Pod(place), None) => {
                let share = offers.iter().filter_map(Offer::share).max();
                if let Some(share) = share.filter(|share| limit > *share) {
                    self.verdict.warnings.push(format!(
                        "{place}: {limit} MiB is more than a share's part of a card's memory, {share} MiB: containers beside it may find none left"
                    ));
                } else if limit < LEAST_USABLE {
                    self.verdict.warnings.push(format!(
                        "{place}: {limit} MiB is less than the {LEAST_USABLE} MiB that CUDA itself needs to tell how much memory is left"
                    ));
                }
                true
            }
            (Source::Policy, None) => true,
        }
    }

    fn warn(&mut self, ask: &Ask<'_>, text: &str) {
        self.verdict.warnings.push(format!("{ask} {text}"));
    }

    fn close(mut self) -> Verdict {
        for key in self.wishes.without_effect(&self.sharing) {
            self.verdict.warnings.push(format!(
                "metadata.annotations[{key}] has no effect: no such container takes a time-sliced share of a card"
            ));
        }
        if !self.verdict.refusals.is_empty() {
            return self.verdict;
        }
        if let Some(enforced) = self.enforced {
            let (mode, text) = if enforced {
                (
                    "enforced",
                    format!("enforced by the nodes (label {})", label::MEMORY_ENFORCER),
                )
            } else {
                (
                    "advisory",
                    "advisory: nothing on the nodes keeps a program to it".to_owned(),
                )
            };
            let added = self.edits.added();
            self.verdict.warnings.push(format!(
                "GPU memory limits were added: {added}; they are {text}"
            ));
            self.edits.annotate(annotation::MEMORY_LIMIT_MODE, mode);
        }
        self.verdict.patch = self.edits.into_patch();
        self.verdict
    }
}

/// MiB of the largest card that may be meant; none if one of them is not known.
fn most(offers: &[Offer]) -> Option<u64> {
    let all: Option<Vec<u64>> = offers.iter().map(|offer| offer.most).collect();
    all?.into_iter().max()
}

#[cfg(test)]
mod tests;
