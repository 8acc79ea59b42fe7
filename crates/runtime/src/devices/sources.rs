//! Who the members of a pool are, asked again and again while the run goes on.
//!
//! A source that cannot be read, or says something that makes no sense, changes nothing: the last list
//! stays, and a note says so once. What blocks beyond our control (a resolver) is asked on a thread of its
//! own, one at a time; registries, too (`sources/registries.rs`). Which members are then attached is `devices/roster.rs`'s.

mod registries;

use std::fs::{self, Metadata};
use std::io::Read;
use std::net::ToSocketAddrs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bothends_core::setting::Names;
use bothends_csd::address::Address;
use bothends_csd::connect::ConnectOptions;
use bothends_csd::pool::{Pool, PoolSource};
use bothends_io::open_regular;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::collect::collector::Command;
use crate::collect::wakeup::Bell;
use crate::devices::roster::Roster;
use crate::runtime::engine::spawn;
use crate::threads::shutdown::{PATIENCE, Stop};
use registries::Registries;

/// How often a resolver is asked. A file is looked at whenever the loop comes round.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How long a resolver may take before a note says that it does not answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The longest list in a file.
const MOST_BYTES: u64 = 16 << 20;

/// The thread that keeps a pool's list up to date.
#[derive(Debug)]
pub(crate) struct SourceLoop {
    pub(crate) roster: Roster,
    /// How registries are reached.
    pub(crate) options: ConnectOptions,
    /// What notes call settings.
    pub(crate) names: Names,
    /// The collector's line of the pool's first place.
    pub(crate) first_line: usize,
    pub(crate) commands: Sender<Command>,
    pub(crate) bell: Bell,
    pub(crate) notes: Sender<String>,
    pub(crate) stop: Stop,
}

/// Asks one kind of source.
trait Asks {
    /// The list where it is another than before, or may be; `None` where there is no news.
    fn news(&mut self) -> Result<Option<Vec<Address>>, String>;
}

impl SourceLoop {
    /// The loop of the thread, until it is told to stop.
    pub(crate) fn run(self) {
        let pool = self.roster.pool().clone();
        let mut source: Box<dyn Asks> = match &pool.source {
            PoolSource::Listed(members) => Box::new(Listed(Some(members.clone()))),
            PoolSource::File(path) => Box::new(File::new(&pool, path)),
            PoolSource::Dns { host, port } => Box::new(Dns::new(&pool, host, *port)),
            PoolSource::Registries(all) => {
                Box::new(Registries::new(&self.roster, all, (&self.options, self.names)))
            }
        };
        let mut failure = None;
        while !self.stop.is_set() {
            match source.news() {
                Ok(Some(members)) => {
                    self.roster.listed(&members);
                    if failure.take().is_some() {
                        self.note(&format!("{} members are listed again", members.len()));
                    }
                }
                Ok(None) => {}
                Err(why) if failure.as_ref() == Some(&why) => {}
                Err(why) => {
                    self.roster.is_not_listed();
                    let next = "the last list stays, and it is asked again";
                    self.note(&format!("{why}; {next}"));
                    failure = Some(why);
                }
            }
            self.lets_go();
            std::thread::sleep(PATIENCE);
        }
    }

    /// Has the collector give no more work to members that are to go.
    fn lets_go(&self) {
        while let Some((place, member)) = self.roster.next_to_leave() {
            let _ = self.commands.send(Command::Leave(self.first_line + place, member));
            self.bell.ring();
        }
    }

    fn note(&self, text: &str) {
        // Who reads no notes keeps the oldest.
        let _ = self.notes.try_send(format!("pool {}: {text}", self.roster.pool()));
    }
}

/// A list that does not change.
struct Listed(Option<Vec<Address>>);

impl Asks for Listed {
    fn news(&mut self) -> Result<Option<Vec<Address>>, String> {
        Ok(self.0.take())
    }
}

/// A file with one member in each line.
struct File<'a> {
    pool: &'a Pool,
    path: &'a Path,
    /// Of the file that was read last, and what was wrong with it.
    read: Option<(Signature, Option<String>)>,
}

/// By what a file is known to be another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signature {
    inode: (u64, u64),
    len: u64,
    changed_ns: (i64, i64),
}

impl Signature {
    fn of(found: &Metadata) -> Self {
        Self {
            inode: (found.dev(), found.ino()),
            len: found.len(),
            changed_ns: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl<'a> File<'a> {
    fn new(pool: &'a Pool, path: &'a Path) -> Self {
        Self { pool, path, read: None }
    }

    fn read(&self) -> Result<Vec<Address>, String> {
        let cannot = |why: String| {
            format!("cannot read the list of members {}: {why}", self.path.display())
        };
        let file = open_regular(self.path).map_err(|e| cannot(e.to_string()))?;
        let mut text = String::new();
        let read = file.take(MOST_BYTES + 1).read_to_string(&mut text);
        let n_read = read.map_err(|e| cannot(e.to_string()))?;
        if n_read as u64 > MOST_BYTES {
            return Err(cannot("it is longer than 16 MiB".to_owned()));
        }
        self.pool.members(&text).map_err(cannot)
    }
}

impl Asks for File<'_> {
    fn news(&mut self) -> Result<Option<Vec<Address>>, String> {
        let found = fs::metadata(self.path).map_err(|e| {
            self.read = None;
            format!("cannot read the list of members {}: {e}", self.path.display())
        })?;
        let signature = Signature::of(&found);
        match &self.read {
            Some((of, why)) if *of == signature => why.clone().map_or(Ok(None), Err),
            _ => {
                let members = self.read();
                self.read = Some((signature, members.as_ref().err().cloned()));
                members.map(Some)
            }
        }
    }
}

/// All addresses of a name.
struct Dns<'a> {
    pool: &'a Pool,
    host: &'a str,
    port: u16,
    asked: Option<Instant>,
    answer: Option<Receiver<Result<Vec<Address>, String>>>,
}

impl<'a> Dns<'a> {
    fn new(pool: &'a Pool, host: &'a str, port: u16) -> Self {
        Self { pool, host, port, asked: None, answer: None }
    }

    fn ask(&mut self) -> Result<(), String> {
        let (tell, told) = bounded(1);
        let (host, port, via) = (self.host.to_owned(), self.port, self.pool.via);
        let body = move || {
            let found = (host.as_str(), port).to_socket_addrs();
            let members = found.map(|all| {
                let all = all.map(|at| via.address(at.ip().to_string(), at.port()));
                let mut all: Vec<_> = all.collect();
                all.sort_by_key(ToString::to_string);
                all.dedup();
                all
            });
            // Nobody need wait for it any more.
            let _ = tell.send(members.map_err(|e| format!("cannot look up {host}: {e}")));
        };
        spawn(&Stop::default(), "lookup", body).map_err(|e| e.to_string())?;
        (self.asked, self.answer) = (Some(Instant::now()), Some(told));
        Ok(())
    }
}

impl Asks for Dns<'_> {
    fn news(&mut self) -> Result<Option<Vec<Address>>, String> {
        let Some(answer) = &self.answer else {
            if self.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                self.ask()?;
            }
            return Ok(None);
        };
        match answer.recv_timeout(PATIENCE) {
            Ok(members) => {
                self.answer = None;
                members.map(Some)
            }
            Err(RecvTimeoutError::Timeout) => {
                let is_late = self.asked.is_some_and(|at| at.elapsed() > ANSWER_TIME);
                let why = || format!("the resolver has not answered for {}", self.host);
                if is_late { Err(why()) } else { Ok(None) }
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.answer = None;
                Err("the thread that looks names up has died".to_owned())
            }
        }
    }
}
