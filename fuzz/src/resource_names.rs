//! Names and values as people write them in objects, each by itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tessera_api::cards::{Cards, Product};
use tessera_api::image::{ImageRef, resolve_image};
use tessera_api::mig::PARTS;
use tessera_api::mig::layout::Rule;
use tessera_api::shares::{full_name, shared_name};
use tessera_api::units::{
    IntOrPercent, MemoryLimit, ScrapeDuration, parse_duration, parse_quantity,
};
use tessera_api::{NodeFacts, names::label, units};
use tessera_driver_controller::pools::DriverPool;
use tessera_sreagent_controller::validate::{agent_name, binding_name};

use crate::sentence;

/// Each way of reading a text, with what must hold of what it makes of it.
pub(crate) fn feed(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    shares(&text);
    amounts(&text);
    image(&text);
    profile(&text);
    node(&text);
    objects(&text);
}

fn shares(text: &str) {
    let full = full_name(text);
    assert!(full.contains('/'), "{full}");
    assert_eq!(full_name(&full), full);
    match shared_name(text) {
        Ok(name) => {
            assert!(name == full && name.len() <= 63, "{name}");
            assert_eq!(shared_name(&name), Ok(name.clone()));
        }
        Err(error) => sentence::check(&error.to_string()),
    }
}

fn amounts(text: &str) {
    match text.parse::<MemoryLimit>() {
        Ok(limit) => assert_eq!(limit.to_string().parse(), Ok(limit)),
        Err(error) => sentence::check(&error.to_string()),
    }
    match text.parse::<IntOrPercent>() {
        Ok(number) => {
            assert_eq!(number.to_string().parse(), Ok(number));
            assert_eq!(
                IntOrPercent::try_from(&number.to_int_or_string()),
                Ok(number)
            );
            if let IntOrPercent::Percent(_) = number {
                assert!(number.of(7) <= 7, "{number} of 7 are {}", number.of(7));
            }
        }
        Err(error) => sentence::check(&error.to_string()),
    }
    match text.parse::<ScrapeDuration>() {
        Ok(duration) => {
            assert_eq!(duration.to_string().parse(), Ok(duration.clone()));
            assert_eq!(parse_duration(text), Ok(duration.as_duration()));
        }
        Err(error) => sentence::check(&error.to_string()),
    }
    match parse_quantity(text) {
        Ok(number) => assert!(number.is_finite(), "{text} is {number}"),
        Err(error) => sentence::check(&error.to_string()),
    }
    if let Some(count) = units::count(&Quantity(text.to_owned())) {
        assert_eq!(units::count(&Quantity(count.to_string())), Some(count));
    }
}

fn image(text: &str) {
    let read = ImageRef::parse(text);
    assert_eq!(read.to_string(), text);
    let default = ImageRef::parse("registry.example/team/name:v1");
    for parts in [
        [Some(text), None, None],
        [None, Some(text), None],
        [None, None, Some(text)],
    ] {
        let [repository, image, version] = parts;
        match resolve_image(repository, image, version, &default) {
            Ok(image) => {
                let image = image.to_string();
                assert!(!image.contains(char::is_whitespace), "{image}");
            }
            Err(error) => sentence::check(&error.to_string()),
        }
    }
}

fn profile(text: &str) {
    for part in PARTS {
        if let Some(most) = part.most(text) {
            assert!(most > 0, "{} has no {text}", part.name);
        }
    }
    let rule = Rule {
        filter: vec![text.to_owned()],
        instances: BTreeMap::from([(text.to_owned(), u32::MAX)]),
    };
    assert_eq!(rule.gpu_instances().len(), 1, "{text}");
    let (parts, others) = rule.parts();
    assert!(others || !parts.is_empty(), "{text} is for no card");
}

/// A node whose labels all say `text`.
fn node(text: &str) {
    let keys = [
        label::GPU_PRODUCT,
        label::GPU_COUNT,
        label::GPU_MEMORY,
        label::GPU_COMPUTE_MAJOR,
        label::GPU_REPLICAS,
        label::MIG_CONFIG,
        label::DEPLOY_DRIVER,
        label::NFD_OS_ID,
        label::NFD_OS_VERSION,
        label::NFD_KERNEL,
        "nvidia.com/mig-1g.5gb.count",
    ];
    let mut node = Node::default();
    node.metadata.name = Some("n".to_owned());
    let labels = keys.map(|key| (key.to_owned(), text.to_owned()));
    node.metadata.labels = Some(labels.into());
    let facts = NodeFacts::from_node(&node);
    let listed = Product::of(text).and_then(Product::part);
    assert_eq!(
        Cards::of(&facts).part().is_some(),
        listed.is_some(),
        "{text}"
    );
    let pools = [false, true].map(|precompiled| DriverPool::of(&facts, precompiled));
    pools.iter().flatten().for_each(|pool| {
        is_name(&pool.daemon_set());
        is_name(&pool.name());
    });
}

/// An object of this name, where the API server lets it in.
fn objects(text: &str) {
    if !is_subdomain(text) || text.len() > 253 {
        return;
    }
    is_name(&agent_name(text));
    let longest = "n".repeat(63);
    for namespace in ["ops", &longest] {
        is_name(&binding_name(namespace, text, "repair"));
    }
}

/// Fails where something that is made has a name that is no label's value either, as the names of most objects are.
fn is_name(name: &str) {
    assert!(is_subdomain(name) && name.len() <= 63, "{name:?}");
}

/// A DNS subdomain: labels of letters, digits and dashes, with dots between them.
fn is_subdomain(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.split('.').all(|label| {
        label.starts_with(letter)
            && label.ends_with(letter)
            && label.chars().all(|c| letter(c) || c == '-')
    })
}
