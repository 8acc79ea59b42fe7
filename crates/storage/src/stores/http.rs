//! A plain server for HTTP that serves ranges of files. It cannot list: a file names the others.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, TryFutureExt};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use http_body_util::Full;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap,
    HeaderName, IF_MATCH, LAST_MODIFIED, RANGE,
};
use hyper::{Method, Request, StatusCode, Uri};

use crate::address::without_login;
use crate::client::failure::Failure;
use crate::client::{Client, Whole};
use crate::fetcher::destination::Received;
use crate::objects::{DEPTH, arrivals, is_plain, unquoted};
use crate::retry::retried;
use crate::{Arrivals, Identity, Listed, Objects, StorageError, objects};

/// Bytes of a list that are read at once; its longest line.
const LIST_WINDOW: u64 = 256 << 10;

/// Files below a URL.
#[derive(Debug)]
pub(crate) struct Http {
    client: Client,
    /// Ends in `/`.
    base: String,
    list: Option<String>,
}

impl Http {
    pub(crate) fn new(
        base: &str,
        client: Client,
        list: Option<&str>,
    ) -> Result<Self, StorageError> {
        let is_url = base.parse::<Uri>().is_ok_and(|uri| uri.host().is_some());
        if !is_url {
            let why = "is not a URL; write it as http://host:port/folder, special characters \
                       as %20";
            return Err(StorageError::Address {
                text: without_login(base),
                why: why.to_owned(),
            });
        }
        let list = list.map(str::to_owned);
        Ok(Self { client, base: base.to_owned(), list })
    }

    fn request(
        &self,
        method: Method,
        object: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<Whole, StorageError> {
        if !is_plain(object) {
            return Err(StorageError::NotFound { place: self.shown(object) });
        }
        let uri = format!("{}{}", self.base, percent_encoded(object));
        let mut request = Request::builder().method(method).uri(uri);
        // A range of a compressed answer is another one.
        request = request.header(ACCEPT_ENCODING, "identity");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let why = "it has a name that cannot be requested; rename it".to_owned();
        let unusable = |_| StorageError::Refused { place: self.shown(object), why };
        request.body(Full::default()).map_err(unusable)
    }

    fn error(&self, failure: &Failure, object: &str, end: u64) -> StorageError {
        let place = self.shown(object);
        let Failure::Status(status) = failure else { return failure.at(place, end) };
        if (300..400).contains(&status.status) {
            let why = "the server redirects to another address; give that one".to_owned();
            return StorageError::Refused { place, why };
        }
        failure.at(place, end)
    }

    async fn one(
        &self,
        object: &str,
        range: Range<u64>,
        expected: Option<&Identity>,
    ) -> Result<Bytes, StorageError> {
        let place = || self.shown(object);
        let too_short = || StorageError::TooShort { place: place(), end: range.end };
        if range.is_empty() {
            let is_wrong = range.start > range.end;
            return if is_wrong { Err(too_short()) } else { Ok(Bytes::new()) };
        }
        let mut headers =
            vec![(RANGE, format!("bytes={}-{}", range.start, range.end - 1))];
        let etag = expected.and_then(|expected| expected.etag.as_deref());
        if let Some(etag) = etag.filter(|etag| !etag.starts_with("W/")) {
            headers.push((IF_MATCH, format!("\"{etag}\"")));
        }
        let request = self.request(Method::GET, object, &headers)?;
        let failed = |failure: Failure| {
            self.error(&failure, object, range.end)
                .or_changed(expected.map(|it| it.len), range.end)
        };
        let answer = self.client.once(&request).await.map_err(failed)?;
        self.check_plain(answer.headers(), object)?;
        let now = identity(answer.headers());
        let (Some(now), true) = (now, serves(&answer, &range)) else {
            let why = "the server does not serve ranges of a file; use one that does"
                .to_owned();
            return Err(StorageError::Refused { place: place(), why });
        };
        if expected.is_some_and(|expected| !expected.matches(&now)) {
            return Err(StorageError::Changed { place: place() });
        }
        if now.len < range.end {
            return Err(too_short());
        }
        let most = usize::try_from(range.end - range.start).map_err(|_| too_short())?;
        let mut body = answer.into_body();
        let mut received = Received::of(most);
        while let Some(part) = body.part().await.map_err(failed)? {
            received.add(&part).map_err(|wrong| wrong.at(place()))?;
        }
        received.whole().map_err(|wrong| wrong.at(place()))
    }

    /// Some servers compress though nobody has asked for it; lengths and ranges are then those of other bytes. Others
    /// say so of files that are compressed.
    fn check_plain(&self, headers: &HeaderMap, object: &str) -> Result<(), StorageError> {
        match text(headers, &CONTENT_ENCODING) {
            None | Some("" | "identity") => Ok(()),
            Some(_) if [".gz", ".tgz", ".zst"].iter().any(|end| object.ends_with(end)) => Ok(()),
            Some(_) => Err(StorageError::Refused {
                place: self.shown(object),
                why: "the server compresses it (Content-Encoding); switch that off for these files"
                    .to_owned(),
            }),
        }
    }

    async fn head(&self, object: &str) -> Result<Identity, StorageError> {
        let failed = |failure: Failure| self.error(&failure, object, 0);
        let request = self.request(Method::HEAD, object, &[])?;
        let answer = self.client.again(&request).await.map_err(failed)?;
        self.check_plain(answer.headers(), object)?;
        let no_length = || StorageError::Refused {
            place: self.shown(object),
            why: "the server does not say how long it is; use one that does".to_owned(),
        };
        identity(answer.headers()).ok_or_else(no_length)
    }

    /// The list's lines, window by window.
    fn lines<'a>(
        &'a self,
        list: &'a str,
    ) -> BoxStream<'a, Result<Vec<String>, StorageError>> {
        let start = async move {
            let identity = self.head(list).await?;
            Ok(Lines { list, identity, at: 0, rest: Vec::new() })
        };
        let lines = start.map_ok_or_else(
            |error| stream::iter([Err(error)]).boxed(),
            move |lines| {
                stream::try_unfold(lines, move |mut lines| async move {
                    let window = self.window(&mut lines).await?;
                    Ok(window.map(|window| (window, lines)))
                })
                .boxed()
            },
        );
        lines.flatten_stream().boxed()
    }

    async fn window(
        &self,
        lines: &mut Lines<'_>,
    ) -> Result<Option<Vec<String>>, StorageError> {
        let len = lines.identity.len;
        if lines.at >= len {
            return Ok(None);
        }
        let end = len.min(lines.at + LIST_WINDOW);
        let place = self.shown(lines.list);
        let identity = &lines.identity;
        let range = lines.at..end;
        let attempt = || self.one(lines.list, range.clone(), Some(identity));
        let bytes = retried(&place, attempt).await?;
        lines.rest.extend_from_slice(&bytes);
        lines.at = end;
        let whole = match lines.rest.iter().rposition(|&byte| byte == b'\n') {
            _ if end == len => lines.rest.len(),
            Some(at) => at + 1,
            None if lines.rest.len() as u64 > LIST_WINDOW => {
                let why =
                    "a line of the list is too long; write one name per line".to_owned();
                return Err(StorageError::Refused { place, why });
            }
            None => 0,
        };
        let rest = lines.rest.split_off(whole);
        let text = String::from_utf8(std::mem::replace(&mut lines.rest, rest));
        let why = || "the list is not UTF-8; write one name per line".to_owned();
        let text = text.map_err(|_| StorageError::Refused { place, why: why() })?;
        Ok(Some(text.lines().map(str::to_owned).collect()))
    }

    /// A line is a name, or a name, a tab and its length.
    async fn listed(&self, line: String) -> Result<Listed, StorageError> {
        if let Some((name, len)) = line.split_once('\t') {
            let len = len.trim().parse().map_err(|_| StorageError::Refused {
                place: self.shown(self.list.as_deref().unwrap_or_default()),
                why: format!("what follows the tab after `{name}` is not a length"),
            })?;
            let identity = Identity { len, modified: None, etag: None };
            return Ok(Listed::new(name.to_owned(), identity));
        }
        let identity = self.head(&line).await?;
        Ok(Listed::new(line, identity))
    }
}

/// How far a list has been read.
struct Lines<'a> {
    list: &'a str,
    identity: Identity,
    at: u64,
    /// The start of a line whose end has not come.
    rest: Vec<u8>,
}

impl Objects for Http {
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        arrivals(ranges, move |range| self.one(object, range, expected))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxStream<'a, Result<Listed, StorageError>> {
        let Some(list) = &self.list else {
            let why = "a server for HTTP cannot list its files; give the URL of a list (`.jsonl`) \
                       or of a single shard (such as `.tar`)";
            let place = self.shown("");
            let refused = StorageError::Refused { place, why: why.to_owned() };
            return stream::iter([Err(refused)]).boxed();
        };
        let lines = self.lines(list).map_ok(move |lines| {
            let names =
                lines.into_iter().map(|line| line.trim_end_matches('\r').to_owned());
            let ours =
                names.filter(move |name| !name.is_empty() && name.starts_with(prefix));
            stream::iter(ours.map(Ok::<_, StorageError>))
        });
        let listed = lines.try_flatten().map_ok(|line| self.listed(line));
        listed.try_buffer_unordered(DEPTH).boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        self.head(object).boxed()
    }

    fn receives_in_place(&self) -> bool {
        true
    }

    fn shown(&self, object: &str) -> String {
        format!("{}{object}", self.base)
    }
}

/// Whether the answer has the range, or the whole file is what was asked for.
fn serves<B>(answer: &hyper::Response<B>, range: &Range<u64>) -> bool {
    let headers = answer.headers();
    if answer.status() == StatusCode::PARTIAL_CONTENT {
        let start = text(headers, &CONTENT_RANGE).and_then(|range| {
            range.strip_prefix("bytes ")?.split_once('-')?.0.parse::<u64>().ok()
        });
        return start == Some(range.start);
    }
    let len = identity(headers).map(|identity| identity.len);
    range.start == 0 && len == Some(range.end)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// What the headers of an answer say of the whole file.
fn identity(headers: &HeaderMap) -> Option<Identity> {
    let total = text(headers, &CONTENT_RANGE).map(|range| range.rsplit_once('/'));
    let len = match total {
        Some(total) => total?.1.parse().ok()?,
        None => text(headers, &CONTENT_LENGTH)?.trim().parse().ok()?,
    };
    let etag = text(headers, &ETAG).map(|etag| Arc::from(unquoted(etag)));
    let modified = text(headers, &LAST_MODIFIED).and_then(since_1970);
    Some(Identity { len, modified, etag })
}

/// A time as HTTP writes it, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn since_1970(text: &str) -> Option<Duration> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let mut parts = text.split_once(", ")?.1.split(' ');
    let day = parts.next()?.parse().ok()?;
    let name = parts.next().filter(|name| name.len() == 3)?;
    let month = MONTHS.find(name).filter(|at| at % 3 == 0)? as u64 / 3 + 1;
    let year = parts.next()?.parse().ok()?;
    let mut clock = parts.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let clock = (clock.next()??, clock.next()??, clock.next()??);
    objects::since_1970((year, month, day), clock)
}

/// The name as a path of a URL has it.
fn percent_encoded(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_http_writes_them() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
        ] {
            assert_eq!(since_1970(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for bad in
            ["", "Sun, 06 Nov", "x, 99 Nov 1994 08:49:37 GMT", "x, 06 ovD 1994 0:0:0 GMT"]
        {
            assert_eq!(since_1970(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_are_encoded_for_a_url() {
        assert_eq!(percent_encoded("a b/\u{e4}?#%.jpg"), "a%20b/%C3%A4%3F%23%25.jpg");
    }
}
