//! What became of a request that did not bring what it should, and what that means to the user.
//!
//! Nothing of a server's text is repeated but its code: texts may repeat credentials.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::time::Duration;

use hyper::header::{HeaderMap, RETRY_AFTER};

use crate::StorageError;

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection.
    Unreachable { host: String, why: String },
    /// No connection, as there are too many open files.
    OpenFiles,
    /// A connection that is not trusted.
    Tls { host: String, why: String },
    /// The connection broke.
    Broken(String),
    /// No answer in time.
    TimedOut(Duration),
    /// Another answer than 2xx.
    Status(Status),
    /// Cannot be sent, or the answer cannot be used.
    Unusable(String),
}

/// An answer other than 2xx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    /// Who answered.
    host: String,
    pub(crate) status: u16,
    /// The server's word for it.
    pub(crate) code: Option<String>,
    region: Option<String>,
    retry_after: Option<Duration>,
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at("the store".to_owned(), 0))
    }
}

impl Error for Failure {}

impl Failure {
    pub(crate) fn broken(error: &hyper::Error) -> Self {
        Self::Broken(reason(error))
    }

    pub(super) fn of_status(
        host: &str,
        status: u16,
        headers: &HeaderMap,
        text: &[u8],
    ) -> Self {
        let text = String::from_utf8_lossy(text);
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let code = header("x-ms-error-code").and_then(word);
        let region = header("x-amz-bucket-region").and_then(word);
        let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let seconds = retry_after.and_then(|seconds| seconds.trim().parse::<u16>().ok());
        Self::Status(Status {
            host: host.to_owned(),
            status,
            code: code.or_else(|| element(&text, "Code")),
            region: region.or_else(|| element(&text, "Region")),
            retry_after: seconds.map(|seconds| Duration::from_secs(seconds.into())),
        })
    }

    /// The same of an answer that came by way of a proxy, which may have given it itself.
    pub(super) fn behind(self, proxy: &str) -> Self {
        if !matches!(self, Self::Status(Status { status: 403, code: None, .. })) {
            return self;
        }
        Self::Unusable(format!(
            "the server or the proxy {proxy} before it answered 403; give these credentials the \
             right to read it, or list the server in NO_PROXY"
        ))
    }

    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { why, .. } => !why.contains(UNKNOWN_NAME),
            Self::OpenFiles | Self::Broken(_) | Self::TimedOut(_) => true,
            Self::Status(status) => status.is_throttled() || status.is_of_server(),
            Self::Tls { .. } | Self::Unusable(_) => false,
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let Self::Status(status) = self else { return None };
        status.retry_after
    }

    /// The same of the cloud's own service, which has answered before: credentials are not missing.
    pub(super) fn of_machine(self) -> Self {
        if !matches!(self, Self::Unreachable { .. }) {
            return self;
        }
        Self::Broken("this machine's metadata service does not answer".to_owned())
    }

    /// The error for a request for `place`, up to its byte `end`.
    pub(crate) fn at(&self, place: String, end: u64) -> StorageError {
        match self.clone() {
            Self::Unreachable { host, .. } | Self::Tls { host, .. }
                if is_of_machine(&host) =>
            {
                no_credentials(place, "no credentials found".to_owned())
            }
            Self::Unreachable { host, why } => {
                StorageError::Unreachable { place, host, why }
            }
            Self::OpenFiles => StorageError::OpenFiles { place },
            Self::Tls { host, why } => StorageError::Tls { place, host, why },
            Self::Broken(why) => StorageError::Broken { place, why },
            Self::TimedOut(after) => StorageError::TimedOut { place, after },
            Self::Unusable(why) => StorageError::Refused { place, why },
            Self::Status(status) if is_of_machine(&status.host) => {
                let is_passing = status.is_throttled() || status.is_of_server();
                let Status { status, .. } = status;
                let why = format!("this machine's metadata service answered {status}");
                match is_passing {
                    true => StorageError::Broken { place, why },
                    false => {
                        no_credentials(place, format!("no credentials found: {why}"))
                    }
                }
            }
            Self::Status(status) => status.at(place, end),
        }
    }
}

/// Only where none are given is the machine asked for some.
fn no_credentials(place: String, why: String) -> StorageError {
    StorageError::Denied {
        place,
        why,
        remedy: "set the store's credentials in the environment (such as AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY), or read public data anonymously \
                 (AWS_SKIP_SIGNATURE=true)",
    }
}

impl Status {
    fn is(&self, codes: &[&str]) -> bool {
        self.code.as_deref().is_some_and(|code| codes.contains(&code))
    }

    fn is_throttled(&self) -> bool {
        // Services that the store asks say it with their names in front and a status of 400, as
        // `KMS.ThrottlingException` does.
        let ends = ["ThrottlingException", "RateExceededException"];
        let is_of_service = |code: &str| ends.iter().any(|end| code.ends_with(end));
        self.status == 429
            || self.status == 503
            || self.is(&THROTTLED)
            || self.code.as_deref().is_some_and(is_of_service)
    }

    fn is_of_server(&self) -> bool {
        self.status >= 500 || self.status == 408 || self.is(&PASSING)
    }

    /// The status and the server's word for it.
    fn words(&self) -> String {
        match &self.code {
            Some(code) => format!("the server answered {} {code}", self.status),
            None => format!("the server answered {}", self.status),
        }
    }

    fn at(&self, place: String, end: u64) -> StorageError {
        let is_elsewhere = self.is(&WRONG_REGION)
            || matches!(self.status, 301 | 307 | 308 | 400)
                && self.code.is_none()
                && self.region.is_some();
        if is_elsewhere {
            return StorageError::WrongRegion { place, region: self.region.clone() };
        }
        if self.is(&NO_BUCKET) {
            return StorageError::NoBucket { place };
        }
        if self.is(&EXPIRED) {
            return StorageError::Expired { place };
        }
        if self.is_throttled() {
            return StorageError::Throttled { place, retry_after: self.retry_after };
        }
        let why = self.words();
        if self.is_of_server() {
            return StorageError::Broken { place, why };
        }
        let denied = |remedy| StorageError::Denied {
            place: place.clone(),
            why: why.clone(),
            remedy,
        };
        if self.is(&WRONG_CLOCK) {
            return denied("set this machine's clock");
        }
        if self.is(&WRONG_KEYS) || self.status == 401 {
            return denied("check the access key, its secret and the endpoint");
        }
        match self.status {
            403 => denied(TO_READ),
            407 => denied(PROXY_LOGIN),
            // As something before the store does, such as one that wants HTTPS.
            300..400 => {
                let remedy =
                    "it redirects to another address; give that one as the endpoint";
                StorageError::Refused { place, why: format!("{why}: {remedy}") }
            }
            404 => StorageError::NotFound { place },
            412 => StorageError::Changed { place },
            416 => StorageError::TooShort { place, end },
            _ => StorageError::Refused { place, why },
        }
    }
}

/// What helps where credentials are good and their rights are too few.
pub(crate) const TO_READ: &str = "give these credentials the right to read it";
/// What helps where a proxy does not know who asks.
const PROXY_LOGIN: &str =
    "write the proxy's login into HTTP_PROXY as http://USER:PASSWORD@HOST:PORT";
/// What the resolver says of a name that nobody has, and not of a resolver that is out of order.
const UNKNOWN_NAME: &str = "the name is not known";
const WRONG_REGION: [&str; 4] = [
    "PermanentRedirect",
    "TemporaryRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
];
const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "InvalidBucketName", "ContainerNotFound"];
const EXPIRED: [&str; 3] =
    ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"];
const THROTTLED: [&str; 5] =
    ["SlowDown", "ServerBusy", "Throttling", "RequestLimitExceeded", "TooManyRequests"];
/// What S3 says with a status of 400 or 409 of what it takes a moment later.
const PASSING: [&str; 2] = ["RequestTimeout", "OperationAborted"];
const WRONG_CLOCK: [&str; 1] = ["RequestTimeTooSkewed"];
const WRONG_KEYS: [&str; 8] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "InvalidClientTokenId",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
    "NoAuthenticationInformation",
    "InvalidSecurity",
];

/// Whether only a cloud's own virtual machines can ask this host.
pub(crate) fn is_of_machine(host: &str) -> bool {
    let machines = [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "metadata.google.internal",
        "metadata",
        // In tests, as nobody can listen at the others.
        #[cfg(test)]
        "127.0.0.169",
    ];
    machines.iter().any(|machine| {
        let port = host.strip_prefix(machine);
        port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
    })
}

/// What is between `<name>` and `</name>`, if it is a word.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    word(rest.split_once("</")?.0)
}

/// A server's word, if it may be repeated.
fn word(text: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_word = !text.is_empty() && text.len() <= 64 && text.bytes().all(is_plain);
    is_word.then(|| text.to_owned())
}

/// Why the system could not connect.
pub(super) fn no_connection(host: String, error: &io::Error) -> Failure {
    if is_open_files(error) {
        return Failure::OpenFiles;
    }
    let text = error.to_string();
    // What `getaddrinfo` says has no kind of its own.
    let is_unknown = ["Name or service not known", "No address associated", "not known"]
        .iter()
        .any(|words| text.contains(words));
    let why = if is_unknown { UNKNOWN_NAME.to_owned() } else { text };
    Failure::Unreachable { host, why }
}

/// Whether this process, or this machine, has as many files open as it may: no server can be blamed for that.
pub(crate) fn is_open_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Why a connection ended, by what lies at the bottom of hyper's error.
fn reason(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return "the connection was closed".to_owned();
    }
    let below = error.source().and_then(|below| below.downcast_ref::<io::Error>());
    below.map_or_else(|| error.to_string(), |below| below.kind().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, code: &str) -> StorageError {
        let text =
            format!("<Error><Code>{code}</Code><Region>eu-west-1</Region></Error>");
        let text =
            if code == "PermanentRedirect" { text } else { text.replace("Region", "R") };
        let headers = HeaderMap::new();
        let failure = Failure::of_status("b", status, &headers, text.as_bytes());
        failure.at("s3://b/a".to_owned(), 9)
    }

    #[test]
    fn every_answer_has_its_remedy() {
        for (status, code, words) in [
            (404, "NoSuchBucket", "there is no bucket for `s3://b/a`; check its name"),
            (404, "NoSuchKey", "there is no `s3://b/a`; is the location right"),
            (
                403,
                "InvalidAccessKeyId",
                "InvalidAccessKeyId); check the access key, its secret",
            ),
            (403, "SignatureDoesNotMatch", "check the access key, its secret"),
            (403, "AccessDenied", "AccessDenied); give these credentials the right"),
            (403, "RequestTimeTooSkewed", "set this machine's clock"),
            (400, "ExpiredToken", "have expired; get new ones"),
            (301, "PermanentRedirect", "is in region eu-west-1; set the region"),
            (
                503,
                "SlowDown",
                "limits requests for `s3://b/a`; try again later, or lower",
            ),
            (500, "InternalError", "broke off (the server answered 500 InternalError)"),
            (400, "KMS.ThrottlingException", "limits requests for `s3://b/a`; try"),
            (400, "KMS.RequestRateExceededException", "limits requests for `s3://b/a`"),
            (400, "RequestTimeout", "broke off (the server answered 400 RequestTimeout)"),
            (409, "OperationAborted", "broke off (the server answered 409 Operation"),
            (412, "PreconditionFailed", "`s3://b/a` changed while"),
            (416, "InvalidRange", "ends before byte 9"),
            (400, "Odd", "cannot read `s3://b/a`: the server answered 400 Odd"),
            (400, "secret text & more", "the server answered 400"),
        ] {
            let error = answered(status, code).to_string();
            assert!(error.contains(words), "{error}");
            assert!(!error.contains("secret text"), "{error}");
        }
    }

    #[test]
    fn what_the_machine_says_is_not_said_of_the_store() {
        for status in [401, 403, 404] {
            let headers = HeaderMap::new();
            let failure = Failure::of_status("169.254.169.254", status, &headers, b"");
            let error = failure.at("s3://b/a".to_owned(), 9).to_string();
            let words = format!(
                "no credentials found: this machine's metadata service answered {status}"
            );
            assert!(
                error.contains(&words) && error.contains("AWS_SKIP_SIGNATURE"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_clouds_own_address_is_told_from_others() {
        assert!(is_of_machine("169.254.169.254") && is_of_machine("metadata:80"));
        assert!(!is_of_machine("metadata-store:9000") && !is_of_machine("metadata2"));
        assert!(!is_of_machine("metadata.example.org") && !is_of_machine("example.org"));
    }
}
