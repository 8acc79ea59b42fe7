//! The terms of a report, explained to readers who do not know the code.

use crate::ReportInput;
use crate::page::markup::{entry, escape};

/// Each strategy in a sentence.
const STRATEGIES: [(&str, &str); 6] = [
    ("cpu", "Host workers preprocess everything; the device idles. The baseline."),
    ("csd", "The device preprocesses everything; the host's workers idle."),
    (
        "mte",
        "Moving Towards Each other, as published by DDLP: both prongs preprocess ten batches, the \
         rest is split once by their rates, and the host's part is delivered first.",
    ),
    (
        "wrr",
        "Weighted Round-Robin, as published by DDLP: the accelerator takes batches from host and \
         device in turn, as long as the device has one ready.",
    ),
    (
        "relaxed",
        "Whatever is ready is delivered first. Host and device walk the epoch from both ends until \
         they meet; the host re-executes what the device does not finish in time.",
    ),
    (
        "ordered",
        "The default. Batches are delivered in plan order, exactly as the host alone would deliver \
         them; a device claims batches far enough ahead to have them ready in time.",
    ),
];

const WORDS: [(&str, &str); 12] = [
    (
        "host, front",
        "The machine's own CPU cores, whose worker threads preprocess batches.",
    ),
    (
        "device, back",
        "A processor next to the data: a computational storage device, a DPU, a storage server.",
    ),
    (
        "accelerator",
        "What trains: a GPU or the like. Without a batch it idles, and still costs.",
    ),
    ("batch, epoch", "The images of one training step; one pass over all images."),
    ("images/s", "Images delivered, divided by the seconds of the epoch."),
    (
        "utilisation",
        "The share of the time, from the first batch on, in which the accelerator computed, as \
         MLPerf Storage defines it. The wait for the first batch and the training loop's own work \
         are not in it.",
    ),
    (
        "η (efficiency)",
        "The rate achieved, divided by the best one possible: the rates of host and device, each \
         measured alone, added up, or the accelerator's limit if that is lower.",
    ),
    ("rescued", "Batches of a late or lost device that the host re-executed."),
    (
        "stream digest",
        "A checksum over all delivered bytes in their order. Runs with equal digests fed the \
         accelerator exactly the same.",
    ),
    (
        "measured, modelled",
        "Measured: by a clock or counter on this machine. Modelled: stated by a model of hardware \
         that is not here. Measured with models: by a clock, while a model paced the device or the \
         accelerator; real ones would give another figure.",
    ),
    (
        "CPU ms/image, peak RSS",
        "CPU time per image, and the largest resident memory, of the host process.",
    ),
    (
        "PSS",
        "Proportional set size: a process's memory, with pages shared by several processes divided \
         among them.",
    ),
];

/// The strategies of this report and then the terms, as a description list.
pub(crate) fn list(input: &ReportInput) -> String {
    let is_here = |name: &str| input.runs.iter().any(|run| run.strategy == name);
    let strategies = STRATEGIES.iter().filter(|(name, _)| is_here(name));
    let entries = strategies.chain(&WORDS);
    let entries: String =
        entries.map(|(word, meaning)| entry(word, &escape(meaning))).collect();
    format!("<dl>\n{entries}</dl>\n")
}
