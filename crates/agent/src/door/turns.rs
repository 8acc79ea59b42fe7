//! A door that serves one host after the other, and whether it stays open once one has left, or none could come in.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bothends_csd::admission::Peer;
use bothends_csd::listen::{Admitted, Ended, Terms, admit};
use bothends_csd::spool::{Visitor, await_host};
use bothends_csd::{Busy, CsdError, Serve};

use super::{Door, Hosts, LOOK, News, Visits, Way, far_end};

/// How often a door looks whether a full directory has room again.
const ROOM: Duration = Duration::from_millis(500);

impl Door {
    /// Serves one host after the other in the caller's thread.
    pub(super) fn serve_in_turn(
        &self,
        hosts: &dyn Hosts,
        visits: Visits,
        stop: &AtomicBool,
        tell: &(dyn Fn(News<'_>) + Sync),
    ) -> Result<(), CsdError> {
        let mut said_full = false;
        // A flag alone; nothing else is published with it.
        while !stop.load(Ordering::Relaxed) {
            match after(self.visit(hosts, stop, tell), visits) {
                ControlFlow::Break(end) => return end,
                ControlFlow::Continue(None) => said_full = false,
                ControlFlow::Continue(Some(error)) => {
                    let is_full = is_full(&error);
                    if !(is_full && said_full) {
                        tell(News::Complaint { from: None, error: &error });
                    }
                    said_full = is_full;
                    if is_full {
                        thread::sleep(ROOM);
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for a host, a little while at a socket, and serves it; `None` when none came. It has a place from when it is
    /// there: one that nobody uses is another door's.
    fn visit(
        &self,
        hosts: &dyn Hosts,
        stop: &AtomicBool,
        tell: &(dyn Fn(News<'_>) + Sync),
    ) -> Result<Option<Ended>, CsdError> {
        match &self.way {
            Way::Spool(dir) => {
                let Some(visitor) = await_host(&dir.path, stop)? else {
                    return Ok(Some(Ended::Stopped));
                };
                let serve = |visitor: Visitor, guest: &mut dyn Serve| {
                    visitor.serve(guest, stop).map(Some)
                };
                self.receive(hosts, visitor, serve, Visitor::turn_away)
            }
            Way::Socket(listener) => {
                let Some(socket) = listener.accept(LOOK)? else { return Ok(None) };
                let security = self.trust.current();
                let from = far_end(&socket);
                // Who has not said who it is was no host.
                let host = match admit(socket, Terms { security: &security, stop }) {
                    Ok(host) => host,
                    Err(CsdError::LinkLost { .. }) => return Ok(None),
                    Err(error) => {
                        tell(News::Complaint { from, error: &error });
                        return Ok(None);
                    }
                };
                let serve = |host: Admitted, guest: &mut dyn Serve| {
                    host.serve(guest, stop).map(Some)
                };
                self.receive(hosts, host, serve, Admitted::turn_away)
            }
        }
    }

    /// Has a host served, or told that there is no room. One at a time shares with nobody.
    fn receive<H>(
        &self,
        hosts: &dyn Hosts,
        host: H,
        serve: impl Fn(H, &mut dyn Serve) -> Result<Option<Ended>, CsdError>,
        turn_away: impl Fn(H, Busy),
    ) -> Result<Option<Ended>, CsdError> {
        let (mut host, mut ended) = (Some(host), Ok(None));
        hosts.host(Peer::default(), &mut |guest| {
            let Some(host) = host.take() else { return };
            match guest {
                Ok(guest) => ended = serve(host, guest),
                Err(busy) => {
                    // A count alone.
                    self.refusals.busy.fetch_add(1, Ordering::Relaxed);
                    turn_away(host, busy);
                }
            }
        });
        ended
    }
}

/// Whether the door closes with the end of a visit; what it complains of, where it stays open.
fn after(
    ended: Result<Option<Ended>, CsdError>,
    visits: Visits,
) -> ControlFlow<Result<(), CsdError>, Option<CsdError>> {
    match (ended, visits) {
        (Ok(None), _) | (Ok(Some(Ended::HostGone)), Visits::Always) => {
            ControlFlow::Continue(None)
        }
        (Ok(Some(Ended::Stopped)), _) | (Ok(Some(Ended::HostGone)), Visits::Once) => {
            ControlFlow::Break(Ok(()))
        }
        (Err(error), Visits::Always) if is_full(&error) => {
            ControlFlow::Continue(Some(error))
        }
        (Err(error @ (CsdError::Place { .. } | CsdError::Foreign { .. })), _)
        | (Err(error), Visits::Once) => ControlFlow::Break(Err(error)),
        (Err(error), Visits::Always) => ControlFlow::Continue(Some(error)),
    }
}

/// Whether a directory had no room: hosts are served again once somebody makes some.
fn is_full(error: &CsdError) -> bool {
    let CsdError::Place { source, .. } = error else { return false };
    matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It ended the agent, with all that others had of it.
    #[test]
    fn a_full_disk_ends_a_visit_and_not_the_door() {
        let place = |kind: ErrorKind| CsdError::Place {
            doing: "serve",
            place: "/spool".to_owned(),
            source: kind.into(),
        };
        let stays = |kind, visits| after(Err(place(kind)), visits).is_continue();
        assert!(stays(ErrorKind::StorageFull, Visits::Always));
        assert!(stays(ErrorKind::QuotaExceeded, Visits::Always));
        assert!(!stays(ErrorKind::StorageFull, Visits::Once));
        assert!(!stays(ErrorKind::PermissionDenied, Visits::Always));
    }
}
