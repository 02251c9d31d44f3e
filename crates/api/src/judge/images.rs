//! Image references that a kubelet would not take (grammar of distribution/reference): tag, digest and name of every operand.

use super::case::Case;
use crate::{effective::EffectivePolicy, image::ImageRef, quote::quoted};

pub(super) fn judge(case: &mut Case<'_>) {
    for (section, image) in images(&case.effective) {
        let of = |field: &str| format!("{section}.{field}");
        let (part, image_path, others) = (of("repository"), of("image"), of("version"));
        let all = [part.as_str(), image_path.as_str(), others.as_str()];
        let given = |fields: [usize; 2]| {
            let found = fields.into_iter().filter_map(|index| all.get(index));
            let mut found = found.filter(|path| case.text(path).is_some());
            found.next().copied()
        };
        let (path, why, remedy) = match wrong(&image) {
            None => continue,
            Some(Wrong::Version(why, remedy)) => (given([2, 1]), why, remedy),
            Some(Wrong::Name(why, remedy)) => (given([1, 0]), why, remedy),
        };
        // A default of ours is not the author's.
        if let Some(path) = path {
            case.refuse(
                (path, &all),
                format!(
                    "{why}, so that no kubelet takes the image ({})",
                    quoted(&image.to_string())
                ),
                remedy,
            );
        }
    }
}

fn images(policy: &EffectivePolicy) -> Vec<(&'static str, ImageRef)> {
    let operands = [
        ("driver", &policy.driver.operand.image),
        ("driver.manager", &policy.driver.manager.image),
        ("toolkit", &policy.toolkit.operand.image),
        ("validator", &policy.validator.operand.image),
        ("devicePlugin", &policy.device_plugin.operand.image),
        ("gfd", &policy.gfd.operand.image),
        ("migManager", &policy.mig_manager.operand.image),
        ("dcgm", &policy.dcgm.operand.image),
        ("dcgmExporter", &policy.dcgm_exporter.operand.image),
        (
            "nodeStatusExporter",
            &policy.node_status_exporter.operand.image,
        ),
    ];
    let sidecars = [
        ("gds", &policy.driver.gds),
        ("gdrcopy", &policy.driver.gdrcopy),
    ];
    let sidecars = sidecars
        .into_iter()
        .filter_map(|(name, sidecar)| Some((name, &sidecar.as_ref()?.image)));
    let all = operands.into_iter().chain(sidecars);
    all.map(|(name, image)| (name, image.clone())).collect()
}

enum Wrong {
    Version(&'static str, &'static str),
    Name(&'static str, &'static str),
}

fn wrong(image: &ImageRef) -> Option<Wrong> {
    if image
        .digest
        .as_deref()
        .is_some_and(|digest| !is_digest(digest))
    {
        let remedy = "write sha256: and 64 hexadecimal digits, as the registry gives them";
        return Some(Wrong::Version("is not a digest", remedy));
    }
    if image.tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
        let remedy = "write a tag of letters, digits and `_`, `.`, `-`, at most 128 characters, or a digest (sha256:...)";
        return Some(Wrong::Version("is not a tag", remedy));
    }
    if is_name(&image.name) {
        return None;
    }
    let remedy = "write registry and path in lower-case letters, digits and `.`, `_`, `-`, such as nvcr.io/nvidia/driver";
    Some(Wrong::Name("is not the name of an image", remedy))
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128
        && text.starts_with(word)
        && text.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

/// The first element may be a host with a port.
fn is_name(name: &str) -> bool {
    let path = |element: &str| {
        let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        element.starts_with(letter)
            && element.ends_with(letter)
            && element
                .chars()
                .all(|c| letter(c) || matches!(c, '.' | '_' | '-'))
    };
    let host = |element: &str| {
        let (host, port) = element.split_once(':').unwrap_or((element, "0"));
        !host.is_empty()
            && host
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
            && port.parse::<u16>().is_ok()
    };
    match name.split_once('/') {
        None => path(name),
        Some((first, rest)) => (path(first) || host(first)) && rest.split('/').all(path),
    }
}
