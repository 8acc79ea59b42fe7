//! What is said of a process that has as many files open as it may. It is a process of its own, as no other test could
//! open one meanwhile.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

mod script;

use std::fs::File;
use std::net::TcpListener;
use std::process::Command;

use bothends_storage::{Fetch, Fetcher, Options, StorageError};

use script::{ONE, PATIENCE, one_line, open};

/// The dead server was blamed for it.
#[test]
fn too_many_open_files_are_not_the_servers_fault() {
    let limited = "ulimit -n 64 && exec \"$0\" --ignored --exact nothing_more_is_opened";
    let program = std::env::current_exe().unwrap();
    let ended = Command::new("sh").args(["-c", limited]).arg(program).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "the other test starts it, with a limit"]
fn nothing_more_is_opened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let urls = [
        format!("http://{at}/x"),
        format!("redis://{at}/0"),
        format!("cql://{at}/keyspace/table"),
    ];
    for url in urls {
        let mut fetcher = Fetcher::start(open(&url, &Options::default()), ONE).unwrap();
        let mut files = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
        let (object, range) = ("a".into(), 2..6);
        fetcher.submit(Fetch {
            tag: 1,
            object,
            range,
            expected: None,
            timeout: PATIENCE,
        });
        let error = fetcher.poll(PATIENCE).unwrap().result.unwrap_err();
        drop(files);
        assert!(matches!(error, StorageError::OpenFiles { .. }), "{error}");
        assert!(error.is_transient());
        let text = one_line(&error);
        assert!(text.starts_with(&format!("no connection for `{url}")), "{text}");
        assert!(text.contains("raise the limit on open files (ulimit -n)"), "{text}");
    }
}
