//! `bothends report`: the page of a run again, from its event file.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use bothends_core::one_line;
use bothends_report::{Recording, ReportInput};

use crate::args::show::ReportArgs;
use crate::failed::Failed;
use crate::file::{Printed, check_distinct, check_writable, printed, write};
use crate::say;
use crate::typed::page;

/// Reads events, writes the page and says what is in it.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failed> {
    page("OUT.html", &args.page)?;
    check_distinct(&[
        ("EVENTS.jsonl", Some(&args.events)),
        ("OUT.html", Some(&args.page)),
        ("--trace", args.trace.as_deref()),
    ])?;
    let printed =
        printed(&[("OUT.html", Some(&args.page)), ("--trace", args.trace.as_deref())])?;
    let path = &args.events;
    let events = File::open(path).map_err(|e| {
        anyhow::anyhow!("cannot open {}: {e}; check the path", path.display())
    })?;
    let recording = Recording::read(&mut BufReader::new(events))
        .map_err(|e| anyhow::anyhow!("{}: {}", path.display(), one_line(&e)))?;
    let results = std::iter::once(&args.page).chain(&args.trace);
    for path in results.filter(|path| *path != Path::new("-")) {
        check_writable(path)?;
    }
    let input = ReportInput::from(&recording);
    write(&args.page, &bothends_report::html(&input))?;
    if let Some(path) = &args.trace {
        write(path, &bothends_report::trace(&recording)?)?;
    }
    if printed == Printed::Table {
        say::text(bothends_report::table(&input).trim_end());
    }
    for gap in &input.gaps {
        say::note(&format!("note: {gap}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_of_a_run_are_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("own.json"), "events").unwrap();
        for (page, trace) in
            [("own.html", Some("own.json")), ("own.json", None), ("a", Some("a"))]
        {
            let args = ReportArgs {
                events: at("own.json"),
                page: at(page),
                trace: trace.map(at),
            };
            assert!(matches!(report(&args), Err(Failed::Arguments(_))), "{args:?}");
        }
        assert_eq!(std::fs::read(at("own.json")).unwrap(), b"events");
    }
}
