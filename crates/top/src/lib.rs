//! `bothends top`: what a pool's agents and the jobs that they serve do, from the metrics that both give
//! to Prometheus.
//!
//! `look` asks all endpoints, `view` makes rows of two such looks (it is pure), `frame` draws the
//! rows, and `live` draws them again and again. Nothing here runs a job or changes one.

mod frame;
mod live;
mod look;
mod view;

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use bothends_scrape::Endpoint;

use look::Look;
use view::View;

/// Where metrics are, of an endpoint that names no path.
pub const PATH: &str = "/metrics";

/// Columns and lines of the frame that is printed.
const PRINTED: (u16, u16) = (80, 24);

/// Shows them on this process's terminal, asked again every so often, until `q`, Escape or Ctrl-C is
/// typed or `stop` is set. Leaves the terminal as it was.
///
/// # Errors
/// Standard output is not a terminal, or it fails.
pub fn show(
    endpoints: &[Endpoint],
    every: Duration,
    stop: &AtomicBool,
) -> io::Result<()> {
    live::show(endpoints, every, stop)
}

/// One frame as plain text, from two looks that are so far apart.
///
/// # Errors
/// Nobody answers: a line that says why.
pub fn printed(endpoints: &[Endpoint], between: Duration) -> Result<String, String> {
    let before = Look::at(endpoints);
    std::thread::sleep(between);
    let view = View::of(Some(&before), &Look::at(endpoints));
    match &view.absent[..] {
        [first, ..] if view.absent.len() == endpoints.len() => Err(format!(
            "nothing answers at {}: {}; give the address that `--metrics` names",
            first.endpoint, first.why
        )),
        _ => Ok(frame::text(&view, PRINTED)),
    }
}
