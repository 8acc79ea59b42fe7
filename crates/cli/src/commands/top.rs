//! `bothends top`: endpoints as they were typed, and where the frame goes.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGTERM};

use bothends_top::{Endpoint, PATH};

use crate::args::show::TopArgs;
use crate::failed::{Failed, wrong};
use crate::say;
use crate::typed::seconds;

/// From one look to the next at least, for whoever is looked at has other work.
const SHORTEST: Duration = Duration::from_millis(100);

/// Shows what agents and jobs do until a key ends it, or prints that once.
pub(crate) fn top(args: &TopArgs) -> Result<(), Failed> {
    let endpoint = |url: &String| {
        Endpoint::parse(url, PATH).ok_or_else(|| {
            wrong(format!("`{url}`: give HOST:PORT, :PORT or http://HOST:PORT/metrics"))
        })
    };
    let endpoints = args.urls.iter().map(endpoint).collect::<Result<Vec<_>, _>>()?;
    let every = seconds("--every", args.every)?.max(SHORTEST);
    if args.once {
        let frame = bothends_top::printed(&endpoints, every);
        say::text(frame.map_err(anyhow::Error::msg)?.trim_end());
        return Ok(());
    }
    if !std::io::stdout().is_terminal() {
        return Err(wrong(
            "standard output is not a terminal; give --once for one frame as text",
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    bothends_top::show(&endpoints, every, &stop)
        .map_err(|error| anyhow::anyhow!("the terminal cannot be used: {error}").into())
}
