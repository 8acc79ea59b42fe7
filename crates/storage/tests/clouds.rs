//! Google Cloud Storage and Azure over doubles of their servers: what is asked for, and what is told. They are as small as
//! the requests that are made, and stand for the protocols alone.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use bothends_storage::conformance::{Marks, Subject, all};
use bothends_storage::{
    Location, Missing, Objects, Options, StorageError, Upload, Uploader, View,
};

/// Objects of a page of a listing.
const PAGE: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Google,
    Azure,
}

/// Bytes, and a number of the version.
type Held = BTreeMap<String, (Vec<u8>, u64)>;

/// A server with one bucket, `box`; a status and a code that it answers everything with, if any.
struct Double {
    at: SocketAddr,
    held: Mutex<Held>,
    refusal: Mutex<Option<(u16, &'static str)>>,
    language: Language,
}

struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let hex = std::str::from_utf8(&after[..2]).unwrap();
            bytes.push(u8::from_str_radix(hex, 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(if byte == b'+' { b' ' } else { byte });
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn request(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
    let path = path.replace('+', "%2B");
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let len = headers.get("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    let mut body = vec![0; len];
    stream.read_exact(&mut body).ok()?;
    Some(Request { method, path: decoded(&path), query, headers, body })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Double {
    fn start(language: Language) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (held, refusal) = (Mutex::default(), Mutex::default());
        let double = Arc::new(Self { at, held, refusal, language });
        let serving = Arc::clone(&double);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (double, stream) = (Arc::clone(&serving), stream.unwrap());
                thread::spawn(move || {
                    let mut reading = BufReader::new(stream.try_clone().unwrap());
                    let mut stream = stream;
                    while let Some(request) = request(&mut reading) {
                        stream.write_all(&double.answer(&request)).unwrap();
                    }
                });
            }
        });
        double
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let mut held = self.held.lock().unwrap();
        let version = held.get(name).map_or(0, |(_, version)| version + 1);
        held.insert(name.to_owned(), (bytes.to_vec(), version));
    }

    fn answer(&self, request: &Request) -> Vec<u8> {
        let refusal = *self.refusal.lock().unwrap();
        if let Some((status, code)) = refusal {
            return self.refused(request, status, code);
        }
        let path = request.path.trim_start_matches('/');
        let (bucket, name) = path.split_once('/').unwrap_or((path, ""));
        let no_bucket = match self.language {
            Language::Google => "NoSuchBucket",
            Language::Azure => "ContainerNotFound",
        };
        let no_object = match self.language {
            Language::Google => "NoSuchKey",
            Language::Azure => "BlobNotFound",
        };
        if bucket != "box" {
            return self.refused(request, 404, no_bucket);
        }
        if name.is_empty() {
            return answered(200, "", self.page(&request.query).as_bytes());
        }
        if request.method == "PUT" {
            self.put(name, &request.body);
            return answered(201, "ETag: \"0\"\r\nx-goog-generation: 1\r\n", b"");
        }
        let found = self.held.lock().unwrap().get(name).cloned();
        let Some((bytes, version)) = found else {
            return self.refused(request, 404, no_object);
        };
        let etag = format!("\"{version:x}\"");
        if request.headers.get("if-match").is_some_and(|wanted| *wanted != etag) {
            return self.refused(request, 412, "ConditionNotMet");
        }
        let about =
            format!("ETag: {etag}\r\nLast-Modified: Thu, 01 Jan 1970 00:00:09 GMT\r\n");
        if request.method == "HEAD" {
            let len = bytes.len();
            return format!("HTTP/1.1 200 OK\r\n{about}Content-Length: {len}\r\n\r\n")
                .into();
        }
        let range = request.headers.get("range").and_then(|range| {
            let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()?))
        });
        let (start, end) = range.unwrap();
        if start >= bytes.len() {
            return self.refused(request, 416, "InvalidRange");
        }
        let end = end.min(bytes.len() - 1);
        let about =
            format!("{about}Content-Range: bytes {start}-{end}/{}\r\n", bytes.len());
        answered(206, &about, &bytes[start..=end])
    }

    fn refused(&self, request: &Request, status: u16, code: &str) -> Vec<u8> {
        let text = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>s3cret</Message></Error>"
        );
        let is_head = request.method == "HEAD";
        let about = match (self.language, is_head) {
            (Language::Azure, _) => format!("x-ms-error-code: {code}\r\n"),
            (Language::Google, _) => String::new(),
        };
        answered(status, &about, if is_head { b"" } else { text.as_bytes() })
    }

    /// A page; the mark of the next one is the name that it begins with.
    fn page(&self, query: &BTreeMap<String, String>) -> String {
        let text = |name: &str| query.get(name).cloned().unwrap_or_default();
        let (prefix, mark) = match self.language {
            Language::Google => (text("prefix"), text("continuation-token")),
            Language::Azure => (text("prefix"), text("marker")),
        };
        let held = self.held.lock().unwrap();
        let chosen =
            held.iter().filter(|(name, _)| name.starts_with(&prefix) && **name >= mark);
        let found: Vec<_> = chosen.take(PAGE + 1).collect();
        let next = found.get(PAGE).map(|(name, _)| escaped(name));
        let objects = found.iter().take(PAGE).map(|(name, (bytes, version))| {
            let (name, len) = (escaped(name), bytes.len());
            match self.language {
                Language::Google => format!(
                    "<Contents><Key>{name}</Key><LastModified>1970-01-01T00:00:09Z</LastModified>\
                     <ETag>\"{version:x}\"</ETag><Size>{len}</Size></Contents>"
                ),
                Language::Azure => format!(
                    "<Blob><Name>{name}</Name><Properties><Last-Modified>Thu, 01 Jan 1970 \
                     00:00:09 GMT</Last-Modified><Content-Length>{len}</Content-Length>\
                     <Content-Type>x</Content-Type><Etag>{version:x}</Etag></Properties></Blob>"
                ),
            }
        });
        let objects: String = objects.collect();
        match self.language {
            Language::Google => {
                let more = next.map_or_else(String::new, |next| {
                    format!("<NextContinuationToken>{next}</NextContinuationToken>")
                });
                let is_cut = !more.is_empty();
                format!(
                    "<ListBucketResult><IsTruncated>{is_cut}</IsTruncated>{objects}{more}\
                     </ListBucketResult>"
                )
            }
            Language::Azure => format!(
                "<?xml version=\"1.0\"?><EnumerationResults><Blobs>{objects}</Blobs>\
                 <NextMarker>{}</NextMarker></EnumerationResults>",
                next.unwrap_or_default()
            ),
        }
    }

    fn open(&self, bucket: &str) -> Location {
        let (url, endpoint) = match self.language {
            Language::Google => {
                (format!("gs://{bucket}/deep"), format!("http://{}", self.at))
            }
            Language::Azure => {
                (format!("az://{bucket}@account/deep"), format!("http://{}", self.at))
            }
        };
        let endpoint = Some(endpoint);
        let options = Options { endpoint, anonymous: true, ..Options::default() };
        Location::parse(&url, &options).unwrap()
    }
}

fn answered(status: u16, about: &str, body: &[u8]) -> Vec<u8> {
    let len = body.len();
    let head = format!("HTTP/1.1 {status} X\r\n{about}Content-Length: {len}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn refusal(objects: Arc<dyn Objects>) -> StorageError {
    let error = View::start(objects).unwrap().identity("a").unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("s3cret"), "{text}");
    error
}

fn keeps_the_contract(language: Language) {
    let double = Double::start(language);
    let objects = double.open("box").open().unwrap();
    double.put("deeper/of another prefix", b"x");
    let held = Arc::clone(&double);
    let put = Box::new(move |name: &str, bytes: &[u8]| {
        held.put(&format!("deep/{name}"), bytes);
    });
    all(&Subject { objects, put, marks: Marks::Versions });
    let error = refusal(double.open("other").open().unwrap());
    assert!(matches!(error, StorageError::NoBucket { .. }), "{error}");
}

#[test]
fn google_keeps_the_contract() {
    keeps_the_contract(Language::Google);
}

#[test]
fn azure_keeps_the_contract() {
    keeps_the_contract(Language::Azure);
}

/// With a key: nobody writes anonymously.
#[test]
fn an_upload_to_azure_is_signed_and_arrives() {
    let double = Double::start(Language::Azure);
    let endpoint = Some(format!("http://{}", double.at));
    let mut options = Options { endpoint, ..Options::default() };
    let key = ("AZURE_STORAGE_ACCOUNT_KEY".to_owned(), "czNjcmV0".to_owned());
    options.variables.extend([key]);
    let to = Location::parse("az://box@account/deep", &options).unwrap();
    let uploader =
        Uploader::start(to.open_to_write().unwrap(), Missing::Written).unwrap();
    let (object, bytes) = ("new/a b.jpg".to_owned(), "0123".into());
    assert!(uploader.add(Upload { object, bytes, label: None }));
    assert_eq!(uploader.finish().unwrap().written, 1);
    assert_eq!(double.held.lock().unwrap()["deep/new/a b.jpg"].0, b"0123");
}

#[test]
fn a_list_is_written_last_also_where_an_older_one_is_as_long() {
    let double = Double::start(Language::Azure);
    let endpoint = Some(format!("http://{}", double.at));
    let mut options = Options { endpoint, ..Options::default() };
    let key = ("AZURE_STORAGE_ACCOUNT_KEY".to_owned(), "czNjcmV0".to_owned());
    options.variables.extend([key]);
    let to = Location::parse("az://box@account/deep", &options).unwrap();
    for (list, written) in [("cat 0", 1), ("cat 1", 1), ("cat 1", 0)] {
        let to = to.open_to_write().unwrap();
        let uploader = Uploader::start(to, Missing::Written).unwrap();
        let list = Upload { object: "list".to_owned(), bytes: list.into(), label: None };
        assert_eq!(uploader.finish_with(list).unwrap().written, written);
    }
    assert_eq!(double.held.lock().unwrap()["deep/list"].0, b"cat 1");
}

#[test]
fn what_they_refuse_is_one_line_with_the_remedy() {
    for (language, status, code, words) in [
        (Language::Google, 403, "AccessDenied", "give these credentials the right"),
        (Language::Google, 401, "AuthenticationRequired", "check the access key"),
        (
            Language::Google,
            403,
            "SignatureDoesNotMatch",
            "check the access key, its secret",
        ),
        (
            Language::Azure,
            403,
            "AuthenticationFailed",
            "check the access key, its secret",
        ),
        (Language::Azure, 401, "NoAuthenticationInformation", "check the access key"),
        (
            Language::Azure,
            403,
            "AuthorizationFailure",
            "give these credentials the right",
        ),
        (Language::Azure, 404, "ContainerNotFound", "there is no bucket for"),
    ] {
        let double = Double::start(language);
        *double.refusal.lock().unwrap() = Some((status, code));
        let error = refusal(double.open("box").open().unwrap()).to_string();
        assert!(error.contains(words) && error.contains("box"), "{code}: {error}");
    }
}
