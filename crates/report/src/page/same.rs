//! Whether every strategy delivered the same data, as far as checksums tell.

use std::collections::BTreeMap;

use bothends_figures::{Audits, Damaged, SourceSamples};

use crate::figure::short_digest;
use crate::page::markup::{escape, origin_tag};
use crate::{ReportInput, StrategyRun};

/// The result of comparing digests.
pub(crate) fn verdicts(input: &ReportInput) -> String {
    let is_in_order =
        |run: &StrategyRun| matches!(run.strategy.as_str(), "cpu" | "ordered");
    let content = agreement(input, |_| true, |run| &run.content_digest);
    let stream = agreement(input, is_in_order, |run| &run.stream_digest);
    let verdicts = match (content, stream) {
        (None, None) => vec![alone(input)],
        (content, stream) => [
            content.map(|agree| verdict(agree, SAME_CONTENT)),
            stream.map(|agree| verdict(agree, SAME_STREAM)),
        ]
        .into_iter()
        .flatten()
        .collect(),
    };
    let (audited, damaged, mixed) = (audited(input), damaged(input), mixed(input));
    let verdicts = verdicts.concat();
    format!("<ul class=\"verdicts\">\n{verdicts}{audited}{damaged}{mixed}</ul>\n")
}

/// How many samples of each data set of a mix were delivered; nothing without a mix.
fn mixed(input: &ReportInput) -> String {
    let of = |it: &SourceSamples| format!("{} of {}", it.samples, it.name);
    let line = |run: &StrategyRun| {
        let sources: Vec<String> = run.sources.iter().map(of).collect();
        let (epoch, name) = (run.epoch, &run.strategy);
        let text = format!("Samples of epoch {epoch} ({name}): {}.", sources.join(", "));
        format!("<li class=\"yes\">{} {}</li>\n", escape(&text), origin_tag("measured"))
    };
    input.runs.iter().filter(|run| !run.sources.is_empty()).map(line).collect()
}

/// What audits of devices came to; nothing where there were none.
fn audited(input: &ReportInput) -> String {
    let mut all = Audits::default();
    input.runs.iter().for_each(|run| all += run.audits);
    let Audits { batches, samples, differences, .. } = all;
    if batches == 0 {
        return String::new();
    }
    let class = if differences == 0 { "yes" } else { "no" };
    let text = format!(
        "The host audited {batches} device batches: it compared {samples} samples with its own \
         and found {differences} different."
    );
    format!("<li class=\"{class}\">{} {}</li>\n", escape(&text), origin_tag("measured"))
}

/// Damaged samples that the page names; the JSON in it names more.
const NAMED: usize = 20;

/// Samples that were decoded in spite of a damage; nothing where there were none.
fn damaged(input: &ReportInput) -> String {
    let Damaged { samples, named } = &input.damaged;
    if *samples == 0 {
        return String::new();
    }
    let names = named.iter().take(NAMED).map(|it| format!("{} ({})", it.file, it.what));
    let mut names: Vec<String> = names.collect();
    let n_left = samples.saturating_sub(names.len() as u64);
    if n_left > 0 {
        names.push(format!("and {n_left} more"));
    }
    let are = if *samples == 1 {
        "sample is damaged and was"
    } else {
        "samples are damaged and were"
    };
    let text =
        format!("{samples} {are} decoded as Pillow decodes them: {}.", names.join(", "));
    format!("<li class=\"unknown\">{} {}</li>\n", escape(&text), origin_tag("measured"))
}

/// Whether digests that must be equal are equal.
enum Agreement {
    Kept,
    Broken,
}

/// Whether epochs of the same samples (those with the same number) have the same `digest`; `None` if no
/// two of them have one.
fn agreement(
    input: &ReportInput,
    is_compared: fn(&StrategyRun) -> bool,
    digest: fn(&StrategyRun) -> &str,
) -> Option<Agreement> {
    let mut first: BTreeMap<u32, &str> = BTreeMap::new();
    let mut agree = None;
    for run in input.runs.iter().filter(|run| is_compared(run) && !digest(run).is_empty())
    {
        match first.get(&run.epoch) {
            Some(known) if *known != digest(run) => return Some(Agreement::Broken),
            Some(_) => agree = Some(Agreement::Kept),
            None => drop(first.insert(run.epoch, digest(run))),
        }
    }
    agree
}

/// The sentence about digests that agree, or do not.
type Verdict = [&'static str; 2];

const SAME_CONTENT: Verdict = [
    "Every strategy delivered the same images, each exactly once, to the last bit.",
    "The strategies delivered different images. This is a bug: please report it.",
];

const SAME_STREAM: Verdict = [
    "cpu and ordered delivered them in the same order, too: one and the same stream.",
    "cpu and ordered delivered different streams. This is a bug: please report it.",
];

fn verdict(agree: Agreement, [yes, no]: Verdict) -> String {
    let (class, text) = match agree {
        Agreement::Kept => ("yes", yes),
        Agreement::Broken => ("no", no),
    };
    format!("<li class=\"{class}\">{} {}</li>\n", escape(text), origin_tag("measured"))
}

/// The sentence if no two epochs have the same samples.
fn alone(input: &ReportInput) -> String {
    let known = input.runs.iter().zip(input.names());
    let known = known.filter(|(run, _)| !run.stream_digest.is_empty());
    let known: Vec<String> = known
        .map(|(run, name)| format!("{name} {}…", short_digest(&run.stream_digest)))
        .collect();
    let text = match known.as_slice() {
        [] => "Not checked: this run kept no checksums (--digest keeps them).".to_owned(),
        known => format!(
            "Checksums were kept ({}), but no other epoch here has the same samples. Compare them \
             with those of another run.",
            known.join(", ")
        ),
    };
    format!("<li class=\"unknown\">{}</li>\n", escape(&text))
}

#[cfg(test)]
mod tests {
    use bothends_figures::DamagedSample;

    use super::*;
    use crate::example;

    #[test]
    fn audits_and_damaged_samples_are_told_where_there_are_any() {
        let mut input = example::input();
        let nothing = verdicts(&input);
        assert!(
            !nothing.contains("audited") && !nothing.contains("damaged"),
            "{nothing}"
        );
        input.runs[1].audits =
            Audits { batches: 3, samples: 24, differences: 0, seconds: 0.1 };
        let named = DamagedSample {
            sample: 7,
            file: "a<b>.jpg".to_owned(),
            what: "JPEG: stray bytes".to_owned(),
        };
        input.damaged = Damaged { samples: 12, named: vec![named] };
        let told = verdicts(&input);
        let audited = "The host audited 3 device batches: it compared 24 samples with its own and \
                       found 0 different.";
        assert!(told.contains(&format!("<li class=\"yes\">{audited}")), "{told}");
        let damaged = "12 samples are damaged and were decoded as Pillow decodes them: \
                       a&lt;b&gt;.jpg (JPEG: stray bytes), and 11 more.";
        assert!(told.contains(damaged), "{told}");
        let name = "a&b".to_owned();
        input.runs[1].sources = vec![SourceSamples { name, samples: 9 }];
        let mixed = "Samples of epoch 0 (ordered): 9 of a&amp;b.";
        assert!(verdicts(&input).contains(mixed), "{}", verdicts(&input));
        input.runs[1].audits.differences = 1;
        assert!(verdicts(&input).contains("<li class=\"no\">The host audited"));
    }
}
