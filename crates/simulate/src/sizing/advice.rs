//! What a table of device counts means for a decision, in plain sentences.

use super::verdict::LEAST_GAIN;
use super::{FED, Question, Row, three_digits};

/// A device whose rate is this fraction of its link's bandwidth is limited by the link.
const LINK_FULL: f64 = 0.9;

/// What the rows mean; the first is the host alone.
pub(super) fn sentences(question: &Question, rows: &[Row]) -> Vec<String> {
    let Some((alone, with)) = rows.split_first() else { return Vec::new() };
    let Question { host, device, accelerator, .. } = question;
    let mut said = vec![format!(
        "The host alone makes {} images/s with {} workers ({}); {} takes {} and is busy {} of \
         the time.",
        three_digits(host.images_per_s),
        host.workers,
        host.source,
        accelerator.name,
        three_digits(accelerator.images_per_s),
        whole_percent(alone.utilisation),
    )];
    said.push(format!(
        "One {} makes {} images/s ({}{}).",
        device.name,
        device.ends.rates(),
        device.source,
        if device.is_uncalibrated { "; its speed is uncalibrated" } else { "" }
    ));
    if alone.utilisation >= FED {
        said.extend(spares(question, alone, with));
    } else {
        said.extend(gains(question, with));
    }
    if let Some(link) = device.link_images_per_s
        && device.images_per_s >= LINK_FULL * link
    {
        said.push(format!(
            "Its link carries {} images/s and is what holds it up: a faster link would help, a \
             faster {} would not.",
            three_digits(link),
            device.name
        ));
    }
    if let Some(last) = with.last() {
        said.push(format!(
            "Energy of an image (modelled): {} J with the host alone, {} J with {}.",
            joules(alone.joules_per_image),
            joules(last.joules_per_image),
            devices(last.devices)
        ));
    }
    said
}

/// The host alone is enough.
fn spares(question: &Question, alone: &Row, with: &[Row]) -> Vec<String> {
    let name = &question.device.name;
    let mut said = vec![format!(
        "The host alone already feeds the accelerator: a {name} would not make training faster."
    )];
    if let Some(last) = with.last() {
        said.push(format!(
            "Devices can only relieve the host: with --objective energy and {} its workers \
             are busy {} of the time instead of {}.",
            devices(last.devices),
            whole_percent(last.host_cpu),
            whole_percent(alone.host_cpu)
        ));
    }
    said
}

/// The accelerator waits for the host alone.
fn gains(question: &Question, with: &[Row]) -> Vec<String> {
    let mut said = Vec::new();
    for row in with {
        let gain = row.speedup - 1.0;
        if gain < LEAST_GAIN {
            said.push(format!(
                "{} would not pay: a gain of {:.1} %, less than {:.0} %.",
                sentence_start(&devices(row.devices)),
                gain * 100.0,
                LEAST_GAIN * 100.0
            ));
        }
    }
    if let Some(row) = with.iter().find(|row| row.speedup >= 1.0 + LEAST_GAIN) {
        said.push(format!(
            "{} of this kind with strategy {} make{} training {} times as fast as the host \
             alone.",
            sentence_start(&devices(row.devices)),
            row.strategy,
            if row.devices == 1 { "s" } else { "" },
            row.speedup_ends.ratios()
        ));
    }
    match with.iter().find(|row| row.utilisation >= FED) {
        Some(row) => said.push(format!(
            "With {} the accelerator is fed ({} busy); more would not \
             make it faster.",
            devices(row.devices),
            whole_percent(row.utilisation)
        )),
        None => said.extend(with.last().map(|row| {
            format!(
                "Even with {} the accelerator waits: it is busy {} of the time. It would take \
                 {}.",
                devices(row.devices),
                whole_percent(row.utilisation),
                needed(question)
            )
        })),
    }
    said
}

/// How many devices close the gap between host and accelerator.
fn needed(question: &Question) -> String {
    let gap = question.accelerator.images_per_s - question.host.images_per_s;
    format!("about {:.0}", (gap / question.device.images_per_s).ceil())
}

fn devices(n: u32) -> String {
    if n == 1 { "one device".to_owned() } else { format!("{n} devices") }
}

fn sentence_start(words: &str) -> String {
    let mut letters = words.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Energy per image with two digits, which is all that the model is good for.
pub(super) fn joules(value: f64) -> String {
    let places = if value < 0.01 { 4 } else { 2 };
    format!("{value:.places$}")
}

pub(super) fn whole_percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::question;

    fn advice(host: f64, device: f64, accelerator: f64) -> String {
        question(host, device, accelerator).answer().advice.join("\n")
    }

    #[test]
    fn who_should_not_buy_is_told_so() {
        let fed = advice(2000.0, 250.0, 1000.0);
        assert!(fed.contains("already feeds the accelerator"), "{fed}");
        assert!(fed.contains("--objective energy and 4 devices"), "{fed}");
        let slow = advice(1000.0, 5.0, 2000.0);
        assert!(slow.contains("One device would not pay: a gain of 0."), "{slow}");
        assert!(slow.contains("4 devices would not pay"), "{slow}");
        assert!(slow.contains("It would take about 200."), "{slow}");
    }

    #[test]
    fn who_should_buy_is_told_how_many() {
        let text = advice(1000.0, 250.0, 1500.0);
        assert!(
            text.contains("One device of this kind with strategy ordered makes"),
            "{text}"
        );
        assert!(text.contains("With 4 devices the accelerator is fed"), "{text}");
        assert!(text.contains("(modelled by its preset)"), "{text}");
    }

    #[test]
    fn a_full_link_is_named() {
        let mut asked = question(1000.0, 250.0, 1500.0);
        asked.device.link_images_per_s = Some(260.0);
        let text = asked.answer().advice.join("\n");
        assert!(text.contains("Its link carries 260 images/s"), "{text}");
    }
}
