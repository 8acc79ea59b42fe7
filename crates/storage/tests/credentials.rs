//! Credentials that are renewed while a run lasts: by a file, by a program, by the cloud's own service.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

mod script;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bothends_storage::{Fetch, Fetcher, Location, Options, StorageError, View};

use script::{ONE, PATIENCE, answer, one_line, open, s3_error};

/// The key that the store takes now, and whether the service gives credentials.
#[derive(Debug)]
struct State {
    key: &'static str,
    gives: bool,
}

/// A bucket that takes one key, and the cloud's own service that gives it.
fn server(key: &'static str) -> (SocketAddr, Arc<Mutex<State>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let state = Arc::new(Mutex::new(State { key, gives: true }));
    let serving = Arc::clone(&state);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, state) = (stream.unwrap(), Arc::clone(&serving));
            thread::spawn(move || serve(&stream, &state));
        }
    });
    (at, state)
}

fn serve(stream: &TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(stream).lines();
    let mut to = stream;
    while let Some(Ok(line)) = lines.next() {
        let (mut credential, mut range) = (String::new(), String::new());
        for header in lines.by_ref().map(|header| header.unwrap()) {
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').unwrap();
            if name.eq_ignore_ascii_case("authorization") {
                credential = value.to_owned();
            } else if name.eq_ignore_ascii_case("range") {
                range = value.trim().trim_start_matches("bytes=").to_owned();
            }
        }
        let bytes = answered(&line, (&credential, &range), &state.lock().unwrap());
        if to.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn answered(line: &str, (credential, range): (&str, &str), state: &State) -> Vec<u8> {
    let State { key, gives } = state;
    let path = line.split(' ').nth(1).unwrap();
    if path.starts_with("/latest") {
        return match path.rsplit('/').next().unwrap() {
            _ if !gives => answer("500 Error", "", ""),
            "token" => answer("200 OK", "", "s3cret"),
            "" => answer("200 OK", "", "role"),
            // It is renewed at once, as it expires in less than five minutes.
            _ => answer(
                "200 OK",
                "",
                &format!(
                    "{{\"AccessKeyId\":\"{key}\",\"SecretAccessKey\":\"s3cret\",\"Token\":\"s3cret\",\
                     \"Expiration\":\"2020-01-01T00:00:00Z\"}}"
                ),
            ),
        };
    }
    if !credential.contains(&format!("Credential={key}/")) {
        return s3_error(line, "400 Bad Request", "ExpiredToken");
    }
    if line.starts_with("HEAD") {
        let about = "ETag: \"1\"\r\nLast-Modified: Thu, 01 Jan 1970 00:00:09 GMT\r\n";
        return format!("HTTP/1.1 200 OK\r\n{about}Content-Length: 9\r\n\r\n").into();
    }
    let about = format!(
        "Content-Range: bytes {range}/9\r\nETag: \"1\"\r\n\
         Last-Modified: Thu, 01 Jan 1970 00:00:09 GMT\r\n"
    );
    let (start, end) = range.split_once('-').unwrap();
    let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
    answer("206 Partial Content", &about, &"012345678"[start..=end])
}

fn options(at: SocketAddr, variables: &[(&str, &str)]) -> Options {
    let mut options =
        Options { endpoint: Some(format!("http://{at}")), ..Options::default() };
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    options.variables = variables.iter().map(own).collect();
    options
}

fn fetch(fetcher: &mut Fetcher) -> Result<bothends_storage::Bytes, StorageError> {
    let (object, range) = ("a".into(), 2..6);
    fetcher.submit(Fetch { tag: 1, object, range, expected: None, timeout: PATIENCE });
    fetcher.poll(PATIENCE).unwrap().result
}

fn write_keys(folder: &Path, key: &str) {
    let text = format!(
        "[lab]\naws_access_key_id = {key}\naws_secret_access_key = s3cret-{key}\n\
         aws_session_token = s3cret\n"
    );
    std::fs::write(folder.join("credentials"), text).unwrap();
}

/// A tool that writes new keys into the file every hour did not help: those of the start were used until they expired.
#[test]
fn keys_of_a_profile_are_read_again_when_they_have_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    write_keys(folder.path(), "first");
    let (at, state) = server("first");
    let variables =
        [("AWS_PROFILE", "lab"), ("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap())];
    let objects = open("s3://data/x", &options(at, &variables));
    let view = View::start(Arc::clone(&objects)).unwrap();
    assert_eq!(view.identity("a").unwrap().len, 9);
    let mut fetcher = Fetcher::start(objects, ONE).unwrap();
    assert_eq!(fetch(&mut fetcher).unwrap(), "2345");
    // Expired, and there are no others.
    state.lock().unwrap().key = "second";
    let error = fetch(&mut fetcher).unwrap_err();
    assert!(matches!(error, StorageError::Expired { .. }), "{error}");
    one_line(&error);
    write_keys(folder.path(), "second");
    // Within a second after the last look, the old ones are used once more: it is worth another attempt.
    match fetch(&mut fetcher) {
        Ok(bytes) => assert_eq!(bytes, "2345"),
        Err(error) => assert!(error.is_transient(), "{}", one_line(&error)),
    }
    assert_eq!(fetch(&mut fetcher).unwrap(), "2345");
    thread::sleep(Duration::from_millis(1100));
    write_keys(folder.path(), "third");
    state.lock().unwrap().key = "third";
    assert_eq!(fetch(&mut fetcher).unwrap(), "2345");
    write_keys(folder.path(), "fourth");
    state.lock().unwrap().key = "fourth";
    assert_eq!(view.identity("b").unwrap().len, 9);
}

#[test]
fn a_program_of_a_profile_gives_the_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let text = "[profile lab]\ncredential_process = printf '{\"Version\": 1, \"AccessKeyId\": \
                \"printed\", \"SecretAccessKey\": \"s3cret\"}'\n";
    std::fs::write(&file, text).unwrap();
    let (at, _) = server("printed");
    let variables = [("AWS_PROFILE", "lab"), ("AWS_CONFIG_FILE", file.to_str().unwrap())];
    let objects = open("s3://data/x", &options(at, &variables));
    let mut fetcher = Fetcher::start(objects, ONE).unwrap();
    assert_eq!(fetch(&mut fetcher).unwrap(), "2345");
}

/// It was ignored, and the machine's own role used, if it had one.
#[test]
fn a_profile_that_cannot_be_used_is_told_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(&file, "[profile lab]\nrole_arn = s3cret\nsource_profile = x\n")
        .unwrap();
    let file = ("AWS_CONFIG_FILE", file.to_str().unwrap());
    let (at, _) = server("any");
    for (name, words) in [
        ("lab", "the profile `lab` (AWS_PROFILE): it has role_arn, which is not"),
        ("gone", "the profile `gone` (AWS_PROFILE): no such profile"),
    ] {
        let options = options(at, &[("AWS_PROFILE", name), file]);
        let opened = Location::parse("s3://data/x", &options).unwrap().open();
        let error = opened.unwrap_err();
        assert!(one_line(&error).contains(words), "{error}");
        // What the environment gives counts more.
        let mut with_keys = options.clone();
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            with_keys.variables.insert(name.to_owned(), "any".to_owned());
        }
        let anonymous = Options { anonymous: true, ..options };
        for options in [with_keys, anonymous] {
            open("s3://data/x", &options);
        }
    }
}

/// One failure of the service ended the run, though the credentials were good for minutes.
#[test]
fn credentials_are_used_on_while_the_service_that_renews_them_fails() {
    let (at, state) = server("given");
    let service = format!("http://{at}");
    let objects =
        open("s3://data/x", &options(at, &[("AWS_METADATA_ENDPOINT", &service)]));
    let mut fetcher = Fetcher::start(objects, ONE).unwrap();
    assert_eq!(fetch(&mut fetcher).unwrap(), "2345");
    state.lock().unwrap().gives = false;
    thread::sleep(Duration::from_millis(200));
    for _ in 0..3 {
        assert_eq!(fetch(&mut fetcher).unwrap(), "2345");
    }
}
