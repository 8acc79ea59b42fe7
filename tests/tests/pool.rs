//! Pools whose members come and go: whatever they do, every sample is delivered once and the stream is
//! the host's. No test judges by how long something takes; each waits for what must come.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bothends_csd::{ConnectOptions, Security};
use bothends_runtime::{Deal, Loader};
use bothends_tests::generated;
use bothends_tests::loading::{Taken, next, open_at, rest, whole};
use bothends_tests::members::{Member, address, replace_list, until};
use bothends_tests::proxy::Swallow;
use serde_json::{Value, json};

/// A folder for sockets and lists, whose names must be short.
fn folder() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("pool").tempdir_in("/tmp")?)
}

fn socket(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("m{number}"))
}

fn member(folder: &Path, number: usize) -> Result<Member> {
    Member::start(&generated()?, &socket(folder, number))
}

/// A long epoch of small batches.
fn long() -> Value {
    json!({"limit": 100, "repeat": 2})
}

fn with(pool: &str) -> Value {
    json!({"limit": 100, "repeat": 2, "csds": [pool]})
}

fn open(otherwise: &Value) -> Result<Loader> {
    open_at(&generated()?, otherwise)
}

/// Takes a batch.
fn take(deal: &Deal, taken: &mut Vec<Taken>) -> Result<()> {
    taken.push(Taken::new(&next(deal, 0)?.context("an end too early")?));
    Ok(())
}

/// The rest of the epoch, which must be the host's alone.
fn ends_as_alone(deal: &Deal, mut taken: Vec<Taken>) -> Result<()> {
    taken.extend(rest(deal, 0)?);
    let alone = whole(&long())?;
    ensure!(taken == alone, "the stream is another");
    Ok(())
}

fn n_of_members(loader: &mut Loader) -> Result<Vec<(String, u64)>> {
    let stats = loader.stats();
    Ok(stats.back.into_iter().map(|it| (it.device, it.batches)).collect())
}

#[test]
fn a_run_without_any_member_is_the_hosts_alone() -> Result<()> {
    let folder = folder()?;
    let nobody = folder.path().join("none");
    let missing = folder.path().join("no-such-list");
    for pool in [
        format!("pool://{}", address(&nobody)),
        format!("pool+file://{}", missing.display()),
    ] {
        let mut loader = open(&with(&pool))?;
        let deal = loader.begin(1)?;
        ends_as_alone(&deal, Vec::new())?;
        drop(deal);
        let members = n_of_members(&mut loader)?;
        ensure!(members.is_empty(), "{members:?}");
    }
    Ok(())
}

#[test]
fn a_member_that_joins_in_mid_epoch_takes_part_within_two_batches() -> Result<()> {
    let folder = folder()?;
    let list = folder.path().join("list");
    let first = member(folder.path(), 0)?;
    replace_list(&list, &[first.address()])?;
    let mut loader = open(&with(&format!("pool+file://{}", list.display())))?;
    let deal = loader.begin(1)?;
    let mut taken = Vec::new();
    while taken.len() < 50 {
        take(&deal, &mut taken)?;
    }
    let second = member(folder.path(), 1)?;
    replace_list(&list, &[first.address(), second.address()])?;
    // Its data are asked about before it gets a job: the last read of these is not a job's.
    until("the second member is attached", || {
        loader.stats().back.iter().any(|it| it.device == second.address())
    })?;
    for _ in 0..2 {
        take(&deal, &mut taken)?;
    }
    let n_read = second.n_read();
    until("the second member works", || second.n_read() >= n_read.max(101))?;
    ends_as_alone(&deal, taken)?;
    Ok(())
}

#[test]
fn a_member_that_dies_costs_nothing_but_itself() -> Result<()> {
    let folder = folder()?;
    let (first, second) = (member(folder.path(), 0)?, member(folder.path(), 1)?);
    let pool = format!("pool://{},{}", first.address(), second.address());
    let mut loader = open(&with(&pool))?;
    let deal = loader.begin(1)?;
    let mut taken = Vec::new();
    while taken.len() < 20 {
        take(&deal, &mut taken)?;
    }
    // It dies with work in its hands.
    second.holds();
    for _ in 0..10 {
        take(&deal, &mut taken)?;
    }
    drop(second);
    until("the loss is known", || {
        loader.stats().back.iter().any(|it| it.failure.is_some())
    })?;
    ends_as_alone(&deal, taken)
}

#[test]
fn the_host_makes_what_a_silent_member_has() -> Result<()> {
    let folder = folder()?;
    let silent = member(folder.path(), 0)?;
    let mut loader = open(&with(&format!("pool://{}", silent.address())))?;
    let deal = loader.begin(1)?;
    let mut taken = Vec::new();
    while taken.len() < 20 {
        take(&deal, &mut taken)?;
    }
    // It is connected and answers nothing until the epoch is over.
    silent.holds();
    ends_as_alone(&deal, taken)
}

#[test]
fn a_member_that_is_replaced_at_its_address_comes_back() -> Result<()> {
    let folder = folder()?;
    let first = member(folder.path(), 0)?;
    let mut loader = open(&with(&format!("pool://{}", first.address())))?;
    let deal = loader.begin(1)?;
    let mut taken = Vec::new();
    while taken.len() < 10 {
        take(&deal, &mut taken)?;
    }
    drop(first);
    let again = member(folder.path(), 0)?;
    until("another agent at the address works", || again.n_read() > 0)?;
    ends_as_alone(&deal, taken)?;
    // Members stay from epoch to epoch.
    let n_read = again.n_read();
    let deal = loader.begin(1)?;
    drop(rest(&deal, 0)?);
    ensure!(again.n_read() > n_read, "it did nothing in the next epoch");
    Ok(())
}

#[test]
fn a_list_that_is_replaced_replaces_the_members() -> Result<()> {
    let folder = folder()?;
    let list = folder.path().join("list");
    let first = member(folder.path(), 0)?;
    let second = member(folder.path(), 1)?;
    replace_list(&list, &[first.address()])?;
    let pool = format!("pool+file://{}?max=1", list.display());
    let mut loader = open(&with(&pool))?;
    let notes = loader.notes();
    let deal = loader.begin(1)?;
    let mut taken = Vec::new();
    while taken.len() < 10 {
        take(&deal, &mut taken)?;
    }
    replace_list(&list, &[second.address()])?;
    let mut said = Vec::new();
    until("the first member leaves", || {
        said.extend(std::iter::from_fn(|| notes.next()));
        said.iter().any(|note| note.contains("it has left"))
    })?;
    until("the second member works", || second.n_read() > 0)?;
    ensure!(!said.iter().any(|note| note.contains("lost")), "{said:?}");
    let n_read = first.n_read();
    ends_as_alone(&deal, taken)?;
    ensure!(first.n_read() == n_read, "one that has left works on");
    Ok(())
}

#[test]
fn a_list_that_makes_no_sense_changes_nothing() -> Result<()> {
    let folder = folder()?;
    let list = folder.path().join("list");
    let first = member(folder.path(), 0)?;
    replace_list(&list, &[first.address()])?;
    let mut loader = open(&with(&format!("pool+file://{}", list.display())))?;
    let notes = loader.notes();
    let deal = loader.begin(1)?;
    let mut taken = Vec::new();
    for (text, part) in [(Some("no address"), "line 1: "), (None, "No such file")] {
        match text {
            Some(text) => replace_list(&list, &[text])?,
            None => std::fs::remove_file(&list)?,
        }
        let mut said = Vec::new();
        until("a note says so", || {
            said.extend(std::iter::from_fn(|| notes.next()));
            said.iter()
                .any(|note| note.contains(part) && note.contains("the last list stays"))
        })?;
        for _ in 0..10 {
            take(&deal, &mut taken)?;
        }
    }
    let members = n_of_members(&mut loader)?;
    ensure!(members.len() == 1 && members[0].0 == first.address(), "{members:?}");
    ensure!(!notes.next().is_some_and(|note| note.contains("left")));
    ends_as_alone(&deal, taken)
}

/// A member announces itself to a registry, which is good for some seconds: while a test waits, it says so
/// again.
fn announce(registry: &Member, member: &Member) -> Result<()> {
    let (to, own) = (registry.address().parse()?, member.address().parse()?);
    let options = ConnectOptions::default();
    bothends_csd::registry::announce(&to, Security::default(), &options, &own)?;
    Ok(())
}

#[test]
fn members_that_announce_themselves_join_in_mid_epoch() -> Result<()> {
    let folder = folder()?;
    let (registry, other) = (member(folder.path(), 8)?, member(folder.path(), 9)?);
    let (first, second) = (member(folder.path(), 0)?, member(folder.path(), 1)?);
    announce(&registry, &first)?;
    let registries = format!("{},{}", registry.address(), other.address());
    let mut loader = open(&with(&format!("pool+registry://{registries}")))?;
    let deal = loader.begin(1)?;
    let mut taken = Vec::new();
    take(&deal, &mut taken)?;
    until("the first member works", || {
        announce(&registry, &first).is_ok() && first.n_read() > 0
    })?;
    // One registry is enough.
    drop(registry);
    until("the second member works", || {
        announce(&other, &second).is_ok() && second.n_read() > 0
    })?;
    ends_as_alone(&deal, taken)
}

#[test]
fn a_run_whose_registry_is_gone_keeps_its_members() -> Result<()> {
    let folder = folder()?;
    let (registry, first) = (member(folder.path(), 9)?, member(folder.path(), 0)?);
    announce(&registry, &first)?;
    let mut loader = open(&with(&format!("pool+registry://{}", registry.address())))?;
    let notes = loader.notes();
    let deal = loader.begin(1)?;
    until("the member works", || {
        announce(&registry, &first).is_ok() && first.n_read() > 0
    })?;
    ends_as_alone(&deal, Vec::new())?;
    drop((deal, registry));
    until("a note says so", || {
        let mut said = std::iter::from_fn(|| notes.next());
        said.any(|note| note.contains("registry") && note.contains("last list stays"))
    })?;
    let n_read = first.n_read();
    let second = rest(&*loader.begin(1)?, 0)?;
    ensure!(first.n_read() > n_read, "it did nothing in the epoch without a registry");
    let mut alone = open(&long())?;
    drop(rest(&*alone.begin(1)?, 0)?);
    ensure!(second == rest(&*alone.begin(1)?, 0)?, "the stream is another");
    let members = n_of_members(&mut loader)?;
    ensure!(members.len() == 1 && members[0].0 == first.address(), "{members:?}");
    Ok(())
}

/// The connection stays, so only what it does not say tells that the member's machine is gone.
#[test]
fn a_member_whose_machine_vanishes_without_a_word_is_noticed() -> Result<()> {
    let vanishes = Member::start_at(&generated()?, "tcp://127.0.0.1:0")?;
    let at = vanishes.address().strip_prefix("tcp://").context("a port")?.parse()?;
    let way = Swallow::before(at)?;
    let mut loader = open(&with(&format!("pool://{}", way.address())))?;
    let deal = loader.begin(1)?;
    let mut taken = Vec::new();
    take(&deal, &mut taken)?;
    until("the member works", || vanishes.n_read() > 0)?;
    way.falls_silent();
    let why = "ask whether it is there";
    until("the silence is noticed", || {
        let stats = loader.stats();
        let mut failures = stats.back.iter().filter_map(|it| it.failure.as_ref());
        failures.any(|failure| failure.contains(why) || failure.contains("read a result"))
    })?;
    ends_as_alone(&deal, taken)
}

#[test]
fn sixty_four_members_share_what_there_is_of_memory() -> Result<()> {
    let folder = folder()?;
    let members: Vec<_> =
        (0..64).map(|number| member(folder.path(), number)).collect::<Result<_>>()?;
    let list: Vec<_> = members.iter().map(Member::address).collect();
    let pool = format!("pool://{}", list.join(","));
    let mut loader = open(&with(&pool))?;
    let deal = loader.begin(1)?;
    until("all members are attached", || loader.stats().back.len() >= members.len())?;
    ends_as_alone(&deal, Vec::new())?;
    drop(deal);
    let took_part = n_of_members(&mut loader)?;
    let names: BTreeSet<_> = took_part.iter().map(|(name, _)| name).collect();
    ensure!(names.len() == 64, "{took_part:?}");
    // With memory for a few of them, the others wait for a place.
    let mut otherwise = with(&pool);
    otherwise["memory"] = json!(12);
    let mut loader = open(&otherwise)?;
    let deal = loader.begin(1)?;
    until("a member has a place", || !loader.stats().back.is_empty())?;
    ends_as_alone(&deal, Vec::new())?;
    drop(deal);
    let n = n_of_members(&mut loader)?.len();
    ensure!((1..64).contains(&n), "{n}");
    Ok(())
}
