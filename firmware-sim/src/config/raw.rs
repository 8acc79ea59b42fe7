//! The preset file as written, and its conversion to a checked configuration.
//!
//! There is one struct per model, and an unknown key is an error. The meaning of each model is in its own
//! file (`media/`, `compute/`, `link`, `power`).

use serde::Deserialize;

use super::{Check, Constant, DeviceConfig, PresetError, Quantity};
use crate::compute::{ComputeConfig, CoresConfig, FixedConfig, WorkConfig};
use crate::link::LinkConfig;
use crate::media::{FlatConfig, MediaConfig, MemoryConfig, NandConfig, WritesConfig};
use crate::power::{PowerConfig, SleepConfig, ThermalConfig};

/// A preset file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    name: String,
    /// For people: what the device is and what the preset stands for.
    about: String,
    media: RawMedia,
    compute: RawCompute,
    link: RawLink,
    power: RawPower,
    writes: Option<RawWrites>,
    memory: Option<RawMemory>,
    work: Option<RawWork>,
    sleep: Option<RawSleep>,
    thermal: Option<RawThermal>,
}

/// The constants of a model: their keys in the preset, what they measure, and the fields that
/// they become, in base units.
macro_rules! constants {
    ($($raw:ident in $part:literal: $config:ident {
        $($key:ident: $quantity:ident => $field:ident,)*
        $(? $may:ident: $measure:ident => $into:ident,)*
    })*) => {$(
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $raw {
            $($key: Constant,)*
            $(#[serde(default)] $may: Option<Constant>,)*
        }

        impl $raw {
            fn into_config(self, check: Check<'_>) -> Result<$config, PresetError> {
                Ok($config {$(
                    $field: check.base(
                        concat!($part, ".", stringify!($key)),
                        Quantity::$quantity,
                        &self.$key,
                    )?,
                )*
                $(
                    $into: match &self.$may {
                        Some(constant) => Some(check.base(
                            concat!($part, ".", stringify!($may)),
                            Quantity::$measure,
                            constant,
                        )?),
                        None => None,
                    },
                )*})
            }
        }
    )*};
}

constants! {
    RawFlat in "media": FlatConfig {
        latency: Time => latency_ns,
        bandwidth: Bandwidth => bytes_per_s,
    }
    RawNand in "media": NandConfig {
        channels: Count => n_channels,
        dies_per_channel: Count => dies_per_channel,
        page_size: Size => page_bytes,
        transfer_unit: Size => transfer_unit_bytes,
        channel_bandwidth: Bandwidth => channel_bytes_per_s,
        sense_4k_lsb: Time => sense_small_lsb_ns,
        sense_4k_msb: Time => sense_small_msb_ns,
        sense_page_lsb: Time => sense_page_lsb_ns,
        sense_page_msb: Time => sense_page_msb_ns,
        firmware_4k: Time => firmware_small_ns,
        firmware_large: Time => firmware_large_ns,
        ? planes_per_die: Count => planes_per_die,
        ? sense_4k_csb: Time => sense_small_csb_ns,
        ? sense_page_csb: Time => sense_page_csb_ns,
    }
    RawWrites in "writes": WritesConfig {
        program_unit: Size => program_unit_bytes,
        program: Time => program_ns,
        erase: Time => erase_ns,
        block_pages: Count => block_pages,
        over_provisioning: Share => over_provisioning_milli,
        buffer: Size => buffer_bytes,
        firmware: Time => firmware_ns,
        buffer_4k: Time => buffer_unit_ns,
    }
    RawMemory in "memory": MemoryConfig {
        bandwidth: Bandwidth => bytes_per_s,
        firmware: Time => firmware_ns,
    }
    RawWork in "work": WorkConfig {
        fuel: WorkRate => fuel_per_s,
        bytes: Bandwidth => bytes_per_s,
        coded_bytes: Bandwidth => coded_bytes_per_s,
        pixels: PixelRate => pixels_per_s,
    }
    RawCores in "compute": CoresConfig {
        cores: Count => n_cores,
        relative_time: Factor => relative_time_milli,
    }
    RawFixed in "compute": FixedConfig {
        lanes: Count => n_lanes,
        pixel_rate: PixelRate => pixels_per_s,
        memory_bandwidth: Bandwidth => memory_bytes_per_s,
    }
    RawPower in "power": PowerConfig {
        idle: Power => idle_mw,
        media_active: Power => media_mw,
        compute_active: Power => compute_mw,
        link_active: Power => link_mw,
        ? program_active: Power => program_mw,
        ? erase_active: Power => erase_mw,
    }
    RawSleep in "sleep": SleepConfig {
        power: Power => power_mw,
        after: Time => after_ns,
        wake: Time => wake_ns,
    }
    RawThermal in "thermal": ThermalConfig {
        cooled: Power => cooled_mw,
        reservoir: Energy => reservoir_mj,
        slowdown: Slowdown => slowdown_milli,
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
enum RawMedia {
    Instant,
    Flat(Box<RawFlat>),
    Nand(Box<RawNand>),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
enum RawCompute {
    Measured,
    Cores(RawCores),
    Fixed(RawFixed),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
enum RawLink {
    Instant,
    Wire { latency: Box<Constant>, bandwidth: Box<Constant> },
}

impl Raw {
    /// Checks every constant.
    pub(super) fn into_config(
        self,
        check: Check<'_>,
    ) -> Result<DeviceConfig, PresetError> {
        let media = self.media.into_config(check)?;
        let writes = self.writes.map(|own| own.into_config(check)).transpose()?;
        if let MediaConfig::Nand(nand) = &media {
            check.fits(nand.fits())?;
            check.fits(writes.as_ref().map_or(Ok(()), |own| own.fits(nand)))?;
        }
        Ok(DeviceConfig {
            name: self.name,
            media,
            writes,
            memory: self.memory.map(|own| own.into_config(check)).transpose()?,
            work: self.work.map(|own| own.into_config(check)).transpose()?,
            sleep: self.sleep.map(|own| own.into_config(check)).transpose()?,
            compute: self.compute.into_config(check)?,
            link: self.link.into_config(check)?,
            power: self.power.into_config(check)?,
            thermal: self
                .thermal
                .map(|thermal| thermal.into_config(check))
                .transpose()?,
        })
    }
}

impl RawMedia {
    fn into_config(self, check: Check<'_>) -> Result<MediaConfig, PresetError> {
        Ok(match self {
            Self::Instant => MediaConfig::Instant,
            Self::Flat(flat) => MediaConfig::Flat(flat.into_config(check)?),
            Self::Nand(nand) => MediaConfig::Nand(nand.into_config(check)?),
        })
    }
}

impl RawCompute {
    fn into_config(self, check: Check<'_>) -> Result<ComputeConfig, PresetError> {
        Ok(match self {
            Self::Measured => ComputeConfig::Measured,
            Self::Cores(cores) => ComputeConfig::Cores(cores.into_config(check)?),
            Self::Fixed(fixed) => ComputeConfig::Fixed(fixed.into_config(check)?),
        })
    }
}

impl RawLink {
    fn into_config(self, check: Check<'_>) -> Result<LinkConfig, PresetError> {
        Ok(match self {
            Self::Instant => LinkConfig::Instant,
            Self::Wire { latency, bandwidth } => LinkConfig::Wire {
                latency_ns: check.base("link.latency", Quantity::Time, &latency)?,
                bytes_per_s: check.base(
                    "link.bandwidth",
                    Quantity::Bandwidth,
                    &bandwidth,
                )?,
            },
        })
    }
}
