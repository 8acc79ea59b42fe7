//! What agents and hosts say to a registry: who is a member of a pool, and until when.
//!
//! A list is soft state. It begins empty, members say again and again that they are there, and those that
//! no longer do leave it. Which agent keeps one is a matter of the pool's address (`pool.rs`).

use std::time::Duration;

/// How often an agent announces itself, and for how long it is then listed. Two announcements in a row may be lost, each of
/// which an agent awaits the answer of for three seconds.
pub const ANNOUNCE_EVERY: Duration = Duration::from_millis(1500);

/// As [`ANNOUNCE_EVERY`].
pub const LEASE: Duration = Duration::from_secs(15);

/// The longest lease that a registry grants. A list that is younger may lack members.
pub const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// An agent says where it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The agent's address, as hosts are to use it.
    pub address: String,
    /// It is listed for so long.
    pub lease: Duration,
}

/// The members that a registry knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberList {
    /// Since when it has been told of members.
    pub age: Duration,
    /// One address in each line, as in a pool's file.
    pub text: String,
}
