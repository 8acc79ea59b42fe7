//! Opens files for the reader thread: there where it takes no time, and by threads of its own
//! where it does.
//!
//! Opening a local file takes some ten microseconds, less than handing it to another thread would.
//! On network storage it takes a round trip or several, and one thread that opens a file after the
//! other makes a thousand of them in a second, whatever the workers could do. So the reader
//! opens as long as that is quick, and hands over what comes next once it is slow. What is opened
//! is the caller's to say ([`Open`]); no file is read here.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bothends_core::sample::FileIdx;
use bothends_io::OpenFile;
use crossbeam::channel::{Receiver, Sender, unbounded};
use nix::sys::resource::{UsageWho, getrusage};

use crate::threads::join::{LEAVE_AFTER, join_by, note_left};
use crate::threads::times::{Ends, ThreadTimes};

/// From how long an opening takes on average, threads open; and down to when they do. Between
/// them lie what local disks take (0.01 to 0.05 ms) and what networks do (0.2 ms and more).
pub(crate) const SLOW: Duration = Duration::from_micros(100);
const QUICK: Duration = Duration::from_micros(50);

/// Most files that are being opened at once, each by its thread: at a millisecond each,
/// 32,000 in a second.
const MOST_THREADS: usize = 32;

/// Most files that are being opened, or are open and wait for the reader: they come to those that
/// `Files` keeps open.
pub(crate) const MOST_FILES: usize = 64;

/// Who opens files.
pub(crate) trait Open: Send + Sync + fmt::Debug {
    /// The file, if it is open: without a wait.
    fn known(&self, file: FileIdx) -> Option<Arc<OpenFile>>;

    /// Opens the file; blocks on the file system.
    ///
    /// # Errors
    /// One line: why it cannot be opened.
    fn open(&self, file: FileIdx) -> Opened;

    /// How many files may be on their way at once, 1 or more, as this process's limit of open files
    /// has it.
    fn most_opening(&self) -> usize {
        MOST_FILES
    }
}

/// A file, or why it cannot be opened.
pub(crate) type Opened = Result<Arc<OpenFile>, String>;

/// Opens files, each for something that waits for it.
#[derive(Debug)]
pub(crate) struct Opener<T> {
    files: Arc<dyn Open>,
    /// A sliding mean of what an opening takes; nothing before the first one.
    mean: Option<Duration>,
    is_slow: bool,
    /// Being opened, and for what; a file is opened once for all who wait for it.
    opening: HashMap<FileIdx, Vec<T>>,
    ready: VecDeque<(T, Opened)>,
    threads: Threads,
}

/// The threads and their queues, which are never longer than [`MOST_FILES`].
#[derive(Debug)]
struct Threads {
    asked: (Option<Sender<FileIdx>>, Receiver<FileIdx>),
    done: (Sender<Done>, Receiver<Done>),
    running: Vec<JoinHandle<()>>,
    /// Where what they use is added up.
    times: ThreadTimes,
    /// Where it is said that some did not end.
    notes: Sender<String>,
}

#[derive(Debug)]
struct Done {
    file: FileIdx,
    opened: Opened,
    /// Nothing where the thread did not wait.
    took: Duration,
}

impl<T> Opener<T> {
    /// Opens what `files` has; what its threads use is the front's, in `times`. Nothing is started
    /// yet.
    pub(crate) fn new(
        files: Arc<dyn Open>,
        times: ThreadTimes,
        notes: Sender<String>,
    ) -> Self {
        let (ask, asked) = unbounded();
        let threads = Threads {
            asked: (Some(ask), asked),
            done: unbounded(),
            running: Vec::new(),
            times,
            notes,
        };
        Self {
            files,
            mean: None,
            is_slow: false,
            opening: HashMap::new(),
            ready: VecDeque::new(),
            threads,
        }
    }

    /// Whether as many files are on their way as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.opening.len() + self.ready.len() >= self.files.most_opening()
    }

    /// Whether opening a file takes so long that threads do it.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Whether nothing waits for a file here.
    pub(crate) fn is_idle(&self) -> bool {
        self.opening.is_empty() && self.ready.is_empty()
    }

    /// Opens `file` for `what`, at once or, where that takes time, some time: it then comes out of
    /// [`Self::next`] or [`Self::wait`], in any order.
    pub(crate) fn open(&mut self, file: FileIdx, what: T) -> Option<(T, Opened)> {
        if let Some(waiting) = self.opening.get_mut(&file) {
            waiting.push(what);
            return None;
        }
        if let Some(open) = self.files.known(file) {
            return Some((what, Ok(open)));
        }
        if self.is_slow && self.threads.ask(file, self.opening.len(), &self.files) {
            self.opening.insert(file, vec![what]);
            return None;
        }
        let done = Done::of(&*self.files, file);
        self.note(done.took);
        Some((what, done.opened))
    }

    /// The next that has its file, if one has.
    pub(crate) fn next(&mut self) -> Option<(T, Opened)> {
        while let Ok(done) = self.threads.done.1.try_recv() {
            self.arrived(done);
        }
        self.ready.pop_front()
    }

    /// Waits for a file, if one is being opened, for `patience` at the longest.
    pub(crate) fn wait(&mut self, patience: Duration) {
        if self.ready.is_empty()
            && !self.opening.is_empty()
            && let Ok(done) = self.threads.done.1.recv_timeout(patience)
        {
            self.arrived(done);
        }
    }

    /// Takes back what could not be used yet: it comes out first.
    pub(crate) fn put_back(&mut self, what: T, opened: Opened) {
        self.ready.push_front((what, opened));
    }

    fn arrived(&mut self, done: Done) {
        self.note(done.took);
        let waiting = self.opening.remove(&done.file).unwrap_or_default();
        self.ready.extend(waiting.into_iter().map(|what| (what, done.opened.clone())));
    }

    fn note(&mut self, took: Duration) {
        let mean = self.mean.map_or(took, |mean| (mean * 7 + took) / 8);
        self.mean = Some(mean);
        self.is_slow = mean > if self.is_slow { QUICK } else { SLOW };
    }
}

impl Threads {
    /// Has a file opened; false where there is no thread for it and none can be started.
    fn ask(&mut self, file: FileIdx, n_before: usize, files: &Arc<dyn Open>) -> bool {
        if n_before >= self.running.len() && self.running.len() < MOST_THREADS {
            let (files, asked) = (Arc::clone(files), self.asked.1.clone());
            let (done, times) = (self.done.0.clone(), self.times.clone());
            let work = move || {
                let meter = times.meter(Ends::Front);
                for file in asked {
                    let opened = Done::of(&*files, file);
                    meter.note();
                    if done.send(opened).is_err() {
                        break;
                    }
                }
            };
            let thread = std::thread::Builder::new().name("be-opener".to_owned());
            self.running.extend(thread.spawn(work));
        }
        let ask = self.asked.0.as_ref().filter(|_| !self.running.is_empty());
        ask.is_some_and(|ask| ask.send(file).is_ok())
    }
}

/// Its threads end with it, after the files that they are at; those of storage that does not answer
/// are left alone.
impl Drop for Threads {
    fn drop(&mut self) {
        self.asked.0 = None;
        while self.asked.1.try_recv().is_ok() {}
        let by = Instant::now() + LEAVE_AFTER / 2;
        let running = self.running.drain(..);
        // One that broke opened nothing more; whoever waited is gone.
        let n_left =
            running.filter_map(|t| join_by(t, by).is_none().then_some(())).count();
        if n_left > 0 {
            note_left(&self.notes, "opener", n_left);
        }
    }
}

impl Done {
    fn of(files: &dyn Open, file: FileIdx) -> Self {
        let (opened, took) = timed(files, file);
        Self { file, opened, took }
    }
}

/// Opens a file on the calling thread, and says what that took: nothing where the thread did not wait.
pub(crate) fn timed(files: &dyn Open, file: FileIdx) -> (Opened, Duration) {
    let (before, begun) = (waits(), Instant::now());
    // Whoever waits for the file hears of it, whatever becomes of the thread.
    let opened = catch_unwind(AssertUnwindSafe(|| files.open(file)));
    let opened = opened.unwrap_or_else(|_| Err("opening its file panicked".to_owned()));
    // A thread that only had to let others run was not waiting for storage.
    let has_waited = waits().zip(before).is_none_or(|(after, before)| after > before);
    let took = if has_waited { begun.elapsed() } else { Duration::ZERO };
    (opened, took)
}

/// How often the calling thread has gone to sleep of itself (getrusage(2)); `None` where the
/// kernel does not say.
fn waits() -> Option<i64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    Some(usage.voluntary_context_switches())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Condvar, Mutex};

    use bothends_io::Direct;

    use super::*;
    use crate::threads::process::thread_cpu_ns;

    /// Nothing here takes longer; what does, hangs.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn opener<T>(files: Arc<dyn Open>) -> Opener<T> {
        Opener::new(files, ThreadTimes::new(0), unbounded().0)
    }

    /// Files whose opening takes a while, and is over only when enough are being opened.
    #[derive(Debug)]
    struct Slow {
        path: std::path::PathBuf,
        takes: Duration,
        /// How many must have been begun at once before one may end.
        together: usize,
        /// Inside now, most at once, and how often in all.
        inside: Mutex<(usize, usize, usize)>,
        changed: Condvar,
        known: Option<FileIdx>,
    }

    impl Slow {
        fn new(takes: Duration, together: usize) -> (tempfile::TempDir, Self) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            std::fs::write(&path, [1]).unwrap();
            let (inside, changed) = (Mutex::default(), Condvar::new());
            (folder, Self { path, takes, together, inside, changed, known: None })
        }
    }

    impl Open for Slow {
        fn known(&self, file: FileIdx) -> Option<Arc<OpenFile>> {
            self.known.filter(|known| *known == file)?;
            OpenFile::open(&self.path, Direct::Off).ok().map(Arc::new)
        }

        fn open(&self, file: FileIdx) -> Opened {
            std::thread::sleep(self.takes);
            let mut inside = self.inside.lock().unwrap();
            inside.0 += 1;
            inside.1 = inside.1.max(inside.0);
            inside.2 += 1;
            self.changed.notify_all();
            // The first one finds out that it is slow, alone.
            if inside.2 > 1 {
                let enough =
                    |inside: &mut (usize, usize, usize)| inside.1 < self.together;
                inside =
                    self.changed.wait_timeout_while(inside, PATIENCE, enough).unwrap().0;
            }
            inside.0 -= 1;
            drop(inside);
            if file == FileIdx(13) {
                return Err("thirteen".to_owned());
            }
            let open = OpenFile::open(&self.path, Direct::Off);
            open.map(Arc::new).map_err(|e| e.to_string())
        }
    }

    #[test]
    fn files_that_open_slowly_are_opened_side_by_side_within_a_bound() {
        let (_folder, files) = Slow::new(Duration::from_millis(1), MOST_THREADS);
        let files = Arc::new(files);
        let mut opener = opener(Arc::clone(&files) as Arc<dyn Open>);
        let mut asked = 0..200_u32;
        let mut found = HashSet::new();
        while found.len() < 200 {
            let most = opener.opening.len() + opener.ready.len();
            assert!(most <= MOST_FILES, "{most}");
            while !opener.is_full()
                && let Some(n) = asked.next()
            {
                found.extend(opener.open(FileIdx(n), n).map(|(n, _)| n));
            }
            opener.wait(PATIENCE);
            while let Some((n, opened)) = opener.next() {
                assert_eq!(opened.is_err(), n == 13);
                assert!(found.insert(n), "{n} twice");
            }
        }
        assert!(opener.is_idle());
        drop(opener);
        assert_eq!(*files.inside.lock().unwrap(), (0, MOST_THREADS, 200));
    }

    #[test]
    fn files_that_open_quickly_need_no_thread() {
        let (_folder, files) = Slow::new(Duration::ZERO, 1);
        let mut opener = opener(Arc::new(files));
        // However busy this machine is.
        opener.mean = Some(Duration::ZERO);
        for n in 0..10 {
            let (_, opened) = opener.open(FileIdx(n), ()).expect("at once");
            opened.unwrap();
            opener.mean = Some(Duration::ZERO);
            opener.is_slow = false;
        }
        assert!(opener.threads.running.is_empty());
    }

    #[test]
    fn a_file_that_many_wait_for_is_opened_once_and_an_open_one_is_there_at_once() {
        let (_folder, mut files) = Slow::new(Duration::from_millis(1), 1);
        files.known = Some(FileIdx(7));
        let files = Arc::new(files);
        let mut opener = opener(Arc::clone(&files) as Arc<dyn Open>);
        opener.is_slow = true;
        for what in 0..5 {
            assert!(opener.open(FileIdx(3), what).is_none());
        }
        assert!(opener.open(FileIdx(7), 9).is_some());
        let mut found = Vec::new();
        while found.len() < 5 {
            opener.wait(PATIENCE);
            while let Some((what, opened)) = opener.next() {
                opened.unwrap();
                found.push(what);
            }
        }
        assert_eq!(found, [0, 1, 2, 3, 4]);
        assert_eq!(files.inside.lock().unwrap().2, 1);
        opener.put_back(8, Err("later".to_owned()));
        assert_eq!(opener.next().map(|(what, _)| what), Some(8));
    }

    #[test]
    fn storage_that_has_become_quick_is_opened_here_again() {
        let (_folder, files) = Slow::new(Duration::ZERO, 1);
        let mut opener: Opener<()> = opener(Arc::new(files));
        opener.note(Duration::from_millis(1));
        assert!(opener.is_slow);
        for _ in 0..100 {
            opener.note(Duration::from_micros(70));
        }
        assert!(opener.is_slow, "what is between is left as it is");
        for _ in 0..100 {
            opener.note(Duration::from_micros(10));
        }
        assert!(!opener.is_slow);
    }

    /// Files of a server that is gone: their opening ends when the test does.
    #[derive(Debug, Default)]
    struct Gone {
        inside: Mutex<usize>,
        changed: Condvar,
        answers: Mutex<bool>,
    }

    impl Open for Gone {
        fn known(&self, _: FileIdx) -> Option<Arc<OpenFile>> {
            None
        }

        fn open(&self, _: FileIdx) -> Opened {
            *self.inside.lock().unwrap() += 1;
            self.changed.notify_all();
            let answers = self.answers.lock().unwrap();
            drop(self.changed.wait_while(answers, |answers| !*answers));
            Err("the server was gone".to_owned())
        }
    }

    #[test]
    fn storage_that_does_not_answer_is_left_alone() {
        let files = Arc::new(Gone::default());
        let (notes, noted) = unbounded();
        let mut opener = Opener::new(files.clone(), ThreadTimes::new(0), notes);
        opener.is_slow = true;
        for n in 0..2 {
            assert!(opener.open(FileIdx(n), n).is_none());
        }
        let inside = files.inside.lock().unwrap();
        let begin = |inside: &mut usize| *inside < 2;
        drop(files.changed.wait_timeout_while(inside, PATIENCE, begin).unwrap());
        let (tell, told) = unbounded();
        std::thread::spawn(move || {
            drop(opener);
            tell.send(()).unwrap();
        });
        told.recv_timeout(PATIENCE).expect("it waits for a server that is gone");
        let note = noted.try_recv().unwrap();
        assert!(note.starts_with("2 threads (be-opener) did not end: "), "{note}");
        *files.answers.lock().unwrap() = true;
        files.changed.notify_all();
    }

    /// A file that takes the processor so long.
    const SPIN_NS: u64 = 2_000_000;

    #[derive(Debug)]
    struct Busy;

    impl Open for Busy {
        fn known(&self, _: FileIdx) -> Option<Arc<OpenFile>> {
            None
        }

        fn open(&self, _: FileIdx) -> Opened {
            let used = || thread_cpu_ns().expect("Linux says");
            let before = used();
            while used() < before + SPIN_NS {
                std::hint::spin_loop();
            }
            Err("it is none".to_owned())
        }
    }

    #[test]
    fn what_opening_takes_is_of_the_front() {
        let times = ThreadTimes::new(0);
        let mut opener = Opener::new(Arc::new(Busy), times.clone(), unbounded().0);
        opener.is_slow = true;
        for n in 0..10 {
            assert!(opener.open(FileIdx(n), n).is_none());
        }
        let mut n_opened = 0_u32;
        let began = Instant::now();
        while n_opened < 10 && began.elapsed() < PATIENCE {
            opener.wait(PATIENCE);
            n_opened += u32::from(opener.next().is_some());
        }
        let least = 10.0 * Duration::from_nanos(SPIN_NS).as_secs_f64();
        let running = times.seconds().front.expect("Linux says");
        assert!(running >= least, "{running} s of {least}");
        drop(opener);
        let ended = times.seconds().front.expect("Linux says");
        assert!(ended >= running, "{ended} s of {running}");
    }
}
