//! The text of a URL: its scheme, and how it may be shown.

/// Scheme and the rest, where the text is a URL. Paths may have colons.
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (!scheme.is_empty() && scheme.bytes().all(is_scheme)).then_some((scheme, rest))
}

/// A URL as it may be shown: without a login and a query.
pub(crate) fn without_login(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or(url);
    let Some((scheme, rest)) = split_scheme(url) else { return url.to_owned() };
    // A password may hold slashes; what follows a login never has a colon before its `@`.
    let login = rest
        .rsplit_once('@')
        .filter(|(login, _)| login.contains(':') || !login.contains('/'));
    format!("{scheme}://{}", login.map_or(rest, |(_, rest)| rest))
}
