//! Whether settings can be part of a request: signing one with others panics.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::Uri;

use crate::StorageError;
use crate::address::{has_port, without_login};

/// What a setting has to be.
struct Rule {
    holds: fn(&str) -> bool,
    /// What is wrong where it does not hold, and what is expected.
    why: &'static str,
}

const ENDPOINT: Rule = Rule {
    holds: is_endpoint,
    why: "is not an endpoint; write it as http://host:port or https://host, without a login",
};
const REGION: Rule =
    Rule { holds: is_region, why: "is not a region; write it as eu-west-1" };
const PLAIN: Rule = Rule {
    holds: is_plain,
    why: "has a line break or another character that no request can carry; set it again",
};

pub(super) fn endpoint(text: &str) -> Result<(), StorageError> {
    ENDPOINT.check(text, without_login(text))
}

pub(super) fn region(text: &str) -> Result<(), StorageError> {
    REGION.check(text, "the region that was given".to_owned())
}

/// Whether these can be used, by variables' names in lower case. No value is told: it may be a credential.
pub(super) fn settings(settings: &BTreeMap<String, String>) -> Result<(), StorageError> {
    for (name, value) in settings {
        let rule = match &**name {
            "aws_endpoint"
            | "aws_endpoint_url"
            | "aws_endpoint_url_s3"
            | "aws_endpoint_url_sts"
            | "aws_metadata_endpoint" => ENDPOINT,
            "aws_region" | "aws_default_region" => REGION,
            // The name of a file may have all letters, and a key of Google's is JSON.
            name if name.ends_with("_file") || name.starts_with("google_") => continue,
            _ => PLAIN,
        };
        rule.check(value, name.to_ascii_uppercase())?;
    }
    Ok(())
}

impl Rule {
    /// `shown` is what a message calls the text.
    fn check(&self, text: &str, shown: String) -> Result<(), StorageError> {
        match (self.holds)(text) {
            true => Ok(()),
            false => Err(StorageError::Address { text: shown, why: self.why.to_owned() }),
        }
    }
}

/// Whether a header of a request may have it.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fn is_region(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_of_name)
}

fn is_endpoint(text: &str) -> bool {
    let rest =
        ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let Some(rest) = rest.filter(|rest| !rest.contains(['@', '?', '#'])) else {
        return false;
    };
    let uri = text.parse::<Uri>().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    has_port(rest) && is_host(host)
}

fn is_host(host: &str) -> bool {
    if let Some(ip) = host.strip_prefix('[') {
        return ip.strip_suffix(']').is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok());
    }
    // A host that ends in a number is an IP address for whoever signs the request.
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_ip = last.bytes().all(|byte| byte.is_ascii_digit());
    match is_ip {
        true => host.parse::<Ipv4Addr>().is_ok(),
        false => host.bytes().all(is_of_name),
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}
