//! Tables of CQL, over a double of a server.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

#[path = "../../../tests/src/cql.rs"]
#[allow(dead_code, unreachable_pub, reason = "it serves other tests, too")]
mod double;
mod script;

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bothends_dataset::{Format, Storage as _};
use bothends_storage::conformance::{Marks, Subject, all, each_listed};
use bothends_storage::{
    Bytes, Fetch, Fetcher, Labelled, Location, Missing, Objects, Options, Put,
    StorageError, Upload, Uploaded, Uploader, View,
};
use double::{Column, NAMED, PLUGIN, Server, Settings, Turn, uuid};
use script::{Certified, certified, tls};

const PATIENCE: Duration = Duration::from_secs(60);
const ONE: NonZero<usize> = NonZero::<usize>::MIN;

fn location(url: &str) -> Location {
    Location::parse(url, &Options::default()).unwrap()
}

fn open(url: &str) -> Arc<dyn Objects> {
    location(url).open().unwrap()
}

fn fetch(objects: &Arc<dyn Objects>, object: &str) -> Result<Bytes, StorageError> {
    let mut fetcher = Fetcher::start(Arc::clone(objects), ONE).unwrap();
    let (object, range) = (object.into(), 0..2);
    fetcher.submit(Fetch { tag: 1, object, range, expected: None, timeout: PATIENCE });
    fetcher.poll(PATIENCE).unwrap().result
}

/// What asking for an identity fails with, within ten seconds.
fn refusal(url: &str) -> StorageError {
    let began = Instant::now();
    let error = View::start(open(url)).unwrap().identity("a").unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(20), "{error}");
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("s3cret"), "{text}");
    error
}

#[test]
fn a_table_keeps_the_contract_of_objects() {
    let server = Server::start(Settings::default()).unwrap();
    server.put(b"../up", b"not an object", None);
    let objects = open(&server.url());
    let put = Box::new(move |name: &str, bytes: &[u8]| {
        server.put(name.as_bytes(), bytes, None);
    });
    all(&Subject { objects, put, marks: Marks::Versions });
}

#[test]
fn the_table_of_the_plugin_is_read_with_its_labels() {
    let settings = Settings { columns: PLUGIN, ..Settings::default() };
    let server = Server::start(settings).unwrap();
    for number in 0..40 {
        let bytes = vec![number; usize::from(number) + 2];
        server.put(&uuid(number), &bytes, Some(i32::from(number % 3)));
    }
    let objects = open(&server.url());
    let mut listed = Vec::new();
    each_listed(&*objects, "", &mut |one| listed.push(one.unwrap()));
    assert_eq!(listed.len(), 40);
    for one in &listed {
        let number = u8::from_str_radix(&one.name[34..], 16).unwrap();
        assert_eq!(one.identity.len, u64::from(number) + 2, "{}", one.name);
        assert_eq!(one.label, Labelled::As(u32::from(number % 3)));
        assert_eq!(fetch(&objects, &one.name).unwrap(), [number; 2][..]);
    }
    let view = View::start(Arc::clone(&objects)).unwrap();
    let found = bothends_dataset::find(&view, "").unwrap();
    assert_eq!((found.format, found.note), (Format::Rows, None));
    assert_eq!(found.table.n_samples(), 40);
    assert!(fetch(&objects, "0123").unwrap_err().to_string().contains("there is no"));
}

#[test]
fn rows_that_somebody_else_wrote_may_lack_their_length_or_their_bytes() {
    let server = Server::start(Settings::default()).unwrap();
    server.put(b"a", b"0123", Some(1));
    server.put_cells(b"b", &[("data", b"45")]);
    server.put_cells(b"c", &[("label", &[0, 0, 0, 2])]);
    let objects = open(&server.url());
    let mut listed = Vec::new();
    each_listed(&*objects, "", &mut |one| listed.push(one.unwrap()));
    let lens = listed.iter().map(|one| (&*one.name, one.identity.len, one.label));
    let expected = [("a", 4, Labelled::As(1)), ("b", 2, Labelled::No)];
    assert_eq!(lens.collect::<Vec<_>>(), expected);
    let view = View::start(Arc::clone(&objects)).unwrap();
    let mut dst = [0; 2];
    view.read("b", 0, &mut dst).unwrap();
    assert_eq!(&dst, b"45");
    assert!(matches!(view.identity("c"), Err(StorageError::NotFound { .. })));
    server.put(b"d", b"0123", Some(-1));
    let error = bothends_dataset::find(&View::start(objects).unwrap(), "").unwrap_err();
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("row d`: its label is negative"), "{text}");
}

/// Rows that a node missed while it was down were silently no part of the data set, or ended the run.
#[test]
fn a_replica_that_is_behind_is_not_believed_before_the_others_are_asked() {
    let server = Server::start(Settings::default()).unwrap();
    server.put(b"a", b"01", None);
    server.fall_behind();
    server.put(b"a", b"0123", None);
    server.put(b"b", b"4567", None);
    server.put_cells(b"c", &[("data", b"89")]);
    let objects = open(&server.url());
    let mut listed = Vec::new();
    each_listed(&*objects, "", &mut |one| listed.push(one.unwrap()));
    let lens = listed.iter().map(|one| (&*one.name, one.identity.len));
    assert_eq!(lens.collect::<Vec<_>>(), [("a", 4), ("b", 4), ("c", 2)]);
    let mut fetcher = Fetcher::start(Arc::clone(&objects), ONE).unwrap();
    for (one, bytes) in listed.iter().zip(["01", "45", "89"]) {
        let (object, range, timeout) = ((*one.name).into(), 0..2, PATIENCE);
        let expected = Some(one.identity.clone());
        fetcher.submit(Fetch { tag: 1, object, range, expected, timeout });
        assert_eq!(fetcher.poll(PATIENCE).unwrap().result.unwrap(), bytes);
    }
    assert_eq!(View::start(Arc::clone(&objects)).unwrap().identity("a").unwrap().len, 4);
    // What has changed for most of them has changed.
    server.put(b"b", b"another", None);
    let (object, range, timeout) = ("b".into(), 0..2, PATIENCE);
    let expected = Some(listed[1].identity.clone());
    fetcher.submit(Fetch { tag: 1, object, range, expected, timeout });
    let error = fetcher.poll(PATIENCE).unwrap().result.unwrap_err();
    assert!(matches!(error, StorageError::Changed { .. }), "{error}");
    let error = fetch(&objects, "gone").unwrap_err();
    assert!(matches!(error, StorageError::NotFound { .. }), "{error}");
}

/// One refusal did cost the whole page before: a page of many could never be listed.
#[test]
fn each_length_that_is_missing_is_asked_for_again_by_itself() {
    let n_refused = std::sync::atomic::AtomicUsize::new(0);
    let turn = Box::new(move |_: usize, statement: &str| {
        let is_length = statement.starts_with("SELECT size,") && statement.ends_with('?');
        let is_refused = is_length && n_refused.fetch_add(1, Ordering::SeqCst) < 20;
        if is_refused { Turn::Refuse(0x1001) } else { Turn::Answer }
    });
    let settings = Settings { turn, most_rows: 100, ..Settings::default() };
    let server = Server::start(settings).unwrap();
    for number in 0..20 {
        server.put_cells(&[b'a' + number], &[("data", b"45")]);
    }
    let (objects, mut listed) = (open(&server.url()), Vec::new());
    each_listed(&*objects, "", &mut |one| listed.push(one.unwrap().identity.len));
    assert_eq!(listed, [2; 20]);
}

#[test]
fn a_table_of_names_without_labels_is_read_as_files_are() {
    const PLAIN: &[Column] =
        &[["name", "partition_key", "text"], ["data", "regular", "blob"]];
    let server =
        Server::start(Settings { columns: PLAIN, ..Settings::default() }).unwrap();
    for name in ["cat/1.jpg", "dog/1.jpg"] {
        server.put(name.as_bytes(), b"ab", None);
    }
    let view = View::start(open(&server.url())).unwrap();
    let found = bothends_dataset::find(&view, "").unwrap();
    assert_eq!((found.format, found.table.n_samples()), (Format::ClassFolders, 2));
    assert!(!view.has_labels());
}

#[test]
fn what_a_server_refuses_is_one_line_with_the_remedy() {
    let login = Some(("me", "s3cret"));
    let server = Server::start(Settings { login, ..Settings::default() }).unwrap();
    let at = server.at;
    for (url, words) in [
        (server.url(), "the server requires a login); set CASSANDRA_USERNAME and"),
        (format!("cql://me:s3cret-too@{at}/set/images"), "the server refuses the login)"),
        (format!("cql://me:s3cret@{at}/set/others"), "there is no `cql://"),
        (format!("cql://me:s3cret@{at}/set/images"), "there is no `cql://"),
    ] {
        let error = refusal(&url).to_string();
        assert!(error.contains(words) && error.contains("/set/"), "{error}");
    }
    let mut options = Options::default();
    for (name, value) in [("CASSANDRA_USERNAME", "me"), ("CASSANDRA_PASSWORD", "s3cret")]
    {
        options.variables.insert(name.to_owned(), value.to_owned());
    }
    server.put(b"a", b"0123", None);
    let objects = Location::parse(&server.url(), &options).unwrap().open().unwrap();
    assert!(!format!("{objects:?} {options:?}").contains("s3cret"));
    assert_eq!(fetch(&objects, "a").unwrap(), "01");
    let nowhere =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = refusal(&format!("cql://me:s3cret@{nowhere}/set/images")).to_string();
    assert!(error.starts_with(&format!("cannot reach {nowhere} for ")), "{error}");
}

#[test]
fn codes_of_a_server_say_whether_it_may_be_asked_again() {
    for (code, is_transient, words) in [
        (0x1001, true, "the store limits requests for"),
        (0x1000, true, "too few of its replicas are up"),
        (0x1200, true, "its replicas did not answer the server in time"),
        (0x2100, false, "Unauthorized); grant the user SELECT on the table"),
        (0x2200, false, "the server answered 0x2200, as the test wants"),
    ] {
        let turn = Box::new(move |_: usize, statement: &str| {
            let is_read = statement.contains(" WHERE \"name\" = ");
            if is_read { Turn::Refuse(code) } else { Turn::Answer }
        });
        let server = Server::start(Settings { turn, ..Settings::default() }).unwrap();
        let error = fetch(&open(&server.url()), "a").unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_server_that_does_not_speak_cql_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = std::io::Write::write_all(
                &mut stream,
                b"HTTP/1.1 400 Bad Request\r\n\r\n",
            );
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        }
    });
    let error = fetch(&open(&format!("cql://{at}/set/images")), "a").unwrap_err();
    assert!(error.to_string().contains("not one of CQL protocol version 4"), "{error}");
}

#[test]
fn a_statement_that_a_server_has_forgotten_is_told_it_again() {
    let server = Server::start(Settings::default()).unwrap();
    server.put(b"a", b"0123", None);
    let objects = open(&server.url());
    let view = View::start(Arc::clone(&objects)).unwrap();
    let mut dst = [0; 4];
    view.read("a", 0, &mut dst).unwrap();
    server.forget();
    view.read("a", 1, &mut dst[..3]).unwrap();
    assert_eq!(view.identity("a").unwrap().len, 4);
    let again = View::start(objects).unwrap();
    again.read("a", 0, &mut dst).unwrap();
    server.forget();
    assert_eq!((again.identity("a").unwrap().len, &dst), (4, b"0123"));
}

#[test]
fn a_connection_that_breaks_or_is_silent_is_replaced() {
    for trouble in [Turn::HangUp, Turn::Silent] {
        let is_first = AtomicBool::new(true);
        let turn = Box::new(move |_: usize, statement: &str| {
            let is_read = statement.starts_with("SELECT size,");
            let fails = is_read && is_first.swap(false, Ordering::SeqCst);
            if fails { trouble } else { Turn::Answer }
        });
        let server = Server::start(Settings { turn, ..Settings::default() }).unwrap();
        server.put(b"a", b"0123", None);
        let view = View::start(open(&server.url())).unwrap();
        assert_eq!(view.identity("a").unwrap().len, 4, "{trouble:?}");
        assert!(server.counts().1 >= 2);
    }
}

#[test]
fn an_answer_that_comes_slowly_is_waited_for() {
    let pause = Duration::from_millis(100);
    let server = Server::start(Settings { pause, ..Settings::default() }).unwrap();
    let bytes = vec![7; 640 << 10];
    server.put(b"a", &bytes, None);
    let mut fetcher = Fetcher::start(open(&server.url()), ONE).unwrap();
    // Each of them takes four seconds, one after the other.
    for tag in 0..2 {
        let (object, range) = ("a".into(), 0..bytes.len() as u64);
        let timeout = Duration::from_secs(3);
        fetcher.submit(Fetch { tag, object, range, expected: None, timeout });
    }
    for _ in 0..2 {
        assert_eq!(fetcher.poll(PATIENCE).unwrap().result.unwrap(), bytes);
    }
}

/// Two nodes: each is asked for its own keys, and the one that is there for those of one that is not.
#[test]
fn a_key_is_asked_for_where_it_is() {
    let other = std::net::Ipv4Addr::new(127, 0, 0, 2);
    // All tokens are above the first node's, and below that of the second.
    let peers =
        vec![(other.octets(), vec![i64::MAX]), ([127, 0, 0, 3], vec![i64::MIN + 2])];
    let first = Settings { peers, token: i64::MIN + 1, ..Settings::default() };
    let first = Server::start(first).unwrap();
    let Ok(second) =
        Server::start_at((other, first.at.port()).into(), Settings::default())
    else {
        // Somebody else has the port.
        return;
    };
    for server in [&first, &second] {
        server.put(b"a", b"0123", None);
    }
    let objects = open(&first.url());
    let view = View::start(Arc::clone(&objects)).unwrap();
    assert_eq!(view.identity("a").unwrap().len, 4);
    let before = (first.counts().0, second.counts().0);
    for _ in 0..10 {
        let mut dst = [0; 1];
        View::start(Arc::clone(&objects)).unwrap().read("a", 0, &mut dst).unwrap();
    }
    let after = (first.counts().0, second.counts().0);
    assert!(after.1 - before.1 >= 20, "{before:?}, {after:?}");
    assert_eq!(after.0, before.0);
}

#[test]
fn a_peer_that_cannot_be_reached_leaves_its_keys_to_another() {
    let peers = vec![([127, 0, 0, 3], vec![i64::MAX])];
    let server = Settings { peers, token: i64::MIN + 1, ..Settings::default() };
    let server = Server::start(server).unwrap();
    server.put(b"a", b"0123", None);
    let objects = open(&server.url());
    assert_eq!(fetch(&objects, "a").unwrap(), "01");
    assert_eq!(fetch(&objects, "a").unwrap(), "01");
}

/// Attempts that are given up before the connection is must not begin with the same node again and again.
#[test]
fn a_contact_that_says_nothing_leaves_its_keys_to_another() {
    let silent = std::net::Ipv4Addr::new(127, 0, 0, 4);
    let peers = vec![(silent.octets(), vec![i64::MAX])];
    let server = Settings { peers, token: i64::MIN + 1, ..Settings::default() };
    let server = Server::start(server).unwrap();
    let Ok(_listener) = std::net::TcpListener::bind((silent, server.at.port())) else {
        // Somebody else has the port.
        return;
    };
    server.put(b"a", b"0123", None);
    let objects =
        open(&format!("cql://{silent}:{0},{1}/set/images", server.at.port(), server.at));
    let mut fetcher = Fetcher::start(objects, ONE).unwrap();
    let mut attempts = (0..10).map(|tag| {
        let timeout = Duration::from_secs(4);
        let (object, range) = ("a".into(), 0..2);
        fetcher.submit(Fetch { tag, object, range, expected: None, timeout });
        fetcher.poll(PATIENCE).unwrap().result
    });
    assert!(attempts.any(|read| read.is_ok_and(|bytes| bytes == "01")));
}

#[test]
fn a_connection_is_encrypted_and_trusts_a_given_authority_alone() {
    let Certified { key, folder, ca_file } = certified("localhost");
    let (config, server) =
        (Arc::new(tls(&key)), Server::start(Settings::default()).unwrap());
    server.put(b"a", b"0123", None);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let server = Arc::clone(&server);
            std::thread::spawn(move || server.serve(stream));
        }
    });
    let url = format!("cqls://localhost:{port}/set/images");
    let trusting = Options { ca_file: Some(ca_file), ..Options::default() };
    let objects = Location::parse(&url, &trusting).unwrap().open().unwrap();
    assert_eq!(fetch(&objects, "a").unwrap(), "01");
    let error = fetch(&open(&url), "a").unwrap_err().to_string();
    let start = format!("no trusted TLS connection with localhost:{port} for");
    assert!(error.starts_with(&start) && error.contains("UnknownIssuer"), "{error}");
    let gone =
        Options { ca_file: Some(folder.path().join("gone")), ..Options::default() };
    let error = Location::parse(&url, &gone).unwrap().open().unwrap_err().to_string();
    assert!(error.contains("cannot use the CA file"), "{error}");
}

fn upload(to: &Arc<dyn Put>, missing: Missing) -> Result<Uploaded, StorageError> {
    let uploader = Uploader::start(Arc::clone(to), missing).unwrap();
    for number in 0..100_u32 {
        let (object, label) = (format!("c{}/{number}.jpg", number % 2), Some(number % 2));
        let bytes = vec![7; number as usize + 1].into();
        if !uploader.add(Upload { object, bytes, label }) {
            break;
        }
    }
    uploader.finish()
}

#[test]
fn an_upload_makes_the_table_and_goes_on_where_it_was_interrupted() {
    let stops = Arc::new(AtomicBool::new(true));
    let (stop, n) = (Arc::clone(&stops), std::sync::atomic::AtomicUsize::new(0));
    let turn = Box::new(move |_: usize, statement: &str| {
        let is_write = statement.starts_with("INSERT") && stop.load(Ordering::SeqCst);
        match is_write && n.fetch_add(1, Ordering::SeqCst) > 40 {
            true => Turn::Refuse(0x2200),
            false => Turn::Answer,
        }
    });
    let server = Server::start(Settings { columns: &[], turn, ..Settings::default() });
    let server = server.unwrap();
    let to = location(&server.url()).open_to_write().unwrap();
    let counted = upload(&to, Missing::Counted).unwrap();
    assert_eq!((counted.written, counted.found, server.rows().len()), (100, 0, 0));
    let error = upload(&to, Missing::Written).unwrap_err();
    assert!(error.to_string().contains("0x2200"), "{error}");
    let before = server.rows().len() as u64;
    // The refusal may overtake most of what was taken before it.
    assert!((1..100).contains(&before), "{before}");
    stops.store(false, Ordering::SeqCst);
    let done = upload(&to, Missing::Written).unwrap();
    // Writes under way at the refusal may land after the rows were counted.
    assert!((before..100).contains(&done.found), "{} of {before}", done.found);
    assert_eq!(done.found + done.written, 100);
    let rows = server.rows();
    assert_eq!(rows.len(), 100);
    for (key, data, label) in rows {
        let name = String::from_utf8(key).unwrap();
        let number: u16 = name[3..name.len() - 4].parse().unwrap();
        let expected = (usize::from(number) + 1, Some(i32::from(number % 2)));
        assert_eq!((data.len(), label), expected, "{name}");
    }
}

#[test]
fn an_upload_into_the_table_of_the_plugin_makes_uuids_of_names() {
    let settings = Settings { columns: PLUGIN, ..Settings::default() };
    let server = Server::start(settings).unwrap();
    let to = location(&server.url()).open_to_write().unwrap();
    assert_eq!(upload(&to, Missing::Written).unwrap().written, 100);
    assert_eq!(upload(&to, Missing::Written).unwrap().found, 100);
    assert!(server.rows().iter().all(|(key, ..)| key.len() == 16));
    assert_eq!(NAMED.len(), 4);
}

/// Classes may get other numbers while their images stay the same.
#[test]
fn a_sample_that_is_uploaded_with_another_label_gets_it() {
    let server = Server::start(Settings::default()).unwrap();
    let to = location(&server.url()).open_to_write().unwrap();
    let upload = |label| {
        let uploader = Uploader::start(Arc::clone(&to), Missing::Written).unwrap();
        let (object, bytes) = ("a".to_owned(), "0123".into());
        assert!(uploader.add(Upload { object, bytes, label: Some(label) }));
        uploader.finish().unwrap()
    };
    let counts: Vec<_> = [3, 3, 4, 4].map(upload).iter().map(|it| it.written).collect();
    assert_eq!(counts, [1, 0, 1, 0]);
    assert_eq!(server.rows(), [(b"a".to_vec(), b"0123".to_vec(), Some(4))]);
}
