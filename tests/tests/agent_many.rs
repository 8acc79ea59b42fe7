//! One `bothends-agent` and many hosts at once: each gets what it gets alone, whatever the others do
//! or fail to do. What it does in detail is tested in the agent's own crate.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bothends_agent::conformance::{Exercise, done, slot};
use bothends_csd::{
    ConnectOptions, CsdError, JobTerms, Session, TlsFiles, Transport, connect,
};
use bothends_tests::attempts::until_a_device_takes_part;
use bothends_tests::programs::program;
use bothends_tests::{Setup, generated};

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// An agent at a Unix socket, killed if a test ends without it.
struct Agent {
    child: Child,
    socket: PathBuf,
    /// Its other addresses.
    others: Vec<String>,
}

impl Agent {
    fn start(folder: &Path, root: &Path, more: &[&str]) -> Self {
        let socket = folder.join("door");
        let listen = format!("unix://{}", socket.display());
        let mut command = Command::new(program("bothends-agent").unwrap());
        command.args(["--listen", &listen, "--data-root", root.to_str().unwrap()]);
        // Nothing of a test stays in the user's.
        command.args(["--cache", "off", "--cores", "2"]).args(more);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let n_others = more.iter().filter(|it| **it == "--listen").count();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut addresses = said.take(n_others + 1).map(|line| {
            let line = line.unwrap();
            line.strip_prefix("listening on ").unwrap().to_owned()
        });
        assert_eq!(addresses.next(), Some(listen));
        let others = addresses.collect();
        Self { child, socket, others }
    }

    fn spec(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    fn host(&self) -> Result<Box<dyn Transport>, CsdError> {
        self.host_with(&ConnectOptions::default())
    }

    fn host_with(
        &self,
        options: &ConnectOptions,
    ) -> Result<Box<dyn Transport>, CsdError> {
        let mut host = connect(&self.spec().parse().unwrap(), options)?;
        host.hello()?;
        Ok(host)
    }

    fn send(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exercise() -> (tempfile::TempDir, Exercise) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let exercise = Exercise::prepare(&data).unwrap();
    (dir, exercise)
}

/// The runs of two jobs, one of them of two ranks and the other with another recipe.
fn runs() -> Vec<Setup> {
    let plain = Setup::new(&generated().unwrap());
    let ranks = (0..2).map(|rank| Setup { rank: [rank, 2], ..plain.clone() });
    let recipe = "imagenet-eval".to_owned();
    let other = Setup { recipe, seed: 5, ..plain.clone() };
    let third = Setup { seed: 77, epochs: 2, ..plain.clone() };
    ranks.chain([other, third]).collect()
}

/// Digests of the last epoch of a run, in which the device takes part.
fn digests(setup: &Setup, device: Option<&str>) -> [Option<String>; 2] {
    if let Some(spec) = device {
        let devices = vec![spec.to_owned()];
        let with = Setup { devices, require_devices: true, ..setup.clone() };
        // The device makes all that it has ready in time, which are delivered as they come.
        let mostly = Setup { strategy: "csd", ..with.clone() };
        let mostly = until_a_device_takes_part(|| mostly.run()).unwrap();
        let shared = with.run().unwrap();
        assert_eq!(mostly.content_digest, shared.content_digest);
        return [shared.stream_digest, shared.content_digest];
    }
    let epoch = setup.run().unwrap();
    [epoch.stream_digest, epoch.content_digest]
}

#[test]
fn two_ranks_and_two_jobs_at_once_get_what_each_gets_alone() {
    let dir = tempfile::tempdir().unwrap();
    let alone: Vec<_> = runs().iter().map(|setup| digests(setup, None)).collect();
    assert!(alone[0] != alone[1] && alone[2] != alone[3]);
    let agent = Agent::start(dir.path(), &generated().unwrap(), &[]);
    let spec = &agent.spec();
    std::thread::scope(|scope| {
        let runs = runs();
        let at_once: Vec<_> = runs
            .into_iter()
            .map(|setup| scope.spawn(move || digests(&setup, Some(spec))))
            .collect();
        let at_once: Vec<_> = at_once.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(at_once, alone);
    });
}

/// A key and a certificate that both sides have, of this user alone.
fn trusts(folder: &Path) -> (PathBuf, TlsFiles) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let kept = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        let own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, own).unwrap();
        path
    };
    let cert = kept("cert.pem", &certified.cert.pem());
    let key = kept("key.pem", &certified.signing_key.serialize_pem());
    let shared = kept("shared.key", "of two sides and nobody else");
    (shared, TlsFiles { ca: cert.clone(), cert, key })
}

#[test]
fn hosts_at_three_kinds_of_address_get_what_each_gets_alone() {
    let dir = tempfile::tempdir().unwrap();
    let alone: Vec<_> = runs().iter().map(|setup| digests(setup, None)).collect();
    let (key_file, tls) = trusts(dir.path());
    let [key, ca, cert, tls_key] =
        [&key_file, &tls.ca, &tls.cert, &tls.key].map(|path| path.to_str().unwrap());
    let mut more = vec!["--listen", "tcp+noise://127.0.0.1:0", "--listen"];
    more.extend(["tls://localhost:0", "--key-file", key, "--tls-ca", ca]);
    more.extend(["--tls-cert", cert, "--tls-key", tls_key]);
    let agent = Agent::start(dir.path(), &generated().unwrap(), &more);
    assert_eq!(agent.others.len(), 2);
    let mut specs = vec![agent.spec()];
    specs.extend(agent.others.iter().cloned());
    std::thread::scope(|scope| {
        let kinds = specs.iter().cycle();
        let at_once: Vec<_> = runs()
            .into_iter()
            .zip(kinds)
            .map(|(setup, spec)| {
                let (key_file, tls) = (Some(key_file.clone()), Some(tls.clone()));
                let setup = Setup { key_file, tls, ..setup };
                scope.spawn(move || digests(&setup, Some(spec)))
            })
            .collect();
        let at_once: Vec<_> = at_once.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(at_once, alone);
    });
}

#[test]
fn a_thousand_hosts_that_come_and_go_change_nothing_for_one_that_stays() {
    let dir = tempfile::tempdir().unwrap();
    let plain = Setup { epochs: 2, ..Setup::new(&generated().unwrap()) };
    let alone = digests(&plain, None);
    let agent = Agent::start(dir.path(), &generated().unwrap(), &[]);
    let spec = &agent.spec();
    let (_dir, exercise) = exercise();
    std::thread::scope(|scope| {
        let stays = scope.spawn(|| digests(&plain, Some(spec)));
        for number in 0..1000 {
            match number % 4 {
                // Not a word.
                0 => drop(UnixStream::connect(&agent.socket)),
                // What is no word.
                1 => drop(
                    UnixStream::connect(&agent.socket)
                        .and_then(|mut it| it.write_all(b"GET / HTTP/1.1\r\n\r\n")),
                ),
                // A host that leaves again, or one without its data.
                2 => drop(agent.host()),
                _ => drop(agent.host().map(|mut it| it.open(&exercise.session()))),
            }
        }
        assert_eq!(stays.join().unwrap(), alone);
    });
}

#[test]
fn a_host_that_vanishes_in_the_middle_of_its_jobs_costs_the_others_nothing() {
    let (dir, exercise) = exercise();
    let agent = Agent::start(dir.path(), exercise.root(), &[]);
    let mut stays = agent.host().unwrap();
    stays.open(&exercise.session()).unwrap();
    for number in 0..10 {
        let mut gone = agent.host().unwrap();
        gone.open(&exercise.session()).unwrap();
        for number in 0..4 {
            gone.submit(exercise.job(number, &[4; 12]), slot(&exercise)).unwrap();
        }
        drop(gone);
        let job = exercise.job(number, &[0, 1, 2, 3]);
        let expected = exercise.expected(&job);
        assert!(done(&mut *stays, &exercise, job) == expected);
    }
}

#[test]
fn a_signal_ends_it_in_time_with_hosts_and_silent_ones_connected() {
    let (dir, exercise) = exercise();
    let mut agent = Agent::start(dir.path(), exercise.root(), &[]);
    let _silent: Vec<_> =
        (0..20).map(|_| UnixStream::connect(&agent.socket).unwrap()).collect();
    let mut hosts: Vec<_> = (0..3).map(|_| agent.host().unwrap()).collect();
    hosts[0].open(&exercise.session()).unwrap();
    hosts[0].submit(exercise.job(0, &[4; 12]), slot(&exercise)).unwrap();
    agent.send("-TERM");
    let began = Instant::now();
    let status = loop {
        if let Some(status) = agent.child.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "it never ended");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{status}");
    assert!(!agent.socket.exists());
}

#[test]
fn a_run_goes_on_without_a_busy_agent_which_has_room_when_another_host_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), &generated().unwrap(), &["--sessions", "1"]);
    let alone = digests(&Setup::new(&generated().unwrap()), None);
    let only = agent.host().unwrap();
    let Err(CsdError::Busy { retry, .. }) = agent.host() else { panic!("it is full") };
    assert!(!retry.is_zero());
    let devices = vec![agent.spec()];
    let setup = Setup { devices, ..Setup::new(&generated().unwrap()) };
    // The host makes everything meanwhile.
    let epoch = setup.run().unwrap();
    assert_eq!([epoch.stream_digest, epoch.content_digest], alone);
    assert_eq!(epoch.back[0].batches, 0);
    let failure = epoch.back[0].failure.clone().unwrap_or_default();
    assert!(failure.contains("the device is busy"), "{failure}");
    drop(only);
    let began = Instant::now();
    while agent.host().is_err() {
        assert!(began.elapsed() < PATIENCE, "the place stays taken");
    }
    let epoch = setup.run().unwrap();
    assert_eq!([epoch.stream_digest, epoch.content_digest], alone);
}

#[test]
fn its_numbers_are_there_for_prometheus() {
    let (dir, exercise) = exercise();
    let more = ["--metrics", ":0", "--log", "json"];
    let mut agent = Agent::start(dir.path(), exercise.root(), &more);
    let said = BufReader::new(agent.child.stderr.take().unwrap()).lines();
    let mut said = said.map(Result::unwrap);
    let line = said.find(|line| line.contains("http://")).unwrap();
    assert!(line.starts_with("{\"time\":"), "{line}");
    let (_, at) = line.split_once("http://").unwrap();
    let (at, _) = at.split_once("/metrics").unwrap();
    let mut host = agent.host().unwrap();
    let job = Some(JobTerms::named("vit"));
    host.open(&Session { job, ..exercise.session() }).unwrap();
    done(&mut *host, &exercise, exercise.job(0, &[0, 1, 2]));
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    drop(host);
    let told: Vec<String> = said.by_ref().take(2).collect();
    assert!(told[0].contains("\"event\":\"host_came\",\"host\":1,"), "{told:?}");
    assert!(told[1].contains("\"event\":\"host_left\",\"host\":1,"), "{told:?}");
    for expected in [
        "\nbothends_agent_hosts 1\n",
        "\nbothends_agent_sessions 1\n",
        "\nbothends_agent_samples_total 3\n",
        "\nbothends_agent_jobs_total 1\n",
        "\nbothends_agent_job_sessions{job=\"vit\"} 1\n",
        "\nbothends_agent_job_samples_total{job=\"vit\"} 3\n",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

/// Both hosts are of this user, which the agent sees at its socket.
#[test]
fn a_job_that_runs_twice_is_made_once() {
    let (dir, exercise) = exercise();
    let agent = Agent::start(dir.path(), exercise.root(), &[]);
    let session =
        |name| Session { job: Some(JobTerms::named(name)), ..exercise.session() };
    let mut hosts = ["one", "again"].map(|name| {
        let mut host = agent.host().unwrap();
        host.open(&session(name)).unwrap();
        // Nothing is kept for a session that has had no job.
        done(&mut *host, &exercise, exercise.job(30, &[]));
        host
    });
    let job = exercise.job(0, &[0, 1, 2]);
    let made = hosts.each_mut().map(|host| done(&mut **host, &exercise, job.clone()));
    assert!(made[0] == made[1] && made[0] == exercise.expected(&job));
    let shared = hosts.map(|mut host| host.stats().unwrap().shared_samples);
    assert_eq!(shared, [0, 3]);
}

#[test]
fn a_new_key_holds_for_those_who_come_after_the_signal() {
    let (dir, exercise) = exercise();
    let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
    let used = dir.path().join("used");
    for (file, key) in [(&old, "an old key that both know"), (&new, "a new key, too")] {
        std::fs::write(file, format!("{key} of sixteen bytes\n")).unwrap();
        let own = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(file, own).unwrap();
    }
    std::fs::copy(&old, &used).unwrap();
    let agent = Agent::start(
        dir.path(),
        exercise.root(),
        &["--key-file", used.to_str().unwrap()],
    );
    let with = |file: &Path| {
        let key_file = Some(file.to_owned());
        agent.host_with(&ConnectOptions { key_file, ..ConnectOptions::default() })
    };
    let mut stays = with(&old).unwrap();
    assert!(with(&new).is_err());
    std::fs::copy(&new, &used).unwrap();
    agent.send("-HUP");
    let began = Instant::now();
    while with(&new).is_err() {
        assert!(began.elapsed() < PATIENCE, "the new key is never taken");
    }
    assert!(with(&old).is_err());
    stays.open(&exercise.session()).unwrap();
    done(&mut *stays, &exercise, exercise.job(0, &[0]));
    // A file that cannot be used changes nothing.
    std::fs::write(&used, "short").unwrap();
    agent.send("-HUP");
    with(&new).unwrap();
}

/// As systemd starts a service whose socket it has opened.
#[test]
fn a_socket_that_was_opened_for_it_is_served_and_stays() {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;
    let (dir, exercise) = exercise();
    let socket = dir.path().join("door");
    let listener = UnixListener::bind(&socket).unwrap();
    let agent = program("bothends-agent").unwrap();
    // The shell makes it descriptor 3, clears what else it inherits, and names itself.
    let script = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"";
    let fd = std::os::fd::AsFd::as_fd(&listener).try_clone_to_owned().unwrap();
    assert!(fd.as_raw_fd() > 2);
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(agent);
    command.args(["--listen", &format!("unix://{}", socket.display()), "--once"]);
    command.args(["--cache", "off", "--data-root", exercise.root().to_str().unwrap()]);
    let mut child = command.stdin(Stdio::from(fd)).stdout(Stdio::null()).spawn().unwrap();
    let address = format!("unix://{}", socket.display()).parse().unwrap();
    let mut host = connect(&address, &ConnectOptions::default()).unwrap();
    host.hello().unwrap();
    host.open(&exercise.session()).unwrap();
    done(&mut *host, &exercise, exercise.job(0, &[0]));
    drop(host);
    assert!(child.wait().unwrap().success());
    assert!(socket.exists(), "whoever opened it keeps it");
}
