//! `bothends conform`: whether a device keeps to the protocol, clause by clause. What is tried is the
//! agent's (`conformance`); here are the files that it needs, and what is printed.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use bothends_agent::conformance::{
    Clause, Placed, Reach, Suite, Verdict, place, unplace,
};
use bothends_core::fit;
use bothends_csd::{Address, connect};

use crate::args::ConformArgs;
use crate::failed::{Failed, cannot_write, wrong};
use crate::say;

/// What a verdict is printed in, whatever prints it.
const COLUMNS: usize = 80;

/// How many clauses came out how.
#[derive(Debug, Default)]
struct Count {
    passed: u32,
    failed: u32,
    not_applicable: u32,
}

/// Test files that lie below the data root while this lives.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        unplace(&self.0);
    }
}

/// Tries every clause and prints a line for each.
pub(crate) fn conform(args: &ConformArgs) -> Result<(), Failed> {
    let Some(address) = &args.address else { return write(args.write.as_deref()) };
    let address: Address = address.parse().map_err(wrong)?;
    let reach = Reach { address, options: args.security.options() };
    greet(&reach)?;
    let placed = match args.data {
        Some(_) => Placed::Here,
        None => Placed::Copied,
    };
    let _files = args.data.as_deref().map(placed_below).transpose()?;
    let root = args.data.as_deref().unwrap_or(Path::new("."));
    let mut count = Count::default();
    let suite = Suite::new(reach, root, placed);
    let tried =
        suite.run(&mut |clause, verdict| say::line(&count.line(clause, &verdict)));
    tried.map_err(|why| Failed::Run(anyhow!("{why}; {}", remedy(placed))))?;
    let Count { passed, failed, not_applicable } = count;
    say::line(&format!(
        "{passed} passed, {failed} failed, {not_applicable} not applicable"
    ));
    match failed {
        0 => Ok(()),
        1 => Err(Failed::Run(anyhow!("the device violates a clause of the protocol"))),
        n => Err(Failed::Run(anyhow!("the device violates {n} clauses of the protocol"))),
    }
}

/// Says which device it is; one that cannot be reached is an error of its own.
fn greet(reach: &Reach) -> Result<(), Failed> {
    let said = connect(&reach.address, &reach.options)?.hello()?;
    let slots = if said.slots == 1 { "slot" } else { "slots" };
    say::line(&format!(
        "{} at {}: protocol {}, {} {slots}, {} ops",
        said.name,
        reach.address,
        said.protocol_version,
        said.slots,
        said.ops.len()
    ));
    Ok(())
}

fn placed_below(root: &Path) -> Result<Files, Failed> {
    let files = Files(root.to_owned());
    place(root).map_err(|error| cannot_write(root, &error))?;
    Ok(files)
}

fn write(root: Option<&Path>) -> Result<(), Failed> {
    let Some(root) = root else { return Err(wrong("give the device's ADDRESS")) };
    let folder = place(root).map_err(|error| cannot_write(root, &error))?;
    say::line(&format!(
        "wrote {}; copy that folder into the device's data root",
        root.join(folder).display()
    ));
    Ok(())
}

fn remedy(placed: Placed) -> &'static str {
    match placed {
        Placed::Here => "does --data name the folder that the device serves?",
        Placed::Copied => {
            "name the folder that the device serves with --data, or make files for another \
             machine with --write"
        }
    }
}

impl Count {
    /// Counts a clause, and says how it came out.
    fn line(&mut self, clause: &Clause, verdict: &Verdict) -> String {
        let (word, why) = match verdict {
            Verdict::Passed => ("passed", None),
            Verdict::Failed(why) => ("failed", Some(why)),
            Verdict::NotApplicable(why) => ("n/a", Some(why)),
        };
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(_) => self.failed += 1,
            Verdict::NotApplicable(_) => self.not_applicable += 1,
        }
        let label = format!("{word:6} {:4}", clause.number);
        let line = fit(&format!("{label}  {}", clause.sentence), COLUMNS);
        let Some(why) = why else { return line };
        let indent = " ".repeat(label.len() + 2);
        let why = fit(&why.replace('\n', " "), COLUMNS - indent.len());
        why.lines().fold(line, |said, next| said + "\n" + &indent + next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bothends_agent::conformance::CLAUSES;

    #[test]
    fn every_verdict_fits_80_columns() {
        let why = "the device answers ".repeat(12);
        for verdict in [Verdict::Passed, Verdict::Failed(why)] {
            for clause in &CLAUSES {
                let said = Count::default().line(clause, &verdict);
                for line in said.lines() {
                    assert!(line.chars().count() <= COLUMNS, "{line}");
                }
            }
        }
    }
}
