//! Layouts of the MIG manager: what it refuses, and what no card can hold.

use super::{Severity, json::some_of};
use crate::mig::{
    Fit, fit,
    layout::{self, Mistake, Rule},
};
use crate::quote::quoted;

/// Judges a file of layouts.
///
/// Refused: what the MIG manager does not read, and a rule whose instances fit on none of the products that it is for. A profile or a
/// device that no table knows may be newer than the tables: a warning.
pub fn check(text: &str) -> Vec<(Severity, Mistake)> {
    let file = layout::parse(text);
    let mut found: Vec<(Severity, Mistake)> = file
        .mistakes
        .into_iter()
        .map(|mistake| (Severity::Refuse, mistake))
        .collect();
    for (name, rules) in &file.layouts {
        for (index, one) in rules.iter().enumerate() {
            found.extend(rule(
                &format!("mig-configs.{}[{index}].mig-devices", quoted(name)),
                one,
            ));
        }
    }
    found
}

fn rule(path: &str, rule: &Rule) -> Option<(Severity, Mistake)> {
    let instances = rule.gpu_instances();
    if instances.iter().all(|(_, count)| *count == 0) {
        return None;
    }
    let mistake = |why: String, remedy: &str| Mistake {
        path: path.to_owned(),
        why,
        remedy: remedy.to_owned(),
    };
    let (parts, others) = rule.parts();
    let fits: Vec<Fit> = parts.iter().map(|part| fit(part, &instances)).collect();
    if fits.contains(&Fit::Fits) {
        return None;
    }
    let list: Vec<String> = instances
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(profile, count)| format!("{} x{count}", quoted(profile)))
        .collect();
    let list = some_of(&list);
    let tight: Vec<&str> = parts
        .iter()
        .zip(&fits)
        .filter(|(_, fit)| **fit == Fit::DoesNotFit)
        .map(|(part, _)| part.name)
        .collect();
    if !tight.is_empty() && (!others || rule.filter.is_empty()) {
        let why = format!(
            "asks for {list}, which do not fit together on one card ({})",
            tight.join("; ")
        );
        return Some((
            Severity::Refuse,
            mistake(why, "ask for fewer or smaller instances"),
        ));
    }
    let why = if others && !rule.filter.is_empty() {
        format!(
            "is for devices that no table knows ({}), so that {list} cannot be checked",
            some_of(&rule.filter)
        )
    } else {
        format!("asks for {list}, which no known product that it is for has")
    };
    let remedy = "check it with nvidia-smi mig -lgip on such a card";
    Some((Severity::Warn, mistake(why, remedy)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::PARTS;
    use crate::mig::parts::Part;

    fn check_one(filter: &str, devices: &str) -> Vec<(Severity, String)> {
        let text = format!(
            "{{version: v1, mig-configs: {{a: [{{devices: all, {filter} mig-enabled: true, mig-devices: {{{devices}}}}}]}}}}"
        );
        let found = check(&text);
        found
            .into_iter()
            .map(|(severity, mistake)| (severity, mistake.to_string()))
            .collect()
    }

    fn filter(part: &Part) -> String {
        let ids: Vec<String> = part.filters().map(|id| format!("\"{id}\"")).collect();
        format!("device-filter: [{}],", ids.join(", "))
    }

    #[test]
    fn every_profile_of_every_product_passes_and_one_more_is_refused() {
        for part in PARTS {
            for (profile, most) in part.profiles {
                let devices = format!("\"{profile}\": {most}");
                assert_eq!(
                    check_one(&filter(part), &devices),
                    [],
                    "{} {devices}",
                    part.name
                );
                let devices = format!("\"{profile}\": {}", most + 1);
                let found = check_one(&filter(part), &devices);
                let [(Severity::Refuse, text)] = found.as_slice() else {
                    panic!("{} {devices}: {found:?}", part.name);
                };
                assert!(text.contains(part.name) && text.contains(profile), "{text}");
            }
        }
    }

    #[test]
    fn texts() {
        let cases = [
            ("", "4g.20gb: 1, 3g.20gb: 1", None),
            ("", "2g.10gb: 3, 1g.5gb: 1", None),
            (
                "",
                "4g.20gb: 2",
                Some((
                    Severity::Refuse,
                    "mig-configs.a[0].mig-devices asks for 4g.20gb x2, which do not fit together on one card (A100 40 GB): ask for fewer or smaller instances",
                )),
            ),
            (
                "",
                "3g.20gb: 2, 1g.5gb: 1",
                Some((
                    Severity::Refuse,
                    "asks for 1g.5gb x1, 3g.20gb x2, which do not fit together",
                )),
            ),
            (
                "",
                "1g.10gb+me: 2",
                Some((
                    Severity::Refuse,
                    "do not fit together on one card (A100 80 GB, H100 80 GB)",
                )),
            ),
            // On an A100 40 it fits, on an A100 80 it does not.
            ("", "1g.10gb: 5", None),
            (
                "device-filter: \"0x20B010DE\",",
                "1g.10gb: 5",
                Some((Severity::Refuse, "A100 40 GB")),
            ),
            (
                "",
                "1g.99gb: 1",
                Some((
                    Severity::Warn,
                    "asks for 1g.99gb x1, which no known product that it is for has",
                )),
            ),
            (
                "device-filter: \"0xFFFF10DE\",",
                "1g.10gb: 99",
                Some((
                    Severity::Warn,
                    "is for devices that no table knows (0xFFFF10DE), so that 1g.10gb x99 cannot be checked",
                )),
            ),
        ];
        for (filter, devices, want) in cases {
            let found = check_one(filter, devices);
            match want {
                None => assert_eq!(found, [], "{filter} {devices}"),
                Some((severity, text)) => {
                    assert!(
                        matches!(found.as_slice(), [(s, t)] if *s == severity && t.contains(text)),
                        "{filter} {devices}: {found:?}"
                    );
                }
            }
        }
    }
}
