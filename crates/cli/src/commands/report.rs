//! `bothends report`: the page of a run again, from its event file.

use std::fs::File;
use std::io::BufReader;

use bothends_core::one_line;
use bothends_report::{Recording, ReportInput};

use crate::args::show::ReportArgs;
use crate::failed::Failed;
use crate::file::{check_writable, write};
use crate::say;
use crate::typed::page;

/// Reads events, writes the page and says what is in it.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failed> {
    page("OUT.html", &args.page)?;
    let path = &args.events;
    let events = File::open(path).map_err(|e| {
        anyhow::anyhow!("cannot open {}: {e}; check the path", path.display())
    })?;
    let recording = Recording::read(&mut BufReader::new(events))
        .map_err(|e| anyhow::anyhow!("{}: {}", path.display(), one_line(&e)))?;
    for path in std::iter::once(&args.page).chain(&args.trace) {
        check_writable(path)?;
    }
    let input = ReportInput::from(&recording);
    write(&args.page, &bothends_report::html(&input))?;
    if let Some(path) = &args.trace {
        write(path, &bothends_report::trace(&recording)?)?;
    }
    say::text(bothends_report::table(&input).trim_end());
    for gap in &input.gaps {
        say::note(&format!("note: {gap}"));
    }
    Ok(())
}
