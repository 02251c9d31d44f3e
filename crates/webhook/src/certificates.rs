//! Certificates: a certificate authority in a Secret that all replicas share, and a leaf in memory for each replica.
//!
//! [`decide`] says what to do, and is pure; [`authority`] and [`leaf`] make and read certificates; [`secret`] is the I/O.

pub mod authority;
pub mod decide;
pub mod files;
pub mod leaf;
pub mod secret;

use std::time::Duration;

pub use authority::Authority;
pub use decide::{Authorities, Plan, Stored};
pub use leaf::{Leaf, Served};

/// How long a certificate is valid before it was made, in seconds: clocks differ, and step.
pub const BACKDATE: i64 = 2 * 60 * 60;

/// How long certificates live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// The certificate authority.
    pub ca: Duration,
    /// A replica's certificate.
    pub leaf: Duration,
    /// How long a published bundle takes to be known everywhere.
    pub settle: Duration,
}

/// The life of a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it was made; it is valid from [`BACKDATE`] before.
    pub issued: i64,
    /// When it ends.
    pub expires: i64,
}

impl Span {
    /// Of a certificate made at `now`.
    pub fn of(now: i64, life: Duration) -> Self {
        let life = i64::try_from(life.as_secs()).unwrap_or(i64::MAX / 4);
        Self {
            issued: now,
            expires: now.saturating_add(life),
        }
    }

    /// Valid by a clock that says `now`.
    pub fn is_valid(&self, now: i64) -> bool {
        now >= self.issued - BACKDATE && now < self.expires
    }

    /// When it is to be renewed: at two thirds of its life.
    pub fn due(&self) -> i64 {
        self.issued + (self.expires - self.issued) / 3 * 2
    }

    /// Whether it is to be renewed.
    pub fn is_due(&self, now: i64) -> bool {
        now >= self.due()
    }
}

/// A certificate cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// No certificate or no key is where one should be.
    #[error("{0} holds no PEM of its kind")]
    Pem(&'static str),
    /// A certificate is not one.
    #[error("the certificate cannot be read: {0}")]
    Parse(String),
    /// A certificate that may not sign others.
    #[error("the certificate is not one of a certificate authority")]
    NotAnAuthority,
    /// Key and certificate are of different pairs.
    #[error("the key does not belong to the certificate")]
    ForeignKey,
    /// The library refuses.
    #[error("a certificate cannot be made")]
    Make(#[from] rcgen::Error),
    /// A key of a kind that TLS does not take.
    #[error("the key cannot be used")]
    Key(#[from] rustls::Error),
    /// A given certificate that no API server would take.
    #[error(
        "the certificate in tls.crt is not valid now for {0} by the authorities in ca.crt: is it expired, for another name, or of another authority?"
    )]
    Untrusted(String),
    /// A file of a given certificate.
    #[error("{path} cannot be read")]
    File {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
