//! What a door tells of its hosts while it serves. What becomes of it is for the program: a line of its
//! log, say.

use std::net::SocketAddr;
use std::time::Duration;

use bothends_csd::{CsdError, Whose};

/// What a door has to tell of its hosts. They are numbered by their connections, from 1.
#[derive(Debug)]
pub enum News<'a> {
    /// One is admitted, and served from now on.
    Came {
        /// Its number.
        host: u64,
        /// Where it is, if it came over a network.
        from: Option<SocketAddr>,
    },
    /// It is not served any more.
    Left {
        /// Its number.
        host: u64,
        /// Where it is, if it came over a network.
        from: Option<SocketAddr>,
        /// How long it was served.
        after: Duration,
        /// What its latest session was of.
        whose: Whose,
    },
    /// One was told that there is no room.
    TurnedAway {
        /// Its number.
        host: u64,
        /// Where it is, if it came over a network.
        from: Option<SocketAddr>,
    },
    /// Why one was not, or not any longer, served.
    Complaint {
        /// Where it is, if it came over a network.
        from: Option<SocketAddr>,
        /// Why.
        error: &'a CsdError,
    },
}
