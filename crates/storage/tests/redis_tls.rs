//! Redis over TLS: whom it trusts, and that nothing else is different.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

mod script;

use std::any::Any;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bothends_storage::{Fetch, Fetched, Fetcher, Identity, Options, Returned, View};

use script::{Certified, ONE, PATIENCE, certified, fetch, one_line, open, secured_by};

/// So long that the answer takes many records of TLS.
fn value() -> impl Iterator<Item = u8> {
    (0..400_000_u32).map(|n| b'a' + (n % 23) as u8)
}

/// Wants a password.
fn answer(request: &str) -> Vec<u8> {
    let words: Vec<&str> = request.split("\r\n").collect();
    match words.get(2).copied() {
        Some("AUTH") if words.contains(&"s3cret") => b"+OK\r\n".to_vec(),
        Some("GETRANGE") => b"$4\r\n2345\r\n".to_vec(),
        Some("GET") => {
            [b"$400000\r\n".to_vec(), value().collect(), b"\r\n".to_vec()].concat()
        }
        Some("STRLEN") => b":400000\r\n".to_vec(),
        _ => b"-ERR what\r\n".to_vec(),
    }
}

#[test]
fn values_come_over_tls_from_a_server_that_is_trusted() {
    let Certified { key, ca_file, folder: _folder } = certified("localhost");
    let n_asked = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&n_asked);
    let at = secured_by(&key, move |request| {
        asked.fetch_add(1, Ordering::Relaxed);
        answer(request)
    });
    for scheme in ["rediss", "valkeys"] {
        let url = format!("{scheme}://:s3cret@localhost:{}/0", at.port());
        let error = fetch(open(&url, &Options::default())).unwrap_err();
        let start = format!("no trusted TLS connection with localhost:{} for", at.port());
        let text = one_line(&error);
        assert!(text.starts_with(&start) && text.contains("UnknownIssuer"), "{text}");
        assert!(!error.is_transient());
        let options = Options { ca_file: Some(ca_file.clone()), ..Options::default() };
        assert_eq!(fetch(open(&url, &options)).unwrap(), "2345");
        let whole = View::start(open(&url, &options)).unwrap();
        let identity = whole.identity("a").unwrap();
        assert_eq!(identity, Identity { len: 400_000, modified: None, etag: None });
        // All of it, into memory of its own and where it shall be.
        for place in [None, Some(vec![0; 400_000])] {
            let mut fetcher = Fetcher::start(open(&url, &options), ONE).unwrap();
            let expected = Some(identity.clone());
            let (object, range) = ("a".into(), 0..400_000);
            let fetch = Fetch { tag: 1, object, range, expected, timeout: PATIENCE };
            match place {
                Some(place) => fetcher.submit_into(fetch, Box::new(place)),
                None => fetcher.submit(fetch),
            }
            let Fetched { result, destination, .. } = fetcher.poll(PATIENCE).unwrap();
            let bytes = match destination {
                Some(Returned::Filled(place)) => {
                    let place: Box<dyn Any> = place;
                    *place.downcast::<Vec<u8>>().unwrap()
                }
                Some(Returned::Unused(_)) | None => result.unwrap().to_vec(),
            };
            assert!(bytes.into_iter().eq(value()));
        }
        let variables =
            [("AWS_CA_BUNDLE".to_owned(), ca_file.display().to_string())].into();
        let options = Options { variables, ..Options::default() };
        assert_eq!(fetch(open(&url, &options)).unwrap(), "2345");
    }
    assert!(n_asked.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_server_without_tls_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"-ERR Protocol error\r\n");
        }
    });
    let url = format!("rediss://localhost:{port}/0");
    let error = fetch(open(&url, &Options::default())).unwrap_err();
    let text = one_line(&error);
    assert!(text.starts_with("no trusted TLS connection with localhost"), "{text}");
}

/// Redis's own default. The server says so after the handshake, in answer to the first request.
#[test]
fn a_server_that_wants_a_certificate_of_the_client_is_told() {
    let Certified { key, ca_file, folder: _folder } = certified("localhost");
    let port = picky(&key);
    let options = Options { ca_file: Some(ca_file), ..Options::default() };
    for login in ["", ":s3cret@"] {
        let url = format!("rediss://{login}localhost:{port}/0");
        let error = fetch(open(&url, &options)).unwrap_err();
        let text = one_line(&error);
        assert!(text.contains("it wants a certificate of the client"), "{text}");
        assert!(!error.is_transient());
    }
}

fn picky(key: &rcgen::CertifiedKey<rcgen::KeyPair>) -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(key.cert.der().clone()).unwrap();
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::clone(&provider),
    );
    let private =
        rustls::pki_types::PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![key.cert.der().clone()], private.into())
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let _ = stream.read(&mut [0; 4096]);
            // What the client has sent meanwhile is read, or its end of the connection would be reset before the alert is.
            let _ = stream.sock.set_read_timeout(Some(Duration::from_secs(10)));
            while let Ok(1..) = stream.sock.read(&mut [0; 4096]) {}
        }
    });
    port
}
