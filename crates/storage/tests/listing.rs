//! A listing streams: memory does not grow with the number of objects.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::alloc::System;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use bothends_storage::{Location, Options, conformance};
use cap::Cap;

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

#[test]
fn memory_does_not_grow_with_the_number_of_objects() {
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
