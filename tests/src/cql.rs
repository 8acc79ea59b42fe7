//! A double of a CQL server, version 4 of the protocol: one node, one table, in memory. It is no Cassandra: it knows the
//! statements that this repository's client and its upload send, and no others.
//!
//! A test may have it refuse, be silent or hang up, as the n-th request asks for.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is carried out.
    Answer,
    /// It fails with this code.
    Refuse(i32),
    /// It is never answered, nor is anything else on its connection.
    Silent,
    /// The connection is closed.
    HangUp,
}

/// Name, kind and type of a column, as `system_schema.columns` has them.
pub type Column = [&'static str; 3];

/// The table of cassandra-dali-plugin.
pub const PLUGIN: &[Column] = &[
    ["id", "partition_key", "uuid"],
    ["label", "regular", "int"],
    ["data", "regular", "blob"],
];

/// The table that an upload makes.
pub const NAMED: &[Column] = &[
    ["name", "partition_key", "text"],
    ["label", "regular", "int"],
    ["size", "regular", "bigint"],
    ["data", "regular", "blob"],
];

/// Says what becomes of a request, by its number and its statement.
pub type Turns = dyn Fn(usize, &str) -> Turn + Send + Sync;

/// What the double is told.
pub struct Settings {
    /// The columns of `set.images`; none: there is no such table before it is made.
    pub columns: &'static [Column],
    /// The only login that is accepted.
    pub login: Option<(&'static str, &'static str)>,
    /// Addresses of other nodes, with their tokens.
    pub peers: Vec<([u8; 4], Vec<i64>)>,
    /// The token of this node.
    pub token: i64,
    /// Most rows of a page, whatever is asked for.
    pub most_rows: usize,
    /// How long each 16 KiB of an answer take.
    pub pause: Duration,
    /// What becomes of requests.
    pub turn: Box<Turns>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            columns: NAMED,
            login: None,
            peers: Vec::new(),
            token: 0,
            most_rows: 7,
            pause: Duration::ZERO,
            turn: Box::new(|_, _| Turn::Answer),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("at", &self.at).finish_non_exhaustive()
    }
}

type Cells = BTreeMap<String, (Vec<u8>, i64)>;
type Held = BTreeMap<Vec<u8>, Cells>;

/// Whoever asks for no more than one replica, asks with this.
const LOCAL_ONE: u16 = 0x0A;

/// The double; it lives as long as the test's process.
pub struct Server {
    /// Where it listens.
    pub at: SocketAddr,
    settings: Settings,
    columns: Mutex<&'static [Column]>,
    rows: Mutex<Held>,
    behind: Mutex<Option<Held>>,
    statements: Mutex<HashMap<Vec<u8>, String>>,
    asked: AtomicUsize,
    connected: AtomicUsize,
    clock: AtomicI64,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Starts one on a free port of this machine.
    ///
    /// # Errors
    /// The system's.
    pub fn start(settings: Settings) -> io::Result<Arc<Self>> {
        Self::start_at("127.0.0.1:0".parse().map_err(io::Error::other)?, settings)
    }

    /// Starts one at this address.
    ///
    /// # Errors
    /// The system's.
    pub fn start_at(at: SocketAddr, settings: Settings) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind(at)?;
        let server = Arc::new(Self {
            at: listener.local_addr()?,
            columns: Mutex::new(settings.columns),
            settings,
            rows: Mutex::default(),
            behind: Mutex::default(),
            statements: Mutex::default(),
            asked: AtomicUsize::new(0),
            connected: AtomicUsize::new(0),
            clock: AtomicI64::new(1_700_000_000_000_000),
        });
        let serving = Arc::clone(&server);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&serving);
                thread::spawn(move || server.serve(stream));
            }
        });
        Ok(server)
    }

    /// The URL of its table.
    pub fn url(&self) -> String {
        format!("cql://{}/set/images", self.at)
    }

    /// Adds or replaces a row by the bytes of its key.
    pub fn put(&self, key: &[u8], data: &[u8], label: Option<i32>) {
        let mut cells = vec![("data".to_owned(), data.to_vec())];
        cells.push(("size".to_owned(), (data.len() as u64).to_be_bytes().to_vec()));
        cells.extend(
            label.map(|label| ("label".to_owned(), label.to_be_bytes().to_vec())),
        );
        self.insert(key.to_vec(), cells);
    }

    /// Adds or replaces cells of a row.
    pub fn put_cells(&self, key: &[u8], cells: &[(&str, &[u8])]) {
        let cells = cells.iter().map(|(name, cell)| ((*name).to_owned(), cell.to_vec()));
        self.insert(key.to_vec(), cells.collect());
    }

    fn insert(&self, key: Vec<u8>, cells: Vec<(String, Vec<u8>)>) {
        let now = self.clock.fetch_add(1, Ordering::SeqCst);
        let cells = cells.into_iter().map(|(name, cell)| (name, (cell, now)));
        lock(&self.rows).entry(key).or_default().extend(cells);
    }

    /// Keys, with the bytes and the labels.
    pub fn rows(&self) -> Vec<(Vec<u8>, Vec<u8>, Option<i32>)> {
        let rows = lock(&self.rows);
        let cell =
            |cells: &Cells, name: &str| cells.get(name).map(|(cell, _)| cell.clone());
        let rows = rows.iter().map(|(key, cells)| {
            let label = cell(cells, "label").and_then(|label| label.try_into().ok());
            let data = cell(cells, "data").unwrap_or_default();
            (key.clone(), data, label.map(i32::from_be_bytes))
        });
        rows.collect()
    }

    /// Requests so far, and connections.
    pub fn counts(&self) -> (usize, usize) {
        (self.asked.load(Ordering::SeqCst), self.connected.load(Ordering::SeqCst))
    }

    /// From now on, one replica stays as it is: whoever asks one alone asks this one.
    pub fn fall_behind(&self) {
        *lock(&self.behind) = Some(lock(&self.rows).clone());
    }

    /// It forgets the statements that it was told.
    pub fn forget(&self) {
        lock(&self.statements).clear();
    }

    /// Serves a connection until it ends.
    pub fn serve(&self, stream: impl Read + Write) {
        self.connected.fetch_add(1, Ordering::SeqCst);
        // Whatever is wrong with it ends the connection.
        let _ = self.frames(stream);
    }

    fn frames(&self, mut stream: impl Read + Write) -> io::Result<()> {
        let mut is_in = self.settings.login.is_none();
        loop {
            let mut header = [0; 9];
            stream.read_exact(&mut header)?;
            let [version, _, s0, s1, opcode, len @ ..] = header;
            let mut body = vec![0; u32::from_be_bytes(len) as usize];
            stream.read_exact(&mut body)?;
            let mut body = &body[..];
            let (opcode, answer) = match (version, opcode) {
                (0x04, 0x05) => (0x06, vec![0, 0]),
                (0x04, 0x0B) => (0x02, Vec::new()),
                (0x04, 0x01) if is_in => (0x02, Vec::new()),
                (0x04, 0x01) => {
                    (0x03, string("org.apache.cassandra.auth.PasswordAuthenticator"))
                }
                (0x04, 0x0F) => {
                    let token = bytes(&mut body).unwrap_or_default();
                    let login = self.settings.login;
                    let right = login.map(|(user, word)| format!("\0{user}\0{word}"));
                    is_in = right.is_some_and(|right| token == right.as_bytes());
                    if is_in {
                        (0x10, bytes_of(None))
                    } else {
                        failure(0x0100, "s3cret is wrong")
                    }
                }
                (0x04, _) if !is_in => failure(0x000A, "no login"),
                (0x04, 0x07 | 0x09 | 0x0A) => match self.request(opcode, body) {
                    Some(answer) => answer,
                    None => return Ok(()),
                },
                _ => failure(0x000A, "another protocol"),
            };
            let mut frame = vec![0x84, 0, s0, s1, opcode];
            frame.extend(u32::try_from(answer.len()).unwrap_or(0).to_be_bytes());
            frame.extend(answer);
            for part in frame.chunks(16 << 10) {
                thread::sleep(self.settings.pause);
                stream.write_all(part)?;
            }
        }
    }

    /// The answer to a statement; none where the connection ends.
    fn request(&self, opcode: u8, mut body: &[u8]) -> Option<(u8, Vec<u8>)> {
        let statement = match opcode {
            0x0A => {
                let id = short_bytes(&mut body);
                let Some(statement) = lock(&self.statements).get(&id).cloned() else {
                    let mut unprepared = failure(0x2500, "it was not prepared").1;
                    unprepared.extend(short(&id));
                    return Some((0x00, unprepared));
                };
                statement
            }
            _ => String::from_utf8(bytes(&mut body)?).ok()?,
        };
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        match (self.settings.turn)(number, &statement) {
            Turn::Answer => {}
            Turn::Refuse(code) => return Some(failure(code, "as the test wants")),
            Turn::HangUp => return None,
            Turn::Silent => loop {
                thread::park();
            },
        }
        if opcode == 0x09 {
            // Its hash, so that it is the same on all connections.
            let id = statement
                .bytes()
                .fold(7_u64, |id, byte| id.wrapping_mul(31).wrapping_add(byte.into()));
            let id = id.to_be_bytes().to_vec();
            lock(&self.statements).insert(id.clone(), statement);
            // No bound columns and no result columns are described.
            let nothing = [[0; 12].to_vec(), [[0, 0, 0, 4], [0; 4]].concat()].concat();
            return Some((0x08, [&int(4)[..], &short(&id), &nothing].concat()));
        }
        let behind = lock(&self.behind);
        let is_of_one = take(&mut &*body, 2) == LOCAL_ONE.to_be_bytes();
        let (values, n_rows, state) = parameters(body);
        let page = (n_rows, state);
        Some(self.run(&statement, (&values, page), behind.as_ref().filter(|_| is_of_one)))
    }

    fn run(
        &self,
        statement: &str,
        (values, page): (&[Vec<u8>], Page),
        behind: Option<&Held>,
    ) -> (u8, Vec<u8>) {
        let columns = *lock(&self.columns);
        let names = |after: &str, until: &str| {
            let list = statement.split_once(after).map_or("", |(_, rest)| rest);
            let list = list.split_once(until).map_or("", |(list, _)| list);
            list.split(", ").map(|name| name.replace('"', "")).collect::<Vec<_>>()
        };
        if statement.starts_with("CREATE TABLE IF NOT EXISTS") {
            *lock(&self.columns) = NAMED;
            return (0x08, [&int(5)[..], &string("CREATED"), &string("TABLE")].concat());
        }
        if statement.starts_with("INSERT INTO \"set\".\"images\"") {
            let mut cells: Vec<_> =
                names("(", ")").into_iter().zip(values.to_vec()).collect();
            let (_, key) = cells.remove(0);
            self.insert(key, cells);
            return (0x08, int(1).to_vec());
        }
        let selected = names("SELECT ", " FROM");
        if statement.contains(" FROM system.local") {
            return rows(&selected, &[self.node(None, self.settings.token)], None);
        }
        if statement.contains(" FROM system.peers") {
            let peer = |(address, tokens): &([u8; 4], Vec<i64>)| {
                self.node(Some(*address), tokens.first().copied().unwrap_or(0))
            };
            let peers: Vec<_> = self.settings.peers.iter().map(peer).collect();
            return rows(&selected, &peers, None);
        }
        if statement.contains(" FROM system_schema.columns") {
            let is_ours = values == [b"set".to_vec(), b"images".to_vec()];
            let of = |[name, kind, of]: &Column| {
                let cells = [("column_name", name), ("kind", kind), ("type", of)];
                cells
                    .map(|(name, cell)| (name.to_owned(), cell.as_bytes().to_vec()))
                    .into()
            };
            let columns: Vec<_> = columns.iter().filter(|_| is_ours).map(of).collect();
            return rows(&selected, &columns, None);
        }
        if !statement.contains(" FROM \"set\".\"images\"") {
            return failure(0x2000, "the double does not know this statement");
        }
        let key_name = columns.iter().find(|[_, kind, _]| *kind == "partition_key");
        let key_name = key_name.map_or("", |[name, ..]| name);
        let rows_now = lock(&self.rows);
        let held = behind.unwrap_or(&rows_now);
        let first = page.1.clone().unwrap_or_default();
        let chosen = held.iter().filter(|(key, _)| match values.first() {
            Some(wanted) => *key == wanted,
            None => **key > first || (first.is_empty() && page.1.is_none()),
        });
        let n_rows = page.0.min(self.settings.most_rows);
        let found: Vec<_> = chosen.take(n_rows + 1).collect();
        let more = found.get(n_rows).and_then(|_| found.get(n_rows - 1));
        let more = more.map(|(key, _)| (*key).clone());
        let found = found.iter().take(n_rows).map(|(key, cells)| {
            let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            all.insert(key_name.to_owned(), (*key).clone());
            for (name, (cell, at)) in *cells {
                all.insert(name.clone(), cell.clone());
                all.insert(format!("writetime({name})"), at.to_be_bytes().to_vec());
            }
            all
        });
        rows(&selected, &found.collect::<Vec<_>>(), more)
    }

    /// A row about a node.
    fn node(&self, address: Option<[u8; 4]>, token: i64) -> BTreeMap<String, Vec<u8>> {
        let token = token.to_string();
        let tokens = [&int(1)[..], &bytes_of(Some(token.as_bytes()))].concat();
        let id = [address.map_or(1, |address| address[3]); 16].to_vec();
        let partitioner = b"org.apache.cassandra.dht.Murmur3Partitioner".to_vec();
        let cells = [
            ("data_center", b"one".to_vec()),
            ("rack", b"r".to_vec()),
            ("host_id", id),
            ("partitioner", partitioner),
            ("rpc_address", address.unwrap_or([127, 0, 0, 1]).to_vec()),
            ("tokens", tokens),
        ];
        cells.map(|(name, cell)| (name.to_owned(), cell)).into()
    }
}

/// Most rows, and the key before the first one.
type Page = (usize, Option<Vec<u8>>);

fn parameters(mut body: &[u8]) -> (Vec<Vec<u8>>, usize, Option<Vec<u8>>) {
    let (mut values, mut n_rows, mut state) = (Vec::new(), usize::MAX - 1, None);
    take(&mut body, 2);
    let flags = take(&mut body, 1).first().copied().unwrap_or(0);
    if flags & 1 != 0 {
        let n = take(&mut body, 2);
        for _ in 0..u16::from_be_bytes([n[0], n[1]]) {
            values.push(bytes(&mut body).unwrap_or_default());
        }
    }
    if flags & 4 != 0 {
        n_rows = take(&mut body, 4).iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
    }
    if flags & 8 != 0 {
        state = bytes(&mut body);
    }
    (values, n_rows, state)
}

fn rows(
    selected: &[String],
    rows: &[BTreeMap<String, Vec<u8>>],
    more: Option<Vec<u8>>,
) -> (u8, Vec<u8>) {
    let count = |n: usize| int(i32::try_from(n).unwrap_or(0));
    let mut body = int(2).to_vec();
    body.extend(int(if more.is_some() { 3 } else { 1 }));
    body.extend(count(selected.len()));
    if more.is_some() {
        body.extend(bytes_of(more.as_deref()));
    }
    body.extend([string("set"), string("images")].concat());
    for name in selected {
        body.extend(string(name));
        body.extend(type_of(name));
    }
    body.extend(count(rows.len()));
    for row in rows {
        for name in selected {
            body.extend(bytes_of(row.get(name).map(Vec::as_slice)));
        }
    }
    (0x08, body)
}

fn type_of(name: &str) -> Vec<u8> {
    match name {
        "data" => vec![0, 3],
        "size" => vec![0, 2],
        name if name.starts_with("writetime") => vec![0, 2],
        "label" => vec![0, 9],
        "id" | "host_id" => vec![0, 0x0C],
        "rpc_address" => vec![0, 0x10],
        "tokens" => vec![0, 0x22, 0, 0x0D],
        _ => vec![0, 0x0D],
    }
}

fn failure(code: i32, text: &str) -> (u8, Vec<u8>) {
    (0x00, [&int(code)[..], &string(text)].concat())
}

fn int(number: i32) -> [u8; 4] {
    number.to_be_bytes()
}

fn string(text: &str) -> Vec<u8> {
    short(text.as_bytes())
}

fn short(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes()[..], bytes].concat()
}

fn bytes_of(bytes: Option<&[u8]>) -> Vec<u8> {
    match bytes {
        None => int(-1).to_vec(),
        Some(bytes) => {
            [&int(i32::try_from(bytes.len()).unwrap_or(0))[..], bytes].concat()
        }
    }
}

fn take<'a>(body: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (taken, rest) = body.split_at(n.min(body.len()));
    *body = rest;
    taken
}

fn short_bytes(body: &mut &[u8]) -> Vec<u8> {
    let n = take(body, 2);
    take(body, u16::from_be_bytes([n[0], n[1]]).into()).to_vec()
}

fn bytes(body: &mut &[u8]) -> Option<Vec<u8>> {
    let n = i32::from_be_bytes(take(body, 4).try_into().ok()?);
    Some(take(body, usize::try_from(n).ok()?).to_vec())
}

/// Bytes of a UUID from a number.
pub fn uuid(number: u8) -> [u8; 16] {
    let mut bytes = [0x11; 16];
    bytes[0] = number.wrapping_mul(37);
    bytes[15] = number;
    bytes
}
