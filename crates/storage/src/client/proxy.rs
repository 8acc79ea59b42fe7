//! Proxies between this machine and a server, as the environment names them.
//!
//! `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` mean what they do to curl; in lower case they come first. HTTPS goes
//! through a tunnel (CONNECT: RFC 9110, 9.3.6), so that the proxy sees no more than the server's name; plain HTTP is forwarded (absolute
//! form: RFC 9112, 3.2.2). This machine and the cloud's own service on it are always asked directly.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
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
pub(crate) struct Proxies(Matcher);

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
        Self(Matcher::builder().build())
    }

    /// As these variables say.
    ///
    /// # Errors
    /// One line: a variable that names no proxy, without its value, which may have a password.
    pub(crate) fn of(variables: &BTreeMap<String, String>) -> Result<Self, String> {
        let value = |name: &str| {
            let lower = name.to_ascii_lowercase();
            let values = [&*lower, name].map(|name| variables.get(name));
            let values = values.into_iter().flatten().map(|value| value.trim());
            values.into_iter().find(|value| !value.is_empty()).unwrap_or_default()
        };
        for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
            let value = value(name);
            let found = Matcher::builder().all(value).build();
            let found = found.intercept(&Uri::from_static("http://store.invalid"));
            let is_http = found.is_some_and(|it| it.uri().scheme_str() == Some("http"));
            if !value.is_empty() && !is_http {
                return Err(format!(
                    "{name} names no proxy of HTTP; write it as http://HOST:PORT or \
                     http://USER:PASSWORD@HOST:PORT, or list the server in NO_PROXY and leave \
                     {name} out"
                ));
            }
        }
        let matcher = Matcher::builder()
            .all(value("ALL_PROXY"))
            .http(value("HTTP_PROXY"))
            .https(value("HTTPS_PROXY"))
            .no(value("NO_PROXY"));
        Ok(Self(matcher.build()))
    }

    /// The one before the server of `uri`.
    pub(super) fn before(&self, uri: &Uri) -> Option<Proxy> {
        let host = uri.host()?;
        if is_of_machine(host) || is_this_machine(host) {
            return None;
        }
        let found = self.0.intercept(uri)?;
        Some(Proxy {
            host: found.uri().host()?.to_owned(),
            port: found.uri().port_u16().unwrap_or(PORT),
            login: found.basic_auth().cloned(),
        })
    }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback || bare.eq_ignore_ascii_case("localhost")
}

impl Proxy {
    /// Has the proxy connect to `server`, a host and a port: what is sent from then on, that one gets.
    pub(super) async fn tunnel<S>(
        &self,
        stream: &mut S,
        server: &str,
    ) -> Result<(), Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let broken = |error: std::io::Error| self.unreached(server, &error.to_string());
        let head = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n");
        let mut request = head.into_bytes();
        if let Some(login) = &self.login {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(login.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request).await.map_err(broken)?;
        let mut answer = Vec::new();
        // Nobody sends anything behind the head: the server is spoken to first.
        while !answer.ends_with(b"\r\n\r\n") {
            let n = stream.read_buf(&mut answer).await.map_err(broken)?;
            if n == 0 || answer.len() > LONGEST_HEAD {
                return Err(self.unreached(server, "it does not speak HTTP"));
            }
        }
        match status(&answer) {
            Some(200..300) => Ok(()),
            Some(407) => Err(Failure::Unusable(self.wants_login())),
            Some(status @ 400..500) => Err(Failure::Unusable(format!(
                "the proxy {self} refuses to connect to {server} ({status}); list the server in \
                 NO_PROXY if it can be reached directly"
            ))),
            Some(status) => Err(self.unreached(server, &format!("it answered {status}"))),
            None => Err(self.unreached(server, "it does not speak HTTP")),
        }
    }

    fn wants_login(&self) -> String {
        format!(
            "the proxy {self} wants another login; write it into HTTPS_PROXY as \
             http://USER:PASSWORD@HOST:PORT"
        )
    }

    fn unreached(&self, server: &str, why: &str) -> Failure {
        let host = server.to_owned();
        Failure::Unreachable { host, why: format!("through the proxy {self}: {why}") }
    }

    /// A request as the proxy forwards it.
    pub(super) fn forwarded(&self, request: &Whole) -> Whole {
        let mut request = request.clone();
        if let Some(login) = &self.login {
            request.headers_mut().insert(PROXY_AUTHORIZATION, login.clone());
        }
        request
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

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, String> {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Proxies::of(&variables.iter().map(owned).collect())
    }

    fn before(variables: &[(&str, &str)], uri: &'static str) -> Option<String> {
        let proxy = proxies(variables).unwrap().before(&Uri::from_static(uri));
        proxy.map(|proxy| proxy.to_string())
    }

    #[test]
    fn the_environment_says_which_proxy_stands_before_a_server() {
        let all = [
            ("HTTPS_PROXY", "http://user:secret@proxy:3128"),
            ("http_proxy", "plain"),
            ("HTTP_PROXY", "http://other:1"),
            ("NO_PROXY", "inside.example, 10.0.0.0/8"),
        ];
        let proxy = |uri| before(&all, uri);
        assert_eq!(proxy("https://b.s3.amazonaws.com/a"), Some("proxy:3128".to_owned()));
        assert_eq!(proxy("http://minio:9000/a"), Some("plain:80".to_owned()));
        for direct in [
            "https://inside.example/a",
            "http://store.inside.example:9000/a",
            "http://10.1.2.3:8333/a",
            "http://169.254.169.254/latest",
            "http://localhost:9000/a",
            "https://127.0.0.1:8333/a",
            "http://[::1]:8333/a",
        ] {
            assert_eq!(proxy(direct), None, "{direct}");
        }
        assert_eq!(before(&[], "https://b.s3.amazonaws.com/a"), None);
        assert_eq!(before(&[("HTTPS_PROXY", " ")], "https://b.example/a"), None);
        let all = [("all_proxy", "http://p:8")];
        assert_eq!(before(&all, "https://b.example/a"), Some("p:8".to_owned()));
    }

    #[test]
    fn what_is_no_proxy_is_told_without_its_password() {
        for value in
            ["socks5://u:secret@p:1", "https://u:secret@p:1", "http://u:secret@ p"]
        {
            let told = proxies(&[("ALL_PROXY", value)]).unwrap_err();
            assert!(told.starts_with("ALL_PROXY names no proxy of HTTP"), "{told}");
            assert!(!told.contains("secret"), "{told}");
        }
        let proxy = proxies(&[("ALL_PROXY", "http://u:secret@p:1")]).unwrap();
        let shown =
            format!("{proxy:?} {:?}", proxy.before(&Uri::from_static("http://a")));
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn an_answer_of_a_proxy_has_a_status() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 407 X\r\n\r\n"), Some(407));
        for odd in [&b"HTTP/2 200\r\n"[..], b"", b"HTTP/1.1", b"SSH-2.0-x\r\n\r\n"] {
            assert_eq!(status(odd), None);
        }
    }
}
