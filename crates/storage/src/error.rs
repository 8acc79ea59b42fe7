//! What can go wrong with a location: each case names the place and the remedy, and no credential.
//!
//! Read `objects.rs` next.

use std::time::Duration;

/// What can go wrong with a location or an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A URL or an option that means nothing.
    #[error("`{text}` {why}")]
    Address {
        /// What was given, without credentials.
        text: String,
        /// What is wrong with it and what is expected.
        why: String,
    },
    /// There is no such bucket or container.
    #[error(
        "there is no bucket for `{place}`; check its name, the endpoint and the region"
    )]
    NoBucket {
        /// The object or location.
        place: String,
    },
    /// There is no such object.
    #[error("there is no `{place}`; is the location right and the data set complete?")]
    NotFound {
        /// The object or location.
        place: String,
    },
    /// The store did not accept the credentials, or these may not read it.
    #[error("may not access `{place}` ({why}); {remedy}")]
    Denied {
        /// The object or location.
        place: String,
        /// The store's code for it.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The bucket is in another region.
    #[error("`{place}` is in {}; set the region (AWS_REGION)", region.as_ref().map_or_else(
        || "another region".to_owned(), |region| format!("region {region}")))]
    WrongRegion {
        /// The object or location.
        place: String,
        /// Where it is, if the store says.
        region: Option<String>,
    },
    /// A token that was valid is so no longer.
    #[error("the credentials for `{place}` have expired; get new ones and start again")]
    Expired {
        /// The object or location.
        place: String,
    },
    /// No connection.
    #[error(
        "cannot reach {host} for `{place}` ({why}); check the address, the network and that the server runs"
    )]
    Unreachable {
        /// The object or location.
        place: String,
        /// Name and port.
        host: String,
        /// What the system said.
        why: String,
    },
    /// No connection, as this process has as many files open as it may.
    #[error(
        "no connection for `{place}`: this process may not open more files; raise the limit on open files (ulimit -n), or lower the number of requests in flight"
    )]
    OpenFiles {
        /// The object or location.
        place: String,
    },
    /// No trusted connection.
    #[error(
        "no trusted TLS connection with {host} for `{place}` ({why}); check the address, or give the server's CA certificate (SSL_CERT_FILE)"
    )]
    Tls {
        /// The object or location.
        place: String,
        /// Name and port.
        host: String,
        /// What is wrong with the certificate or the handshake.
        why: String,
    },
    /// The store asks for fewer requests.
    #[error(
        "the store limits requests for `{place}`; try again later, or lower the number of requests in flight"
    )]
    Throttled {
        /// The object or location.
        place: String,
        /// How long the store asks to wait.
        retry_after: Option<Duration>,
    },
    /// Another object has the name now.
    #[error("`{place}` changed while it was being read; restore it or start again")]
    Changed {
        /// The object.
        place: String,
    },
    /// The object ends before the range does.
    #[error(
        "`{place}` ends before byte {end}; it changed or is cut short: restore it or start again"
    )]
    TooShort {
        /// The object.
        place: String,
        /// The range's end.
        end: u64,
    },
    /// The connection broke, or the store failed, while it was answering.
    #[error("reading `{place}` broke off ({why}); check the server and the network")]
    Broken {
        /// The object or location.
        place: String,
        /// What happened.
        why: String,
    },
    /// No answer in time.
    #[error("no answer for `{place}` within {} s; check the server and the network", after.as_secs_f64())]
    TimedOut {
        /// The object or location.
        place: String,
        /// How long was waited.
        after: Duration,
    },
    /// The answer means nothing to us, or the request nothing to the store.
    #[error("cannot read `{place}`: {why}")]
    Refused {
        /// The object or location.
        place: String,
        /// What was wrong, and what to do.
        why: String,
    },
    /// A process was forked from the one that started the fetcher.
    #[error(
        "remote data were opened before this process was forked; open them in the process that reads them"
    )]
    Forked,
}

impl StorageError {
    /// Whether the same request may succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::OpenFiles { .. }
                | Self::Throttled { .. }
                | Self::Broken { .. }
                | Self::TimedOut { .. }
        )
    }

    /// An answer is shorter than what is there: the object is whole, and may be asked for again.
    pub(crate) fn cut_short(place: String) -> Self {
        Self::Broken { place, why: "fewer bytes than asked for".to_owned() }
    }

    /// The same of a request for bytes up to `end`: an object that had them when it was listed, with this length, is
    /// another one now.
    pub(crate) fn or_changed(self, listed_len: Option<u64>, end: u64) -> Self {
        let was_long_enough = listed_len.is_some_and(|len| end <= len);
        if let (Self::TooShort { place, .. }, true) = (&self, was_long_enough) {
            return Self::Changed { place: place.clone() };
        }
        self
    }

    /// How long the store asks to wait before the next request.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Throttled { retry_after, .. } = self else { return None };
        *retry_after
    }
}
