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
use bothends_csd::{Address, ConnectOptions, registry};

use super::Args;
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
        begun.context("cannot start a thread")?;
    }
    Ok(())
}

/// Where hosts reach the agent, and what it proves itself with.
fn own(args: &Args, doors: &[Door]) -> Result<(Address, Trust)> {
    let sockets = || doors.iter().filter(|it| !matches!(it.address(), Address::Spool(_)));
    let is_network = |door: &&Door| !matches!(door.address(), Address::Unix(_));
    let first = sockets().find(is_network).or_else(|| sockets().next());
    let first = first.context("`--announce` needs a `--listen` that is a socket")?;
    let address = args.advertise.as_ref().unwrap_or(first.address());
    Ok((address.clone(), first.trust()))
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
        // A flag alone; nothing else is published with it.
        while !self.stop.load(Ordering::Relaxed) {
            let (registry, security) = (&self.registry, self.trust.current());
            let told = registry::announce(registry, security, &options, &self.address);
            match told.map_err(|e| one_line(&e)) {
                Ok(()) if failure.take().is_some() => {
                    self.log.note(&format!("registry {registry}: it lists this agent"));
                }
                Ok(()) => {}
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
