//! What comes before the first epoch: prongs are measured alone, devices are connected.

use bothends_figures::Alone;

use crate::config::drive::DriveConfig;
use crate::error::RuntimeError;
use crate::run::observer::Observer;
use crate::runtime::host::Runtime;

/// Measures and connects, in the order that the devices' settings ask for.
pub(crate) fn prepare(
    runtime: &mut Runtime,
    how: &DriveConfig,
    observer: &mut dyn Observer,
) -> Result<Alone, RuntimeError> {
    let mut alone = Alone::default();
    let is_relative = runtime.config.devices.iter().any(|d| d.rate_of_host().is_some());
    if how.measure.is_some() || is_relative {
        observer.phase("measuring the host alone");
    }
    if let Some(lasting) = how.measure {
        runtime.visit(lasting)?;
        alone.front_images_per_s =
            runtime.measure_front(lasting)?.map(|alone| alone.images_per_s);
    }
    alone.front_images_per_s = runtime.host_rate_for_devices(alone.front_images_per_s)?;
    if !runtime.config.devices.is_empty() {
        observer.phase("connecting the devices");
        runtime.connect_devices(alone.front_images_per_s)?;
        tell_notes(runtime, observer);
        if let Some(lasting) = how.measure {
            observer.phase("measuring the devices alone");
            alone.back_images_per_s =
                runtime.measure_back(lasting)?.map(|alone| alone.images_per_s);
        }
    }
    Ok(alone)
}

/// That a strategy which gives batches to devices has none, in one line.
pub(crate) fn lone_note(runtime: &Runtime) -> Option<String> {
    let has_devices = !runtime.config.devices.is_empty() || !runtime.devices.is_empty();
    let strategy = runtime.config.strategy;
    let is_lone = strategy.walks_from_both_ends() && !has_devices;
    is_lone.then(|| {
        format!(
            "strategy {strategy} has no device: the host makes every batch, as with cpu"
        )
    })
}

/// What has happened to devices since it was told last.
pub(crate) fn tell_notes(runtime: &Runtime, observer: &mut dyn Observer) {
    while let Some(note) = runtime.next_note() {
        observer.note(&note);
    }
}
