//! Queues in virtual time: hours pass in a moment, and each read is right.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[path = "nvme/device.rs"]
mod device;
#[path = "nvme/host.rs"]
mod host;
#[path = "nvme/soak.rs"]
mod soak;
#[path = "nvme/virtual_time.rs"]
mod virtual_time;

use std::time::Duration;

use soak::Model;
use virtual_time::Day;

#[test]
fn an_hour_is_over_soon_and_its_reads_are_right() {
    let (hour, mut day) = (Duration::from_secs(3600), Day::begin("970-pro"));
    let n_reads = day.pass(hour, 1000, &mut Model::new(3));
    let (time, joules) = day.used();
    assert!(n_reads > 500 && time >= hour, "{n_reads} reads in {time:?}");
    assert!(day.longest > Duration::ZERO && day.longest < Duration::from_secs(1));
    assert!(joules > 0.0, "{joules} J");
}
