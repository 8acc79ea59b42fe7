//! Cassandra, ScyllaDB or another database that speaks CQL: the rows of a table are objects.
//!
//! A replica may lag behind the others, or have been down while the table was filled. So lists are those of most
//! replicas; a row is asked of one, and of most where that one does not have what was listed.
//!
//! Which column is what, `cql/layout.rs` says. A row is read as a whole, whichever part of it is asked for; it is
//! recognised by its length and by the time at which its bytes were written. The client is our own, in four files:
//! a driver would bring a second TLS library, and as much code again as all of this crate builds on.

mod cluster;
mod connection;
mod frame;
mod layout;
mod token;

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::OnceCell;

use crate::address::{percent_decoded, split_scheme, without_login};
use crate::client::dial::{Dialer, Spread};
use crate::objects::{Labelled, is_plain};
use crate::retry::{WITHIN, WITHIN_LISTING, retried, retried_within};
use crate::{Arrivals, Identity, Listed, Objects, Put, StorageError};
use cluster::{Cluster, Failure};
use connection::{Access, Trouble};
use frame::Consistency::{self, LocalOne, LocalQuorum};
use frame::{Answer, Failed, Rows, Run};

pub(crate) use frame::n_answers;
use layout::{Key, Label, Layout, Row, number, quoted};

/// The port of CQL.
const PORT: u16 = 9042;
/// Rows of one answer of a listing; fewer where each holds the object's bytes.
const ROWS_OF_PAGE: i32 = 5000;
const WHOLE_ROWS_OF_PAGE: i32 = 16;
/// A page that takes longer is asked for with so many times fewer rows.
const PAGE_WITHIN: Duration = Duration::from_secs(2);
const FEWER: i32 = 8;
/// Rows of a page whose lengths are asked for at the same time, where the rows do not say them.
const LENGTHS_AT_ONCE: usize = 32;

/// The rows of a table.
pub(crate) struct Cql {
    cluster: Cluster,
    /// Without login.
    url: String,
    keyspace: String,
    table: String,
    layout: OnceCell<Layout>,
}

/// Without the cluster, which holds the password.
impl Debug for Cql {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cql").field(&self.url).finish()
    }
}

/// A URL's parts.
struct Address {
    login: Option<(String, String)>,
    hosts: Vec<(String, u16)>,
    keyspace: String,
    table: String,
}

impl Address {
    /// `cql://user:password@host:port,host:port/keyspace/table`.
    fn parse(rest: &str) -> Result<Self, &'static str> {
        let expected = "names no table; write it as cql://host:9042/keyspace/table";
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let no_login = "has an invalid login; write it as cql://user:password@host, with \
                        %XX for special characters, or set CASSANDRA_USERNAME and \
                        CASSANDRA_PASSWORD";
        let login = login.map(|login| {
            let (user, password) = login.split_once(':')?;
            percent_decoded(user).zip(percent_decoded(password))
        });
        let login = login.map(|login| login.ok_or(no_login)).transpose()?;
        if rest.contains(['?', '#']) {
            return Err("has a query, which does not apply to a table");
        }
        let mut parts = rest.trim_end_matches('/').split('/');
        let hosts = parts.next().unwrap_or_default();
        let hosts = hosts.split(',').map(host).collect::<Option<Vec<_>>>();
        let hosts = hosts.ok_or("has an invalid host; write it as host:port")?;
        let name = |part: Option<&str>| {
            let name = percent_decoded(part?)?;
            (!name.is_empty()).then_some(name)
        };
        let names = (name(parts.next()), name(parts.next()), parts.next());
        let (Some(keyspace), Some(table), None) = names else { return Err(expected) };
        Ok(Self { login, hosts, keyspace, table })
    }
}

fn host(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

impl Cql {
    /// The table at a URL that begins with `cql://`, or `cqls://` for TLS.
    pub(crate) fn new(
        url: &str,
        variables: &BTreeMap<String, String>,
        ca_file: Option<&Path>,
    ) -> Result<Self, StorageError> {
        let text = without_login(url);
        let wrong = |why: String| StorageError::Address { text: text.clone(), why };
        let (scheme, rest) = split_scheme(url).unwrap_or(("", url));
        let address = Address::parse(rest).map_err(|why| wrong(why.to_owned()))?;
        let Address { login, hosts, keyspace, table } = address;
        let variable = |name: &str| variables.get(name).cloned();
        let login = login.or_else(|| {
            variable("CASSANDRA_USERNAME").zip(variable("CASSANDRA_PASSWORD"))
        });
        let is_tls =
            matches!(scheme.to_ascii_lowercase().as_str(), "cqls" | "cassandras");
        // Else what cqlsh reads.
        let of_cqlsh = variables.get("SSL_CERTFILE").map(Path::new);
        let ca_file = ca_file.or(of_cqlsh);
        let tls = is_tls.then(|| crate::client::trusted(ca_file));
        let tls =
            tls.transpose().map_err(|why| wrong(format!("cannot be trusted: {why}")))?;
        // A name is one node: all that is known of it is where it lies in the ring.
        let dialer = Arc::new(Dialer::new(Spread::Steady));
        let cluster = Cluster::new(hosts, Access { login, tls, dialer });
        Ok(Self { cluster, url: text, keyspace, table, layout: OnceCell::new() })
    }

    fn table(&self) -> String {
        format!("{}.{}", quoted(&self.keyspace), quoted(&self.table))
    }

    /// What is in the table; asked for once.
    async fn layout(&self, place: &str) -> Result<&Layout, StorageError> {
        let learn = || async {
            let statement = "SELECT column_name, kind, type FROM system_schema.columns \
                             WHERE keyspace_name = ? AND table_name = ?";
            let names = [Some(self.keyspace.as_bytes()), Some(self.table.as_bytes())];
            let run = run(&names, LocalOne);
            let columns = self.cluster.rows(statement, run).await;
            let columns = columns.map_err(|failure| failed(failure, place))?;
            if columns.rows.is_empty() {
                return Err(StorageError::NotFound { place: self.url.clone() });
            }
            Layout::of(&columns)
                .map_err(|why| StorageError::Refused { place: self.url.clone(), why })
        };
        self.layout.get_or_try_init(learn).await
    }

    /// The row of an object that a statement of the layout gives.
    async fn row(
        &self,
        object: &str,
        statement: fn(&Layout, &str) -> String,
        consistency: Consistency,
    ) -> Result<(&Layout, Vec<Option<Bytes>>), StorageError> {
        let place = self.shown(object);
        let not_found = || StorageError::NotFound { place: place.clone() };
        if !is_plain(object) {
            return Err(not_found());
        }
        let layout = self.layout(&place).await?;
        let key = layout.key(object).ok_or_else(not_found)?;
        let statement = statement(layout, &self.table());
        let values = [Some(&key[..])];
        let answer =
            self.cluster.execute(&statement, run(&values, consistency), Some(&key)).await;
        let rows = rows(answer, &place)?;
        let row = rows.rows.into_iter().next().filter(|row| row.len() == 2);
        Ok((layout, row.ok_or_else(not_found)?))
    }

    /// All of an object, and what it is recognised by.
    async fn get(
        &self,
        object: &str,
        consistency: Consistency,
    ) -> Result<(Bytes, Identity), StorageError> {
        let (_, mut row) = self.row(object, Layout::get, consistency).await?;
        let modified = number(row[1].as_ref()).and_then(since_1970);
        // A row without bytes is no object.
        let not_found = || StorageError::NotFound { place: self.shown(object) };
        let bytes = row[0].take().ok_or_else(not_found)?;
        let identity = Identity { len: bytes.len() as u64, modified, etag: None };
        Ok((bytes, identity))
    }

    /// All of an object, if it is still the expected one.
    async fn whole(
        &self,
        object: &str,
        expected: Option<&Identity>,
    ) -> Result<Bytes, StorageError> {
        let other = |now: &Identity| expected.is_some_and(|was| !was.matches(now));
        let mut got = self.get(object, LocalOne).await;
        let is_doubtful = match &got {
            Ok((_, now)) => other(now),
            Err(error) => matches!(error, StorageError::NotFound { .. }),
        };
        if is_doubtful {
            got = self.get(object, LocalQuorum).await;
        }
        match got? {
            (_, now) if other(&now) => {
                Err(StorageError::Changed { place: self.shown(object) })
            }
            (bytes, _) => Ok(bytes),
        }
    }

    async fn identity(&self, object: &str) -> Result<Identity, StorageError> {
        let (layout, row) = self.row(object, Layout::identify, LocalQuorum).await?;
        match layout.len(row[0].as_ref()) {
            Some(len) => {
                let modified = number(row[1].as_ref()).and_then(since_1970);
                Ok(Identity { len, modified, etag: None })
            }
            // Whoever wrote the row left its length out, or its bytes.
            None => self.get(object, LocalQuorum).await.map(|(_, identity)| identity),
        }
    }

    /// Whether a row is there with this length and this label.
    async fn has(
        &self,
        object: &str,
        len: u64,
        label: Option<u32>,
    ) -> Result<bool, StorageError> {
        if self.identity(object).await?.len != len {
            return Ok(false);
        }
        let Some(label) = label else { return Ok(true) };
        if !self.layout(&self.url).await?.has_label() {
            return Ok(true);
        }
        let (_, row) = self.row(object, Layout::labelled, LocalQuorum).await?;
        Ok(number(row[1].as_ref()) == Some(label.into()))
    }

    /// A page of the listing, and where the next one begins. One that takes too long is asked for again with
    /// fewer rows.
    async fn page(
        &self,
        prefix: &str,
        state: Option<&[u8]>,
        fewer: &AtomicI32,
    ) -> Result<(Vec<Row>, Option<Bytes>), StorageError> {
        let layout = self.layout(&self.url).await?;
        let most = if layout.has_size() { ROWS_OF_PAGE } else { WHOLE_ROWS_OF_PAGE };
        // Only this listing has it.
        let n_rows = most.min(fewer.load(Ordering::Relaxed)).max(1);
        let rows = self.rows_of_page(layout, prefix, (n_rows, state));
        if n_rows == 1 {
            return rows.await;
        }
        tokio::time::timeout(PAGE_WITHIN, rows).await.unwrap_or_else(|_| {
            fewer.store(n_rows / FEWER, Ordering::Relaxed);
            Err(StorageError::TimedOut { place: self.url.clone(), after: PAGE_WITHIN })
        })
    }

    async fn rows_of_page(
        &self,
        layout: &Layout,
        prefix: &str,
        page: (i32, Option<&[u8]>),
    ) -> Result<(Vec<Row>, Option<Bytes>), StorageError> {
        let statement = layout.list(&self.table());
        let run = Run { page: Some(page), ..run(&[], LocalQuorum) };
        let answer = self.cluster.execute(&statement, run, None).await;
        let Rows { rows, more } = rows(answer, &self.url)?;
        let rows = rows.iter().filter_map(|cells| layout.row(cells));
        let rows = rows.filter(|row| row.name.starts_with(prefix) && is_plain(&row.name));
        Ok((rows.collect(), more.filter(|more| !more.is_empty())))
    }

    /// A row as an object; nothing of one without bytes.
    async fn listed(&self, row: Row) -> Option<Result<Listed, StorageError>> {
        let modified = row.written.and_then(since_1970);
        let identity = match row.len {
            Some(len) => Ok(Identity { len, modified, etag: None }),
            None => self.identify(&row.name).await,
        };
        if let Err(StorageError::NotFound { .. }) = identity {
            return None;
        }
        let listed = async {
            let (identity, layout) = (identity?, self.layout(&self.url).await?);
            let label = self.label(layout, &row)?;
            Ok(Listed { name: row.name, identity, label })
        };
        Some(listed.await)
    }

    fn label(&self, layout: &Layout, row: &Row) -> Result<Labelled, StorageError> {
        match (layout.label(), layout.key, row.label) {
            // The names are as good as those of files.
            (None, Key::Text, _) => Ok(Labelled::Elsewhere),
            (None | Some(Label::Other), _, _) | (_, _, None) => Ok(Labelled::No),
            (Some(Label::Number(_)), _, Some(label)) => {
                let label = u32::try_from(label);
                label.map(Labelled::As).map_err(|_| StorageError::Refused {
                    place: self.shown(&row.name),
                    why: "its label is negative; labels are whole numbers from 0"
                        .to_owned(),
                })
            }
        }
    }
}

/// What reads are run with.
fn run<'a>(values: &'a [Option<&'a [u8]>], consistency: Consistency) -> Run<'a> {
    Run { values, consistency, page: None }
}

fn rows(answer: Result<Answer, Failure>, place: &str) -> Result<Rows, StorageError> {
    let rows = answer.map_err(|failure| failed(failure, place))?.rows();
    rows.ok_or_else(|| {
        let why = "the answer has no rows".to_owned();
        StorageError::Refused { place: place.to_owned(), why }
    })
}

fn since_1970(microseconds: i64) -> Option<Duration> {
    u64::try_from(microseconds).ok().map(Duration::from_micros)
}

/// What went wrong, for people.
fn failed((trouble, host): Failure, place: &str) -> StorageError {
    let place = place.to_owned();
    match trouble {
        Trouble::Unreachable(why) => StorageError::Unreachable { place, host, why },
        Trouble::OpenFiles => StorageError::OpenFiles { place },
        Trouble::Tls(why) => StorageError::Tls { place, host, why },
        Trouble::Denied(why) => StorageError::Denied {
            place,
            why,
            remedy: "set CASSANDRA_USERNAME and CASSANDRA_PASSWORD, or give both in the URL",
        },
        Trouble::Broken(why) => StorageError::Broken { place, why },
        Trouble::TooLong => {
            let why = "it is longer than the 256 MiB of a request; split it".to_owned();
            StorageError::Refused { place, why }
        }
        Trouble::Refused(failed) => refused(place, &failed),
    }
}

fn refused(place: String, Failed { code, text }: &Failed) -> StorageError {
    let broken =
        |why: &str| StorageError::Broken { place: place.clone(), why: why.into() };
    match code {
        0x0000 => broken("the server has an internal error"),
        0x1000 => broken("too few of its replicas are up"),
        0x1001 => StorageError::Throttled { place, retry_after: None },
        0x1002 => broken("the node is still starting"),
        0x1100 | 0x1200 => broken("its replicas did not answer the server in time"),
        0x1300 | 0x1500 => broken("a replica failed"),
        0x2100 => StorageError::Denied {
            place,
            why: "the server answered Unauthorized".to_owned(),
            remedy: "grant the user SELECT on the table, and MODIFY for an upload",
        },
        _ => {
            let text: String =
                text.lines().next().unwrap_or_default().chars().take(200).collect();
            let why = format!("the server answered {code:#06x}, {text}");
            StorageError::Refused { place, why }
        }
    }
}

impl Objects for Cql {
    fn get_ranges<'a>(
        &'a self,
        object: &'a str,
        ranges: &'a [Range<u64>],
        expected: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        let arrivals = async move {
            let is_empty = |range: &Range<u64>| range.start == range.end;
            let whole = match ranges.iter().all(is_empty) {
                true => Ok(Bytes::new()),
                false => self.whole(object, expected).await,
            };
            let parts = ranges.iter().enumerate().map(move |(idx, range)| {
                let part = match &whole {
                    _ if is_empty(range) => Ok(Bytes::new()),
                    Ok(bytes) => part(bytes, range).ok_or_else(|| {
                        let place = self.shown(object);
                        StorageError::TooShort { place, end: range.end }
                    }),
                    Err(error) => Err(error.clone()),
                };
                (idx, part)
            });
            stream::iter(parts)
        };
        arrivals.flatten_stream().boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxStream<'a, Result<Listed, StorageError>> {
        let fewer = Arc::new(AtomicI32::new(i32::MAX));
        let pages = stream::unfold(Some(None::<Bytes>), move |state| {
            let fewer = Arc::clone(&fewer);
            async move {
                let state = state?;
                let attempt = || self.page(prefix, state.as_deref(), &fewer);
                let time = if state.is_some() { WITHIN_LISTING } else { WITHIN };
                Some(match retried_within(time, &self.url, attempt).await {
                    Ok((rows, more)) => {
                        // Each length that is missing has attempts of its own.
                        let listed = stream::iter(rows).map(|row| self.listed(row));
                        let listed = listed.buffered(LENGTHS_AT_ONCE);
                        (listed.filter_map(future::ready).boxed(), more.map(Some))
                    }
                    Err(error) => (stream::iter([Err(error)]).boxed(), None),
                })
            }
        });
        let all = pages.flatten();
        // After an error the stream ends.
        let until = all.scan(false, |has_failed, one| {
            let next = (!*has_failed).then_some(one);
            *has_failed |= matches!(next, Some(Err(_)));
            future::ready(next)
        });
        until.boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        async move { retried(&self.shown(object), || self.identity(object)).await }
            .boxed()
    }

    fn shown(&self, object: &str) -> String {
        match object {
            "" => self.url.clone(),
            object => format!("{} row {object}", self.url),
        }
    }
}

impl Cql {
    async fn change(
        &self,
        statement: &str,
        values: &[Option<&[u8]>],
        key: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        // What is written outlives a node.
        let answer = self.cluster.execute(statement, run(values, LocalQuorum), key).await;
        answer.map(drop).map_err(|failure| failed(failure, &self.url))
    }

    /// Makes the table, where it is not there.
    async fn make_table(&self) -> Result<(), StorageError> {
        match self.layout(&self.url).await {
            Err(StorageError::NotFound { .. }) => {}
            known => return known.map(drop),
        }
        let statement = format!(
            "CREATE TABLE IF NOT EXISTS {} (name text PRIMARY KEY, label int, size bigint, \
             data blob)",
            self.table()
        );
        let made = self.cluster.make(&statement, run(&[], LocalQuorum)).await;
        made.map_err(|failure| {
            let error = failed(failure, &self.url);
            let StorageError::Refused { place, why } = error else { return error };
            let why = format!(
                "its table cannot be made ({why}); make the keyspace first: CREATE KEYSPACE {} \
                 WITH replication = …",
                self.keyspace
            );
            StorageError::Refused { place, why }
        })?;
        // Until all nodes know of it, they refuse what is written.
        let agreed = self.cluster.agrees().await;
        agreed.map_err(|failure| failed(failure, &self.url))?;
        self.layout(&self.url).await.map(drop)
    }

    async fn write(
        &self,
        object: &str,
        bytes: &Bytes,
        label: Option<u32>,
    ) -> Result<(), StorageError> {
        let place = || self.shown(object);
        let layout = self.layout(&self.url).await?;
        let key = layout.key(object).filter(|_| is_plain(object));
        let key = key.ok_or_else(|| StorageError::NotFound { place: place() })?;
        let more = layout.values(label, bytes.len());
        let more = more.map_err(|why| StorageError::Refused { place: place(), why })?;
        let more = more.iter().map(Option::as_deref);
        let values: Vec<_> =
            [Some(&key[..]), Some(bytes)].into_iter().chain(more).collect();
        let statement = layout.put(&self.table());
        self.change(&statement, &values, Some(&key)).await
    }
}

impl Put for Cql {
    fn prepare(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.make_table().boxed()
    }

    fn named<'a>(
        &'a self,
        wanted: &'a str,
    ) -> BoxFuture<'a, Result<String, StorageError>> {
        let named = async move {
            match self.layout(&self.url).await {
                Ok(layout) => Ok(layout.named(wanted)),
                // It has names of any form when it is made.
                Err(StorageError::NotFound { .. }) => Ok(wanted.to_owned()),
                Err(error) => Err(error),
            }
        };
        named.boxed()
    }

    fn keeps_labels(&self) -> bool {
        true
    }

    fn holds<'a>(
        &'a self,
        object: &'a str,
        len: u64,
        label: Option<u32>,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        let found = async move {
            let place = self.shown(object);
            match retried(&place, || self.has(object, len, label)).await {
                Err(StorageError::NotFound { .. }) => Ok(false),
                found => found,
            }
        };
        found.boxed()
    }

    fn put<'a>(
        &'a self,
        object: &'a str,
        bytes: Bytes,
        label: Option<u32>,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        async move { self.write(object, &bytes, label).await }.boxed()
    }
}

fn part(bytes: &Bytes, range: &Range<u64>) -> Option<Bytes> {
    let start = usize::try_from(range.start).ok()?;
    let end = usize::try_from(range.end).ok()?;
    let part = (start <= end && end <= bytes.len()).then(|| bytes.slice(start..end))?;
    // A small one must not keep the whole row in memory.
    let is_small = part.len() < bytes.len() / 2;
    Some(if is_small { Bytes::copy_from_slice(&part) } else { part })
}
