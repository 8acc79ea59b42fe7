//! One record read on the calling thread, where a row is made again.

use std::sync::PoisonError;
use std::thread;
use std::time::Instant;

use bothends_core::sample::{Extent, FileIdx};
use bothends_storage::{Bytes, Fetch, Fetcher, Identity, StorageError};

use crate::read::supplied::{Failure, Unmade};
use crate::threads::shutdown::{PATIENCE, Stop};

use super::{ATTEMPT, ATTEMPTS, FIRST_PAUSE, Remote, unmade};

/// Attempts of which parts of the answer count as signs of life: one that breaks off again and again gets no further.
const MOST_HEARD: u32 = 5;

impl Remote {
    /// Reads a part of an object on the calling thread, with more attempts while it is the network
    /// that fails, unless `stop` is set. However slow the link is, it is not given up while parts of the answer come.
    ///
    /// # Errors
    /// [`Unmade`], once the store has been silent for ten seconds.
    pub(crate) fn read(
        &self,
        object: &str,
        extent: Extent,
        stop: Option<&Stop>,
    ) -> Result<Vec<u8>, Unmade> {
        if extent.len == 0 && self.is_unknown(extent.file) {
            let place = self.shown(object);
            return Err(Unmade::Bad(format!("there is no `{place}`, or it is empty")));
        }
        let mut silence = Silence { stop, since: Instant::now(), heard: MOST_HEARD };
        let mut pause = FIRST_PAUSE;
        let mut fetcher = match self.fetcher() {
            Ok(fetcher) => fetcher,
            Err(source) => {
                let path = self.shown(object).into();
                return Err(Unmade::Machine(Failure::Local { path, source }));
            }
        };
        let end = loop {
            match self.attempt(&mut fetcher, object, extent, &mut silence) {
                Ok(bytes) => break Ok(bytes.to_vec()),
                Err(error) if error.is_transient() && !silence.is_over() => {
                    thread::sleep(pause);
                    pause = PATIENCE.min(pause * 2);
                    silence.heard = silence.heard.saturating_sub(1);
                }
                Err(error) => break Err(unmade(&error)),
            }
        };
        let mut fetchers = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        fetchers.push(fetcher);
        end
    }

    /// Whether nothing is known of a file, as of one that a list names and the store has not.
    fn is_unknown(&self, file: FileIdx) -> bool {
        let nothing = Identity { len: 0, modified: None, etag: None };
        self.identity(file).is_some_and(|identity| identity == nothing)
    }

    fn attempt(
        &self,
        fetcher: &mut Fetcher,
        object: &str,
        Extent { file, offset, len }: Extent,
        silence: &mut Silence<'_>,
    ) -> Result<Bytes, StorageError> {
        let (tag, mut heard) = (0, 0);
        fetcher.submit(Fetch {
            tag,
            object: object.into(),
            range: offset..offset.saturating_add(u64::from(len)),
            expected: self.identity(file),
            timeout: ATTEMPT,
        });
        loop {
            if let Some(fetched) = fetcher.poll(PATIENCE) {
                return fetched.result;
            }
            let parts = fetcher.heard(tag);
            if parts > heard && silence.heard > 0 {
                silence.since = Instant::now();
            }
            heard = parts;
            if silence.is_over() {
                fetcher.cancel(tag);
                return Err(StorageError::TimedOut {
                    place: self.shown(object),
                    after: ATTEMPTS,
                });
            }
        }
    }
}

/// How long a store has been silent.
#[derive(Debug)]
struct Silence<'a> {
    stop: Option<&'a Stop>,
    since: Instant,
    /// Attempts that may still end it.
    heard: u32,
}

impl Silence<'_> {
    /// Whether to wait no longer.
    fn is_over(&self) -> bool {
        self.stop.is_some_and(Stop::is_set) || self.since.elapsed() >= ATTEMPTS
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bothends_storage::{Answer, Double, Identities};

    use super::*;

    /// A store that answers as `record` says; what it says, and how long that takes.
    fn single_read(record: Answer) -> (Result<Vec<u8>, Unmade>, Duration) {
        let double = Double::answering(move |_| record.clone()).with("a", "0");
        let remote = Remote::new(Arc::new(double), Identities::default());
        let part = Extent { file: FileIdx(0), offset: 0, len: 1 };
        let began = Instant::now();
        (remote.read("a", part, None), began.elapsed())
    }

    #[test]
    fn a_single_read_over_a_slow_link_is_waited_for_while_parts_come() {
        let (read, took) = single_read(Answer::InParts(6, Duration::from_secs(2)));
        assert_eq!(read.unwrap(), b"0");
        assert!(took > ATTEMPTS, "else it would have come in any case");
    }

    #[test]
    fn a_single_read_that_stays_unanswered_is_given_up() {
        let (read, took) = single_read(Answer::Never);
        let Err(Unmade::Machine(Failure::Remote(why))) = read else { panic!("{read:?}") };
        assert!(why.contains("no answer for `memory:a`"), "{why}");
        assert!(took >= ATTEMPTS, "{took:?}");
    }
}
