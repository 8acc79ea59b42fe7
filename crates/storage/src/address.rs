//! The text of a URL: its scheme, and how it may be shown.

/// Scheme and the rest, where the text is a URL. Paths may have colons.
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (!scheme.is_empty() && scheme.bytes().all(is_scheme)).then_some((scheme, rest))
}

/// A URL as it may be shown: without a login and a query.
pub(crate) fn without_login(url: &str) -> String {
    let (start, rest) = match split_scheme(url) {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let rest = if has_container(&start, rest) { rest } else { &rest[login_len(rest)..] };
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    // What is no port may be a password whose end is missing.
    let shown = if has_port(rest) { rest } else { rest.split(':').next().unwrap_or("") };
    format!("{start}{shown}")
}

/// Whether an `@` there is between a container of Azure and its account. A colon is one of a password.
fn has_container(start: &str, rest: &str) -> bool {
    let is_azure = ["az://", "azure://", "abfs://", "abfss://"]
        .iter()
        .any(|azure| start.eq_ignore_ascii_case(azure));
    is_azure && !rest.contains(':')
}

/// The prefix that the query of a URL names, if that is all that it names.
pub(crate) fn prefix(url: &str) -> Option<&str> {
    let (_, rest) = split_scheme(url)?;
    let (place, query) = rest[login_len(rest)..].split_once('?')?;
    let prefix = query.strip_prefix("prefix=")?;
    (has_port(place) && !query.contains('&')).then_some(prefix)
}

/// How much of what follows a scheme is a login, with its `@`. A password may hold a slash, a `?` or a `#`, so
/// that where these stand does not tell where it ends: in doubt, more is taken for it.
pub(crate) fn login_len(rest: &str) -> usize {
    // Names may hold an `@`; a prefix is one where an address comes before it.
    let head = rest.split_once("?prefix=").map(|(head, _)| head);
    let head = head.filter(|head| has_port(&head[login_within(head)..]));
    login_within(head.unwrap_or(rest))
}

fn login_within(text: &str) -> usize {
    let Some(at) = text.rfind('@') else { return 0 };
    // A path may hold an `@`; what comes before it has a colon only behind a login, or behind a port.
    let is_login = text[..at].contains(':') || !text[..at].contains('/');
    if is_login { at + 1 } else { 0 }
}

/// Whether what follows a host is nothing or a port.
pub(crate) fn has_port(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let after_ip = authority.rsplit_once(']').map_or(authority, |(_, port)| port);
    let port = after_ip.split_once(':').map_or("", |(_, port)| port);
    port.is_empty() || port.parse::<u16>().is_ok()
}

/// Text in which `%` and two digits stand for a byte.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            decoded.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}
