//! The MIG manager's file, read strictly; it and the device plugin's take any text.

use proptest::{collection::vec, prelude::*, sample::select};
use tessera_api::{judge, mig::layout::parse, plugin_file, policy::MigStrategy};

fn mistakes(text: &str) -> Vec<String> {
    parse(text)
        .mistakes
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn one(rule: &str) -> String {
    format!("{{version: v1, mig-configs: {{a: [{rule}]}}}}")
}

#[test]
fn a_good_file() {
    let text = one(
        "{device-filter: [\"0x20b010de\"], devices: [0, 1], mig-enabled: true, mig-devices: {1g.5gb: 2, \"1g.5gb+me\": 1}}",
    );
    let file = parse(&text);
    assert_eq!(file.mistakes, []);
    let rule = &file.layouts["a"][0];
    let (parts, others) = rule.parts();
    assert_eq!(
        (parts.len(), parts[0].name, others),
        (1, "A100 40 GB", false)
    );
    assert_eq!(rule.gpu_instances(), [("1g.5gb", 2), ("1g.5gb+me", 1)]);
    for text in [
        one("{devices: all, mig-enabled: false}"),
        one("{devices: all, mig-enabled: false, mig-devices: {}}"),
        one("{devices: all, mig-enabled: true, mig-devices: {}}"),
        one("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0, 2g.10gb: 1}}"),
    ] {
        assert_eq!(mistakes(&text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn compute_instances_lie_in_gpu_instances() {
    let text = one("{devices: all, mig-enabled: true, mig-devices: {1c.3g.20gb: 4, 3g.20gb: 1}}");
    assert_eq!(
        parse(&text).layouts["a"][0].gpu_instances(),
        [("3g.20gb", 3)]
    );
}

#[test]
fn what_the_mig_manager_refuses_is_named_by_its_path() {
    let cases = [
        ("version: [".to_owned(), "the file is not YAML"),
        (String::new(), "the file is not a map"),
        (
            "{version: v2, mig-configs: {a: []}}".to_owned(),
            "version is not v1",
        ),
        (
            "{version: v1}".to_owned(),
            "mig-configs is no map of layouts",
        ),
        (
            "{version: v1, mig-configs: {}}".to_owned(),
            "mig-configs has no layout",
        ),
        (
            "{version: v1, mig-configs: {a: {}}}".to_owned(),
            "mig-configs.a is not a list of rules",
        ),
        (
            "{version: v1, migConfigs: {}}".to_owned(),
            "migConfigs is not a setting of the MIG manager",
        ),
        (one("all"), "mig-configs.a[0] is not a map"),
        (
            one("{devices: all}"),
            "mig-configs.a[0].mig-enabled is neither true nor false",
        ),
        (
            one("{mig-enabled: false}"),
            "mig-configs.a[0].devices is neither `all` nor a list",
        ),
        (
            one("{devices: some, mig-enabled: false}"),
            "mig-configs.a[0].devices is neither",
        ),
        (
            one("{devices: all, mig-enabled: true}"),
            "mig-configs.a[0].mig-devices is missing",
        ),
        (
            one("{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}"),
            "has instances, although MIG is off",
        ),
        (
            one("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}"),
            "has no instance at all",
        ),
        (
            one("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}}"),
            "mig-devices.1g.5gb is -1, not a number",
        ),
        (
            one("{devices: all, mig-enabled: true, mig-devices: {5gb: 1}}"),
            "mig-devices.5gb is not the name of a MIG profile",
        ),
        (
            one("{devices: all, mig-enabled: true, mig-devices: {1g.5gb+foo: 1}}"),
            "is not the name of a MIG profile",
        ),
        (
            one("{devices: all, mig-enabled: false, device-filter: 5}"),
            "device-filter is not a text",
        ),
        (
            one("{devices: all, mig-enabled: false, enabled: true}"),
            "mig-configs.a[0].enabled is not a setting",
        ),
    ];
    for (text, want) in cases {
        let found = mistakes(&text);
        assert!(
            found.iter().any(|mistake| mistake.contains(want)),
            "{text}: {found:?}"
        );
    }
}

/// Pieces that such files are made of, right and wrong.
const PIECES: [&str; 22] = [
    "version: v1\n",
    "mig-configs:\n",
    "  a:\n",
    "  - devices: all\n",
    "    mig-enabled: true\n",
    "    mig-devices:\n",
    "      1g.5gb: 7\n",
    "      \"1g.5gb+me\": 4294967295\n",
    "      1c.3g.20gb: 99\n",
    "    device-filter: [\"0x20B010DE\", 5]\n",
    "sharing:\n",
    "  timeSlicing:\n",
    "    resources:\n",
    "    - name: gpu\n",
    "      replicas: -1\n",
    "&a [*a]\n",
    "{",
    "]",
    ": ",
    "\t",
    "ü\u{0}",
    "- ",
];

proptest! {
    #[test]
    fn no_text_is_too_odd(pieces in vec(select(PIECES.as_slice()), 0..40), other in ".{0,60}") {
        for text in [pieces.concat(), format!("{}{other}", pieces.concat()), other] {
            let found = judge::layout_file(&text);
            prop_assert_eq!(&found, &judge::layout_file(&text));
            for strategy in [MigStrategy::None, MigStrategy::Single, MigStrategy::Mixed] {
                let read = plugin_file::parse(&text, strategy);
                prop_assert_eq!(&read, &plugin_file::parse(&text, strategy));
            }
        }
    }
}
