//! `bothends simulate --plan`: from what doctor found to a question that `bothends-simulate`
//! answers, and the answer to where it was asked for.

use std::path::Path;

use bothends_simulate::sizing::{DeviceFigures, PoolQuestion, Question};

use super::super::doctor::findings::{DeviceFinding, Findings};
use super::super::doctor::questions;
use crate::args::simulate::{PoolArgs, SizingArgs};
use crate::failed::Failed;
use crate::{file, say};

/// Answers what devices would do for the host that doctor measured.
pub(crate) fn size(
    args: &SizingArgs,
    doctor: &Path,
    json: Option<&Path>,
) -> Result<(), Failed> {
    file::check_distinct(&[("--doctor", Some(doctor)), ("--json", json)])?;
    let findings = Findings::load(doctor)?;
    let question = question(args, &findings, &doctor.display().to_string())?;
    if args.of_pool.pool {
        return pool(&args.of_pool, &question, &findings, json);
    }
    let answer = question.answer();
    if let Some(path) = json {
        file::write(path, &serde_json::to_string_pretty(&answer)?)?;
    }
    if json != Some(Path::new("-")) {
        say::text(answer.text().trim_end());
        say::verdict(&answer.verdict);
    }
    Ok(())
}

/// Answers how many agents like the device many jobs like that host's need.
fn pool(
    args: &PoolArgs,
    question: &Question,
    findings: &Findings,
    json: Option<&Path>,
) -> Result<(), Failed> {
    let sample_bytes = findings.data.as_ref().map_or(0, |data| data.sample_bytes as u64);
    let mut asked = PoolQuestion::of(question, sample_bytes, args.jobs);
    asked.price = args.agent_price;
    let plan = asked.plan();
    if let Some(path) = json {
        file::write(path, &serde_json::to_string_pretty(&plan)?)?;
    }
    if json != Some(Path::new("-")) {
        say::text(plan.text().trim_end());
    }
    Ok(())
}

fn question(
    args: &SizingArgs,
    findings: &Findings,
    file: &str,
) -> Result<Question, Failed> {
    let Some(data) = &findings.data else {
        return Err(lacking(file, "no rates", "--data PATH --csd sim:PRESET"));
    };
    let mut counts = args.count.clone();
    counts.sort_unstable();
    counts.dedup();
    let lacks_rate = || lacking(file, "no rate of the host", "--data PATH");
    let (found, device) = device(args, findings, file)?;
    // Where somebody has modelled this very device, its power is known too.
    let power = questions::power(found.preset.as_deref().unwrap_or_default());
    Ok(Question {
        host: questions::host(findings, args.workers).ok_or_else(lacks_rate)?,
        device,
        accelerator: questions::accelerator(&args.accelerator)?,
        batch_size: data.batch_size,
        counts,
        power: power.ok_or_else(|| anyhow::anyhow!("no power model in this build"))?,
    })
}

/// The device asked for, else the first, and its rate.
fn device<'a>(
    args: &SizingArgs,
    findings: &'a Findings,
    file: &str,
) -> Result<(&'a DeviceFinding, DeviceFigures), Failed> {
    let wanted = |device: &DeviceFinding| match &args.preset {
        Some(name) => device.preset.as_ref() == Some(name) || device.csd == *name,
        None => true,
    };
    let data = findings.data.as_ref();
    let with_rate =
        |device: &'a DeviceFinding| Some((device, questions::device(device, data?)?));
    let mut found = findings.devices.iter().filter(|d| wanted(d)).filter_map(with_rate);
    found.next().ok_or_else(|| {
        let preset = args.preset.as_deref().unwrap_or("PRESET");
        let what = format!("no rate of a device `{preset}`");
        lacking(file, &what, &format!("--data PATH --csd sim:{preset}"))
    })
}

fn lacking(file: &str, what: &str, flags: &str) -> Failed {
    Failed::Run(anyhow::anyhow!(
        "{file} has {what}; run `bothends doctor {flags} --json {file}` first"
    ))
}
