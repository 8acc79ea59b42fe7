//! Pools: where the addresses of devices that come and go are listed, as `--csd` and `csds` take it.
//!
//! The grammar is one for all entry points:
//!
//! ```text
//! pool://MEMBER[,MEMBER]...             these members
//! pool+file:///PATH                     a file with one MEMBER in each line
//! pool+dns://HOST:PORT                  all addresses of a name, at this port
//! pool+registry://AGENT[,AGENT]...      agents that announce themselves to these
//! ```
//!
//! each followed by options, if any: `?via=SCHEME&max=N`. A *MEMBER* is an address, or `HOST:PORT`, which is
//! reached as `via` says (`tcp`, `tcp+noise` or `tls`). Nothing here opens a file, asks a resolver or
//! connects; `runtime/src/devices/sources.rs` does.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::CsdError;
use crate::words::address::Address;

/// What is said where a text begins like a pool and is none.
const EXPECTED: &str = "expected pool://HOST:PORT[,HOST:PORT], pool+file:///PATH, pool+dns://HOST:PORT or \
                        pool+registry://HOST:PORT[,HOST:PORT], optionally followed by \
                        ?via=SCHEME&max=N";

/// Members of a pool at most; a list that names more is wrong.
pub const MOST_MEMBERS: usize = 65_536;

/// Registries of a pool at most: each host asks them all, and each agent tells them all.
pub const MOST_REGISTRIES: usize = 16;

/// Members that one host has attached at most where nobody says how many.
pub const DEFAULT_MOST_ATTACHED: u32 = 64;

/// The most that can be asked for with `max`.
const MOST_ATTACHED: u32 = 1024;

/// The longest address of a member, in bytes.
pub const MOST_ADDRESS_BYTES: usize = 1024;

/// A pool, as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// As given, for messages and results.
    pub text: String,
    /// Where its members are listed.
    pub source: PoolSource,
    /// How a member without a scheme is reached.
    pub via: Via,
    /// Members that are attached at most.
    pub max: u32,
}

/// Where the members of a pool are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolSource {
    /// In the text itself.
    Listed(Vec<Address>),
    /// In a file.
    File(PathBuf),
    /// By a resolver: all addresses of a name.
    Dns {
        /// The name.
        host: String,
        /// The port of every member.
        port: u16,
    },
    /// By these agents, to which members announce themselves.
    Registries(Vec<Address>),
}

/// How a member is reached whose address says only host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Via {
    /// TCP in the clear.
    #[default]
    Tcp,
    /// TCP encrypted with the shared key.
    Noise,
    /// TCP encrypted with certificates.
    Tls,
}

impl Via {
    const ALL: [(&'static str, Self); 3] =
        [("tcp", Self::Tcp), ("tcp+noise", Self::Noise), ("tls", Self::Tls)];

    /// The address of a member at this host and port; IPv6 without its brackets.
    #[must_use]
    pub fn address(self, host: String, port: u16) -> Address {
        match self {
            Self::Tcp => Address::Tcp { host, port },
            Self::Noise => Address::Noise { host, port },
            Self::Tls => Address::Tls { host, port },
        }
    }

    /// The address that a member is listed by.
    ///
    /// # Errors
    /// [`CsdError::Address`].
    pub fn member(self, text: &str) -> Result<Address, CsdError> {
        let wrong =
            |why: &str| CsdError::Address { address: fitted(text), why: why.to_owned() };
        if text.len() > MOST_ADDRESS_BYTES {
            return Err(wrong("an address has at most 1024 bytes"));
        }
        if text.contains("://") {
            return text.parse();
        }
        let whole = format!("{}://{text}", self.name());
        whole
            .parse()
            .map_err(|_| wrong("expected HOST:PORT, or an address with a scheme"))
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, via)| *via == self).map_or("tcp", |(name, _)| name)
    }
}

/// The beginning of a text that may be long.
fn fitted(text: &str) -> String {
    text.chars().take(80).collect()
}

impl Pool {
    /// Whether a text is to be read as a pool.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| scheme == "pool" || scheme.starts_with("pool+"))
    }

    /// Reads the list that a file holds: one member in each line. Empty lines, and what follows a `#`, say
    /// nothing. A member that is listed twice is one.
    ///
    /// # Errors
    /// The line that is no address, by its number.
    pub fn members(&self, text: &str) -> Result<Vec<Address>, String> {
        let mut all = Members::default();
        for (line, number) in text.lines().zip(1..) {
            let member = line.split('#').next().unwrap_or_default().trim();
            if member.is_empty() {
                continue;
            }
            let address =
                self.via.member(member).map_err(|e| format!("line {number}: {e}"))?;
            all.add(address)?;
        }
        Ok(all.in_order)
    }
}

/// Distinct members in the order of their list.
#[derive(Debug, Default)]
struct Members {
    in_order: Vec<Address>,
    seen: BTreeSet<String>,
}

impl Members {
    fn add(&mut self, address: Address) -> Result<(), String> {
        if !self.seen.insert(address.to_string()) {
            return Ok(());
        }
        if self.in_order.len() == MOST_MEMBERS {
            return Err(format!("a pool has at most {MOST_MEMBERS} members"));
        }
        self.in_order.push(address);
        Ok(())
    }
}

impl FromStr for Pool {
    type Err = CsdError;

    fn from_str(text: &str) -> Result<Self, CsdError> {
        let wrong = |why: String| CsdError::Address { address: fitted(text), why };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong(EXPECTED.to_owned()));
        };
        let (list, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (via, max) = read_options(options).map_err(wrong)?;
        let source = match scheme {
            "pool" => PoolSource::Listed(listed(list, via).map_err(wrong)?),
            "pool+file" if list.starts_with('/') && list.len() > 1 => {
                PoolSource::File(PathBuf::from(list))
            }
            "pool+file" => {
                let why = "expected pool+file:///PATH with an absolute path";
                return Err(wrong(why.to_owned()));
            }
            "pool+dns" => {
                let address = via.member(list).ok().filter(|_| !list.contains("://"));
                let named = address.as_ref().and_then(Address::host_and_port);
                let (host, port) = named
                    .ok_or_else(|| wrong("expected pool+dns://HOST:PORT".to_owned()))?;
                PoolSource::Dns { host: host.to_owned(), port }
            }
            "pool+registry" => {
                PoolSource::Registries(registries(list, via).map_err(wrong)?)
            }
            _ => return Err(wrong(EXPECTED.to_owned())),
        };
        let max = max.unwrap_or(DEFAULT_MOST_ATTACHED);
        Ok(Self { text: text.to_owned(), source, via, max })
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The members of a text that names them.
fn listed(list: &str, via: Via) -> Result<Vec<Address>, String> {
    let mut all = Members::default();
    for member in list.split(',') {
        if member.is_empty() {
            return Err(
                "a member is missing between commas, or the list is empty".to_owned()
            );
        }
        all.add(via.member(member).map_err(|e| e.to_string())?)?;
    }
    Ok(all.in_order)
}

/// The agents of a text that names those that list the members.
fn registries(list: &str, via: Via) -> Result<Vec<Address>, String> {
    let all = listed(list, via)?;
    if all.len() > MOST_REGISTRIES {
        return Err(format!("a pool has at most {MOST_REGISTRIES} registries"));
    }
    for registry in &all {
        let what = match registry {
            Address::Spool(_) => "spool:// is a directory",
            Address::Nvme(_) | Address::Drive(_) => "NVMe is a drive",
            Address::Tcp { .. }
            | Address::Noise { .. }
            | Address::Tls { .. }
            | Address::Unix(_) => continue,
        };
        return Err(format!("a registry is an agent with a socket, and {what}"));
    }
    Ok(all)
}

/// How bare members are reached, and how many are attached at most.
fn read_options(options: &str) -> Result<(Via, Option<u32>), String> {
    let (mut via, mut max) = (Via::default(), None);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match key {
            "via" => {
                let named = Via::ALL.iter().find(|(name, _)| *name == value);
                via = named.map(|(_, via)| *via).ok_or_else(|| {
                    format!("`via={value}`: the schemes are tcp, tcp+noise and tls")
                })?;
            }
            "max" => {
                let n = value.parse().ok().filter(|n| (1..=MOST_ATTACHED).contains(n));
                max = Some(n.ok_or_else(|| {
                    format!("`max={value}`: give a number from 1 to {MOST_ATTACHED}")
                })?);
            }
            _ => {
                return Err(format!(
                    "`{key}` is not an option; the options are via and max"
                ));
            }
        }
    }
    Ok((via, max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(text: &str) -> Pool {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn addresses(list: &[&str]) -> Vec<Address> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn every_kind_of_source_is_read() {
        let two = addresses(&["tcp://a:1", "tls://b:2"]);
        assert_eq!(pool("pool://a:1,tls://b:2,a:1").source, PoolSource::Listed(two));
        let secure = addresses(&["tcp+noise://a:1", "unix:///run/b"]);
        let text = "pool://a:1,unix:///run/b?via=tcp+noise&max=3";
        let read = pool(text);
        assert_eq!((read.source, read.via), (PoolSource::Listed(secure), Via::Noise));
        assert_eq!((read.max, read.text.as_str()), (3, text));
        let file = PoolSource::File("/etc/agents".into());
        assert_eq!(pool("pool+file:///etc/agents?via=tls").source, file);
        let dns = PoolSource::Dns { host: "agents.svc".to_owned(), port: 7070 };
        assert_eq!(pool("pool+dns://agents.svc:7070").source, dns);
        let secure = addresses(&["tls://r:1", "tls://[::1]:2"]);
        let listed = PoolSource::Listed(secure.clone());
        assert_eq!(pool("pool://r:1,[::1]:2?via=tls").source, listed);
        let text = "pool+registry://r:1,tls://[::1]:2?via=tls";
        assert_eq!(pool(text).source, PoolSource::Registries(secure));
        assert_eq!(pool("pool://a:1").max, DEFAULT_MOST_ATTACHED);
    }

    #[test]
    fn a_wrong_pool_says_what_is_wrong() {
        for (text, part) in [
            ("pool://", "the list is empty"),
            ("pool://a:1,,b:1", "a member is missing"),
            ("pool://a", "expected HOST:PORT"),
            ("pool://sim:newport", "expected HOST:PORT"),
            ("pool://http://a:1", "expected tcp+noise://"),
            ("pool+file://relative", "an absolute path"),
            ("pool+file:///", "an absolute path"),
            ("pool+dns://agents", "expected pool+dns://HOST:PORT"),
            ("pool+dns://tls://a:1", "expected pool+dns://HOST:PORT"),
            ("pool+registry://", "the list is empty"),
            ("pool+registry://spool:///dir", "spool:// is a directory"),
            ("pool+registry://nvme-tcp://a:1", "NVMe is a drive"),
            ("pool+etcd://a:1", "expected pool://HOST:PORT"),
            ("pool://a:1?via=ssh", "tcp, tcp+noise and tls"),
            ("pool://a:1?max=0", "from 1 to 1024"),
            ("pool://a:1?max=9999", "from 1 to 1024"),
            ("pool://a:1?most=3", "`most` is not an option"),
        ] {
            assert!(Pool::is_meant(text));
            let error = text.parse::<Pool>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(!Pool::is_meant("tcp://a:1") && !Pool::is_meant("pool"));
    }

    #[test]
    fn a_list_may_have_comments_and_names_the_line_that_is_wrong() {
        let read = pool("pool+file:///list?via=tls");
        let text = "# ours\n a:1 # the first\n\ntcp://b:2\r\na:1\n";
        let expected = addresses(&["tls://a:1", "tcp://b:2"]);
        assert_eq!(read.members(text).unwrap(), expected);
        assert_eq!(read.members("").unwrap(), []);
        let error = read.members("a:1\nb\n").unwrap_err();
        assert!(error.starts_with("line 2: ") && error.contains("HOST:PORT"), "{error}");
        let long = format!("a:1\n{}:1\n", "x".repeat(2000));
        assert!(read.members(&long).unwrap_err().contains("at most 1024 bytes"));
    }

    #[test]
    fn a_pool_has_few_registries() {
        let text = |n: usize| {
            let all: Vec<_> = (1..=n).map(|port| format!("a:{port}")).collect();
            format!("pool+registry://{}", all.join(","))
        };
        pool(&text(MOST_REGISTRIES));
        let error = text(MOST_REGISTRIES + 1).parse::<Pool>().unwrap_err().to_string();
        assert!(error.contains("at most 16 registries"), "{error}");
    }

    #[test]
    fn a_list_of_too_many_members_is_refused() {
        let read = pool("pool+file:///list");
        let lines =
            |n: usize| (1..=n).map(|port| format!("a{port}:1\n")).collect::<String>();
        assert_eq!(read.members(&lines(MOST_MEMBERS)).unwrap().len(), MOST_MEMBERS);
        let error = read.members(&lines(MOST_MEMBERS + 1)).unwrap_err();
        assert!(error.contains("at most 65536 members"), "{error}");
    }
}
