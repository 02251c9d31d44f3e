//! A certificate authority: made, read, and signing.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::{BACKDATE, CertificateError, Leaf, Span};

/// A certificate that may sign others, and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// Its life.
    pub span: Span,
}

impl std::fmt::Debug for Authority {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("span", &self.span)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// A new one, valid from `now` (seconds since 1970).
    ///
    /// # Errors
    /// The library refuses.
    pub fn generate(now: i64, life: Duration) -> Result<Self, CertificateError> {
        let span = Span::of(now, life);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        // Old and new authority must not have the same name: a verifier could pick the wrong one.
        let serial = key.subject_public_key_info();
        let tag: String = serial
            .iter()
            .rev()
            .take(4)
            .map(|b| format!("{b:02x}"))
            .collect();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("tessera-webhook-ca-{tag}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        valid(&mut params, span.issued - BACKDATE, span.expires);
        Ok(Self {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
            span,
        })
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none, or the key is another one's.
    pub fn parse(certificate: &str, key: &str) -> Result<Self, CertificateError> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| CertificateError::Pem("the certificate"))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&der)
            .map_err(|error| CertificateError::Parse(error.to_string()))?;
        if !parsed.is_ca() {
            return Err(CertificateError::NotAnAuthority);
        }
        let pair = KeyPair::from_pem(key).map_err(|_| CertificateError::Pem("the key"))?;
        if pair.subject_public_key_info() != parsed.public_key().raw {
            return Err(CertificateError::ForeignKey);
        }
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            span: span_of(&parsed),
        })
    }

    /// A certificate of a server with these names, which ends with this authority at the latest.
    ///
    /// # Errors
    /// The library refuses.
    pub fn sign(
        &self,
        names: &[String],
        now: i64,
        life: Duration,
    ) -> Result<Leaf, CertificateError> {
        let mut span = Span::of(now, life);
        span.expires = span.expires.min(self.span.expires);
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key)?)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        if let Some(name) = names.first() {
            params
                .distinguished_name
                .push(DnType::CommonName, name.as_str());
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        // Not before its authority, whose own beginning verifiers look at too.
        let begins = (span.issued - BACKDATE).max(self.span.issued - BACKDATE);
        valid(&mut params, begins, span.expires);
        let certificate = params.signed_by(&key, &issuer)?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|_| CertificateError::Pem("the new key"))?;
        Leaf::new(
            vec![certificate.der().clone()],
            key,
            span,
            Some(self.clone()),
        )
    }
}

/// The life of a certificate that was made here, or elsewhere.
pub(super) fn span_of(certificate: &x509_parser::certificate::X509Certificate<'_>) -> Span {
    let validity = certificate.validity();
    Span {
        issued: validity.not_before.timestamp().saturating_add(BACKDATE),
        expires: validity.not_after.timestamp(),
    }
}

/// Sets a validity in seconds since 1970.
fn valid(params: &mut CertificateParams, from: i64, until: i64) {
    let time = |seconds: i64| {
        let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        rcgen::date_time_ymd(1970, 1, 1) + since
    };
    params.not_before = time(from);
    params.not_after = time(until);
}
