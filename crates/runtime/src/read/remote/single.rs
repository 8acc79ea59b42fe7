//! One record read on the calling thread, where a row is made again.

use std::sync::PoisonError;
use std::thread;
use std::time::Instant;

use bothends_core::sample::Extent;
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
        if let Some(why) = self.why_nothing(object, extent) {
            return Err(Unmade::Bad(why));
        }
        let mut silence = Silence { stop, since: Instant::now(), attempts: MOST_HEARD };
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
                }
                Err(error) => break Err(unmade(&error)),
            }
        };
        let mut fetchers = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        fetchers.push(fetcher);
        end
    }

    /// Why a record without bytes is bad: nothing is known of a file that a list names and the store does not have, and no
    /// request is made for nothing. Of an empty value without a version nobody can tell.
    pub(crate) fn why_nothing(&self, object: &str, extent: Extent) -> Option<String> {
        let nothing = Identity { len: 0, modified: None, etag: None };
        let is_unknown = extent.len == 0 && self.identity(extent.file)? == nothing;
        is_unknown
            .then(|| format!("there is no `{}`, or it is empty", self.shown(object)))
    }

    fn attempt(
        &self,
        fetcher: &mut Fetcher,
        object: &str,
        Extent { file, offset, len }: Extent,
        silence: &mut Silence<'_>,
    ) -> Result<Bytes, StorageError> {
        let (tag, mut heard) = (0, 0);
        let may_be_heard = silence.attempts > 0;
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
            if parts > heard && may_be_heard {
                silence.since = Instant::now();
                // One is used up by the first of its parts.
                silence.attempts -= u32::from(heard == 0);
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
    /// Attempts whose parts may still end it.
    attempts: u32,
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

    use bothends_core::sample::FileIdx;
    use bothends_storage::{Answer, Double, Identities};

    use super::*;

    /// What is read of a store that answers each attempt as `record` says, and how long that takes.
    fn single_read(
        record: impl Fn(u64) -> Answer + Send + Sync + 'static,
    ) -> (Result<Vec<u8>, Unmade>, Duration) {
        let double = Double::answering(move |asked| record(asked.number)).with("a", "0");
        let remote = Remote::new(Arc::new(double), Identities::default());
        let part = Extent { file: FileIdx(0), offset: 0, len: 1 };
        let began = Instant::now();
        (remote.read("a", part, None), began.elapsed())
    }

    /// Attempts that fail at once take nothing of the patience with those of which parts come.
    #[test]
    fn a_single_read_over_a_slow_link_is_waited_for_while_parts_come() {
        let (read, took) = single_read(|number| match number {
            0..8 => {
                let (place, why) = ("a".to_owned(), "reset by peer".to_owned());
                Answer::Fails(Duration::ZERO, StorageError::Broken { place, why })
            }
            _ => Answer::InParts(6, Duration::from_secs(2)),
        });
        assert_eq!(read.unwrap(), b"0");
        assert!(took > ATTEMPTS, "else it would have come in any case");
    }

    #[test]
    fn a_single_read_that_stays_unanswered_is_given_up() {
        let (read, took) = single_read(|_| Answer::Never);
        let Err(Unmade::Machine(Failure::Remote(why))) = read else { panic!("{read:?}") };
        assert!(why.contains("no answer for `memory:a`"), "{why}");
        assert!(took >= ATTEMPTS, "{took:?}");
    }
}
