//! `bothends-agent` as a process of its own: it conforms over every wire, serves until a signal
//! comes, and says in one line what it cannot serve.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use bothends_agent::conformance::{self, Exercise, done};
use bothends_core::recipe::Recipe;
use bothends_csd::{ConnectOptions, CsdError, Session, connect};
use bothends_tests::attempts::until_a_device_takes_part;
use bothends_tests::programs::program;
use bothends_tests::{Setup, cql, generated};

/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn exercise() -> (tempfile::TempDir, Exercise) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let exercise = Exercise::prepare(&data).unwrap();
    (dir, exercise)
}

/// The program, killed if a test ends without it.
struct Agent {
    child: Child,
    url: String,
}

impl Agent {
    fn start(listen: &str, root: &Path, more: &[&str]) -> Self {
        Self::of(command(listen, root, more))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| {
            let mut words = String::new();
            child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
            panic!("it said `{line}` and `{words}`")
        });
        Self { url: url.to_owned(), child }
    }

    fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it never ended");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(listen: &str, root: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(program("bothends-agent").unwrap());
    command.args(["--listen", listen, "--data-root", root.to_str().unwrap()]).args(more);
    // Nothing of a test stays in the user's.
    command.args(["--cache", "off"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit status and standard error of a program that shall not start.
fn refusal(listen: &str, root: &Path, more: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(listen, root, more).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn the_program_conforms_over_every_wire_and_leaves_nothing() {
    for scheme in ["unix", "tcp", "spool"] {
        let (dir, exercise) = exercise();
        let place = dir.path().join("door");
        let listen = match scheme {
            "tcp" => "tcp://127.0.0.1:0".to_owned(),
            _ => format!("{scheme}://{}", place.display()),
        };
        let mut agent =
            Agent::start(&listen, exercise.root(), &["--once", "--cores", "2"]);
        let address = agent.url.parse().unwrap();
        let mut device = connect(&address, &ConnectOptions::default()).unwrap();
        conformance::all(&mut *device, &exercise);
        drop(device);
        assert!(agent.end().success(), "{scheme}");
        assert!(!place.exists(), "{scheme} left {}", place.display());
    }
}

#[test]
fn an_agent_reads_the_objects_that_the_host_reads() {
    let dir = tempfile::tempdir().unwrap();
    let data = generated().unwrap();
    let url = format!("file://{}", data.display());
    let listen = format!("unix://{}", dir.path().join("door").display());
    let agent = Agent::start(&listen, Path::new(&url), &["--cores", "2"]);
    let local = Setup::new(&data).run().unwrap();
    let devices = vec![agent.url.clone()];
    let remote = Setup { data: url.into(), devices, ..Setup::new(&data) };
    let run = |strategy| -> anyhow::Result<_> {
        let epoch = Setup { strategy, ..remote.clone() }.run()?;
        assert_eq!(epoch.content_digest, local.content_digest, "{strategy}");
        Ok(epoch)
    };
    until_a_device_takes_part(|| run("csd")).unwrap();
    run("ordered").unwrap();
    // Folders are told by what is in them, so a copy is as good.
    let other = dir.path().join("other");
    copy(&data, &other);
    let place = format!("unix://{}", dir.path().join("second").display());
    let other = format!("file://{}", other.display());
    let second = Agent::start(&place, Path::new(&other), &["--cores", "1"]);
    let devices = vec![second.url.clone()];
    let strict = Setup { devices, require_devices: true, ..remote };
    assert_eq!(strict.run().unwrap().content_digest, local.content_digest);
}

/// A table with the same rows, written at another time, is not taken for the one that the host listed.
#[test]
fn an_agent_of_another_table_than_the_host_listed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = generated().unwrap();
    let tables = [(); 2].map(|()| cql::Server::start(cql::Settings::default()).unwrap());
    for image in std::fs::read_dir(data.join("class-002")).unwrap().map(Result::unwrap) {
        let key = image.file_name().into_encoded_bytes();
        let bytes = std::fs::read(image.path()).unwrap();
        tables[0].put(&key, &bytes, Some(1));
        tables[1].put(&key, b"older", Some(1));
        tables[1].put(&key, &bytes, Some(1));
    }
    let [same, other] = [0, 1].map(|nth: usize| {
        let listen = format!("unix://{}", dir.path().join(nth.to_string()).display());
        let url = tables[nth].url();
        let agent = Agent::start(&listen, Path::new(&url), &["--cores", "1"]);
        let devices = vec![agent.url.clone()];
        let data: PathBuf = tables[0].url().into();
        let run = Setup { devices, require_devices: true, ..Setup::new(&data) };
        run.run()
    });
    same.unwrap();
    let line = format!("{:#}", other.unwrap_err());
    assert!(line.contains("listed") && line.contains("--data-root"), "{line}");
}

#[test]
fn a_url_that_cannot_be_a_data_root_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let listen = format!("unix://{}", dir.path().join("door").display());
    for (root, said) in [
        ("http://user:secret@", "http://"),
        ("name=s3://bucket/x", "has no name"),
        ("ftp://host/x", "ftp://host/x"),
    ] {
        let (code, words) = refusal(&listen, Path::new(root), &[]);
        assert_eq!(code, Some(1), "{words}");
        assert!(words.contains(said) && !words.contains("secret"), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
    }
}

/// All files below a folder, with times of their own.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let place = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &place),
            false => std::fs::write(place, std::fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
}

/// Where one batch of the exercise fits, 1.8 MB, the program does all the same; where none does it
/// says so.
#[test]
fn a_program_with_little_memory_conforms_or_says_what_is_too_large() {
    let (dir, exercise) = exercise();
    let listen = format!("unix://{}", dir.path().join("door").display());
    let agent = Agent::start(&listen, exercise.root(), &["--memory", "2"]);
    let address = agent.url.parse().unwrap();
    let mut device = connect(&address, &ConnectOptions::default()).unwrap();
    conformance::all(&mut *device, &exercise);
    drop((device, agent));

    // The first one's data are not all there any more.
    let (dir, exercise) = self::exercise();
    let listen = format!("unix://{}", dir.path().join("door").display());
    let agent = Agent::start(&listen, exercise.root(), &["--memory", "1"]);
    let address = agent.url.parse().unwrap();
    let mut device = connect(&address, &ConnectOptions::default()).unwrap();
    device.hello().unwrap();
    let refused = device.open(&exercise.session()).unwrap_err();
    let CsdError::SessionRefused { reason } = refused else { panic!("{refused}") };
    assert!(reason.contains("at most 1048576; use a smaller batch size"), "{reason}");
}

#[test]
fn one_host_after_the_other_is_served_until_a_signal_comes() {
    let (dir, exercise) = exercise();
    let place = dir.path().join("door");
    let listen = format!("unix://{}", place.display());
    let mut agent = Agent::start(&listen, exercise.root(), &[]);
    for _ in 0..2 {
        let address = agent.url.parse().unwrap();
        let mut device = connect(&address, &ConnectOptions::default()).unwrap();
        device.hello().unwrap();
        device.open(&exercise.session()).unwrap();
        done(&mut *device, &exercise, exercise.job(0, &[0]));
    }
    let id = agent.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(agent.end().success());
    assert!(!place.exists());
}

/// The line in which the program says how far it is confined.
fn confinement(agent: &mut Agent) -> String {
    let mut line = String::new();
    BufReader::new(agent.child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    line
}

/// Whether this machine can confine a program.
#[allow(clippy::print_stdout, reason = "a skip is printed")]
fn can_confine(root: &Path) -> bool {
    let mut probe = command("tcp://127.0.0.1:0", root, &["--sandbox", "required"]);
    let mut child = probe.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    let words = child.wait_with_output().unwrap().stderr;
    if line.is_empty() {
        println!("skipped: {}", String::from_utf8_lossy(&words));
    }
    !line.is_empty()
}

/// Workers, scouts and all, as the kernel sees them (proc_pid_status(5)).
fn every_thread_is_confined(process: u32) {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let threads: Vec<_> = threads.map(|thread| thread.unwrap().path()).collect();
    assert!(threads.len() > 2, "{threads:?}");
    for thread in threads {
        // One may have ended.
        let Ok(status) = std::fs::read_to_string(thread.join("status")) else { continue };
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.lines().any(|has| has == line), "{line}: {status}");
        }
    }
}

#[test]
fn a_confined_program_serves_as_any_other_and_leaves_nothing() {
    for scheme in ["unix", "tcp", "spool"] {
        let (dir, exercise) = exercise();
        if !can_confine(exercise.root()) {
            return;
        }
        let (place, cache) = (dir.path().join("door"), dir.path().join("cache"));
        let listen = match scheme {
            "tcp" => "tcp://127.0.0.1:0".to_owned(),
            _ => format!("{scheme}://{}", place.display()),
        };
        let mut agent = Command::new(program("bothends-agent").unwrap());
        agent.args(["--listen", &listen, "--sandbox", "required", "--once"]);
        agent.arg("--data-root").arg(exercise.root()).arg("--cache").arg(&cache);
        agent.env("XDG_STATE_HOME", dir.path());
        agent.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut agent = Agent::of(agent);
        let address = agent.url.parse().unwrap();
        let mut device = connect(&address, &ConnectOptions::default()).unwrap();
        conformance::all(&mut *device, &exercise);
        assert!(device.stats().unwrap().cpu_seconds.is_some());
        every_thread_is_confined(agent.child.id());
        drop(device);
        let line = confinement(&mut agent);
        assert!(line.starts_with("note: confined: Landlock "), "{line}");
        assert!(agent.end().success(), "{scheme}");
        assert!(!place.exists(), "{scheme} left {}", place.display());
        // What it has learned is kept, and a key for it.
        let own = std::fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
        assert_eq!(std::fs::read_dir(own).unwrap().count(), 2, "{scheme}");
    }
}

#[test]
fn a_program_says_how_far_it_is_confined() {
    let dir = tempfile::tempdir().unwrap();
    for (mode, said) in [("auto", "onfined"), ("off", "not confined: --sandbox off")] {
        let more = ["--sandbox", mode];
        let mut agent = Agent::start("tcp://127.0.0.1:0", dir.path(), &more);
        let line = confinement(&mut agent);
        assert!(line.contains(said), "{line}");
    }
}

/// What a session asks for when each sample takes a core a second and more: as much as an agent takes on.
fn long_session(exercise: &Exercise) -> Session {
    let again = vec![r#"{"op": "jpeg", "quality": 90}"#; 15].join(", ");
    let recipe = format!(
        r#"{{"name": "long", "version": 1, "ops": [{{"op": "decode"}},
            {{"op": "resize", "size": [2048, 2048]}}, {again},
            {{"op": "center_crop", "size": 224}}]}}"#
    );
    let recipe = Recipe::from_json(&recipe).unwrap();
    let (hash, recipe) = (recipe.hash(), recipe.to_json());
    Session { recipe, recipe_hash: hash, ..exercise.session() }
}

/// A worker looks up only between two samples, and a host may take nothing.
#[test]
fn a_signal_ends_the_program_in_time_whatever_it_is_in_the_middle_of() {
    // What the program allows itself, and what a machine under load adds. Two cores would need longer for the samples.
    let soon = Duration::from_secs(2 + 18);
    for session in [long_session, Exercise::session] {
        let (dir, exercise) = exercise();
        let place = dir.path().join("door");
        let listen = format!("unix://{}", place.display());
        // So many share the cores that no sample is done before long.
        let mut agent = Agent::start(&listen, exercise.root(), &["--cores", "64"]);
        let address = agent.url.parse().unwrap();
        let mut device = connect(&address, &ConnectOptions::default()).unwrap();
        device.hello().unwrap();
        device.open(&session(&exercise)).unwrap();
        let slots: Vec<_> = (0..4).map(|_| conformance::slot(&exercise)).collect();
        for (number, slot) in (0..).zip(slots) {
            // Nobody asks for the results.
            device.submit(exercise.job(number, &[0; 12]), slot).unwrap();
        }
        std::thread::sleep(Duration::from_millis(500));
        let id = agent.child.id().to_string();
        let began = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(agent.end().success());
        assert!(began.elapsed() < soon, "{:?}", began.elapsed());
        assert!(!place.exists());
    }
}

#[test]
fn a_recipe_that_would_keep_a_worker_busy_for_minutes_is_refused() {
    let (dir, exercise) = exercise();
    let listen = format!("unix://{}", dir.path().join("door").display());
    let agent = Agent::start(&listen, exercise.root(), &[]);
    let address = agent.url.parse().unwrap();
    let mut device = connect(&address, &ConnectOptions::default()).unwrap();
    device.hello().unwrap();
    let blurs = vec![r#"{"op": "gaussian_blur", "kernel_size": 63}"#; 60].join(", ");
    for (size, limit) in [(13_370, "pixels and this device makes"), (2048, "fewer ops")] {
        let recipe = format!(
            r#"{{"name": "bomb", "version": 1, "ops": [{{"op": "decode"}},
                {{"op": "resize", "size": [{size}, {size}]}}, {blurs},
                {{"op": "center_crop", "size": 224}}]}}"#
        );
        let recipe = Recipe::from_json(&recipe).unwrap();
        let (recipe_hash, recipe) = (recipe.hash(), recipe.to_json());
        let bomb = Session { recipe, recipe_hash, ..exercise.session() };
        let CsdError::SessionRefused { reason } = device.open(&bomb).unwrap_err() else {
            panic!("it was taken");
        };
        assert!(reason.contains(limit), "{reason}");
        assert_eq!(reason.lines().count(), 1, "{reason}");
    }
    device.open(&exercise.session()).unwrap();
    done(&mut *device, &exercise, exercise.job(0, &[0]));
}

/// Somebody put a link to another file where the socket of a dead agent could lie.
#[test]
fn a_link_in_place_of_a_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "thesis").unwrap();
    let dead = dir.path().join("dead");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    for target in [&precious, &dead] {
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(target, &link).unwrap();
        let listen = format!("unix://{}", link.display());
        let (status, words) = refusal(&listen, dir.path(), &[]);
        assert_eq!(status, Some(1));
        assert!(words.contains("cannot listen at"), "{words}");
        assert!(link.is_symlink() && target.exists());
        std::fs::remove_file(&link).unwrap();
    }
    assert_eq!(std::fs::read_to_string(precious).unwrap(), "thesis");
}

#[test]
fn an_agent_makes_a_key_and_serves_whoever_has_it() {
    let (dir, exercise) = exercise();
    let key = dir.path().join("shared.key");
    let keygen = || {
        let mut command = Command::new(program("bothends-agent").unwrap());
        command.arg("keygen").arg(&key).output().unwrap()
    };
    assert!(keygen().status.success());
    let made = std::fs::read(&key).unwrap();
    let again = keygen();
    assert_eq!(again.status.code(), Some(1));
    let words = String::from_utf8(again.stderr).unwrap();
    assert!(words.contains("shared.key") && words.lines().count() == 1, "{words}");
    assert_eq!(std::fs::read(&key).unwrap(), made);

    let listen = "tcp+noise://127.0.0.1:0";
    let flag = ["--key-file", key.to_str().unwrap()];
    let agent = Agent::start(listen, exercise.root(), &flag);
    let options =
        ConnectOptions { key_file: Some(key.clone()), ..ConnectOptions::default() };
    let mut device = connect(&agent.url.parse().unwrap(), &options).unwrap();
    device.hello().unwrap();
    device.open(&exercise.session()).unwrap();
    done(&mut *device, &exercise, exercise.job(0, &[0]));

    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&key, mode).unwrap();
    let (status, words) = refusal(listen, exercise.root(), &flag);
    assert_eq!(status, Some(1));
    assert!(words.contains(&format!("run `chmod 600 {}`", key.display())), "{words}");
}

#[test]
fn what_cannot_be_served_is_one_line_and_the_right_status() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let (status, words) = refusal("tcp://127.0.0.1:0", &missing, &[]);
    assert_eq!(status, Some(1));
    let expected =
        format!("error: cannot read {} on the device: No such", missing.display());
    assert!(words.starts_with(&expected), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");

    let (status, words) = refusal("tcp://0.0.0.0:0", dir.path(), &[]);
    assert_eq!(status, Some(1));
    assert!(words.contains("use tcp+noise:// or tls://"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");

    let (status, words) = refusal("nas:7070", dir.path(), &[]);
    assert_eq!(status, Some(2));
    assert!(words.contains("tcp://HOST:PORT"), "{words}");

    let (status, _) = refusal("tcp://127.0.0.1:0", dir.path(), &["--cores", "0"]);
    assert_eq!(status, Some(2));

    let (status, words) = refusal("tcp://127.0.0.1:0", dir.path(), &["--memory", "0"]);
    assert_eq!(status, Some(2));
    assert!(words.contains("give MiB, 1 or more, or auto"), "{words}");
}
