//! What a URL names: a place with objects, and how to reach it.
//!
//! Read `location/clouds.rs` next, then `stores.rs`.

mod clouds;
mod profile;
mod valid;

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::address::{has_port, login_len, percent_decoded, split_scheme, without_login};
use crate::client::Client;
use crate::client::proxy::Proxies;
use crate::stores::cql::Cql;
use crate::stores::http::Http;
use crate::stores::redis::Redis;
use crate::{Folder, Objects, Put, StorageError};
use clouds::{Bucket, Provider};

/// How to reach a location, besides its URL. Each store's own environment variables count where an
/// option is not given.
#[derive(Clone, Default)]
pub struct Options {
    /// The server's URL, for stores that speak a cloud's language.
    pub endpoint: Option<String>,
    /// The region that the bucket is in.
    pub region: Option<String>,
    /// Certificates in PEM that are trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Requests are not signed: for public data.
    pub anonymous: bool,
    /// The object that names the others, one a line, for servers that cannot list (HTTP). Relative to the
    /// location.
    pub list: Option<String>,
    /// The environment.
    pub variables: BTreeMap<String, String>,
}

impl Options {
    /// The environment of this process, and nothing else given.
    #[must_use]
    pub fn from_environment() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            ..Self::default()
        }
    }

    /// The user's own certificates: AWS_CA_BUNDLE is what the other programs for S3 read.
    fn ca_file(&self) -> Option<PathBuf> {
        let variable = self.variables.get("AWS_CA_BUNDLE").map(PathBuf::from);
        self.ca_file.clone().or(variable)
    }

    /// A client with the user's certificates and proxies.
    fn client(&self) -> Client {
        Client::new(self.ca_file().as_deref(), Proxies::of(&self.variables))
    }

    /// Values of variables that are credentials.
    fn secrets(&self) -> Vec<String> {
        secrets(&self.variables)
    }
}

/// Those of these values that are credentials, by the names of their variables.
fn secrets(variables: &BTreeMap<String, String>) -> Vec<String> {
    let is_secret = |name: &str| {
        let name = name.to_ascii_uppercase();
        let ours = ["AWS_", "GOOGLE_", "AZURE_", "REDIS", "CASSANDRA_"];
        let words = ["SECRET", "TOKEN", "KEY", "SAS", "PASSWORD", "SERVICE_ACCOUNT"];
        ours.iter().any(|ours| name.starts_with(ours))
            && words.iter().any(|word| name.contains(word))
    };
    let secrets = variables.iter().filter(|(name, _)| is_secret(name));
    secrets
        .map(|(_, value)| value.trim().to_owned())
        .filter(|value| value.len() > 3)
        .collect()
}

/// The environment is not shown: it holds credentials.
impl Debug for Options {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("region", &self.region)
            .field("ca_file", &self.ca_file)
            .field("anonymous", &self.anonymous)
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

/// What a URL or a path names.
#[derive(Debug, Clone)]
pub struct Location {
    store: Store,
    options: Options,
}

#[derive(Clone)]
enum Store {
    Local(PathBuf),
    Bucket(Bucket),
    /// The URL without query and fragment, ending in `/`.
    Http(String),
    /// The whole URL, with a password perhaps.
    Redis(String),
    /// The same.
    Cql(String),
}

impl Debug for Store {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Bucket(bucket) => bucket.fmt(f),
            Self::Http(url) | Self::Redis(url) | Self::Cql(url) => {
                write!(f, "{}", without_login(url))
            }
        }
    }
}

impl Location {
    /// A URL (`s3://bucket/prefix`, `gs://`, `az://`, `abfs://container@account/prefix`, `http(s)://`,
    /// `redis(s)://host:port/db?prefix=`, `cql(s)://host:port/keyspace/table`, `file://`) or a path.
    ///
    /// # Errors
    /// [`StorageError::Address`].
    pub fn parse(text: &str, options: &Options) -> Result<Self, StorageError> {
        let wrong = |why: &str| StorageError::Address {
            text: without_login(text),
            why: why.to_owned(),
        };
        let Some((scheme, rest)) = split_scheme(text) else {
            let store = Store::Local(PathBuf::from(text));
            return Ok(Self { store, options: options.clone() });
        };
        let bucket = |provider| {
            Bucket::parse(provider, scheme, rest).map(Store::Bucket).map_err(wrong)
        };
        let store = match &*scheme.to_ascii_lowercase() {
            "file" => {
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                if !path.starts_with('/') {
                    return Err(wrong(
                        "names no folder of this machine; write file:///path",
                    ));
                }
                Store::Local(PathBuf::from(path))
            }
            "s3" | "s3a" => bucket(Provider::S3)?,
            "gs" | "gcs" => bucket(Provider::Google)?,
            "az" | "azure" | "abfs" | "abfss" => bucket(Provider::Azure)?,
            "http" | "https" => {
                if login_len(rest) > 0 {
                    return Err(wrong(
                        "has a login in it, which is not supported; write an `@` of a path as %40",
                    ));
                }
                if !has_port(rest) {
                    return Err(wrong("has a port that is not a number"));
                }
                if rest.contains(['?', '#']) {
                    return Err(wrong(
                        "has a query, which names of objects cannot be added to",
                    ));
                }
                Store::Http(format!("{}/", text.trim_end_matches('/')))
            }
            "redis" | "valkey" | "rediss" | "valkeys" => Store::Redis(text.to_owned()),
            "cql" | "cqls" | "cassandra" | "cassandras" => Store::Cql(text.to_owned()),
            _ => {
                return Err(wrong(
                    "has a scheme that is not known; use s3://, gs://, az://, \
                                  http://, https://, redis://, rediss://, cql:// or a path",
                ));
            }
        };
        Ok(Self { store, options: options.clone() })
    }

    /// The folder or file of this machine, if it is one.
    #[must_use]
    pub fn local(&self) -> Option<&Path> {
        match &self.store {
            Store::Local(path) => Some(path),
            Store::Bucket(_) | Store::Http(_) | Store::Redis(_) | Store::Cql(_) => None,
        }
    }

    /// The location around the object that this one may be, and the object's name in it; `None` where
    /// nothing lies above.
    #[must_use]
    pub fn around(&self) -> Option<(Self, String)> {
        let (store, name) = match &self.store {
            Store::Local(path) => {
                let folder =
                    path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new(".")).to_owned();
                (Store::Local(folder), path.file_name()?.to_str()?.to_owned())
            }
            Store::Bucket(bucket) => {
                let prefix = &*bucket.prefix;
                let (folder, name) = prefix.rsplit_once('/').unwrap_or(("", prefix));
                let above = Bucket { prefix: folder.to_owned(), ..bucket.clone() };
                (Store::Bucket(above), name.to_owned())
            }
            Store::Http(url) => {
                let (scheme, rest) = url.split_once("://")?;
                let (folder, name) = rest.trim_end_matches('/').rsplit_once('/')?;
                // Names of objects are plain text, and encoded for a request.
                let name = percent_decoded(name).filter(|name| !name.contains('/'))?;
                (Store::Http(format!("{scheme}://{folder}/")), name)
            }
            Store::Redis(url) => {
                let (server, prefix) = url.split_once("?prefix=")?;
                let (folder, name) = match prefix.rsplit_once('/') {
                    Some((folder, name)) => (format!("{folder}/"), name),
                    None => (String::new(), prefix),
                };
                let above = Store::Redis(format!("{server}?prefix={folder}"));
                (above, percent_decoded(name).filter(|name| !name.contains('/'))?)
            }
            Store::Cql(_) => return None,
        };
        let options = self.options.clone();
        (!name.is_empty()).then_some((Self { store, options }, name))
    }

    /// Whether something there can say which objects there are.
    pub(crate) fn is_listable(&self) -> bool {
        !matches!(self.store, Store::Http(_)) || self.options.list.is_some()
    }

    /// The objects there. Connects to nothing yet.
    ///
    /// # Errors
    /// [`StorageError::Address`] where options are missing or do not fit together.
    pub fn open(&self) -> Result<Arc<dyn Objects>, StorageError> {
        Ok(match &self.store {
            Store::Local(path) => Arc::new(Folder(path.clone())),
            Store::Bucket(bucket) => Arc::new(bucket.open(&self.options)?),
            Store::Http(url) => {
                let client = self.options.client();
                Arc::new(Http::new(url, client, self.options.list.as_deref())?)
            }
            Store::Redis(url) => Arc::new(self.redis(url)?),
            Store::Cql(url) => Arc::new(self.cql(url)?),
        })
    }
}

impl Location {
    fn redis(&self, url: &str) -> Result<Redis, StorageError> {
        Redis::new(url, &self.options.variables, self.options.ca_file())
    }

    fn cql(&self, url: &str) -> Result<Cql, StorageError> {
        let Options { variables, ca_file, .. } = &self.options;
        Cql::new(url, variables, ca_file.as_deref())
    }

    /// The objects there, to be written, too. Connects to nothing yet.
    ///
    /// # Errors
    /// [`StorageError::Address`]: as [`Self::open`], and where nothing can be written.
    pub fn open_to_write(&self) -> Result<Arc<dyn Put>, StorageError> {
        let refused = |text: String| {
            let why =
                "cannot be uploaded to; use cql://, s3://, gs://, az:// or redis://";
            StorageError::Address { text, why: why.to_owned() }
        };
        Ok(match &self.store {
            Store::Bucket(bucket) => Arc::new(bucket.open(&self.options)?),
            Store::Redis(url) => Arc::new(self.redis(url)?),
            Store::Cql(url) => Arc::new(self.cql(url)?),
            Store::Local(path) => return Err(refused(path.display().to_string())),
            Store::Http(url) => return Err(refused(without_login(url))),
        })
    }
}

impl Bucket {
    fn parse(provider: Provider, scheme: &str, rest: &str) -> Result<Self, &'static str> {
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, account) = match (provider, name.split_once('@')) {
            (Provider::Azure, Some((name, account))) => (name, Some(account.to_owned())),
            (_, Some(_)) => {
                return Err("has a login in it; credentials belong in the environment");
            }
            // Of a password with a slash in it, only a part is here.
            (_, None) if name.contains(':') => {
                return Err("has a login in it; credentials belong in the environment");
            }
            (_, None) => (name, None),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err("names no bucket; write it as scheme://bucket/prefix");
        }
        if prefix.contains(['?', '#']) {
            return Err("has a query; options belong in the environment or flags");
        }
        let prefix = prefix.trim_matches('/').to_owned();
        if !prefix.is_empty() && !crate::objects::is_plain(&prefix) {
            return Err("has an empty part or one of dots in its prefix");
        }
        let (scheme, name) = (scheme.to_owned(), name.to_owned());
        Ok(Self { provider, scheme, name, account, prefix })
    }
}
