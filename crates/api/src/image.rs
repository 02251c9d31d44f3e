//! Image references: how a policy's repository, image and version become one, and the default image set.

use std::{collections::BTreeMap, fmt};

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::quote::quoted;

/// A container image: a name with a tag, a digest, or (rarely) neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageRef {
    /// Registry, path and name, e.g. `nvcr.io/nvidia/driver`.
    pub name: String,
    /// Tag, e.g. `595.91.07`.
    pub tag: Option<String>,
    /// Digest, e.g. `sha256:...`; wins over the tag for whoever pulls.
    pub digest: Option<String>,
}

impl ImageRef {
    /// Reads a complete reference: `name[:tag][@digest]`. A colon before the last slash belongs to the registry's port.
    pub fn parse(reference: &str) -> Self {
        let (rest, digest) = match reference.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.to_owned())),
            None => (reference, None),
        };
        let name_start = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (_, last) = rest.split_at(name_start);
        match last.rfind(':') {
            Some(colon) => {
                let (name, tag) = rest.split_at(name_start + colon);
                Self {
                    name: name.to_owned(),
                    tag: Some(tag.trim_start_matches(':').to_owned()),
                    digest,
                }
            }
            None => Self {
                name: rest.to_owned(),
                tag: None,
                digest,
            },
        }
    }

    /// The version part: the digest if there is one, else the tag, else empty.
    pub fn version(&self) -> &str {
        self.digest
            .as_deref()
            .or(self.tag.as_deref())
            .unwrap_or_default()
    }

    /// Registry and path without the last element.
    pub fn repository(&self) -> &str {
        self.name
            .rsplit_once('/')
            .map_or("", |(repository, _)| repository)
    }

    /// The last path element.
    pub fn base_name(&self) -> &str {
        self.name
            .rsplit_once('/')
            .map_or(self.name.as_str(), |(_, base)| base)
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl Serialize for ImageRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why the parts of an image do not make a reference.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ImageError {
    /// `image` has a tag or digest of its own, and repository or version are given too.
    #[error(
        "image `{0}` is a complete reference already: remove repository and version, or give only the image's name"
    )]
    TwoVersions(String),
    /// A part has characters that no reference has.
    #[error("{0} `{1}` is not valid in an image reference")]
    Characters(&'static str, String),
}

/// Resolves an operand's image as NVIDIA's operator does, and goes on where that gives up.
///
/// NVIDIA (`imagePath` in its `clusterpolicy_types.go`): all of repository, image and version are joined, `version` being a digest
/// when it starts with `sha256:`; an image alone is a complete reference; with none of them the operator's environment decides.
/// Tessera: parts that are missing beside others come from the default image, so that `version` alone is enough.
pub fn resolve_image(
    repository: Option<&str>,
    image: Option<&str>,
    version: Option<&str>,
    default: &ImageRef,
) -> Result<ImageRef, ImageError> {
    let [repository, image, version] =
        [repository, image, version].map(|part| part.map(str::trim).filter(|p| !p.is_empty()));
    for (what, part) in [
        ("repository", repository),
        ("image", image),
        ("version", version),
    ] {
        if let Some(bad) = part.filter(|p| {
            p.chars()
                .any(|c| c.is_whitespace() || c.is_control() || "\"'`$\\".contains(c))
        }) {
            return Err(ImageError::Characters(what, quoted(bad).into_owned()));
        }
    }
    match (repository, image, version) {
        (None, None, None) => return Ok(default.clone()),
        (None, Some(reference), None) => return Ok(ImageRef::parse(reference)),
        (_, Some(reference), _) if reference.contains([':', '@']) => {
            return Err(ImageError::TwoVersions(quoted(reference).into_owned()));
        }
        _ => {}
    }
    let repository = repository
        .unwrap_or_else(|| default.repository())
        .trim_end_matches('/');
    let base = image.unwrap_or_else(|| default.base_name());
    let name = if repository.is_empty() {
        base.to_owned()
    } else {
        format!("{repository}/{base}")
    };
    let version = version.unwrap_or_else(|| default.version());
    let (tag, digest) = match version {
        "" => (None, None),
        digest if digest.starts_with("sha256:") => (None, Some(digest.to_owned())),
        tag => (Some(tag.to_owned()), None),
    };
    Ok(ImageRef { name, tag, digest })
}

/// An operating system as driver images name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsRelease {
    /// `ID` of os-release, e.g. `ubuntu`, `rhel`.
    pub id: String,
    /// `VERSION_ID` of os-release, e.g. `22.04`, `9.4`.
    pub version: String,
}

impl OsRelease {
    /// The form in image tags: `<id><version>`, major version only for rhel, rocky and ol (NVIDIA's driver images are built so).
    pub fn tag(&self) -> String {
        let major_only = matches!(self.id.as_str(), "rhel" | "rocky" | "ol");
        let version = if major_only {
            self.version.split('.').next().unwrap_or_default()
        } else {
            &self.version
        };
        format!("{}{version}", self.id)
    }
}

/// The driver image of one pool: `<version>-<os>`, precompiled `<branch>-<kernel>-<os>` (pass the kernel), unchanged with a digest.
pub fn driver_image(
    image: &ImageRef,
    os: &OsRelease,
    precompiled_kernel: Option<&str>,
) -> ImageRef {
    let Some(tag) = image.tag.as_deref().filter(|_| image.digest.is_none()) else {
        return image.clone();
    };
    let tag = match precompiled_kernel {
        Some(kernel) => format!("{tag}-{kernel}-{}", os.tag()),
        None => format!("{tag}-{}", os.tag()),
    };
    ImageRef {
        name: image.name.clone(),
        tag: Some(tag),
        digest: None,
    }
}

/// The images that a policy may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the variants are the operands' names")]
pub enum ImageKind {
    Driver,
    DriverManager,
    Gds,
    GdrCopy,
    Toolkit,
    Validator,
    DevicePlugin,
    Gfd,
    MigManager,
    Dcgm,
    DcgmExporter,
    NodeStatusExporter,
}

impl ImageKind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Driver,
        Self::DriverManager,
        Self::Gds,
        Self::GdrCopy,
        Self::Toolkit,
        Self::Validator,
        Self::DevicePlugin,
        Self::Gfd,
        Self::MigManager,
        Self::Dcgm,
        Self::DcgmExporter,
        Self::NodeStatusExporter,
    ];

    /// The environment variable that overrides the built-in image: NVIDIA's names, plus `NODE_STATUS_EXPORTER_IMAGE`.
    pub const fn env_name(self) -> &'static str {
        match self {
            Self::Driver => "DRIVER_IMAGE",
            Self::DriverManager => "DRIVER_MANAGER_IMAGE",
            Self::Gds => "GDS_IMAGE",
            Self::GdrCopy => "GDRCOPY_IMAGE",
            Self::Toolkit => "CONTAINER_TOOLKIT_IMAGE",
            Self::Validator => "VALIDATOR_IMAGE",
            Self::DevicePlugin => "DEVICE_PLUGIN_IMAGE",
            Self::Gfd => "GFD_IMAGE",
            Self::MigManager => "MIG_MANAGER_IMAGE",
            Self::Dcgm => "DCGM_IMAGE",
            Self::DcgmExporter => "DCGM_EXPORTER_IMAGE",
            Self::NodeStatusExporter => "NODE_STATUS_EXPORTER_IMAGE",
        }
    }

    /// The image of gpu-operator v26.7.0, a combination that NVIDIA has tested together.
    pub const fn builtin(self) -> &'static str {
        match self {
            Self::Driver => "nvcr.io/nvidia/driver:595.91.07",
            Self::DriverManager => "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
            Self::Gds => "nvcr.io/nvidia/cloud-native/nvidia-fs:2.29.4",
            Self::GdrCopy => "nvcr.io/nvidia/cloud-native/gdrdrv:v2.6",
            Self::Toolkit => "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0",
            Self::Validator | Self::NodeStatusExporter => "nvcr.io/nvidia/gpu-operator:v26.7.0",
            Self::DevicePlugin | Self::Gfd => "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
            Self::MigManager => "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0",
            Self::Dcgm => "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04",
            Self::DcgmExporter => "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
        }
    }
}

/// The default image of every operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultImages(BTreeMap<ImageKind, ImageRef>);

impl DefaultImages {
    /// The built-in set.
    pub fn builtin() -> Self {
        Self::from_env(|_| None::<&str>)
    }

    /// The built-in set with the overrides of an environment: pass a look-up such as `|name| std::env::var(name).ok()`.
    /// Without `NODE_STATUS_EXPORTER_IMAGE`, `VALIDATOR_IMAGE` serves for both, as one image holds the two.
    pub fn from_env<S: AsRef<str>>(lookup: impl Fn(&str) -> Option<S>) -> Self {
        let find = |kind: ImageKind| {
            let value = lookup(kind.env_name())?;
            let value = value.as_ref().trim();
            (!value.is_empty()).then(|| ImageRef::parse(value))
        };
        let images = ImageKind::ALL.into_iter().map(|kind| {
            let shared = || {
                (kind == ImageKind::NodeStatusExporter)
                    .then(|| find(ImageKind::Validator))
                    .flatten()
            };
            let image = find(kind)
                .or_else(shared)
                .unwrap_or_else(|| ImageRef::parse(kind.builtin()));
            (kind, image)
        });
        Self(images.collect())
    }

    /// The default of one operand.
    pub fn get(&self, kind: ImageKind) -> ImageRef {
        self.0
            .get(&kind)
            .cloned()
            .unwrap_or_else(|| ImageRef::parse(kind.builtin()))
    }
}

impl Default for DefaultImages {
    fn default() -> Self {
        Self::builtin()
    }
}
