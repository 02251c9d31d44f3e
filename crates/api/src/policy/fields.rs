//! The two shapes that most sections of a policy have, as macros, so that no field can lack its serde attributes.

/// A section whose fields are all optional. Absent stays absent when it is written again: an explicit null would be owned under
/// server-side apply.
macro_rules! section {
    ($(#[$($attr:tt)*])* $name:ident { $( $(#[$($field_attr:tt)*])* $field:ident: $ty:ty, )* }) => {
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, kube::KubeSchema)]
        #[serde(rename_all = "camelCase")]
        $(#[$($attr)*])*
        pub struct $name {
            $( $(#[$($field_attr)*])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$ty>, )*
        }
    };
}

/// A section of an operand: [`section!`] with the fields that all operands share, and access to them by [`super::OperandFields`].
macro_rules! operand {
    ($(#[$($attr:tt)*])* $name:ident { $( $(#[$($field_attr:tt)*])* $field:ident: $ty:ty, )* }) => {
        $crate::policy::fields::section! {
            $(#[$($attr)*])*
            #[x_kube(validation = $crate::policy::rules::image())]
            $name {
                /// Whether this operand is deployed.
                enabled: bool,
                /// Registry and path, e.g. `nvcr.io/nvidia`.
                #[schemars(length(max = 512))]
                repository: String,
                /// Name of the image, or alone a complete reference.
                #[schemars(length(max = 512))]
                image: String,
                /// Tag, or a digest (`sha256:...`).
                #[schemars(length(max = 128))]
                version: String,
                /// When the kubelet pulls. Default IfNotPresent.
                image_pull_policy: $crate::policy::PullPolicy,
                /// Names of Secrets in the operands' namespace.
                image_pull_secrets: Vec<String>,
                /// Requests and limits of the main container.
                resources: $crate::policy::Resources,
                /// Arguments of the main container.
                args: Vec<String>,
                /// Environment of the main container; wins over what the controller sets.
                env: Vec<$crate::policy::EnvVar>,
                /// Whether the pods use the host's network. Default false.
                host_network: bool,
                $( $(#[$($field_attr)*])* $field: $ty, )*
            }
        }

        impl $crate::policy::OperandFields for $name {
            fn common(&self) -> $crate::policy::CommonFields<'_> {
                $crate::policy::CommonFields {
                    enabled: self.enabled,
                    repository: self.repository.as_deref(),
                    image: self.image.as_deref(),
                    version: self.version.as_deref(),
                    image_pull_policy: self.image_pull_policy,
                    image_pull_secrets: self.image_pull_secrets.as_deref().unwrap_or_default(),
                    resources: self.resources.as_ref(),
                    args: self.args.as_deref().unwrap_or_default(),
                    env: self.env.as_deref().unwrap_or_default(),
                    host_network: self.host_network,
                }
            }
        }
    };
}

/// A value of a fixed set. What an older schema let in and this one does not know is read as `Unrecognised`, never a decoding error.
macro_rules! choice {
    ($(#[$($attr:tt)*])* $name:ident { $( $(#[$($variant_attr:tt)*])* $variant:ident = $text:literal, )* }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        $(#[$($attr)*])*
        pub enum $name {
            $( $(#[$($variant_attr)*])* #[serde(rename = $text)] $variant, )*
            /// A value stored before this schema; treated as invalid where it matters.
            #[serde(other)]
            #[schemars(skip)]
            Unrecognised,
        }

        impl $name {
            /// The value as it is written.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )*
                    Self::Unrecognised => "Unrecognised",
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use choice;
pub(crate) use operand;
pub(crate) use section;
