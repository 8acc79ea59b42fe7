//! The commands: each reads its flags, calls the crates that know how, and says what came out.

mod bench;
mod conform;
mod demo;
mod describe;
mod doctor;
mod inspect;
mod pack;
mod report;
mod run;
mod simulate;
mod top;

use clap::CommandFactory as _;

use crate::args::{Args, Command};
use crate::failed::Failed;

/// Does what was asked for; `beside` describes the other programs of this installation.
pub(crate) fn run(command: &Command, beside: &[clap::Command]) -> Result<(), Failed> {
    let programs = || [&[Args::command()], beside].concat();
    match command {
        Command::Demo(args) => demo::demo(args),
        Command::Run(args) => run::run(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Inspect(args) => inspect::inspect(args),
        Command::Bench(args) => bench::bench(args),
        Command::Simulate(args) => simulate::simulate(args),
        Command::Pack(args) => pack::pack(args),
        Command::Convert(args) => pack::convert(args),
        Command::Upload(args) => pack::upload(args),
        Command::Unpack(args) => pack::unpack(args),
        Command::Conform(args) => conform::conform(args),
        Command::Report(args) => report::report(args),
        Command::Top(args) => top::top(args),
        Command::Completions(args) => {
            describe::completions(args, &programs());
            Ok(())
        }
        Command::Man(args) => describe::man(args, &programs()),
    }
}
