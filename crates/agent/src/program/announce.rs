//! `--announce`: tells registries again and again that this agent is there.
//!
//! Each registry has a thread of its own, so one that is gone keeps no other waiting. They live as long as the
//! program. A registry that cannot be told is warned of once, and costs nothing else: the agent serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bothends_core::one_line;
use bothends_csd::member::ANNOUNCE_EVERY;
use bothends_csd::pool::{Pool, PoolSource};
use bothends_csd::{Address, ConnectOptions, one_line_with, registry};

use super::Args;
use super::flags::flag;
use super::log::Form;
use crate::door::{Door, Trust};

/// How long a registry may take.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// How often it is looked whether the program is to end.
const LOOK: Duration = Duration::from_millis(50);

/// A pool whose members announce themselves.
pub(super) fn registries(text: &str) -> Result<Pool, String> {
    let pool: Pool = text.parse().map_err(|e| one_line(&e))?;
    match pool.source {
        PoolSource::Registries(_) => Ok(pool),
        PoolSource::Listed(_) | PoolSource::File(_) | PoolSource::Dns { .. } => {
            Err("expected pool+registry://HOST:PORT[,HOST:PORT]".to_owned())
        }
    }
}

/// Begins to announce the agent that has these doors, as `args` say, until `stop` is set.
pub(super) fn start(args: &Args, doors: &[Door], stop: &Arc<AtomicBool>) -> Result<()> {
    let Some(pool) = &args.announce else { return Ok(()) };
    let PoolSource::Registries(registries) = &pool.source else { return Ok(()) };
    let (address, trust) = own(args, doors)?;
    for registry in registries {
        let announces = Announces {
            registry: registry.clone(),
            address: address.clone(),
            trust: trust.clone(),
            stop: Arc::clone(stop),
            log: args.log,
        };
        let named = std::thread::Builder::new().name("be-announce".to_owned());
        let begun = named.spawn(move || announces.run());
        begun.context(super::NO_THREAD)?;
    }
    Ok(())
}

/// Where hosts reach the agent, and what it proves itself with.
fn own(args: &Args, doors: &[Door]) -> Result<(Address, Trust)> {
    let best = best(doors.iter().map(Door::address));
    let first = best.and_then(|nth| doors.get(nth));
    let first = first.context("`--announce` needs a `--listen` that is a socket")?;
    let address = args.advertise.as_ref().unwrap_or(first.address());
    Ok((address.clone(), first.trust()))
}

/// The address that reaches furthest, the first of several: one that other machines reach, then a port of
/// this machine, then a Unix socket.
fn best<'a>(addresses: impl Iterator<Item = &'a Address>) -> Option<usize> {
    let sockets = addresses.enumerate();
    let sockets = sockets.filter(|(_, it)| !matches!(it, Address::Spool(_)));
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    let nearness = |address: &Address| (is_unix(address), address.is_of_machine());
    sockets.min_by_key(|(_, it)| nearness(it)).map(|(nth, _)| nth)
}

struct Announces {
    registry: Address,
    address: Address,
    trust: Trust,
    stop: Arc<AtomicBool>,
    log: Form,
}

impl Announces {
    fn run(self) {
        let options =
            ConnectOptions { timeout: ANSWER_TIME, ..ConnectOptions::default() };
        let mut failure = None;
        let mut is_warned = false;
        // A flag alone; nothing else is published with it.
        while !self.stop.load(Ordering::Relaxed) {
            let (registry, security) = (&self.registry, self.trust.current());
            let told = registry::announce(registry, security, &options, &self.address);
            if let Ok(told) = &told
                && let Some(why) = self.unreached(told)
                && !is_warned
            {
                self.log.warn(&format!("registry {registry}: {why}"));
                is_warned = true;
            }
            match told.map_err(|e| one_line_with(&e, flag)) {
                Ok(_) if failure.take().is_some() => {
                    self.log.note(&format!("registry {registry}: it lists this agent"));
                }
                Ok(_) => {}
                Err(why) if failure.as_ref() == Some(&why) => {}
                Err(why) => {
                    let next = "the agent serves, and it is told again";
                    self.log.warn(&format!("registry {registry}: {why}; {next}"));
                    failure = Some(why);
                }
            }
            self.wait();
        }
    }

    /// Why other machines do not reach the agent at the address that was told, though they could: it is one
    /// of no machine in particular that became this machine's own on the way to a registry here.
    fn unreached(&self, told: &Address) -> Option<String> {
        let is_other = told.is_of_machine() && !self.address.is_of_machine();
        is_other.then(|| {
            format!(
                "it lists {told}, which hosts on other machines cannot reach; give an address \
                that they can with --advertise"
            )
        })
    }

    fn wait(&self) {
        let n_looks = ANNOUNCE_EVERY.as_millis().div_ceil(LOOK.as_millis());
        for _ in 0..n_looks {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--listen tcp://127.0.0.1:1 --listen tls://0.0.0.0:2` announced the first to everybody.
    #[test]
    fn the_address_that_reaches_furthest_is_announced() {
        let best = |texts: &str| {
            let of = |text: &str| text.parse().unwrap();
            let all: Vec<Address> = texts.split_whitespace().map(of).collect();
            best(all.iter()).map(|nth| all[nth].to_string())
        };
        let (near, far) = ("tcp://127.0.0.1:1", "tls://0.0.0.0:2");
        assert_eq!(best(&format!("unix:///a {near} {far}")).unwrap(), far);
        assert_eq!(best(&format!("{far} tcp+noise://b:3 {near}")).unwrap(), far);
        assert_eq!(best(&format!("unix:///a {near}")).unwrap(), near);
        assert_eq!(best("spool:///b unix:///a").unwrap(), "unix:///a");
        assert_eq!(best("spool:///b"), None);
    }

    #[test]
    fn an_address_that_became_this_machines_own_is_warned_of() {
        let of = |address: &str| Announces {
            registry: "tcp+noise://node1:7070".parse().unwrap(),
            address: address.parse().unwrap(),
            trust: Trust::default(),
            stop: Arc::default(),
            log: Form::Text,
        };
        let anywhere = of("tcp+noise://0.0.0.0:7070");
        let why = anywhere.unreached(&"tcp+noise://127.0.1.1:7070".parse().unwrap());
        assert!(why.unwrap().contains("--advertise"));
        assert!(anywhere.unreached(&"tcp+noise://10.0.0.7:1".parse().unwrap()).is_none());
        // Whoever listens here alone means it.
        let here: Address = "tcp://127.0.0.1:1".parse().unwrap();
        assert!(of("tcp://127.0.0.1:1").unreached(&here).is_none());
    }
}
