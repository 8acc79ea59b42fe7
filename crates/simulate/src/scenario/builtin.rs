//! The scenarios that are compiled in, in the order in which they are listed and played.

/// The path and text of each.
macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../", $path)))),+]
    };
}

/// The path and text of every file of `configs/experiments`.
pub(super) const FILES: &[(&str, &str)] = files![
    "configs/experiments/steady.json",
    "configs/experiments/steady-slow-device.json",
    "configs/experiments/steady-busy-accelerator.json",
    "configs/experiments/accelerator-bound.json",
    "configs/experiments/device-throttles.json",
    "configs/experiments/host-neighbour.json",
    "configs/experiments/host-cold.json",
    "configs/experiments/device-cold.json",
    "configs/experiments/sorted-by-size.json",
    "configs/experiments/eight-devices.json",
    "configs/experiments/eight-slow-devices.json",
    "configs/experiments/short-epoch-four-devices.json",
    "configs/experiments/short-epoch-slow-device.json",
    "configs/experiments/polling.json",
    "configs/experiments/varying.json",
    "configs/experiments/varying-quota-16.json",
    "configs/experiments/varying-quota-32.json",
    "configs/experiments/varying-quota-64.json",
    "configs/experiments/device-dies.json",
    "configs/experiments/device-stalls.json",
    "configs/experiments/device-stalls-long.json",
    "configs/experiments/slow-device-stalls.json",
    "configs/experiments/device-silent.json",
    "configs/experiments/device-late.json",
    "configs/experiments/device-corrupt.json",
    "configs/experiments/device-drifts.json",
    "configs/experiments/devices-join-and-leave.json",
    "configs/experiments/nothing-known.json",
    "configs/experiments/thousand-devices.json",
    "configs/experiments/sixty-four-ranks.json",
    "configs/experiments/ranks-unequal.json",
    "configs/experiments/two-shards.json",
    "configs/experiments/slow-link.json",
    "configs/experiments/remote-large-records.json",
    "configs/experiments/remote-small-records.json",
    "configs/experiments/long-latency.json",
    "configs/experiments/small-output-buffer.json",
    "configs/experiments/host-cpu-cap.json",
    "configs/experiments/energy-device-enough.json",
    "configs/experiments/energy-device-part.json",
    "configs/experiments/ddlp-imagenet.json",
    "configs/experiments/ddlp-imagenet-busy.json",
    "configs/experiments/ddlp-cifar10.json",
    "configs/experiments/ddlp-both.json",
];
