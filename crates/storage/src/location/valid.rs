//! Whether settings can be part of a request: signing one with others panics.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::Uri;

use crate::StorageError;
use crate::address::{has_port, without_login};

const ENDPOINT: &str =
    "is not an endpoint; write it as http://host:port or https://host, without a login";
const REGION: &str = "is not a region; write it as eu-west-1";

pub(super) fn endpoint(text: &str) -> Result<(), StorageError> {
    wrong_unless(is_endpoint(text), &without_login(text), ENDPOINT)
}

pub(super) fn region(text: &str) -> Result<(), StorageError> {
    wrong_unless(is_region(text), "the region that was given", REGION)
}

/// Whether these can be used, by variables' names in lower case. No value is told: it may be a credential.
pub(super) fn settings(settings: &BTreeMap<String, String>) -> Result<(), StorageError> {
    for (name, value) in settings {
        let variable = name.to_ascii_uppercase();
        match &**name {
            "aws_endpoint"
            | "aws_endpoint_url"
            | "aws_endpoint_url_s3"
            | "aws_endpoint_url_sts"
            | "aws_metadata_endpoint" => {
                wrong_unless(is_endpoint(value), &variable, ENDPOINT)?;
            }
            "aws_region" | "aws_default_region" => {
                wrong_unless(is_region(value), &variable, REGION)?;
            }
            // The name of a file may have all letters.
            name if name.ends_with("_file") => {}
            _ => {
                let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
                let why = "has a line break or another character that no request can carry; \
                           set it again";
                wrong_unless(is_plain, &variable, why)?;
            }
        }
    }
    Ok(())
}

fn wrong_unless(is_right: bool, text: &str, why: &str) -> Result<(), StorageError> {
    let (text, why) = (text.to_owned(), why.to_owned());
    if is_right { Ok(()) } else { Err(StorageError::Address { text, why }) }
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
