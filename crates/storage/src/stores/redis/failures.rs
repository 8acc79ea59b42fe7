//! What a request to a server failed of, in the words of the user.

use redis::RedisError;

use super::values::Failed;
use super::{ANSWER_WITHIN, CONNECT_WITHIN, Redis};
use crate::StorageError;

impl Redis {
    pub(super) fn failed(&self, place: &str, failed: &Failed) -> StorageError {
        if let Failed::ToConnect(error) | Failed::ToAnswer(error) = failed
            && let Some(why) = refused_by_tls(error)
        {
            let (place, host) = (place.to_owned(), self.host.clone());
            return StorageError::Tls { place, host, why };
        }
        match failed {
            Failed::ToConnect(error) => self.not_connected(place, error),
            Failed::OpenFiles => StorageError::OpenFiles { place: place.to_owned() },
            Failed::Untrusted(why) => StorageError::Tls {
                place: place.to_owned(),
                host: self.host.clone(),
                why: why.clone(),
            },
            Failed::ToAnswer(error) => not_answered(place, error),
            Failed::TooLong { most } => {
                let why = format!(
                    "the server's answer has more than {most} bytes; check that it is a Redis \
                     server and that no key has more than 4095 bytes"
                );
                StorageError::Refused { place: place.to_owned(), why }
            }
        }
    }

    fn not_connected(&self, place: &str, error: &RedisError) -> StorageError {
        if !error.is_io_error() {
            return told(place, error);
        }
        let why = if error.is_timeout() {
            format!("no answer within {} s", CONNECT_WITHIN.as_secs())
        } else if error.is_connection_refusal() {
            "connection refused".to_owned()
        } else {
            "no connection".to_owned()
        };
        StorageError::Unreachable {
            place: place.to_owned(),
            host: self.host.clone(),
            why,
        }
    }
}

/// What a server says of a client that it does not let in, which is only heard once something was asked (RFC 8446, E.1).
fn refused_by_tls(error: &RedisError) -> Option<String> {
    let text = error.is_io_error().then(|| error.to_string())?;
    let (_, alert) = text.split_once("received fatal alert: ")?;
    let why = match alert {
        "CertificateRequired" => {
            "it wants a certificate of the client, which is not supported"
        }
        "HandshakeFailure" | "ProtocolVersion" | "InsufficientSecurity" => {
            "it speaks no TLS that is known here"
        }
        "AccessDenied" => "it refuses the connection",
        // Anything else may be the fault of one connection.
        _ => return None,
    };
    Some(format!("{why}: {alert}"))
}

fn is_broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_unrecoverable_error()
}

fn not_answered(place: &str, error: &RedisError) -> StorageError {
    if !is_broken(error) {
        return told(place, error);
    }
    let why = if error.is_timeout() {
        format!("no answer within {} s", ANSWER_WITHIN.as_secs())
    } else {
        "the connection was closed".to_owned()
    };
    StorageError::Broken { place: place.to_owned(), why }
}

/// What the server says by its code; its text may repeat what it was sent.
fn told(place: &str, error: &RedisError) -> StorageError {
    let place = place.to_owned();
    let Some(code) = error.code() else {
        let why =
            "the answer is not one to this request; check that it is a Redis server";
        let why = why.to_owned();
        return StorageError::Refused { place, why };
    };
    if matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM") {
        return StorageError::Denied {
            place,
            why: format!("the server answered {code}"),
            remedy: "give the password in REDISCLI_AUTH, or user and password in the URL",
        };
    }
    if code == "DENIED" {
        return StorageError::Denied {
            place,
            why: "the server is in protected mode".to_owned(),
            remedy: "set a password for it, or run this on the same machine",
        };
    }
    // As many connections as it admits are open, some of them perhaps ours.
    let is_full =
        error.detail().is_some_and(|text| text.starts_with("max number of clients"));
    match code {
        "ERR" if is_full => StorageError::Throttled { place, retry_after: None },
        // It answers in a moment, or once somebody has looked at it: fewer requests would change nothing.
        "LOADING" | "BUSY" | "TRYAGAIN" | "MASTERDOWN" | "CLUSTERDOWN" => {
            let why = format!("the server answered {code}: it is not ready");
            StorageError::Broken { place, why }
        }
        "WRONGTYPE" => {
            let why =
                "the key does not hold a string; store each object as one".to_owned();
            StorageError::Refused { place, why }
        }
        "MOVED" | "ASK" => StorageError::Refused { place, why: in_cluster() },
        _ => StorageError::Refused { place, why: format!("the server answered {code}") },
    }
}

pub(super) fn in_cluster() -> String {
    "the server is part of a cluster, which is not supported; use one server or a proxy"
        .to_owned()
}
