//! Certificates that somebody else makes: `tls.crt`, `tls.key` and `ca.crt` of a mounted Secret, as cert-manager writes them.

use std::path::Path;

use super::{CertificateError, Leaf};

/// What the directory holds. A mounted Secret changes all files at once.
#[derive(Clone, PartialEq, Eq)]
pub struct Given {
    certificates: Vec<u8>,
    key: Vec<u8>,
    /// What the API server is to trust, as PEM.
    pub bundle: String,
}

impl Given {
    /// Reads the directory.
    ///
    /// # Errors
    /// A file is missing or no text.
    pub fn read(directory: &Path) -> Result<Self, CertificateError> {
        let file = |name: &str| {
            let path = directory.join(name);
            std::fs::read(&path).map_err(|source| CertificateError::File {
                path: path.display().to_string(),
                source,
            })
        };
        Ok(Self {
            certificates: file("tls.crt")?,
            key: file("tls.key")?,
            bundle: String::from_utf8(file("ca.crt")?)
                .map_err(|_| CertificateError::Pem("ca.crt"))?,
        })
    }

    /// The certificate to serve with.
    ///
    /// # Errors
    /// Certificate and key do not fit, or are none.
    pub fn leaf(&self) -> Result<Leaf, CertificateError> {
        Leaf::given(&self.certificates, &self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tls.crt"), "x").unwrap();
        let error = Given::read(dir.path()).err().unwrap().to_string();
        assert!(error.contains("tls.key"), "{error}");
        for name in ["tls.key", "ca.crt"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let given = Given::read(dir.path()).unwrap();
        assert!(matches!(
            given.leaf(),
            Err(CertificateError::Pem("tls.crt"))
        ));
    }
}
