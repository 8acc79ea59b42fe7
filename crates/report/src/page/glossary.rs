//! The words of a report, explained to somebody who has not read code.

use crate::ReportInput;
use crate::page::markup::{entry, escape};

/// Each strategy in a sentence.
const STRATEGIES: [(&str, &str); 6] = [
    ("cpu", "The host alone prepares everything; the device rests. The line to beat."),
    ("csd", "The device alone prepares everything; the host rests."),
    (
        "mte",
        "Moving towards each other, as published by DDLP: both prepare ten batches, the rest is \
         split by their speeds once and for all, the host's part is delivered first, then the \
         device's.",
    ),
    (
        "wrr",
        "Weighted round robin, as published by DDLP: the accelerator takes from host and device \
         in turn, as long as the device has something ready.",
    ),
    (
        "relaxed",
        "Whatever is ready is delivered first. Host and device walk the epoch from both ends \
         until they meet; the host redoes what the device does not finish in time.",
    ),
    (
        "ordered",
        "The default. The device prepares what will be needed when it is ready, and every batch \
         is delivered in exactly the order in which the host alone would have delivered it.",
    ),
];

const WORDS: [(&str, &str); 12] = [
    (
        "host, front",
        "The computer's own processors. Their worker threads prepare batches from the front of \
         the epoch.",
    ),
    (
        "device, back",
        "A processor beside the data (a computational storage device, a storage server). It \
         prepares batches from the back.",
    ),
    (
        "accelerator",
        "What trains: a GPU or the like. While it has no batch it waits, and costs.",
    ),
    (
        "batch, epoch",
        "A group of images that is trained on in one step; all images once.",
    ),
    (
        "images/s",
        "Images that reached the accelerator, divided by the seconds of the epoch.",
    ),
    (
        "utilisation",
        "The share of the time, from the first batch on, in which the accelerator computed. \
         100 % means that it never waited.",
    ),
    (
        "η (efficiency)",
        "The rate reached, divided by the best rate possible: host and device together, each \
         measured alone, or the accelerator's own limit if that is lower.",
    ),
    ("rescued", "Batches that a device had taken and that the host made instead."),
    (
        "stream digest",
        "A checksum over all delivered bytes in their order. Two runs with the same digest fed \
         the accelerator exactly the same.",
    ),
    (
        "measured, modelled",
        "Measured: by a clock or a counter on this machine. Modelled: stated by a model of \
         hardware that is not here. Measured with models: by a clock, while a model set the pace \
         of the device or the accelerator; real ones would give another figure.",
    ),
    (
        "CPU ms/image, peak RSS",
        "Processor time per image, and the most memory, of the host process.",
    ),
    (
        "PSS",
        "Memory of a process in which a page that several processes share counts in part for each.",
    ),
];

/// The strategies of this report and then the words, as a description list.
pub(crate) fn list(input: &ReportInput) -> String {
    let is_here = |name: &str| input.runs.iter().any(|run| run.strategy == name);
    let strategies = STRATEGIES.iter().filter(|(name, _)| is_here(name));
    let entries = strategies.chain(&WORDS);
    let entries: String =
        entries.map(|(word, meaning)| entry(word, &escape(meaning))).collect();
    format!("<dl>\n{entries}</dl>\n")
}
