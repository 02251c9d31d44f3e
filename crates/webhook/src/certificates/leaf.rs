//! What a replica serves with, and whether a bundle trusts it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::authority::span_of;
use super::{Authority, CertificateError, Span};

/// A server's certificate with its key.
#[derive(Clone, Debug)]
pub struct Leaf {
    key: Arc<CertifiedKey>,
    /// Its life.
    pub span: Span,
    /// Who signed it; none when it was given.
    pub by: Option<Authority>,
}

impl Leaf {
    /// From its parts.
    ///
    /// # Errors
    /// The key is of an unknown kind, or another certificate's.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        span: Span,
        by: Option<Authority>,
    ) -> Result<Self, CertificateError> {
        let key = CertifiedKey::new(chain, ring::sign::any_supported_type(&key)?);
        key.keys_match().map_err(|_| CertificateError::ForeignKey)?;
        Ok(Self {
            key: Arc::new(key),
            span,
            by,
        })
    }

    /// From PEM.
    ///
    /// # Errors
    /// As [`Leaf::new`], or there is no certificate or key.
    pub fn given(certificates: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let chain = authorities(certificates);
        let first = chain.first().ok_or(CertificateError::Pem("tls.crt"))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(first)
            .map_err(|error| CertificateError::Parse(error.to_string()))?;
        let span = span_of(&parsed);
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::Pem("tls.key"))?;
        Self::new(chain, key, span, None)
    }

    /// Whether a client that trusts `bundle` (PEM) takes it for `name` at `now`: the same check as the API server's.
    pub fn is_trusted(&self, bundle: &[u8], name: &str, now: i64) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities(bundle));
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let (Ok(verifier), Ok(name), Some((leaf, rest))) = (
            verifier,
            ServerName::try_from(name),
            self.key.cert.split_first(),
        ) else {
            return false;
        };
        let since = Duration::from_secs(u64::try_from(now).unwrap_or_default());
        let now = UnixTime::since_unix_epoch(since);
        verifier
            .verify_server_cert(leaf, rest, &name, &[], now)
            .is_ok()
    }
}

/// Certificates of a PEM; what is none is left out.
fn authorities(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).flatten().collect()
}

/// Whether `bundle` holds every certificate of `pem`.
pub fn holds(bundle: &[u8], pem: &str) -> bool {
    let bundle = authorities(bundle);
    let wanted = authorities(pem.as_bytes());
    !wanted.is_empty() && wanted.iter().all(|one| bundle.contains(one))
}

/// The certificate that new connections get; changed while serving.
#[derive(Debug, Default)]
pub struct Served(RwLock<Option<Leaf>>);

impl Served {
    /// From now on this one.
    pub fn set(&self, leaf: Leaf) {
        *self.0.write() = Some(leaf);
    }

    /// The one now.
    pub fn get(&self) -> Option<Leaf> {
        self.0.read().clone()
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().as_ref().map(|leaf| leaf.key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;
    const DAY: Duration = Duration::from_secs(86400);
    const NAME: &str = "webhook.gpu-operator.svc";

    fn ca() -> Authority {
        Authority::generate(NOW, DAY * 30).unwrap()
    }

    fn leaf(ca: &Authority) -> Leaf {
        ca.sign(&[NAME.to_owned()], NOW, DAY).unwrap()
    }

    #[test]
    fn a_bundle_trusts_what_its_authorities_signed() {
        let (old, new) = (ca(), ca());
        let both = format!("{}{}", new.certificate, old.certificate);
        for signer in [&old, &new] {
            assert!(leaf(signer).is_trusted(both.as_bytes(), NAME, NOW));
        }
        let only = new.certificate.as_bytes();
        assert!(!leaf(&old).is_trusted(only, NAME, NOW));
        assert!(!leaf(&new).is_trusted(only, "other.gpu-operator.svc", NOW));
        assert!(!leaf(&new).is_trusted(b"garbage", NAME, NOW));
        // Two hours early, and not a day late.
        assert!(leaf(&new).is_trusted(only, NAME, NOW - 7000));
        assert!(!leaf(&new).is_trusted(only, NAME, NOW + 86401));
    }

    #[test]
    fn an_authority_is_read_as_it_was_written() {
        let ca = ca();
        let read = Authority::parse(&ca.certificate, &ca.key).unwrap();
        assert_eq!(read, ca);
        assert!(leaf(&read).is_trusted(ca.certificate.as_bytes(), NAME, NOW));
        let other = super::tests::ca();
        let foreign = Authority::parse(&ca.certificate, &other.key).unwrap_err();
        assert!(matches!(foreign, CertificateError::ForeignKey));
        assert!(Authority::parse("", &ca.key).is_err());
        assert!(Authority::parse(&ca.certificate, "x").is_err());
    }

    #[test]
    fn a_leaf_ends_with_its_authority() {
        let ca = Authority::generate(NOW, Duration::from_secs(60)).unwrap();
        assert_eq!(
            ca.sign(&[NAME.to_owned()], NOW + 50, DAY)
                .unwrap()
                .span
                .expires,
            NOW + 60
        );
    }

    #[test]
    fn a_bundle_holds_all_or_not() {
        let (one, other) = (ca(), ca());
        let both = format!("{}{}", one.certificate, other.certificate);
        assert!(holds(both.as_bytes(), &one.certificate) && holds(both.as_bytes(), &both));
        assert!(!holds(one.certificate.as_bytes(), &both) && !holds(both.as_bytes(), ""));
    }
}
