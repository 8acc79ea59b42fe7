//! Whether a door that serves one host after the other stays open once a host has left, or none could come in.

use std::io::ErrorKind;
use std::ops::ControlFlow;

use bothends_csd::CsdError;
use bothends_csd::listen::Ended;

use super::Visits;

/// Whether the door closes with the end of a visit; what it complains of, where it stays open.
pub(super) fn after(
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
pub(super) fn is_full(error: &CsdError) -> bool {
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
