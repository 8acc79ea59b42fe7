//! A listing streams: memory does not grow with the number of objects.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::alloc::System;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bothends_dataset::Storage as _;
use bothends_storage::{
    Arrivals, BoxFuture, BoxStream, Identities, Identity, Listed, Location, Objects,
    Options, StorageError, View, conformance,
};
use cap::Cap;
use futures_util::{StreamExt, stream};

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

const N_PAGES: u32 = 20;
const PAGE: u32 = 1000;

/// One page of a listing; the token that the next one is asked for with is its number.
fn page(number: u32) -> String {
    let mut text = String::from("<ListBucketResult>");
    for at in 0..PAGE {
        write!(
            text,
            "<Contents><Key>train/class-{number:04}/image-{at:06}.jpg</Key>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified>\
             <ETag>&quot;0123456789abcdef0123456789abcdef&quot;</ETag><Size>{at}</Size>\
             <StorageClass>STANDARD</StorageClass></Contents>"
        )
        .unwrap();
    }
    let is_last = number + 1 == N_PAGES;
    write!(text, "<IsTruncated>{}</IsTruncated>", !is_last).unwrap();
    if !is_last {
        let next = number + 1;
        write!(text, "<NextContinuationToken>{next}</NextContinuationToken>").unwrap();
    }
    text.push_str("</ListBucketResult>");
    text
}

fn serve(stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    while let Some(Ok(first)) = lines.next() {
        // The rest of the head.
        while lines.next().unwrap().unwrap() != "" {}
        let token = first.split("continuation-token=").nth(1);
        let number = token.map_or("0", |rest| rest.split(['&', ' ']).next().unwrap());
        let body = page(number.parse().unwrap());
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .unwrap();
    }
}

fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap())));
    at
}

/// Memory is measured by one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn memory_does_not_grow_with_the_number_of_objects() {
    let _alone = alone();
    let endpoint = Some(format!("http://{}", server()));
    let options = Options { endpoint, anonymous: true, ..Options::default() };
    let objects = Location::parse("s3://data/train", &options).unwrap().open().unwrap();
    let before = MEMORY.allocated();
    let mut n_found = 0;
    let mut most = 0;
    conformance::each_listed(&*objects, "", &mut |listed| {
        let listed = listed.unwrap();
        assert!(listed.name.starts_with("class-"), "{}", listed.name);
        n_found += 1;
        most = most.max(MEMORY.allocated().saturating_sub(before));
    });
    assert_eq!(n_found, N_PAGES * PAGE);
    // All pages have 5.8 MB; measured were 0.5.
    assert!(most < 2 << 20, "{most} bytes");
}

/// A store that lists so many objects of a thousand classes and holds nothing.
#[derive(Debug)]
struct Many(u64);

fn identity(number: u64) -> Identity {
    // As random as a sum of bytes is.
    let sum = u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    Identity {
        len: 100_000 + number % 20_000,
        modified: Some(Duration::from_secs(1_700_000_000 + number / 500)),
        etag: Some(format!("{sum:032x}").into()),
    }
}

impl Objects for Many {
    fn get_ranges<'a>(
        &'a self,
        _: &'a str,
        _: &'a [Range<u64>],
        _: Option<&'a Identity>,
    ) -> Arrivals<'a> {
        stream::empty().boxed()
    }

    fn list<'a>(&'a self, _: &'a str) -> BoxStream<'a, Result<Listed, StorageError>> {
        let listed = (0..self.0).map(|number| {
            let class = number * 1000 / self.0;
            let name = format!("n{class:08}/n{class:08}_{number}.JPEG");
            Ok(Listed::new(name, identity(number)))
        });
        stream::iter(listed).boxed()
    }

    fn identify<'a>(
        &'a self,
        object: &'a str,
    ) -> BoxFuture<'a, Result<Identity, StorageError>> {
        let place = object.to_owned();
        Box::pin(std::future::ready(Err(StorageError::NotFound { place })))
    }

    fn shown(&self, object: &str) -> String {
        format!("many:{object}")
    }
}

/// Bytes of an object in a view's listing, of its identity in a run's, and at most while it was listed. All of
/// ImageNet's names have 29 bytes and more.
fn bytes_of_each(n: u64) -> [u64; 3] {
    let begin = MEMORY.allocated();
    let view = View::start(Arc::new(Many(n))).unwrap();
    assert_eq!(view.list("").unwrap().len(), 1000);
    // That of the whole program, of which nothing else takes as much.
    let peak = MEMORY.max_allocated();
    let listed = MEMORY.allocated() - begin;
    let before = MEMORY.allocated();
    let identities: Identities = (0..n).map(identity).collect();
    let identified = MEMORY.allocated() - before;
    assert_eq!(identities.get(n - 1), Some(identity(n - 1)));
    let bytes = [listed, identified, peak.saturating_sub(begin)];
    bytes.map(|bytes| bytes as u64 / n)
}

#[test]
fn a_listing_takes_few_bytes_for_each_object() {
    let _alone = alone();
    let [listed, identified, _] = bytes_of_each(200_000);
    // Measured: the figures of docs/remote.md.
    assert!(listed <= 48, "{listed} bytes");
    assert!(identified <= 32, "{identified} bytes");
}

#[test]
#[ignore = "takes minutes; docs/remote.md has what it prints"]
fn ten_million_objects() {
    let _alone = alone();
    let [listed, identified, most] = bytes_of_each(10_000_000);
    println!("listed {listed}, identities {identified}, at most {most} bytes each");
    assert!(most <= 96, "{most} bytes");
}
