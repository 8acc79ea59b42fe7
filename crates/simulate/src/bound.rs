//! The best that any scheme could reach: everybody works all the time and nobody ever waits. Only
//! rates count: it ignores that batches are indivisible and that times vary.

use crate::play::float;
use crate::world::{Device, Records, World};
use bothends_core::link::{SampleBytes, best_rates};
use bothends_core::objective::{Allowance, Objective};

/// Seconds of an epoch in which host, devices and links work all the time, or the accelerator
/// does.
#[must_use]
pub fn seconds(world: &World) -> f64 {
    let work = f64::from(world.n_batches);
    let rates = [front_rate(world.objective, world), back_rate(world)];
    let [front, back] = match world.host.records {
        Some(Records { link, batch_bytes }) => {
            let bytes = SampleBytes { host: batch_bytes, device: world.batch_bytes };
            let bytes_per_s = world.links.get(link).map_or(0, |link| link.bytes_per_s);
            best_rates(bytes, float(bytes_per_s), rates)
        }
        None => rates,
    };
    let made = work / (front + back);
    made.max(work * float(world.accelerator.step_ns) / 1e9)
}

/// Batches per second.
fn front_rate(objective: Objective, world: &World) -> f64 {
    let part = Allowance::of(objective).map_or(1.0, |allowance| allowance.part());
    part * 1e9 / float(world.host.batch_ns)
}

fn back_rate(world: &World) -> f64 {
    let mut through = vec![0.0; world.links.len()];
    let mut direct = 0.0;
    for device in &world.devices {
        match device.link.and_then(|link| through.get_mut(link)) {
            Some(rate) => *rate += device_rate(device, world),
            None => direct += device_rate(device, world),
        }
    }
    let links = (0..).zip(through);
    direct
        + links.map(|(link, rate)| rate.min(1.0 / crossing_s(link, world))).sum::<f64>()
}

/// Batches per second of a device that has its link to itself. It works on one batch at a time, and
/// stops while its slots or its output buffer are full of batches that the host does not have yet.
fn device_rate(device: &Device, world: &World) -> f64 {
    let work_s = float(device.batch_ns) / 1e9;
    let crossing_s = device.link.map_or(0.0, |link| crossing_s(link, world));
    let way_s = work_s + crossing_s + float(device.latency_ns) / 1e9;
    let at_once = f64::from(device.slots.min(device.outputs).max(1));
    (1.0 / work_s).min(at_once / way_s)
}

fn crossing_s(link: usize, world: &World) -> f64 {
    let link = world.links.get(link).map_or(u64::MAX, |link| link.bytes_per_s);
    float(world.batch_bytes) / float(link.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn bound(devices: &str, step_s: f64, rest: &str) -> f64 {
        let json = format!(
            r#"{{ "name": "x", "about": "x", "steady": true, "batches": 100,
                  "host": {{ "batch_s": 1 }}, "devices": [{devices}],
                  "accelerator": {{ "step_s": {step_s} }}{rest} }}"#
        );
        seconds(&Scenario::from_json("x.json", &json).unwrap().ranks[0])
    }

    #[test]
    fn records_and_results_share_their_link() {
        let host =
            r#""host": { "batch_s": 1, "records": { "link": 0, "batch_bytes": 100 } }"#;
        let rest = |bytes: u32| {
            format!(r#", "links": [{{ "bytes_per_s": 50 }}], "batch_bytes": {bytes}"#)
        };
        let of = |devices: &str, bytes| {
            let json = format!(
                r#"{{ "name": "x", "about": "x", "steady": true, "batches": 100, {host},
                      "devices": [{devices}], "accelerator": {{ "step_s": 0 }}{} }}"#,
                rest(bytes)
            );
            seconds(&Scenario::from_json("x.json", &json).unwrap().ranks[0])
        };
        let device = r#"{ "batch_s": 1, "link": 0, "slots": 9 }"#;
        for (got, expected) in [
            (of("", 20), 200.0),
            // The device takes 20 of 50 bytes per second, and the host three tenths of a batch.
            (of(device, 20), 100.0 / 1.3),
            (of(device, 100), 200.0),
        ] {
            assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        }
    }

    #[test]
    fn rates_add_up_until_something_else_is_slower() {
        let link = r#", "links": [{ "bytes_per_s": 100 }], "batch_bytes": 100"#;
        let cap = r#", "objective": "host-cpu-cap=50""#;
        let fast = r#"{ "count": 4, "batch_s": 0.5, "link": 0, "slots": 9 }"#;
        let cases = [
            // The host alone; with a device; with an accelerator that is slower.
            (bound("", 0.0, ""), 100.0),
            (bound(r#"{ "batch_s": 1 }"#, 0.2, ""), 50.0),
            (bound(r#"{ "batch_s": 1 }"#, 0.7, ""), 70.0),
            // Half the host; a link of one batch per second, whatever the device could do.
            (bound(r#"{ "batch_s": 1 }"#, 0.2, cap), 100.0 / 1.5),
            (bound(fast, 0.2, link), 50.0),
            // One slot is occupied until the host has the batch, and so is one output.
            (bound(r#"{ "batch_s": 1, "latency_s": 3 }"#, 0.2, ""), 80.0),
            (bound(r#"{ "batch_s": 1, "latency_s": 3, "slots": 4 }"#, 0.2, ""), 50.0),
            (
                bound(
                    r#"{ "batch_s": 1, "latency_s": 3, "slots": 4, "outputs": 2 }"#,
                    0.2,
                    "",
                ),
                100.0 / 1.5,
            ),
        ];
        for (i, (got, expected)) in cases.into_iter().enumerate() {
            assert!((got - expected).abs() < 1e-6, "case {i}: {got} {expected}");
        }
    }
}
