//! Stores behind a proxy, as the environment names it: HTTPS through a tunnel, plain HTTP forwarded.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

mod script;

use std::io::{Read, Write, copy};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use bothends_storage::Options;

use script::{Certified, answer, certified, fetch, one_line, open, secured};

/// What a proxy was asked, each the head of a request.
type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy that connects to `server` whatever it is asked for, or answers a tunnel with `refusal`; it answers plain requests itself.
fn proxy(server: SocketAddr, refusal: Option<&'static str>) -> (SocketAddr, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let heads = Heads::default();
    let asked = Arc::clone(&heads);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let asked = Arc::clone(&asked);
            thread::spawn(move || serve(stream.unwrap(), server, refusal, &asked));
        }
    });
    (at, heads)
}

fn serve(
    mut client: TcpStream,
    server: SocketAddr,
    refusal: Option<&str>,
    asked: &Mutex<Vec<String>>,
) {
    let mut head = Vec::new();
    let mut byte = [0];
    while client.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
        let is_tunnel = text.starts_with("CONNECT ");
        asked.lock().unwrap().push(text);
        if let Some(refusal) = refusal {
            // As most proxies do, with a page, and the connection stays open.
            client.write_all(&answer(refusal, "", "<html>no</html>")).unwrap();
            continue;
        }
        if is_tunnel {
            return tunnel(client, server);
        }
        let range = "Content-Range: bytes 2-5/10\r\n";
        client.write_all(&answer("206 Partial Content", range, "2345")).unwrap();
    }
}

fn tunnel(mut client: TcpStream, server: SocketAddr) {
    let mut server = TcpStream::connect(server).unwrap();
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || copy(&mut from, &mut to));
    let _ = copy(&mut server, &mut client);
}

fn behind(name: &str, value: String) -> Options {
    let variables = [(name.to_owned(), value)].into();
    Options { anonymous: true, variables, ..Options::default() }
}

/// The name is looked up by the proxy alone.
#[test]
fn https_goes_through_a_tunnel_to_the_server_and_is_trusted_as_without() {
    let Certified { key, ca_file, folder: _folder } = certified("store.invalid");
    let (at, heads) = proxy(secured(&key), None);
    let options = behind("HTTPS_PROXY", format!("http://user:s3cret@{at}"));
    let error = fetch(open("https://store.invalid/x", &options)).unwrap_err();
    assert!(one_line(&error).contains("UnknownIssuer"), "{error}");
    let options = Options { ca_file: Some(ca_file), ..options };
    assert_eq!(fetch(open("https://store.invalid/x", &options)).unwrap(), "2345");
    let asked = heads.lock().unwrap().pop().unwrap();
    assert!(asked.starts_with("CONNECT store.invalid:443 HTTP/1.1\r\nHost: store"));
    assert!(asked.contains("\r\nProxy-Authorization: Basic dXNlcjpzM2NyZXQ=\r\n"));
}

#[test]
fn plain_http_is_forwarded() {
    let (at, heads) = proxy("127.0.0.1:1".parse().unwrap(), None);
    let options = behind("http_proxy", format!("http://user:s3cret@{at}"));
    let objects = open("http://store.invalid:9000/x", &options);
    for _ in 0..2 {
        assert_eq!(fetch(Arc::clone(&objects)).unwrap(), "2345");
    }
    let heads = heads.lock().unwrap();
    for asked in &*heads {
        let asked = asked.to_ascii_lowercase();
        assert!(asked.starts_with("get http://store.invalid:9000/x/a http/1.1\r\n"));
        assert!(asked.contains("\r\nhost: store.invalid:9000\r\n"), "{asked}");
        assert!(asked.contains("\r\nproxy-authorization: basic dxnlcjpzm2nyzxq=\r\n"));
    }
    assert_eq!(heads.len(), 2);
}

#[test]
fn what_a_proxy_does_not_do_is_one_line() {
    let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
    for (refusal, is_transient, words) in [
        ("407 Login", false, "wants another login; write it into HTTPS_PROXY as"),
        (
            "403 No",
            false,
            "refuses to connect to store.invalid:443 (403); list the server in",
        ),
        ("503 Busy", true, "cannot reach store.invalid:443 for"),
    ] {
        let (at, _) = proxy(nobody, Some(refusal));
        let options = behind("HTTPS_PROXY", format!("http://{at}"));
        let error = fetch(open("https://store.invalid/x", &options)).unwrap_err();
        assert!(one_line(&error).contains(words), "{error}");
        assert!(error.to_string().contains(&format!("the proxy {at}")), "{error}");
        assert_eq!(error.is_transient(), is_transient, "{error}");
    }
    let (at, _) = proxy(nobody, Some("407 Login"));
    let options = behind("HTTP_PROXY", format!("http://{at}"));
    let error = fetch(open("http://store.invalid/x", &options)).unwrap_err();
    assert!(one_line(&error).contains("write the proxy's login into HTTP_PROXY"));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = behind("ALL_PROXY", format!("http://{gone}"));
    let error = fetch(open("https://store.invalid/x", &options)).unwrap_err();
    let words = format!("cannot reach {gone} (the proxy for store.invalid) for");
    assert!(one_line(&error).contains(&words), "{error}");
    let options = behind("HTTPS_PROXY", "socks5://proxy:1080".to_owned());
    for url in ["https://store.invalid/x", "s3://data/x"] {
        let error = fetch(open(url, &options)).unwrap_err();
        assert!(one_line(&error).contains("HTTPS_PROXY names no proxy that"), "{error}");
        assert!(!error.is_transient());
    }
    let (at, _) = proxy(nobody, Some("403 No"));
    let options = behind("HTTP_PROXY", format!("http://{at}"));
    let error = fetch(open("http://store.invalid/x", &options)).unwrap_err();
    let words = format!("the server or the proxy {at} before it answered 403");
    assert!(one_line(&error).contains(&words), "{error}");
}
