//! The lab's certificate authority, API server certificate, ServiceAccount key and tokens. All of it is made anew at each start.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::PrivatePkcs8KeyDer;

/// A user of the lab's own, known to the API server by a static token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// The person at the keyboard, helm, kubectl and the tests.
    Admin,
    /// kube-controller-manager, under the name that RBAC's bootstrap policy knows.
    ControllerManager,
    /// kube-scheduler, likewise.
    Scheduler,
    /// kwok.
    Kwok,
    /// `lab-agent`: node agent and gpusim.
    Agent,
}

impl User {
    pub(super) const ALL: [Self; 5] = [
        Self::Admin,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
        Self::Agent,
    ];

    /// Short name: kubeconfig file and context.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Admin => "kubeconfig",
            Self::ControllerManager => "kube-controller-manager.kubeconfig",
            Self::Scheduler => "kube-scheduler.kubeconfig",
            Self::Kwok => "kwok.kubeconfig",
            Self::Agent => "lab-agent.kubeconfig",
        }
    }

    /// User name and group in the API server.
    fn identity(self) -> (&'static str, &'static str) {
        match self {
            Self::Admin => ("lab-admin", "system:masters"),
            Self::ControllerManager => ("system:kube-controller-manager", "system:authenticated"),
            Self::Scheduler => ("system:kube-scheduler", "system:authenticated"),
            Self::Kwok => ("lab-kwok", "system:masters"),
            Self::Agent => ("lab-agent", "system:masters"),
        }
    }
}

/// What was made, by path.
pub(super) struct Pki {
    dir: PathBuf,
}

impl Pki {
    /// Makes everything under `dir`.
    pub(super) fn create(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let pki = Self {
            dir: dir.to_path_buf(),
        };
        pki.certificates()
            .context("the lab's certificates cannot be made")?;
        let signing = KeyPair::generate()?;
        secret(&pki.service_account_key(), &signing.serialize_pem())?;
        std::fs::write(pki.service_account_public_key(), signing.public_key_pem())?;
        let mut table = String::new();
        for user in User::ALL {
            let (name, group) = user.identity();
            let token = random_token()?;
            writeln!(table, "{token},{name},{name},\"{group}\"")?;
            secret(&pki.token_file(user), &token)?;
        }
        secret(&pki.tokens(), &table)?;
        Ok(pki)
    }

    fn certificates(&self) -> anyhow::Result<()> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name
            .push(DnType::CommonName, "tessera-lab");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        std::fs::write(self.ca(), ca.self_signed(&ca_key)?.pem())?;
        let issuer = Issuer::from_params(&ca, &ca_key);

        let key = KeyPair::generate()?;
        let mut server = CertificateParams::new(vec![
            "localhost".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ])?;
        server
            .subject_alt_names
            .push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        server
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        std::fs::write(
            self.server_certificate(),
            server.signed_by(&key, &issuer)?.pem(),
        )?;
        secret(&self.server_key(), &key.serialize_pem())
    }

    /// A certificate for the node agent, by nobody in particular: the API server does not check it.
    pub(super) fn kubelet_tls() -> anyhow::Result<Arc<rustls::ServerConfig>> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["lab-host".to_owned()])?.self_signed(&key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )?;
        Ok(Arc::new(config))
    }

    pub(super) fn ca(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    pub(super) fn server_certificate(&self) -> PathBuf {
        self.dir.join("server.crt")
    }

    pub(super) fn server_key(&self) -> PathBuf {
        self.dir.join("server.key")
    }

    pub(super) fn service_account_key(&self) -> PathBuf {
        self.dir.join("sa.key")
    }

    pub(super) fn service_account_public_key(&self) -> PathBuf {
        self.dir.join("sa.pub")
    }

    /// The API server's static token table.
    pub(super) fn tokens(&self) -> PathBuf {
        self.dir.join("tokens.csv")
    }

    /// The file that holds a user's token.
    pub(super) fn token_file(&self, user: User) -> PathBuf {
        self.dir
            .join(format!("{}.token", user.identity().0.replace(':', "-")))
    }
}

/// 128 bits from the kernel, as hex.
fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut hex = String::with_capacity(32);
    for byte in bytes {
        write!(hex, "{byte:02x}")?;
    }
    Ok(hex)
}

/// Writes a file that only its owner may read.
pub(super) fn secret(path: &Path, content: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(file.write_all(content.as_bytes())?)
}
