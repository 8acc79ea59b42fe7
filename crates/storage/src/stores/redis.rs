//! Redis or Valkey: keys are objects.
//!
//! Such a server keeps neither a version nor a time of a value, so an object is recognised by its length alone:
//! a value that another one of the same length replaces is not noticed.

mod failures;
mod values;

pub(crate) use values::is_value;

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Debug, Formatter};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, StreamExt};
use redis::{Cmd, RedisError, cmd, pipe};

use crate::address::{percent_decoded, without_login};
use crate::fetcher::destination::{self, Borrowed};
use crate::objects::{arrivals, is_plain};
use crate::retry::{WITHIN, WITHIN_LISTING, retried, retried_within};
use crate::{Arrivals, Identity, Listed, Objects, Put, StorageError};
use failures::in_cluster;
use values::{Expected, Failed, Got, LONGEST_LINE, Number, Security, Trust, Values};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// A connection that is silent for longer is replaced, early enough to ask once more before the run ends.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// Keys that the server looks at for one part of a listing.
const SCAN_COUNT: u32 = 1000;
/// Keys that a server is asked for to find out whether it has them all: with nine tenths of a cluster's, it would
/// have all of these once in a thousand times.
const N_PROBES: u32 = 64;
/// What a server says of its cluster: some twenty lines.
const LONGEST_INFO: usize = 16 << 10;
/// The longest part of a listing that is read: keys that name files have at most 4,095 bytes each.
const LONGEST_SCAN: usize = 8 << 20;

/// The keys of a database that start with a prefix.
pub(crate) struct Redis {
    values: Values,
    /// Without login.
    url: String,
    host: String,
    prefix: String,
}

/// Without the connections, which hold the password.
impl Debug for Redis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redis").field(&self.shown("")).finish()
    }
}

impl Redis {
    pub(crate) fn new(
        url: &str,
        variables: &BTreeMap<String, String>,
        ca_file: Option<PathBuf>,
    ) -> Result<Self, StorageError> {
        let wrong = |why: &str| StorageError::Address {
            text: without_login(url),
            why: why.to_owned(),
        };
        let (bare, query) = url.split_once('?').unwrap_or((url, ""));
        let prefix = match query.split_once('=') {
            Some(("prefix", prefix)) if !prefix.contains('&') => prefix,
            None if query.is_empty() => "",
            _ => {
                return Err(wrong(
                    "has an option that is not known; `?prefix=` is the only one",
                ));
            }
        };
        if prefix.contains('#') {
            return Err(wrong("has a `#` in its prefix; write it as %23"));
        }
        let prefix = percent_decoded(prefix)
            .ok_or_else(|| wrong("has a prefix that is not text"))?;
        let (scheme, rest) = bare.split_once("://").unwrap_or((bare, ""));
        let security = match scheme.to_ascii_lowercase().as_str() {
            "rediss" | "valkeys" => Security::Tls(Trust::of(ca_file)),
            _ => Security::Plain,
        };
        // The crate reads addresses for TLS only where it is to connect itself.
        let bare = format!("redis://{rest}");
        let unusable = |_: RedisError| {
            wrong(
                "is not the address of a Redis server; write it as redis://host:port/0?prefix=train/, \
                 or rediss:// for TLS",
            )
        };
        let info: redis::ConnectionInfo = bare.parse().map_err(unusable)?;
        if bare.contains('#') {
            return Err(wrong("has a `#`: there are no options after it"));
        }
        let host = info.addr().to_string();
        let mut settings = info.redis_settings().clone();
        if let (None, Some(password)) =
            (settings.password(), variables.get("REDISCLI_AUTH"))
        {
            settings = settings.set_password(password);
        }
        let info = info.set_redis_settings(settings);
        let over_tcp = || wrong("is not reached over TCP");
        let values = Values::of(&info, security).ok_or_else(over_tcp)?;
        let url = without_login(url);
        Ok(Self { values, url, host, prefix })
    }

    /// The numbers that a server answers to as many commands with.
    async fn numbers(
        &self,
        request: &[u8],
        n_commands: usize,
        place: &str,
    ) -> Result<Vec<u64>, StorageError> {
        let asked = async {
            let most = n_commands.saturating_mul(LONGEST_LINE);
            let mut replies = self.values.ask(request, most).await?;
            let mut numbers = Vec::with_capacity(n_commands);
            for _ in 0..n_commands {
                numbers.push(replies.number().await?);
            }
            self.values.end(replies)?;
            Ok::<_, Failed>(numbers)
        };
        asked.await.map_err(|failed| self.failed(place, &failed))
    }

    async fn number(&self, command: &Cmd, place: &str) -> Result<u64, StorageError> {
        let numbers = self.numbers(&command.get_packed_command(), 1, place).await?;
        Ok(numbers.into_iter().sum())
    }

    /// Where a listing goes on, and keys. Keys that are not text name no file.
    async fn keys(
        &self,
        scan: &[u8],
        place: &str,
    ) -> Result<(String, Vec<String>), StorageError> {
        let asked = async {
            let mut replies = self.values.ask(scan, LONGEST_SCAN).await?;
            replies.pair().await?;
            let cursor = replies.text().await?;
            let n_keys = replies.count().await?;
            let mut keys = Vec::new();
            for _ in 0..n_keys {
                keys.extend(String::from_utf8(replies.text().await?));
            }
            self.values.end(replies)?;
            let cursor = String::from_utf8_lossy(&cursor).into_owned();
            Ok::<_, Failed>((cursor, keys))
        };
        asked.await.map_err(|failed| self.failed(place, &failed))
    }

    fn key(&self, object: &str) -> String {
        [&self.prefix, object].concat()
    }

    /// The value's bytes, and whether more follow where `expected` says that none do.
    async fn one(
        &self,
        object: &str,
        range: Range<u64>,
        expected: Option<&Identity>,
    ) -> Result<Bytes, StorageError> {
        // Put together only where it is told: that is seldom.
        let place = || self.shown(object);
        if !is_plain(object) {
            return Err(StorageError::NotFound { place: place() });
        }
        let too_short = || StorageError::TooShort { place: place(), end: range.end };
        if range.is_empty() {
            let is_wrong = range.start > range.end;
            return if is_wrong { Err(too_short()) } else { Ok(Bytes::new()) };
        }
        // No value is that long, and the server counts no further.
        if i64::try_from(range.end).is_err() {
            return Err(too_short());
        }
        let (bytes, len) = match self.value(object, &range, expected).await {
            Err(refused @ StorageError::Refused { .. }) if is_all(&range, expected) => {
                // In memory of its own, as below: room for what seldom happens would be copied with each request.
                let why = Box::pin(self.why_refused(object, expected, refused));
                return Err(why.await);
            }
            got => match got? {
                Got::InPlace => return Ok(Bytes::new()),
                Got::Value(bytes, len) => (bytes, len),
            },
        };
        let wanted = range.end - range.start;
        let got = bytes.len() as u64;
        if got >= wanted && len.is_none_or(|len| expected.is_none_or(|e| e.len == len)) {
            let more = got > wanted;
            let changed = || StorageError::Changed { place: place() };
            return if more { Err(changed()) } else { Ok(bytes) };
        }
        let now = Box::pin(self.length(object)).await?;
        match expected {
            Some(expected) if expected.len != now.len => {
                Err(StorageError::Changed { place: place() })
            }
            _ => Err(too_short()),
        }
    }

    /// Why the answer to `GET` is not a value of the expected length: there may be another value now, or none.
    async fn why_refused(
        &self,
        object: &str,
        expected: Option<&Identity>,
        refused: StorageError,
    ) -> StorageError {
        match self.length(object).await {
            Ok(now) if expected.is_some_and(|expected| expected.len != now.len) => {
                StorageError::Changed { place: self.shown(object) }
            }
            Err(missing @ StorageError::NotFound { .. }) => missing,
            Ok(_) | Err(_) => refused,
        }
    }

    /// The bytes in `range`, which may be in the fetch's destination; with them the value's length, where the bytes do
    /// not show whether it is the expected one. A whole value is asked for as such, as a server copies a range of it (8 to 10 µs of its CPU time for
    /// 110 kB, docs/measured.md). Up to the expected end, one more byte is asked for, which must not come.
    async fn value(
        &self,
        object: &str,
        range: &Range<u64>,
        expected: Option<&Identity>,
    ) -> Result<Got, StorageError> {
        let key = self.key(object);
        let is_to_end = expected.is_some_and(|expected| expected.len == range.end);
        let last = if is_to_end { range.end } else { range.end - 1 };
        let mut destination = None;
        let mut request = if is_all(range, expected) {
            destination = destination::borrowed(range.end);
            cmd("GET").arg(&key).get_packed_command()
        } else {
            let mut part = cmd("GETRANGE");
            part.arg(&key).arg(range.start).arg(last).get_packed_command()
        };
        let mut number = Number::None;
        if !is_to_end && expected.is_some() {
            request.extend(cmd("STRLEN").arg(&key).get_packed_command());
            number = Number::Follows;
        }
        let most = (last - range.start).saturating_add(1);
        let memory = destination.as_mut().map(Borrowed::bytes);
        let got = self.values.get(&request, Expected { most, number }, memory).await;
        let got = got.map_err(|failed| self.failed(&self.shown(object), &failed))?;
        if let (Got::InPlace, Some(destination)) = (&got, destination) {
            destination.filled();
        }
        Ok(got)
    }

    async fn length(&self, object: &str) -> Result<Identity, StorageError> {
        let (key, place) = (self.key(object), self.shown(object));
        let len = self.number(cmd("STRLEN").arg(&key), &place).await?;
        if len == 0 && self.number(cmd("EXISTS").arg(&key), &place).await? == 0 {
            return Err(StorageError::NotFound { place });
        }
        Ok(Identity { len, modified: None, etag: None })
    }

    /// A node of a cluster lists its own keys alone: a part of the data set, and nobody would notice. A server that does
    /// not say whether it is one, as its user may not ask, shows it by keys that it has not: of random ones with the
    /// prefix, a node has only its share, and whoever lists may ask for lengths.
    async fn refuse_part_of_cluster(&self, prefix: &str) -> Result<(), StorageError> {
        let place = self.shown(prefix);
        match retried(&place, || self.n_nodes(&place)).await? {
            Some(0 | 1) => return Ok(()),
            Some(_) => return Err(StorageError::Refused { place, why: in_cluster() }),
            None => {}
        }
        let random = RandomState::new();
        let start = self.key(prefix);
        let keys = (0..N_PROBES).map(|n| format!("{start}{:016x}", random.hash_one(n)));
        let keys: Vec<_> = keys.collect();
        match retried(&place, || self.lengths(&keys, &place)).await {
            Err(StorageError::Denied { place, .. }) => Err(StorageError::Denied {
                place,
                why: "the server does not say whether it is part of a cluster".to_owned(),
                remedy: "allow the user CLUSTER INFO (ACL SETUSER with +cluster|info)",
            }),
            asked => asked.map(drop),
        }
    }

    /// How many nodes with keys the server's cluster has; nothing where it does not say.
    async fn n_nodes(&self, place: &str) -> Result<Option<u64>, StorageError> {
        let request = cmd("CLUSTER").arg("INFO").get_packed_command();
        let asked = async {
            let mut replies = self.values.ask(&request, LONGEST_INFO).await?;
            let info = replies.text().await?;
            self.values.end(replies)?;
            Ok::<_, Failed>(info)
        };
        let failed = match asked.await {
            Ok(info) => return Ok(n_nodes(&info)),
            Err(failed) => failed,
        };
        // Most servers are in no cluster, and say so by an error.
        if matches!(&failed, Failed::ToAnswer(error) if is_no_cluster(error)) {
            return Ok(Some(1));
        }
        let error = self.failed(place, &failed);
        if error.is_transient() { Err(error) } else { Ok(None) }
    }

    /// One step of a listing: keys that were not seen, with the lengths of those that are strings.
    async fn scan(
        &self,
        scan: &mut Scan,
        prefix: &str,
    ) -> Result<Vec<Listed>, StorageError> {
        let place = self.shown(prefix);
        let pattern = format!("{}*", escaped(&self.key(prefix)));
        let mut command = cmd("SCAN");
        command.arg(&scan.cursor).arg("MATCH").arg(pattern);
        command.arg("COUNT").arg(SCAN_COUNT).arg("TYPE").arg("string");
        let request = command.get_packed_command();
        let attempt = || self.keys(&request, &place);
        let time = if scan.is_first() { WITHIN } else { WITHIN_LISTING };
        let (cursor, keys) = retried_within(time, &place, attempt).await?;
        scan.is_done = cursor == "0";
        scan.cursor = cursor;
        let keys: Vec<String> = keys.into_iter().filter(|key| scan.is_new(key)).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let attempt = || self.lengths(&keys, &place);
        let lens = retried_within(time, &place, attempt).await?;
        let listed = keys.iter().zip(lens).filter_map(|(key, len)| {
            let name = key.strip_prefix(&self.prefix)?.to_owned();
            let identity = Identity { len, modified: None, etag: None };
            is_plain(&name).then(|| Listed::new(name, identity))
        });
        Ok(listed.collect())
    }

    async fn lengths(
        &self,
        keys: &[String],
        place: &str,
    ) -> Result<Vec<u64>, StorageError> {
        let mut lengths = pipe();
        for key in keys {
            lengths.cmd("STRLEN").arg(key);
        }
        self.numbers(&lengths.get_packed_pipeline(), keys.len(), place).await
    }
}

/// A server that changes its table's size may name a key twice, so hashes of all keys are kept: 16 bytes each.
struct Scan {
    cursor: String,
    is_done: bool,
    seen: HashSet<(u64, u64)>,
    hashers: [RandomState; 2],
}

impl Scan {
    fn is_first(&self) -> bool {
        self.cursor == "0"
    }

    fn is_new(&mut self, key: &str) -> bool {
        let [one, other] = &self.hashers;
        self.seen.insert((one.hash_one(key), other.hash_one(key)))
    }
}

impl Objects for Redis {
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
        let hashers = [RandomState::new(), RandomState::new()];
        let (cursor, seen) = ("0".to_owned(), HashSet::new());
        let scan = Scan { cursor, is_done: false, seen, hashers };
        let found = stream::unfold(Some(scan), move |scan| async move {
            let mut scan = scan.filter(|scan| !scan.is_done)?;
            let is_first = scan.is_first();
            let listed = match self.scan(&mut scan, prefix).await {
                // After it, so that a server that is not there is waited for once.
                Ok(listed) if is_first => {
                    self.refuse_part_of_cluster(prefix).await.map(|()| listed)
                }
                listed => listed,
            };
            Some(match listed {
                Ok(listed) => {
                    let listed = listed.into_iter().map(Ok).collect::<Vec<_>>();
                    (stream::iter(listed), Some(scan))
                }
                Err(error) => (stream::iter(vec![Err(error)]), None),
            })
        });
        found.flatten().boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        let identified = async move {
            let place = self.shown(object);
            if !is_plain(object) {
                return Err(StorageError::NotFound { place });
            }
            retried(&place, || self.length(object)).await
        };
        identified.boxed()
    }

    fn receives_in_place(&self) -> bool {
        true
    }

    fn shown(&self, object: &str) -> String {
        format!("{} key {}{object}", self.url, self.prefix)
    }
}

impl Put for Redis {
    fn prepare(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        future::ready(Ok(())).boxed()
    }

    fn put<'a>(
        &'a self,
        object: &'a str,
        bytes: Bytes,
        _: Option<u32>,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        let put = async move {
            let place = self.shown(object);
            if !is_plain(object) {
                return Err(StorageError::NotFound { place });
            }
            let mut set = cmd("SET");
            set.arg(self.key(object)).arg(&bytes[..]);
            let asked = async {
                let request = set.get_packed_command();
                let mut replies = self.values.ask(&request, LONGEST_LINE).await?;
                replies.confirmation().await?;
                self.values.end(replies)
            };
            asked.await.map_err(|failed| self.failed(&place, &failed))
        };
        put.boxed()
    }
}

/// Whether the range is the whole of the expected value.
fn is_all(range: &Range<u64>, expected: Option<&Identity>) -> bool {
    range.start == 0 && expected.is_some_and(|expected| expected.len == range.end)
}

/// How many nodes have keys, as `CLUSTER INFO` says.
fn n_nodes(info: &[u8]) -> Option<u64> {
    let info = String::from_utf8_lossy(info);
    let size = info.lines().find_map(|line| line.strip_prefix("cluster_size:"));
    size.and_then(|size| size.trim().parse().ok())
}

/// Whether a server that is asked for its cluster says that it is in none, or knows none.
fn is_no_cluster(error: &RedisError) -> bool {
    let text = error.detail().unwrap_or_default().to_ascii_lowercase();
    let words = ["cluster support disabled", "cluster is disabled", "unknown command"];
    error.code() == Some("ERR") && words.iter().any(|words| text.contains(words))
}

/// A pattern that matches the text itself.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if "*?[]\\^-".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}
