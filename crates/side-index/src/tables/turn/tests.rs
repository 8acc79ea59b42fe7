//! Turns of threads, which are as those of processes: each opens the lock by itself.

use std::sync::mpsc;

use super::*;

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn one_has_the_turn_and_the_others_wait_until_it_ends() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("tables/of");
    let turn = Turn::wait_for(&folder, LONG).unwrap();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        for _ in 0..3 {
            let (tell, folder) = (tell.clone(), &folder);
            scope.spawn(move || {
                tell.send("waits").unwrap();
                // One that comes later has the turn.
                drop(Turn::wait_for(folder, LONG));
                tell.send("has waited").unwrap();
            });
        }
        for _ in 0..3 {
            assert_eq!(told.recv_timeout(LONG).unwrap(), "waits");
        }
        assert!(told.try_recv().is_err());
        drop(turn);
        for _ in 0..3 {
            assert_eq!(told.recv_timeout(LONG).unwrap(), "has waited");
        }
    });
    assert!(!folder.exists(), "nothing is left");
    drop(Turn::wait_for(&folder, LONG).unwrap());
}

#[test]
fn nobody_waits_for_a_walk_that_does_not_get_on() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("of");
    let _turn = Turn::wait_for(&folder, LONG).unwrap();
    assert!(Turn::wait_for(&folder, Duration::from_millis(20)).is_none());
}

#[test]
fn a_walk_that_gets_on_tells_once_in_a_second() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("of");
    let mut turn = Turn::wait_for(&folder, LONG).unwrap();
    turn.began = Instant::now().checked_sub(Duration::from_secs(5)).unwrap();
    let is_told = |turn: &Turn| {
        turn.file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        turn.tell();
        turn.file.metadata().unwrap().modified().unwrap() > SystemTime::UNIX_EPOCH
    };
    assert!(is_told(&turn));
    turn.told_s = AtomicU64::new(u64::MAX);
    assert!(!is_told(&turn));
}

#[test]
fn where_nothing_can_be_locked_there_are_no_turns() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("of");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink("elsewhere", folder.join(LOCK)).unwrap();
    for folder in [&folder, Path::new("/dev/null/of")] {
        assert!(Turn::wait_for(folder, LONG).is_none());
    }
    assert!(!folder.join("elsewhere").exists());
}
