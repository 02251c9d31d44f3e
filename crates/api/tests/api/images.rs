//! Images, as NVIDIA's operator resolves them.

use tessera_api::image::{
    DefaultImages, ImageError, ImageKind, ImageRef, OsRelease, driver_image, resolve_image,
};

#[test]
fn parts_become_a_reference() {
    let default = ImageRef::parse("nvcr.io/nvidia/driver:595.91.07");
    let cases = [
        (["", "", ""], "nvcr.io/nvidia/driver:595.91.07"),
        (["r.example/a", "driver", "1"], "r.example/a/driver:1"),
        (
            ["r.example/a/", "driver", "sha256:00"],
            "r.example/a/driver@sha256:00",
        ),
        (
            ["", "r.example:5000/driver:2", ""],
            "r.example:5000/driver:2",
        ),
        (
            ["", "r.example/driver@sha256:00", ""],
            "r.example/driver@sha256:00",
        ),
        (["", "", "535.104.05"], "nvcr.io/nvidia/driver:535.104.05"),
        (["r.example", "", ""], "r.example/driver:595.91.07"),
        (["", "other", "3"], "nvcr.io/nvidia/other:3"),
        (["r.example", "", "3"], "r.example/driver:3"),
        (
            ["nvcr.io/nvidia", "cloud-native/dcgm", "4"],
            "nvcr.io/nvidia/cloud-native/dcgm:4",
        ),
    ];
    for ([repository, image, version], want) in cases {
        let got = resolve_image(Some(repository), Some(image), Some(version), &default)
            .map(|i| i.to_string());
        assert_eq!(got.as_deref(), Ok(want), "{repository} {image} {version}");
    }
    let both = resolve_image(None, Some("a:1"), Some("2"), &default);
    assert_eq!(both, Err(ImageError::TwoVersions("a:1".into())));
    assert!(matches!(
        resolve_image(None, None, Some("1 2"), &default),
        Err(ImageError::Characters("version", _))
    ));
}

#[test]
fn references_are_read_as_written() {
    for text in [
        "a",
        "a:1",
        "r:5000/a",
        "r:5000/a:1",
        "r/a@sha256:00",
        "r/a:1@sha256:00",
    ] {
        assert_eq!(ImageRef::parse(text).to_string(), text);
    }
    let image = ImageRef::parse("r:5000/x/a:1");
    assert_eq!(
        (image.repository(), image.base_name(), image.version()),
        ("r:5000/x", "a", "1")
    );
}

#[test]
fn driver_tags_name_the_operating_system() {
    let os = |id: &str, version: &str| OsRelease {
        id: id.into(),
        version: version.into(),
    };
    let image = ImageRef::parse("nvcr.io/nvidia/driver:595");
    let cases = [
        (
            os("ubuntu", "22.04"),
            None,
            "nvcr.io/nvidia/driver:595-ubuntu22.04",
        ),
        (os("rhel", "9.4"), None, "nvcr.io/nvidia/driver:595-rhel9"),
        (
            os("rocky", "8.10"),
            None,
            "nvcr.io/nvidia/driver:595-rocky8",
        ),
        (os("ol", "9.1"), None, "nvcr.io/nvidia/driver:595-ol9"),
        (
            os("sles", "15.5"),
            None,
            "nvcr.io/nvidia/driver:595-sles15.5",
        ),
        (
            os("ubuntu", "22.04"),
            Some("5.15.0-1-generic"),
            "nvcr.io/nvidia/driver:595-5.15.0-1-generic-ubuntu22.04",
        ),
    ];
    for (os, kernel, want) in cases {
        assert_eq!(driver_image(&image, &os, kernel).to_string(), want);
    }
    let digest = ImageRef::parse("nvcr.io/nvidia/driver@sha256:00");
    assert_eq!(driver_image(&digest, &os("ubuntu", "22.04"), None), digest);
}

#[test]
fn the_environment_overrides_the_built_in_set() {
    let images = DefaultImages::from_env(|name| match name {
        "DRIVER_IMAGE" => Some("mirror.example/driver:1"),
        "VALIDATOR_IMAGE" => Some("mirror.example/validator:2"),
        "GFD_IMAGE" => Some("  "),
        _ => None,
    });
    assert_eq!(
        images.get(ImageKind::Driver).to_string(),
        "mirror.example/driver:1"
    );
    assert_eq!(
        images.get(ImageKind::NodeStatusExporter).to_string(),
        "mirror.example/validator:2"
    );
    assert_eq!(
        images.get(ImageKind::Gfd).to_string(),
        ImageKind::Gfd.builtin()
    );
    assert_eq!(DefaultImages::builtin(), DefaultImages::default());
}
