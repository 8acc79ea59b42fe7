//! The contract of [`Meter`] as callable checks, for any meter whose source can be faked: a tree
//! of files, a program, a library.
//!
//! A meter's tests call [`all`]; each check can also be called by itself. No check sleeps.

use crate::{Counter, EnergyError, Meter};

/// Microjoules spent in one step: a second at 50 W.
const STEP_UJ: u64 = 50_000_000;

/// What a meter reads, under the test's control. Every check gets a fresh one.
pub trait Fake {
    /// Opens the meter that reads it.
    ///
    /// # Errors
    /// Those of opening the meter.
    fn open(&self) -> Result<Box<dyn Meter>, EnergyError>;

    /// Makes every domain use that much, if it counts energy; for a power meter only time passes.
    fn spend(&mut self, energy_uj: u64) -> Spent;

    /// Microjoules after which its registers wrap around; `None` if they never do.
    fn range_uj(&self) -> Option<u64>;

    /// Puts the source into this state.
    fn be(&mut self, state: State);
}

/// How exactly a fake can be made to use energy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// By the stated amount in every domain, to a few microjoules.
    Exactly,
    /// By its power times the time that passes.
    WithTime,
}

/// What may happen to a meter's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It can be read.
    Well,
    /// This user may not read it.
    Denied,
    /// It is gone.
    Vanished,
    /// It says something that is not a number.
    Garbled,
}

/// All checks, each with a fake of its own.
///
/// # Panics
/// At the first breach.
pub fn all(make: &dyn Fn() -> Box<dyn Fake>) {
    domains_are_named_and_read_in_order(make().as_mut());
    counters_never_fall(make().as_mut());
    what_is_spent_is_counted(make().as_mut());
    a_register_that_begins_anew_loses_nothing(make().as_mut());
    for state in [State::Denied, State::Vanished, State::Garbled] {
        what_cannot_be_read_is_an_error(make().as_mut(), state);
    }
}

/// # Panics
/// When domains and counters do not match, or a source does not say `measured(…)`.
pub fn domains_are_named_and_read_in_order(fake: &mut dyn Fake) {
    let mut meter = opened(fake);
    let domains = meter.domains().to_vec();
    assert!(!domains.is_empty(), "a meter without a domain");
    let mut names: Vec<&str> =
        domains.iter().map(|domain| domain.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), domains.len(), "two domains have one name: {domains:?}");
    for domain in &domains {
        let expected = format!("measured({}:{})", meter.name(), domain.name);
        assert_eq!(domain.source, expected);
    }
    assert_eq!(read(meter.as_mut()).len(), domains.len());
    assert_eq!(meter.domains(), domains, "domains change");
}

/// # Panics
/// When a counter decreases.
pub fn counters_never_fall(fake: &mut dyn Fake) {
    let mut meter = opened(fake);
    let mut before = read(meter.as_mut());
    for step in 0..50 {
        fake.spend(STEP_UJ * (step % 3));
        let now = read(meter.as_mut());
        for (now, before) in now.iter().zip(&before) {
            assert!(now >= before, "a counter fell from {before:?} to {now:?}");
        }
        before = now;
    }
}

/// # Panics
/// When an energy counter does not move by what was spent.
pub fn what_is_spent_is_counted(fake: &mut dyn Fake) {
    let mut meter = opened(fake);
    let first = read(meter.as_mut());
    let exactly =
        (0..10).map(|_| fake.spend(STEP_UJ)).all(|spent| spent == Spent::Exactly);
    if exactly {
        assert_moved(&first, &read(meter.as_mut()), 10 * STEP_UJ);
    }
}

/// # Panics
/// When a counter loses or gains energy as its register wraps around.
pub fn a_register_that_begins_anew_loses_nothing(fake: &mut dyn Fake) {
    let Some(range_uj) = fake.range_uj() else { return };
    let mut meter = opened(fake);
    let first = read(meter.as_mut());
    // Three times around, so that every value of the register is passed.
    let step = range_uj / 4;
    for n in 1..=12 {
        fake.spend(step);
        assert_moved(&first, &read(meter.as_mut()), n * step);
    }
}

/// # Panics
/// When a meter, newly opened or already open, gives figures in this state, or does not recover
/// from it.
pub fn what_cannot_be_read_is_an_error(fake: &mut dyn Fake, state: State) {
    let mut meter = opened(fake);
    let before = read(meter.as_mut());
    fake.be(state);
    let error = meter.read().expect_err("a figure of what cannot be read");
    assert_tells(&error, meter.name(), state);
    let error = fake.open().expect_err("a meter of what cannot be read");
    assert_tells(&error, meter.name(), state);
    fake.be(State::Well);
    fake.spend(STEP_UJ);
    for (now, before) in read(meter.as_mut()).iter().zip(&before) {
        assert!(now >= before, "a counter fell while nobody could read it");
    }
}

fn assert_tells(error: &EnergyError, meter: &str, state: State) {
    let said = error.to_string();
    assert!(said.contains(meter), "{state:?}: `{said}` does not name the meter {meter}");
    assert!(!said.contains('\n'), "{state:?}: more than one line: {said}");
}

fn assert_moved(first: &[Counter], now: &[Counter], energy_uj: u64) {
    // A fake with coarser units rounds.
    let slack = 2_000.max(energy_uj / 1_000_000);
    for (now, first) in now.iter().zip(first) {
        let moved = now.energy_uj - first.energy_uj;
        assert!(
            moved.abs_diff(energy_uj) <= slack,
            "{moved} instead of {energy_uj} microjoules"
        );
    }
}

fn opened(fake: &mut dyn Fake) -> Box<dyn Meter> {
    fake.open().expect("a meter that is well opens")
}

fn read(meter: &mut dyn Meter) -> Vec<Counter> {
    meter.read().expect("a meter that is well can be read")
}
