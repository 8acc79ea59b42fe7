//! A program that prints credentials (`credential_process`): run at the start, and again before they expire.
//!
//! <https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html>

use std::fmt::{self, Debug, Formatter};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{self, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::{BoxFuture, FutureExt};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tokio::sync::Mutex as AsyncMutex;

use super::usable;
use crate::client::failure::Failure;
use crate::objects::since_1970;
use crate::retry::WITHIN;
use crate::stores::cloud::keys::IN_FLIGHT;
use crate::stores::cloud::{Renewed, Secrets};

/// Credentials that expire sooner are renewed.
const EARLY: Duration = Duration::from_secs(300);
/// How long after an attempt the next one is made, while the credentials are good.
const PAUSE: Duration = Duration::from_secs(10);
/// More than any credentials have.
const LONGEST: u64 = 64 << 10;
/// How often it is looked whether the program has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Nobody hears how it has ended.
const ECHILD: i32 = 10;

/// Credentials, and until when they are good, since 1970; nothing where they do not expire.
type Printed = (AwsCredential, Option<Duration>);

/// The program, and what it has printed last.
pub(super) struct Command {
    line: String,
    secrets: Secrets,
    now: Mutex<Now>,
    /// One runs at a time.
    running: Arc<AsyncMutex<()>>,
}

struct Now {
    keys: Arc<AwsCredential>,
    /// Since 1970; nothing where they do not expire.
    until: Option<Duration>,
    /// When others were last asked for, and what was wrong then.
    tried: Instant,
    failed: Option<String>,
    /// When they came instead of others.
    changed: Option<Instant>,
}

impl Now {
    /// What was printed a moment ago. What has already expired by this machine's clock may be good by the store's:
    /// it is tried until it is time to ask again.
    fn of((keys, until): Printed) -> Self {
        let soonest = since_1970_now() + PAUSE;
        let is_past = until.is_some_and(|until| until <= since_1970_now());
        let until = if is_past { Some(soonest) } else { until };
        let (keys, tried) = (Arc::new(keys), Instant::now());
        Self { keys, until, tried, failed: None, changed: None }
    }

    /// Whether they are good for so much longer.
    fn is_good_for(&self, time: Duration) -> bool {
        self.until.is_none_or(|until| since_1970_now() + time < until)
    }
}

fn since_1970_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Without the credentials, and without the line, which may have some.
impl Debug for Command {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").finish_non_exhaustive()
    }
}

impl Command {
    /// Runs it the first time.
    ///
    /// # Errors
    /// What is wrong with it, without what it printed.
    pub(super) fn start(line: &str, secrets: &Secrets) -> Result<Arc<Self>, String> {
        let printed = run(line)?;
        remember(secrets, &printed.0);
        let now = Now::of(printed);
        let (line, secrets) = (line.to_owned(), secrets.clone());
        let running = Arc::default();
        Ok(Arc::new(Self { line, secrets, now: Mutex::new(now), running }))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn good_for(&self, time: Duration) -> Option<Arc<AwsCredential>> {
        let now = self.now();
        now.is_good_for(time).then(|| Arc::clone(&now.keys))
    }

    /// Why it has failed, if that was a moment ago.
    fn has_failed(&self) -> Option<String> {
        let now = self.now();
        now.failed.clone().filter(|_| now.tried.elapsed() < PAUSE)
    }

    fn renew(&self) -> Result<(), String> {
        let printed = run(&self.line);
        if let Ok((keys, _)) = &printed {
            remember(&self.secrets, keys);
        }
        let mut now = self.now();
        match printed {
            Ok(printed) => {
                let is_same = printed.0 == *now.keys;
                let changed = if is_same { now.changed } else { Some(Instant::now()) };
                *now = Now { changed, ..Now::of(printed) };
                Ok(())
            }
            Err(why) => {
                now.tried = Instant::now();
                now.failed = Some(why.clone());
                Err(why)
            }
        }
    }
}

impl Renewed for Command {
    fn is_renewed(&self) -> bool {
        // It is run before the next request, or is running.
        if self.good_for(Duration::ZERO).is_none() || self.running.try_lock().is_err() {
            return true;
        }
        self.now().changed.is_some_and(|at| at.elapsed() < IN_FLIGHT)
    }
}

/// A request that is given up does not end the program, whose credentials are for the next one.
async fn get(of: Arc<Command>) -> Result<Arc<AwsCredential>, String> {
    if let Some(keys) = of.good_for(EARLY) {
        return Ok(keys);
    }
    let running = Arc::clone(&of.running);
    if let Some(keys) = of.good_for(Duration::ZERO) {
        // They are good while the next ones are made.
        let is_time = of.now().tried.elapsed() >= PAUSE;
        if let (true, Ok(guard)) = (is_time, running.try_lock_owned()) {
            tokio::task::spawn_blocking(move || {
                // What is wrong is told once they have expired.
                let _ = of.renew();
                drop(guard);
            });
        }
        return Ok(keys);
    }
    let guard = running.lock_owned().await;
    // Whoever waited for another one's attempt has its result.
    if let Some(keys) = of.good_for(Duration::ZERO) {
        return Ok(keys);
    }
    if let Some(why) = of.has_failed() {
        return Err(why);
    }
    let renewing = tokio::task::spawn_blocking(move || {
        let renewed = of.renew();
        drop(guard);
        renewed.map(|()| Arc::clone(&of.now().keys))
    });
    renewing.await.unwrap_or_else(|_| Err("was not run".to_owned()))
}

/// What a bucket is opened with.
#[derive(Debug)]
pub(super) struct OfCommand(pub(super) Arc<Command>);

impl CredentialProvider for OfCommand {
    type Credential = AwsCredential;

    // Written out, as the trait's attribute macro would.
    fn get_credential<'s, 'f>(
        &'s self,
    ) -> BoxFuture<'f, object_store::Result<Arc<AwsCredential>>>
    where
        's: 'f,
        Self: 'f,
    {
        let got = get(Arc::clone(&self.0));
        let failed = |why| {
            let why = format!("the profile's credential_process {why}");
            // At the start it has not failed, so it may not fail the next time.
            let source = Box::new(Failure::Broken(why));
            object_store::Error::Generic { store: "S3", source }
        };
        async move { got.await.map_err(failed) }.boxed()
    }
}

fn remember(secrets: &Secrets, keys: &AwsCredential) {
    secrets.add([keys.key_id.clone(), keys.secret_key.clone()]);
    secrets.add(keys.token.clone());
}

/// What the line prints: credentials, and until when they are good, since 1970.
fn run(line: &str) -> Result<Printed, String> {
    printed(line, WITHIN).and_then(|text| {
        credentials(&text).ok_or_else(|| {
            "does not print what is documented: JSON with Version 1, AccessKeyId, SecretAccessKey \
             and, if they expire, SessionToken and Expiration"
                .to_owned()
        })
    })
}

/// What the line prints within this time. Then it is ended, with all that it has started: whoever holds its output is not
/// waited for.
fn printed(line: &str, within: Duration) -> Result<String, String> {
    let mut shell = process::Command::new("sh");
    shell.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = shell.stderr(Stdio::null()).process_group(0).spawn();
    let mut child = child.map_err(|error| format!("cannot be run ({})", error.kind()))?;
    let Some(output) = child.stdout.take() else { return Err("is mute".to_owned()) };
    let (give, read) = mpsc::channel();
    let reader = thread::Builder::new().spawn(move || {
        let mut text = String::new();
        // What is no text has no credentials.
        let _ = output.take(LONGEST).read_to_string(&mut text);
        // Nobody waits for one that is late.
        let _ = give.send(text);
    });
    let began = Instant::now();
    let ended = ended(&mut child, (began, within));
    let left = within.saturating_sub(began.elapsed());
    let text = match (&ended, reader) {
        (Err(why), _) => Err(why.clone()),
        (Ok(()), Err(error)) => Err(format!("cannot be read ({})", error.kind())),
        (Ok(()), Ok(_)) => read.recv_timeout(left).map_err(|_| {
            let within = within.as_secs();
            format!("has ended, but what it has started held its output for {within} s")
        }),
    };
    if text.is_err()
        && let Ok(group) = i32::try_from(child.id())
    {
        // It may have ended meanwhile.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        let _ = child.wait();
    }
    text
}

/// That it has ended well within this time since it began.
fn ended(
    child: &mut process::Child,
    (began, within): (Instant, Duration),
) -> Result<(), String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                return Err(format!("ended with {status}; run it by hand to see why"));
            }
            Ok(None) if began.elapsed() < within => thread::sleep(LOOK),
            Ok(None) => {
                return Err(format!("did not end within {} s", within.as_secs()));
            }
            // Where SIGCHLD is ignored, nobody hears how it has ended: what it has printed counts.
            Err(error) if error.raw_os_error() == Some(ECHILD) => return Ok(()),
            Err(error) => return Err(format!("cannot be waited for ({})", error.kind())),
        }
    }
}

fn credentials(text: &str) -> Option<Printed> {
    let key_id = string(text, "AccessKeyId")?;
    let secret_key = string(text, "SecretAccessKey")?;
    let token = optional(text, "SessionToken")?;
    let keys = usable(AwsCredential { key_id, secret_key, token })?;
    let until = match optional(text, "Expiration")? {
        Some(time) => Some(time_since_1970(&time)?),
        None => None,
    };
    Some((keys, until))
}

/// The text of this name, if there is such a name; `None` where it cannot be read: without it, the others are of no use.
fn optional(json: &str, name: &str) -> Option<Option<String>> {
    let value = value(json, name).filter(|value| {
        // Some programs print these where there is none.
        !["null", "\"\""].iter().any(|nothing| value.starts_with(nothing))
    });
    match value {
        Some(_) => string(json, name).map(Some),
        None => Some(None),
    }
}

/// What follows this name of a JSON object.
fn value<'json>(json: &'json str, name: &str) -> Option<&'json str> {
    let (_, rest) = json.split_once(&format!("\"{name}\""))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

/// The text of a JSON object that has this name; `None` where it has none, and of an empty one.
fn string(json: &str, name: &str) -> Option<String> {
    let mut letters = value(json, name)?.strip_prefix('"')?.chars();
    let mut text = String::new();
    loop {
        match letters.next()? {
            '"' => return (!text.is_empty()).then_some(text),
            '\\' => text.push(match letters.next()? {
                'u' => {
                    let code: String = letters.by_ref().take(4).collect();
                    // Letters beyond these have two such codes, and no credential has them.
                    char::from_u32(u32::from_str_radix(&code, 16).ok()?)?
                }
                plain @ ('/' | '"' | '\\') => plain,
                _ => return None,
            }),
            plain => text.push(plain),
        }
    }
}

/// A time such as `2019-05-29T00:21:43Z` or `2019-05-29T00:21:43.5+00:00`.
fn time_since_1970(text: &str) -> Option<Duration> {
    let (date, rest) = text.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<u64>().ok());
    let date = (date.next()??, date.next()??, date.next()??);
    let end = rest.find(['Z', '+', '-'])?;
    let (clock, zone) = rest.split_at(end);
    let clock = clock.split('.').next()?;
    let mut clock = clock.split(':').map(|part| part.parse::<u64>().ok());
    let clock = (clock.next()??, clock.next()??, clock.next()??);
    let local = since_1970(date, clock)?;
    let Some((sign, zone)) = zone.split_at_checked(1).filter(|(sign, _)| *sign != "Z")
    else {
        return Some(local);
    };
    let (hours, minutes) = zone.split_once(':')?;
    let (hours, minutes) = (hours.parse::<u64>().ok()?, minutes.parse::<u64>().ok()?);
    let ahead = Duration::from_secs(hours.min(24) * 3600 + minutes.min(60) * 60);
    if sign == "+" { local.checked_sub(ahead) } else { local.checked_add(ahead) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_what_a_program_prints() {
        let text = "{\n \"Version\": 1, \"AccessKeyId\" : \"id\",\"SecretAccessKey\":\"a\\/b+c=\",\n\
                    \"SessionToken\": \"t\", \"Expiration\": \"2026-01-01T00:00:10+00:00\"}";
        let (keys, until) = credentials(text).unwrap();
        let token = Some("t".to_owned());
        let (key_id, secret_key) = ("id".to_owned(), "a/b+c=".to_owned());
        assert!(keys == AwsCredential { key_id, secret_key, token });
        assert_eq!(until, Some(Duration::from_secs(1_767_225_610)));
        let text = "{\"Version\":1,\"AccessKeyId\":\"id\",\"SecretAccessKey\":\"s\"}";
        let (keys, until) = credentials(text).unwrap();
        assert!(keys.token.is_none() && until.is_none());
        let text = "{\"AccessKeyId\":\"i\\u0064\",\"SecretAccessKey\":\"a\\u002Fb\\u002b\",\
                    \"SessionToken\":\"t\\u002B\",\"Expiration\":\"1970-01-01T00:00:01\\u002b00:00\"}";
        let (keys, until) = credentials(text).unwrap();
        assert!(keys.key_id == "id" && keys.secret_key == "a/b+");
        assert_eq!(
            (keys.token.as_deref(), until),
            (Some("t+"), Some(Duration::from_secs(1)))
        );
        let text = "{\"AccessKeyId\":\"id\",\"SecretAccessKey\":\"s\",\"SessionToken\":null,\"Expiration\":\"\"}";
        let (keys, until) = credentials(text).unwrap();
        assert!(keys.token.is_none() && until.is_none());
        for text in [
            "",
            "{}",
            "{\"AccessKeyId\":\"id\",\"SecretAccessKey\":\"s\",\"SessionToken\":\"t\\q\"}",
            "{\"AccessKeyId\":\"id\",\"SecretAccessKey\":\"s\",\"SessionToken\":\"t\\u00",
            "{\"AccessKeyId\":\"id\",\"SecretAccessKey\":\"s\",\"Expiration\":1}",
            "{\"AccessKeyId\":\"id\"}",
            "{\"AccessKeyId\":\"id\",\"SecretAccessKey\":\"\"}",
            "{\"AccessKeyId\":\"id\",\"SecretAccessKey\":\"s\\n\"}",
            "{\"AccessKeyId\":\"id\",\"SecretAccessKey\":\"s\",\"Expiration\":\"soon\"}",
        ] {
            assert!(credentials(text).is_none(), "{text}");
        }
    }

    #[test]
    fn times_are_read_with_their_zones() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2024-02-29T23:59:59.123Z", Some(1_709_251_199)),
            ("1970-01-01T02:00:01+02:00", Some(1)),
            ("1970-01-01T00:00:01-00:30", Some(1801)),
            ("1970-01-01", None),
            ("1970-13-01T00:00:00Z", None),
            ("1970-01-01T00:00Z", None),
        ] {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(time_since_1970(text), expected, "{text}");
        }
    }

    #[test]
    fn what_a_program_leaves_behind_is_not_waited_for() {
        // Long enough for a busy machine to start a shell.
        let within = Duration::from_secs(5);
        let folder = tempfile::tempdir().unwrap();
        for (end, words) in [
            ("exit 0", "what it has started held its output for 5 s"),
            ("sleep 600", "did not end within 5 s"),
        ] {
            let number = folder.path().join("number");
            let line =
                format!("echo s3cret; sleep 600 & echo $! > {}; {end}", number.display());
            let began = Instant::now();
            let why = printed(&line, within).unwrap_err();
            assert!(why.contains(words), "{why}");
            assert!(began.elapsed() < 20 * within, "{:?}", began.elapsed());
            // What it has started ends with it.
            let number = std::fs::read_to_string(number).unwrap();
            let place = format!("/proc/{}/cmdline", number.trim());
            // Of one that nobody has waited for yet it is empty.
            let runs = || std::fs::read(&place).is_ok_and(|line| !line.is_empty());
            while runs() {
                assert!(began.elapsed() < 20 * within, "{place} is still there");
                thread::sleep(LOOK);
            }
        }
        // Nobody waits for what runs on without its output.
        let line = "sleep 120 > /dev/null & echo text";
        assert_eq!(printed(line, 12 * within).unwrap(), "text\n");
    }

    /// A program that prints credentials which are good for so many seconds, and counts how often.
    fn printing(folder: &tempfile::TempDir, seconds: u64) -> String {
        let runs = folder.path().join("runs");
        let (runs, date) = (runs.display(), format!("+{seconds} seconds"));
        format!(
            "echo x >> {runs}; echo \"{{\\\"Version\\\": 1, \\\"AccessKeyId\\\": \\\"id-$(wc -l < {runs})\\\", \
             \\\"SecretAccessKey\\\": \\\"s\\\", \\\"Expiration\\\": \\\"$(date -u -d '{date}' +%FT%TZ)\\\"}}\""
        )
    }

    #[test]
    fn it_is_run_again_before_they_expire_and_nobody_waits_while_they_are_good() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (seconds, first, second) in
            [(3600, "id-1", "id-1"), (200, "id-1", "id-2"), (0, "id-1", "id-2")]
        {
            let folder = tempfile::tempdir().unwrap();
            let secrets = Secrets::of(Vec::new());
            let command = Command::start(&printing(&folder, seconds), &secrets).unwrap();
            command.now().tried -= PAUSE;
            let of = OfCommand(Arc::clone(&command));
            runtime.block_on(async {
                assert_eq!(of.get_credential().await.unwrap().key_id, first);
                drop(command.running.lock().await);
                assert_eq!(of.get_credential().await.unwrap().key_id, second);
            });
        }
    }

    #[test]
    fn a_program_that_fails_once_credentials_have_expired_is_not_run_for_each_request() {
        let folder = tempfile::tempdir().unwrap();
        let (line, runs) = (printing(&folder, 3600), folder.path().join("runs"));
        let broken = folder.path().join("broken");
        let line = format!("{line}; test ! -e {}", broken.display());
        let command = Command::start(&line, &Secrets::of(Vec::new())).unwrap();
        assert!(!command.is_renewed());
        std::fs::write(&broken, "").unwrap();
        let is_expired = |command: &Command| command.now().until = Some(Duration::ZERO);
        is_expired(&command);
        // Whatever the store says of the old ones.
        assert!(command.is_renewed());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let of = OfCommand(Arc::clone(&command));
        let n_runs = || std::fs::read_to_string(&runs).unwrap().lines().count();
        for _ in 0..3 {
            let error = runtime.block_on(of.get_credential()).unwrap_err();
            let failure = crate::client::failure_in(&error).unwrap();
            assert!(failure.is_transient(), "{error}");
            assert_eq!(n_runs(), 2);
        }
        std::fs::remove_file(&broken).unwrap();
        command.now().tried -= PAUSE;
        assert_eq!(runtime.block_on(of.get_credential()).unwrap().key_id, "id-3");
        assert!(command.is_renewed());
        command.now().changed = Some(Instant::now() - IN_FLIGHT);
        assert!(!command.is_renewed());
    }
}
