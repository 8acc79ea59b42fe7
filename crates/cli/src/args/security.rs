//! The flags that say whom to trust, and how: the same for all commands that reach devices.

use std::path::PathBuf;

use bothends_csd::ConnectOptions;
use bothends_runtime::{RunConfig, TlsFiles};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SecurityArgs {
    /// Key shared by devices and this host (`bothends-agent keygen`), for tcp+noise://
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) key_file: Option<PathBuf>,
    /// For tls://: certificates of the authorities that sign the devices' certificates
    #[arg(long, value_name = "FILE", hide_short_help = true, requires_all = ["tls_cert", "tls_key"])]
    pub(crate) tls_ca: Option<PathBuf>,
    /// For tls://: this host's certificate
    #[arg(long, value_name = "FILE", hide_short_help = true, requires_all = ["tls_ca", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// For tls://: its private key
    #[arg(long, value_name = "FILE", hide_short_help = true, requires_all = ["tls_ca", "tls_cert"])]
    pub(crate) tls_key: Option<PathBuf>,
    /// Let tcp://, which is not encrypted, leave this machine, if the device allows it too
    ///
    /// It still needs a key. Anyone who can read the network can read the images, and anyone who can write
    /// to it can change them.
    #[arg(long, hide_short_help = true)]
    pub(crate) insecure: bool,
}

impl SecurityArgs {
    /// The first of these that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let Self { key_file, tls_ca, tls_cert, tls_key, insecure } = self;
        let given = [
            ("--key-file", key_file.is_some()),
            ("--tls-ca", tls_ca.is_some()),
            ("--tls-cert", tls_cert.is_some()),
            ("--tls-key", tls_key.is_some()),
            ("--insecure", *insecure),
        ];
        given.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }

    /// The configuration with what these say.
    pub(crate) fn applied(&self, config: RunConfig) -> RunConfig {
        let ConnectOptions { key_file, tls, insecure, .. } = self.options();
        RunConfig { key_file, tls, insecure, ..config }
    }

    /// How a device is reached with what these say.
    pub(crate) fn options(&self) -> ConnectOptions {
        let Self { key_file, tls_ca, tls_cert, tls_key, insecure } = self.clone();
        // Where one is given, the parser has seen all three.
        let tls = TlsFiles::of(tls_ca, tls_cert, tls_key).ok().flatten();
        let insecure = insecure.into();
        ConnectOptions { key_file, tls, insecure, ..ConnectOptions::default() }
    }
}
