//! The Secret: read as authorities, and written by compare-and-swap.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use tessera_api::names::label;
use tessera_runtime::clients::within;

use super::{Authorities, Authority, Stored};

/// Data keys: the newest authority, the one before, and what to trust (for people; nothing reads it).
const CURRENT: (&str, &str) = ("tls.crt", "tls.key");
const PREVIOUS: (&str, &str) = ("previous.crt", "previous.key");
const BUNDLE: &str = "ca.crt";

/// The Secret as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaSecret {
    /// For compare-and-swap.
    pub version: String,
    /// Its type, which cannot be changed.
    pub kind: Option<String>,
    /// What it holds.
    pub stored: Stored,
}

impl CaSecret {
    /// Reads it.
    pub fn of(secret: &Secret) -> Self {
        Self {
            version: secret.resource_version().unwrap_or_default(),
            kind: secret.type_.clone(),
            stored: read(secret.data.as_ref()),
        }
    }
}

/// A previous authority that cannot be read is left out: it is only a courtesy.
fn read(data: Option<&BTreeMap<String, ByteString>>) -> Stored {
    let text = |key: &str| {
        let bytes = data.and_then(|data| data.get(key))?;
        String::from_utf8(bytes.0.clone()).ok()
    };
    let pair = |(certificate, key): (&str, &str)| {
        Authority::parse(
            &text(certificate).unwrap_or_default(),
            &text(key).unwrap_or_default(),
        )
    };
    match pair(CURRENT) {
        Ok(current) => Stored::Usable(Box::new(Authorities {
            current,
            previous: pair(PREVIOUS).ok(),
        })),
        Err(error) => Stored::Unusable(error.to_string()),
    }
}

/// Creates the Secret, or replaces the version that `known` is.
///
/// # Errors
/// Somebody was faster (409), or the API server refuses or does not answer.
pub async fn write(
    api: &Api<Secret>,
    name: &str,
    known: Option<&CaSecret>,
    authorities: &Authorities,
    limit: Duration,
) -> Result<Secret, kube::Error> {
    let secret = render(name, known, authorities);
    let params = PostParams {
        field_manager: Some(crate::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match known {
        None => within(limit, api.create(&params, &secret)).await,
        Some(_) => within(limit, api.replace(name, &params, &secret)).await,
    }
}

fn render(name: &str, known: Option<&CaSecret>, authorities: &Authorities) -> Secret {
    let mut data = BTreeMap::new();
    let mut put = |key: &str, text: &str| {
        data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
    };
    put(CURRENT.0, &authorities.current.certificate);
    put(CURRENT.1, &authorities.current.key);
    if let Some(previous) = &authorities.previous {
        put(PREVIOUS.0, &previous.certificate);
        put(PREVIOUS.1, &previous.key);
    }
    put(BUNDLE, &authorities.bundle());
    let labels = [
        (label::MANAGED_BY, crate::NAME),
        (label::PART_OF, label::PART_OF_TESSERA),
        (label::COMPONENT, "certificate-authority"),
    ];
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(
                labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            resource_version: known.map(|known| known.version.clone()),
            ..ObjectMeta::default()
        },
        type_: known.map_or_else(|| Some("Opaque".to_owned()), |known| known.kind.clone()),
        data: Some(data),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        let make = || Authority::generate(1_800_000_000, Duration::from_secs(3600)).unwrap();
        let pair = Authorities {
            current: make(),
            previous: Some(make()),
        };
        let secret = render("webhook-ca", None, &pair);
        assert_eq!(
            CaSecret::of(&secret).stored,
            Stored::Usable(Box::new(pair.clone()))
        );
        // A known Secret is only replaced as it was read.
        let known = CaSecret {
            version: "7".into(),
            kind: Some("kubernetes.io/tls".into()),
            stored: Stored::Absent,
        };
        let again = render("webhook-ca", Some(&known), &pair);
        assert_eq!(again.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(again.type_.as_deref(), Some("kubernetes.io/tls"));
    }

    #[test]
    fn garbage_is_told_from_a_broken_courtesy() {
        let current = Authority::generate(1_800_000_000, Duration::from_secs(3600)).unwrap();
        let pair = Authorities {
            current,
            previous: None,
        };
        let mut secret = render("webhook-ca", None, &pair);
        let data = secret.data.as_mut().unwrap();
        data.insert(PREVIOUS.0.into(), ByteString(b"garbage".to_vec()));
        assert_eq!(CaSecret::of(&secret).stored, Stored::Usable(Box::new(pair)));
        let data = secret.data.as_mut().unwrap();
        data.insert(CURRENT.1.into(), ByteString(vec![0xff]));
        assert!(matches!(CaSecret::of(&secret).stored, Stored::Unusable(_)));
        assert!(matches!(
            CaSecret::of(&Secret::default()).stored,
            Stored::Unusable(_)
        ));
    }
}
