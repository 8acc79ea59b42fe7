//! `bothends-agent`: serves batches of the data set next to it to any number of hosts.
//!
//! Only arguments and exit status are here; the rest of this crate does the work, and the package
//! `bothends` has the program. Exit status: 0 after an
//! orderly end, 1 when it cannot serve, 2 for bad arguments.

mod announce;
mod calibrate;
mod flags;
mod log;
mod metrics;
mod reload;
mod sandbox;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use bothends_core::setting::NamesSettings as _;
use bothends_csd::key::Key;
use bothends_csd::listen::Listener;
use bothends_csd::pool::Pool;
use bothends_csd::{Address, Insecure, Security, one_line_with};
use bothends_ops::PixelLimit;
use bothends_scrape::Bound;
use bothends_side_index::{CACHE_LIMIT_BYTES, Cache};
use clap::builder::{BoolishValueParser, TypedValueParser};
use clap::{ArgAction, Command, CommandFactory, Parser, Subcommand, ValueEnum};
use listenfd::ListenFd;

use self::flags::flag;
use self::log::Form;
use self::reload::{Proofs, Reload};
use self::sandbox::{Confined, Network, Places, Sandbox};
use crate::door::{Door, News, Visits};
use crate::session::limits;
use crate::{
    DataRoot, DecompressedPlace, DecompressingWatch, FileStore, Links, Memory, NoCosts,
    ObjectRoot, ReadyRoots, ResultMemory, SESSIONS, Server, ServerConfig, Sharing, stop,
};

/// Serves preprocessed batches of the data set next to this program.
#[derive(Debug, Parser)]
#[command(
    name = "bothends-agent",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Line {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    serve: Option<Args>,
}

/// What it can do other than serve.
#[derive(Debug, Subcommand)]
enum Other {
    /// Makes a file with a new random key, for this agent and its hosts. It never replaces a file
    Keygen {
        /// The file to make; only its owner can read it
        file: PathBuf,
    },
    /// Measures this machine for at most a minute and makes a preset of it for firmware-sim: reads, JPEG
    /// decoding on one core, and TCP over the loopback interface. Nothing else should be running
    Calibrate {
        /// The data set's folder: files to read and JPEGs to decode
        #[arg(long, value_name = "DIR")]
        data_root: PathBuf,
        /// The preset file to make, named after the preset; it never replaces a file
        #[arg(long, value_name = "FILE")]
        preset: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Args {
    /// Where hosts connect: tcp+noise://HOST:PORT (encrypted with --key-file), tls://HOST:PORT
    /// (with --tls-ca, --tls-cert and --tls-key), tcp://HOST:PORT (this machine only),
    /// unix:///PATH (this user, unless there is a key) or spool:///DIRECTORY. May be given more than
    /// once. Sockets that a service manager opened for this program (LISTEN_FDS) replace the first of these
    #[arg(long, value_name = "URL", required = true)]
    listen: Vec<Address>,
    /// The folder with the same data set as on the host; for a mix of data sets, NAME=DIR once for each,
    /// with the names used on the host. Or the URL that the host reads, or another one of the same objects,
    /// such as s3://bucket/prefix: credentials, endpoint and region come from this program's environment
    #[arg(long, value_name = "[NAME=]DIR|URL", required = true)]
    data_root: Vec<DataRoot>,
    /// Follow symbolic links as long as they stay below the data root; otherwise they are refused
    #[arg(long)]
    follow_links: bool,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Option<u32>,
    /// Batches accepted from a host before one is finished
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// Hosts served at the same time; any other is told when to try again
    #[arg(long, value_name = "N", default_value_t = SESSIONS,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    sessions: u32,
    /// Most memory that batches and lists of samples of all hosts may take, in MiB, or auto: each host gets
    /// as many of its slots as fit. A host whose batches do not fit is refused, and one that finds the
    /// memory in use is told when to try again. Two batches are enough to make one while another is sent.
    /// The working memory of the workers comes on top. auto is a quarter of the memory available when a
    /// host connects, and always at least one batch
    #[arg(long, value_name = "MIB|auto", default_value = "auto")]
    memory: Memory,
    /// Most memory, in MiB, for samples that several sessions want: those with equal data, recipe, seed and
    /// epoch are made once. Sessions may reclaim this memory. auto is a quarter of --memory; with 0,
    /// samples are made separately for every session
    #[arg(long, value_name = "MIB|auto", default_value = "auto")]
    result_cache: ResultMemory,
    /// Which hosts share results: those with the same key, certificate or user, or all that are admitted.
    /// Hosts at tcp:// without a key have no proven identity and share only in the second case
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = Shared::Credential)]
    share_results: Shared,
    /// Most pixels of an image that is decoded here; above four million, also at most 512 per byte of its
    /// file. `off`: whatever a host would decode. Larger images are left to the host
    #[arg(long, value_name = "N|off", default_value = "64000000",
          value_parser = limits::pixels)]
    max_pixels: PixelLimit,
    /// A file with the key shared with hosts, as made by `keygen`; no one else may be able to read it. It
    /// is read again on SIGHUP, as are the certificates
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// For tls://: certificates of the authorities that sign the hosts' certificates
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key"])]
    tls_ca: Option<PathBuf>,
    /// For tls://: the certificate of this agent, for the host name in the address that hosts use
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// For tls://: its private key
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    tls_key: Option<PathBuf>,
    /// Allows connections to tcp://, which is not encrypted, from other machines, with a key. Anyone who
    /// can read the network can read the images, and anyone who can write to it can change them
    #[arg(long, action = ArgAction::SetTrue,
          value_parser = BoolishValueParser::new().map(Insecure::from))]
    insecure: Insecure,
    /// Where the side index is kept: entry points of JPEGs that double the rate of later epochs. Shards that are
    /// compressed are decompressed below it. `off`: neither [default: $XDG_CACHE_HOME/bothends/index, and
    /// decompressed next to it]
    #[arg(long, value_name = "DIR|off")]
    cache: Option<PathBuf>,
    /// Limit of the cache in MiB, for all data sets together; the oldest entries are removed
    #[arg(long, value_name = "MIB", default_value_t = CACHE_LIMIT_BYTES >> 20)]
    cache_limit: u64,
    /// What the agent gives up before it serves anyone. `auto`: as much as the kernel can enforce, namely
    /// access to files other than the data set and those it writes (Landlock), running other programs, and
    /// privileges (seccomp). `required`: all of that, or it does not start
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Sandbox::Auto)]
    sandbox: Sandbox,
    /// Announces this agent to these agents, which keep the list of a pool's members; hosts give the same
    /// text to --csd to find it. They are reached with this agent's key or certificates
    #[arg(long, value_name = "pool+registry://HOST:PORT[,HOST:PORT]", value_parser = announce::registries)]
    announce: Option<Pool>,
    /// The address to announce [default: the first of --listen that other machines can reach, otherwise the
    /// first port, otherwise the first Unix socket; for 0.0.0.0, the address from which this machine
    /// reaches the registry]
    #[arg(long, value_name = "URL", requires = "announce")]
    advertise: Option<Address>,
    /// Serves Prometheus metrics at http://HOST:PORT/metrics; without a host, on this machine only
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Format of warnings and host events on standard error
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text)]
    log: Form,
    /// Ends after the first host has left
    #[arg(long)]
    once: bool,
}

/// Among whom results are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shared {
    /// Hosts with the same key, certificate or user
    Credential,
    /// All hosts that are admitted
    Everybody,
}

impl From<Shared> for Sharing {
    fn from(shared: Shared) -> Self {
        match shared {
            Shared::Credential => Self::Credential,
            Shared::Everybody => Self::Everybody,
        }
    }
}

/// The arguments, for completions and man pages.
#[must_use]
pub fn command() -> Command {
    Line::command()
}

/// Serves as `args` say, of which the first is the program's name, until a signal comes; returns the
/// exit status. Blocks, and ends the process where arguments are wrong.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    let done = match Line::parse_from(args) {
        Line { other: Some(Other::Keygen { file }), .. } => keygen(&file),
        Line { other: Some(Other::Calibrate { data_root, preset }), .. } => {
            calibrate::calibrate(&data_root, &preset)
        }
        Line { serve: Some(args), .. } => run(&args),
        Line { other: None, serve: None } => {
            Err(anyhow::anyhow!("nothing to do; give --listen and --data-root"))
        }
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            log::put(&format!("error: {}", one_line_with(error.as_ref(), flag)));
            1
        }
    }
}

fn keygen(file: &Path) -> Result<()> {
    Key::generate(file)?;
    log::print(&format!("made the key file {}; copy it to each host", file.display()));
    Ok(())
}

fn run(args: &Args) -> Result<()> {
    ensure!(
        !args.once || args.listen.len() == 1,
        "--once ends after the first host of one address; give --listen once"
    );
    let links = if args.follow_links { Links::Beneath } else { Links::Refused };
    let cache = cache(args)?;
    let cache_root = cache.as_ref().map(|cache| cache.root.clone());
    let ready = ready(args, links)?;
    let data = Data::open(&ready.roots, links, cache)?;
    let proofs = Proofs::of(args)?;
    let security = proofs.load()?;
    // From here on there is something to remove; until now a signal ends the program as it is.
    let signals = stop::of_service().context("cannot handle signals")?;
    let doors = open(args, &security)?;
    // Confined, the program opens no socket any more.
    let scrape = args.metrics.as_deref().map(metrics::bind).transpose()?;
    let confined = confine(args, &data, (cache_root, &proofs))?;
    args.log.note(&confined.to_string());
    let config = ServerConfig {
        name: "agent".to_owned(),
        emulated: false,
        n_workers: args.cores.unwrap_or_else(cores_here),
        n_slots: args.slots,
    };
    let server = match data {
        Data::Files(files) => Server::start(config, *files, NoCosts),
        Data::Objects(root) => {
            let store = root.start(config.n_workers)?;
            Server::start(config, store, NoCosts)
        }
    };
    let server = server.context(NO_THREAD)?;
    let server = server.with_memory(args.memory).with_sessions(args.sessions);
    let server = server.with_pixels(args.max_pixels);
    let server = server.with_results(args.result_cache, args.share_results.into());
    let trusts = doors.iter().map(Door::trust).collect();
    let reload = Reload::new(proofs, trusts, signals);
    serve(args, &Arc::new(server), (doors, scrape), reload)
}

/// What helps where the system starts no thread.
const NO_THREAD: &str = "cannot start a thread; is the limit on threads reached (ulimit -u, or pids.max of a container)?";

/// Where the data are.
#[derive(Debug)]
enum Data {
    Files(Box<FileStore>),
    Objects(Box<ObjectRoot>),
}

impl Data {
    fn open(roots: &[DataRoot], links: Links, cache: Option<Cache>) -> Result<Self> {
        if let Some(mut root) = ObjectRoot::of(roots)? {
            if let Some(cache) = cache {
                root = root.with_cache(cache);
            }
            return Ok(Self::Objects(Box::new(root)));
        }
        let mut files = FileStore::of(roots, links)?;
        if let Some(cache) = cache {
            files = files.with_cache(cache);
        }
        Ok(Self::Files(Box::new(files)))
    }
}

/// Serves hosts until a signal comes, or with `--once` the first has left.
fn serve(
    args: &Args,
    server: &Arc<Server<NoCosts>>,
    (doors, scrape): (Vec<Door>, Option<Bound>),
    reload: Reload,
) -> Result<()> {
    let stop = Arc::clone(&reload.stop);
    stop::in_time(&stop).context(NO_THREAD)?;
    let scrape = scrape.map(|bound| metrics::start(bound, server, &doors)).transpose()?;
    if let Some(scrape) = &scrape {
        args.log.note(&format!("metrics: http://{}/metrics", scrape.address()));
    }
    announce::start(args, &doors, &stop)?;
    let reloading = reload.start(args.log).context(NO_THREAD)?;
    for door in &doors {
        log::print(&format!("listening on {}", door.address()));
    }
    let served = serve_at(&doors, server, args, &stop);
    // With `--once` nobody else has set it.
    stop.store(true, Ordering::Relaxed);
    let _ = reloading.join();
    served?;
    for door in doors {
        if let Err(error) = door.close() {
            args.log.warn(&error.with_names(flag));
        }
    }
    Ok(())
}

/// Serves at every address, each on a thread of its own; they end together.
fn serve_at(
    doors: &[Door],
    server: &Server<NoCosts>,
    args: &Args,
    stop: &AtomicBool,
) -> Result<()> {
    let visits = if args.once { Visits::Once } else { Visits::Always };
    let serve = |door: &Door| {
        let tell = |news: News<'_>| args.log.tell(&news, door.address());
        let served = door.serve(server, visits, stop, &tell);
        if served.is_err() {
            // An address is lost: whoever keeps this program running starts it again.
            stop.store(true, Ordering::Relaxed);
        }
        served
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = doors
            .iter()
            .map(|door| {
                let named = std::thread::Builder::new().name("be-door".to_owned());
                named.spawn_scoped(scope, || serve(door))
            })
            .collect();
        for thread in threads {
            let served = thread.context(NO_THREAD)?.join();
            served.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    })
}

/// What is read once hosts are served: the data, random numbers, and how much memory and time there is.
const READ: [&str; 4] = ["/dev/urandom", "/proc/meminfo", "/proc/self", "/sys/fs/cgroup"];

/// What is read to speak to a store or a registry: names of hosts, trusted authorities, and the files that hold
/// credentials by the stores' own conventions, of which tokens are renewed.
const READ_FOR_STORES: [&str; 9] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
    "/run/systemd/resolve",
];
const STORE_FILES: [&str; 8] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "AWS_CA_BUNDLE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "AZURE_FEDERATED_TOKEN_FILE",
];

/// Where AWS's profile files are: keys are renewed by a new file of the same name.
fn profile_folders(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let named = ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"].map(&variable);
    let folders = named.into_iter().flatten().map(folder_of_new);
    folders.chain(variable("HOME").map(|home| home.join(".aws"))).collect()
}

/// The folder in which a new file of this name will be; of one at the root, which has all files, the file alone.
fn folder_of_new(file: PathBuf) -> PathBuf {
    let file = std::path::absolute(&file).unwrap_or(file);
    let is_below_root = |folder: &&Path| {
        let real = folder.canonicalize().unwrap_or_else(|_| PathBuf::from(folder));
        real.parent().is_some()
    };
    match file.parent().filter(is_below_root) {
        Some(folder) => folder.to_owned(),
        None => file,
    }
}

/// Gives up what serving does not need. Before the first thread is started, and after the door is
/// open.
fn confine(
    args: &Args,
    data: &Data,
    (cache, proofs): (Option<PathBuf>, &Proofs),
) -> Result<Confined> {
    let others = args.sandbox.others()?;
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    let mut places = Places::default();
    match data {
        Data::Files(files) => places.read.extend(files.roots().map(Path::to_owned)),
        Data::Objects(_) => {
            places.network = Network::Others;
            let roots = args.data_root.iter().filter_map(|root| root.path.to_str());
            let folders = roots.filter_map(|root| root.strip_prefix("file://"));
            places.read.extend(folders.map(PathBuf::from));
            places.read.extend(READ_FOR_STORES.map(PathBuf::from));
            let named = STORE_FILES.into_iter().filter_map(std::env::var_os);
            places.read.extend(named.map(PathBuf::from));
            let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
            places.read.extend(profile_folders(variable));
        }
    }
    if args.announce.is_some() {
        places.network = Network::Others;
        places.read.extend(READ_FOR_STORES.map(PathBuf::from));
    }
    places.read.extend(READ.map(PathBuf::from));
    for file in proofs.files() {
        // A new one may be another file of that name, or what a link of that name leads to by then.
        places.read.push(folder_of_new(file.to_owned()));
        places.read.extend(file.canonicalize().ok().map(folder_of_new));
    }
    if let Some(cache) = cache {
        // A user's own may be missing, and is then kept without.
        drop(std::fs::create_dir_all(&cache));
        places.written.push(cache);
    }
    for address in &args.listen {
        match address {
            Address::Unix(path) => places.cleared.extend(parent(path)),
            Address::Spool(path) => {
                places.written.push(path.clone());
                places.cleared.extend(parent(path));
            }
            Address::Tcp { .. }
            | Address::Noise { .. }
            | Address::Tls { .. }
            | Address::Nvme(_)
            | Address::Drive(_) => {}
        }
    }
    Ok(args.sandbox.enforce(&places)?.beside(others))
}

/// The doors: at sockets that this process was started with, as far as there are some, and at its own.
fn open(args: &Args, security: &Security) -> Result<Vec<Door>> {
    let mut given = ListenFd::from_env();
    let mut nth = 0;
    let mut adopted = |address: &Address| {
        let is_unix = match address {
            Address::Spool(_) | Address::Nvme(_) | Address::Drive(_) => return Ok(None),
            Address::Unix(_) => true,
            Address::Tcp { .. } | Address::Noise { .. } | Address::Tls { .. } => false,
        };
        if nth >= given.len() {
            return Ok(None);
        }
        nth += 1;
        match is_unix {
            true => Ok(given.take_unix_listener(nth - 1)?.map(OwnedFd::from)),
            false => Ok(given.take_tcp_listener(nth - 1)?.map(OwnedFd::from)),
        }
    };
    let open = |address: &Address| {
        let socket = adopted(address).map_err(|e: std::io::Error| {
            anyhow::anyhow!("the socket in LISTEN_FDS is not of --listen {address}: {e}")
        })?;
        let Some(socket) = socket else {
            return Ok(Door::open(address, security.clone())?);
        };
        let listener = Listener::adopt(address, socket, security)?;
        Ok(Door::at(listener, security.clone()))
    };
    args.listen.iter().map(open).collect()
}

/// Where entry points are kept. A directory that was asked for must be there or be made; the
/// user's own may be missing.
fn cache(args: &Args) -> Result<Option<Cache>> {
    let limit_bytes = args.cache_limit.saturating_mul(1 << 20);
    let root = match &args.cache {
        None => return Ok(Cache::of_user().map(|cache| Cache { limit_bytes, ..cache })),
        Some(off) if off.as_os_str() == "off" => return Ok(None),
        Some(root) => root.clone(),
    };
    std::fs::create_dir_all(&root)
        .with_context(|| format!("cannot make the cache directory {}", root.display()))?;
    Ok(Some(Cache { root, limit_bytes }))
}

/// The data roots, decompressed where necessary.
fn ready(args: &Args, links: Links) -> Result<ReadyRoots> {
    let place = match &args.cache {
        None => DecompressedPlace::of_user(),
        Some(off) if off.as_os_str() == "off" => None,
        Some(root) => Some(DecompressedPlace::in_cache(root)),
    };
    let log = args.log;
    let watch = DecompressingWatch::lines(move |line| log.note(line));
    let ready = ReadyRoots::of(&args.data_root, links, (place.as_ref(), &watch))?;
    ready.notes().for_each(|note| log.note(&note));
    Ok(ready)
}

fn cores_here() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_files_may_be_read_where_new_ones_will_be() {
        let variable = |name: &str| match name {
            "HOME" => Some(PathBuf::from("/home/me")),
            "AWS_CONFIG_FILE" => Some(PathBuf::from("/run/keys/config")),
            _ => None,
        };
        let folders = profile_folders(variable);
        assert_eq!(folders, ["/run/keys", "/home/me/.aws"].map(PathBuf::from));
        // Not all that there is, and not nothing.
        let (here, root) = (std::env::current_dir().unwrap(), Path::new("/tmp/../aws"));
        assert_eq!(folder_of_new(root.to_owned()), root);
        assert_eq!(
            folder_of_new("/aws-credentials".into()),
            Path::new("/aws-credentials")
        );
        assert_eq!(folder_of_new("aws-credentials".into()), here);
    }

    /// Systemd starts it as the unit says, so the unit's flags must be some.
    #[test]
    fn the_unit_for_systemd_has_arguments_that_are_understood() {
        let unit = include_str!("../systemd/bothends-agent.service").replace("\\\n", " ");
        let starts = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
        let args = Line::try_parse_from(starts.unwrap().split_whitespace()).unwrap();
        let args = args.serve.unwrap();
        let socket = include_str!("../systemd/bothends-agent.socket");
        let listens = socket.lines().find_map(|line| line.strip_prefix("ListenStream="));
        let listens = format!("unix://{}", listens.unwrap());
        assert_eq!(args.listen, [listens.parse().unwrap()]);
    }

    #[test]
    fn it_serves_or_makes_a_key_and_never_both() {
        let parsed = |line: &str| Line::try_parse_from(line.split(' '));
        let line = parsed("bothends-agent keygen shared.key").unwrap();
        assert!(matches!(line.other, Some(Other::Keygen { .. })) && line.serve.is_none());
        let serving = "bothends-agent --listen tcp://[::1]:0 --data-root /data";
        let line = parsed(serving).unwrap();
        assert!(line.other.is_none());
        assert_eq!(line.serve.unwrap().insecure, Insecure::Refused);
        let line = parsed(&format!("{serving} --insecure")).unwrap();
        assert_eq!(line.serve.unwrap().insecure, Insecure::Allowed);
        for wrong in [
            "bothends-agent",
            "bothends-agent --listen tcp://[::1]:0",
            "bothends-agent keygen",
            "bothends-agent --listen tcp://[::1]:0 --data-root /data keygen shared.key",
            "bothends-agent --listen tls://[::1]:0 --data-root /data --tls-ca ca.pem",
        ] {
            parsed(wrong).expect_err(wrong);
        }
    }
}
