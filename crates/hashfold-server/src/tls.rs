//! Certificates for encrypted connections, read again when their files change.

use crate::config::TlsConfig;
use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

/// The certificates of a server, and those of its clients.
#[derive(Debug)]
pub(crate) struct Certificates {
    config: TlsConfig,
    current: ArcSwap<ServerConfig>,
    /// The times at which the files were changed before they were read.
    changed: Mutex<Vec<SystemTime>>,
    /// The error of the last look at the files.
    error: Mutex<Option<String>>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// The file, what was expected in it and what was found.
    pub(crate) fn read(config: &TlsConfig) -> Result<Certificates, String> {
        let changed = changes(config)?;
        Ok(Certificates {
            current: ArcSwap::new(server_config(config)?),
            changed: Mutex::new(changed),
            error: Mutex::default(),
            config: config.clone(),
        })
    }

    /// Returns what new connections use.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Reads the files again if they have changed. If they cannot be used, new connections use what was
    /// read last. Connections that are open stay.
    pub(crate) fn reload(&self) {
        let error = self.try_to_reload().err();
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Returns why the files that are there now cannot be used.
    pub(crate) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn try_to_reload(&self) -> Result<(), String> {
        let changed = changes(&self.config)?;
        let mut before = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if *before != changed {
            self.current.store(server_config(&self.config)?);
            *before = changed;
        }
        Ok(())
    }
}

/// Returns the times at which the files were changed.
fn changes(config: &TlsConfig) -> Result<Vec<SystemTime>, String> {
    let files = [&config.certificate, &config.key].into_iter().chain(&config.client_ca);
    let changed = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified());
    files.map(|path| changed(path).map_err(|error| wrong(path, &error))).collect()
}

fn wrong(path: &Path, message: &dyn std::fmt::Display) -> String {
    format!("{}: {message}", path.display())
}

fn server_config(config: &TlsConfig) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let certificates = certificates(&config.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&config.key);
    let key = key.map_err(|error| {
        wrong(&config.key, &format!("expected a private key in the PEM format: {error}"))
    })?;
    let clients = client_verifier(config.client_ca.as_deref(), &provider)?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual ciphers")
        .with_client_cert_verifier(clients);
    let served = builder.with_single_cert(certificates, key);
    served.map(Arc::new).map_err(|error| wrong(&config.certificate, &error))
}

/// Returns what checks the certificates of clients: nothing without a file of authorities.
fn client_verifier(
    path: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let Some(path) = path else { return Ok(Arc::new(NoClientAuth)) };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| wrong(path, &error))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    verifier.map_err(|error| wrong(path, &error))
}

/// Returns the certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = read.map_err(|error| {
        wrong(path, &format!("expected certificates in the PEM format: {error}"))
    })?;
    match all.is_empty() {
        true => Err(wrong(path, &"expected certificates in the PEM format, got none")),
        false => Ok(all),
    }
}
