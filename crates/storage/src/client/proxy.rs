//! Proxies between this machine and a server, as the environment names them.
//!
//! `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` mean what they do to curl; in lower case they come first. HTTPS goes
//! through a tunnel (CONNECT: RFC 9110, 9.3.6), so that the proxy sees no more than the server's name; plain HTTP is forwarded (absolute
//! form: RFC 9112, 3.2.2). This machine, its link and the cloud's own services are always asked directly.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::IpAddr;

use hyper::Uri;
use hyper::header::{HeaderValue, PROXY_AUTHORIZATION};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::failure::{Failure, is_of_machine};
use super::form::Whole;

/// The longest answer of a proxy that opens a tunnel or says why not.
const LONGEST_HEAD: usize = 16 << 10;
/// Where nothing else is said.
const PORT: u16 = 80;

/// Which proxy, if any, stands before a server.
#[derive(Debug)]
pub(crate) struct Proxies {
    http: Option<Result<Proxy, String>>,
    https: Option<Result<Proxy, String>>,
    /// Intercepts all but what is to be reached directly; `None` where all is.
    others: Option<Matcher>,
}

/// A proxy. Its name is shown, and its login never is.
#[derive(Debug, Clone)]
pub(super) struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    login: Option<HeaderValue>,
}

impl Display for Proxy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Proxies {
    /// None, whatever the environment says.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self::of(&BTreeMap::new())
    }

    /// As these variables say.
    pub(crate) fn of(variables: &BTreeMap<String, String>) -> Self {
        let value = |name: &'static str| {
            let lower = name.to_ascii_lowercase();
            let mut values =
                [&*lower, name].into_iter().filter_map(|it| variables.get(it));
            let value = values.find(|value| !value.trim().is_empty())?;
            Some((name, value.trim()))
        };
        let of = |name| value(name).or_else(|| value("ALL_PROXY"));
        let proxy = |(name, value): (&str, &str)| {
            Proxy::parse(value).ok_or_else(|| unusable(name))
        };
        Self {
            http: of("HTTP_PROXY").map(proxy),
            https: of("HTTPS_PROXY").map(proxy),
            others: others(value("NO_PROXY").map_or("", |(_, list)| list)),
        }
    }

    /// The one before the server of `uri`.
    ///
    /// # Errors
    /// [`Failure::Unusable`]: its variable names none that can be used.
    pub(super) fn before(&self, uri: &Uri) -> Result<Option<Proxy>, Failure> {
        let Some(host) = uri.host() else { return Ok(None) };
        let is_direct = is_of_machine(host) || is_near(host);
        let intercepts = |others: &Matcher| others.intercept(uri).is_some();
        if is_direct || !self.others.as_ref().is_some_and(intercepts) {
            return Ok(None);
        }
        let proxy = match uri.scheme_str() {
            Some("https") => &self.https,
            Some(_) | None => &self.http,
        };
        proxy.clone().transpose().map_err(Failure::Unusable)
    }
}

/// What is said of a variable that names no proxy: not its value, which may have a password.
fn unusable(name: &str) -> String {
    format!(
        "{name} names no proxy that can be used; write it as http://HOST:PORT or \
         http://USER:PASSWORD@HOST:PORT, special characters as %20, or list the server in NO_PROXY"
    )
}

/// What intercepts all servers but those in this list of hosts, domains and networks. Written as other programs read it,
/// too: with blanks between, with ports and with `*.` before domains.
fn others(list: &str) -> Option<Matcher> {
    let entries = list.split(|c: char| c == ',' || c.is_whitespace());
    let entries = entries.filter(|entry| !entry.is_empty()).map(|entry| {
        let entry = entry.strip_prefix('*').filter(|it| !it.is_empty()).unwrap_or(entry);
        if let Some((ip, _)) = entry.strip_prefix('[').and_then(|it| it.split_once(']')) {
            return ip;
        }
        match entry.split_once(':') {
            // An address of IPv6 has more than one colon.
            Some((host, port)) if port.bytes().all(|it| it.is_ascii_digit()) => host,
            _ => entry,
        }
    });
    let entries: Vec<&str> = entries.collect();
    let is_all = entries.contains(&"*");
    let others = Matcher::builder().all("http://proxy.invalid").no(entries.join(","));
    (!is_all).then(|| others.build())
}

/// Whether a host is this machine, or a service that only machines of this link can ask, such as a cloud's own: what is sent
/// to that is nobody else's business.
fn is_near(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if bare.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let ip = bare.parse::<IpAddr>().map(|ip| ip.to_canonical());
    ip.is_ok_and(|ip| {
        let is_of_link = match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            // AWS has its own services at fd00:ec2::/32.
            IpAddr::V6(ip) => {
                ip.is_unicast_link_local() || ip.segments()[..2] == [0xfd00, 0xec2]
            }
        };
        is_of_link || ip.is_loopback() || ip.is_unspecified()
    })
}

impl Proxy {
    fn parse(value: &str) -> Option<Self> {
        let matcher = Matcher::builder().all(value).build();
        let found = matcher.intercept(&Uri::from_static("http://store.invalid"))?;
        let (uri, login) = (found.uri(), found.basic_auth().cloned());
        // A login with special characters is taken for something else.
        let is_whole = login.is_some() || !value.contains('@');
        let authority = uri.authority().filter(|it| !it.as_str().contains('@'))?;
        let is_http = uri.scheme_str() == Some("http");
        (is_http && is_whole).then(|| Self {
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(PORT),
            login,
        })
    }

    /// Has the proxy connect to `server`, a host and a port: what is sent from then on, that one gets.
    pub(super) async fn tunnel<S>(
        &self,
        stream: &mut S,
        server: &str,
    ) -> Result<(), Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let head = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n");
        let mut request = head.into_bytes();
        if let Some(login) = &self.login {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(login.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let asked = async {
            stream.write_all(&request).await?;
            answered(stream).await
        };
        match asked.await {
            Ok(Some(200..300)) => Ok(()),
            Ok(Some(407)) => Err(Failure::Unusable(format!(
                "the proxy {self} wants another login; write it into HTTPS_PROXY as \
                 http://USER:PASSWORD@HOST:PORT"
            ))),
            // Too much is asked of it.
            Ok(Some(status @ (408 | 429))) => {
                Err(self.unreached(server, &format!("it answered {status}")))
            }
            Ok(Some(status @ 400..500)) => Err(Failure::Unusable(format!(
                "the proxy {self} refuses to connect to {server} ({status}); list the server in \
                 NO_PROXY if it can be reached directly"
            ))),
            Ok(Some(status)) => {
                Err(self.unreached(server, &format!("it answered {status}")))
            }
            Ok(None) => Err(self.unreached(server, "it does not speak HTTP")),
            Err(error) => Err(self.unreached(server, &error.to_string())),
        }
    }

    fn unreached(&self, server: &str, why: &str) -> Failure {
        let host = server.to_owned();
        Failure::Unreachable { host, why: format!("through the proxy {self}: {why}") }
    }

    /// A request as the proxy forwards it.
    pub(super) fn forwarded(&self, mut request: Whole) -> Whole {
        if let Some(login) = &self.login {
            request.headers_mut().insert(PROXY_AUTHORIZATION, login.clone());
        }
        request
    }
}

/// The status of the final answer to a request for a tunnel; `None` if that is none of HTTP. What follows the head of a
/// refusal is left alone, and nothing may follow that of a tunnel: the server is spoken to first.
async fn answered(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<u16>> {
    let mut answer = Vec::new();
    loop {
        let end = answer.windows(4).position(|end| end == b"\r\n\r\n");
        if let Some(end) = end {
            let status = status(&answer);
            let is_tunnel = matches!(status, Some(200..300));
            if matches!(status, Some(100..200)) {
                answer.drain(..end + 4);
                continue;
            }
            return Ok(status.filter(|_| !is_tunnel || answer.len() == end + 4));
        }
        let n = stream.read_buf(&mut answer).await?;
        if n == 0 || answer.len() > LONGEST_HEAD {
            // A head that breaks off says as much as its first line, unless that promises a tunnel.
            return Ok(status(&answer).filter(|status| *status >= 400));
        }
    }
}

/// That of an answer's first line.
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.strip_prefix(b"HTTP/1.")?.get(1..5)?;
    std::str::from_utf8(line).ok()?.trim_start().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Proxies::of(&variables.iter().map(owned).collect())
    }

    fn before(
        variables: &[(&str, &str)],
        uri: &'static str,
    ) -> Result<Option<String>, Failure> {
        let proxy = proxies(variables).before(&Uri::from_static(uri))?;
        Ok(proxy.map(|proxy| proxy.to_string()))
    }

    #[test]
    fn the_environment_says_which_proxy_stands_before_a_server() {
        let all = [
            ("HTTPS_PROXY", "http://user:secret@proxy:3128"),
            ("http_proxy", "plain"),
            ("HTTP_PROXY", "http://other:1"),
            ("ALL_PROXY", "socks5://127.0.0.1:1080"),
            (
                "NO_PROXY",
                "inside.example, 10.0.0.0/8 minio:9000,*.wild.example,fd12::/16,[fd13::1]:9000",
            ),
        ];
        let proxy = |uri| before(&all, uri).unwrap();
        assert_eq!(proxy("https://b.s3.amazonaws.com/a"), Some("proxy:3128".to_owned()));
        assert_eq!(proxy("http://store:9000/a"), Some("plain:80".to_owned()));
        for direct in [
            "https://inside.example/a",
            "http://store.inside.example:9000/a",
            "http://minio:9000/a",
            "https://a.wild.example/a",
            "http://10.1.2.3:8333/a",
            "http://[fd12::1]:8333/a",
            "http://[fd13::1]:9000/a",
            "http://169.254.169.254/latest",
            "http://169.254.169.252:988/latest",
            "http://[fd00:ec2::23]/v1/credentials",
            "http://[fe80::1]/a",
            "http://localhost:9000/a",
            "https://127.0.0.1:8333/a",
            "http://[::1]:8333/a",
            "http://[::ffff:127.0.0.1]:8333/a",
            "http://0.0.0.0:8333/a",
        ] {
            assert_eq!(proxy(direct), None, "{direct}");
        }
        assert_eq!(before(&[], "https://b.s3.amazonaws.com/a"), Ok(None));
        assert_eq!(before(&[("HTTPS_PROXY", " ")], "https://b.example/a"), Ok(None));
        let all = [("all_proxy", "http://p:8")];
        assert_eq!(before(&all, "https://b.example/a"), Ok(Some("p:8".to_owned())));
        for uri in ["http://10.0.0.5:9000/a", "https://b.example/a"] {
            let all = [("all_proxy", "http://p:8"), ("no_proxy", "a.example,*")];
            assert_eq!(before(&all, uri), Ok(None), "{uri}");
        }
    }

    /// And only where it would be used.
    #[test]
    fn what_is_no_proxy_is_told_without_its_password() {
        for value in [
            "socks5://u:secret@p:1",
            "https://u:secret@p:1",
            "http://u:secret@ p",
            "http://user:12/secret@proxy:3128",
            "http://user:sec@ret@proxy:3128",
        ] {
            let variables =
                [("HTTPS_PROXY", value), ("HTTP_PROXY", "p:1"), ("NO_PROXY", "inside")];
            let told = before(&variables, "https://store.invalid/x").unwrap_err();
            let told = format!("{told:?} {:?}", proxies(&variables));
            assert!(told.contains("HTTPS_PROXY names no proxy"), "{told}");
            assert!(!told.contains("secret") && !told.contains("ret@"), "{told}");
            assert_eq!(before(&variables, "https://inside/x"), Ok(None));
            let plain = before(&variables, "http://store.invalid/x");
            assert_eq!(plain, Ok(Some("p:1".to_owned())));
        }
        let shown = format!("{:?}", proxies(&[("ALL_PROXY", "http://u:secret@p:1")]));
        assert!(shown.contains("\"p\"") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn an_answer_of_a_proxy_has_a_status_whatever_follows_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answered = |mut bytes: &[u8]| runtime.block_on(answered(&mut bytes)).unwrap();
        for (answer, status) in [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some(200)),
            ("HTTP/1.0 407 X\r\nContent-Length: 5\r\n\r\n<html", Some(407)),
            ("HTTP/1.1 100 X\r\n\r\nHTTP/1.1 403 X\r\nA: b\r\n\r\nno", Some(403)),
            ("HTTP/1.1 503 X\r\nA:", Some(503)),
            ("HTTP/1.1 200 X\r\nA:", None),
            ("HTTP/1.1 200 X\r\n\r\nmore", None),
            ("HTTP/2 200\r\n\r\n", None),
            ("SSH-2.0-x\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(answered(answer.as_bytes()), status, "{answer}");
        }
        let endless = [b"HTTP/1.1 200 X\r\n".to_vec(), vec![b'a'; 2 * LONGEST_HEAD]];
        assert_eq!(answered(&endless.concat()), None);
    }
}
