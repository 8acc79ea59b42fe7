//! What is asked of a registry, an agent that lists the members of a pool: one question for each connection.
//!
//! Whoever asks is admitted as a host is, and the registry proves itself as a device does (`stream.rs`).

use std::net::IpAddr;
use std::time::Instant;

use crate::CsdError;
use crate::channel::security::Security;
use crate::host::connect::ConnectOptions;
use crate::host::remote::{Link, refusal};
use crate::host::stream::{Stream, StreamLink};
use crate::words::address::Address;
use crate::words::member::{Announcement, LEASE, MemberList};
use crate::words::wire::Message;

/// Tells a registry that an agent is reached at `address`, for [`LEASE`]. An address of no machine in
/// particular (`0.0.0.0`, `::`) becomes that by which this machine reaches the registry. The address that
/// was told: of a registry on the same machine it may be one that no other reaches.
///
/// # Errors
/// One line: why it is not listed.
pub fn announce(
    registry: &Address,
    security: Security,
    options: &ConnectOptions,
    address: &Address,
) -> Result<Address, CsdError> {
    let (mut link, deadline) = reach(registry, security, options)?;
    let address = match link.local_ip() {
        Some(here) => address.reached_from(here),
        None => address.clone(),
    };
    let told = Announcement { address: address.to_string(), lease: LEASE };
    let answer = ask(&mut link, &Message::Announce(told), deadline)?;
    if matches!(answer, Message::Announced) {
        return Ok(address);
    }
    Err(no_answer(registry, answer))
}

/// Asks a registry who the members are.
///
/// # Errors
/// One line: why it does not say.
pub fn members(
    registry: &Address,
    options: &ConnectOptions,
) -> Result<MemberList, CsdError> {
    let ConnectOptions { key_file, tls, insecure, .. } = options;
    let security = Security::load(key_file.as_deref(), tls.as_ref(), *insecure)?;
    let (mut link, deadline) = reach(registry, security, options)?;
    let answer = ask(&mut link, &Message::AskMembers, deadline)?;
    if let Message::Members(list) = answer {
        return Ok(list);
    }
    Err(no_answer(registry, answer))
}

fn reach(
    registry: &Address,
    security: Security,
    options: &ConnectOptions,
) -> Result<(StreamLink, Instant), CsdError> {
    let deadline = Instant::now() + options.timeout;
    let mut link = Stream::connect(registry, security, options.timeout)?.into_link();
    link.greet(deadline)?;
    Ok((link, deadline))
}

fn ask(
    link: &mut StreamLink,
    question: &Message,
    deadline: Instant,
) -> Result<Message, CsdError> {
    let began = Instant::now();
    link.send(&question.encode(), deadline)?;
    let answer = link.receive(deadline)?;
    answer.ok_or_else(|| CsdError::Timeout { doing: "registry", waited: began.elapsed() })
}

/// Why another answer is none.
fn no_answer(registry: &Address, answer: Message) -> CsdError {
    if let Message::Refused { reason } = answer {
        let what = format!("the registry at {registry} refuses");
        return CsdError::Untrusted { what, remedy: reason.into() };
    }
    refusal(answer).unwrap_or(CsdError::Malformed { what: "a message out of turn" })
}

impl Address {
    /// As others reach it, where this machine is reached at `here`.
    fn reached_from(&self, here: IpAddr) -> Self {
        let mut address = self.clone();
        match &mut address {
            Self::Tcp { host, .. }
            | Self::Noise { host, .. }
            | Self::Tls { host, .. } => {
                let ip = host.parse::<IpAddr>();
                if ip.is_ok_and(|ip| ip.is_unspecified()) {
                    *host = here.to_canonical().to_string();
                }
            }
            Self::Unix(_) | Self::Spool(_) | Self::Nvme(_) | Self::Drive(_) => {}
        }
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_at_all_addresses_is_announced_at_the_one_that_is_used() {
        let reached = |address: &str, here: &str| {
            let address: Address = address.parse().unwrap();
            address.reached_from(here.parse().unwrap()).to_string()
        };
        let lan = "10.0.0.7";
        assert_eq!(reached("tls://0.0.0.0:7070", lan), "tls://10.0.0.7:7070");
        assert_eq!(reached("tcp+noise://[::]:1", lan), "tcp+noise://10.0.0.7:1");
        assert_eq!(reached("tcp://[::]:1", "fd00::1"), "tcp://[fd00::1]:1");
        assert_eq!(reached("tcp://[::]:1", "::ffff:10.0.0.7"), "tcp://10.0.0.7:1");
        for stays in ["tls://agent-7:7070", "tcp://127.0.0.1:1", "unix:///run/a"] {
            assert_eq!(reached(stays, lan), stays);
        }
    }
}
