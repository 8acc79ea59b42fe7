//! The preset file as it is written, and its way to a checked configuration.
//!
//! One struct per model; an unknown key is an error. Each model's meaning is in its own file
//! (`media/`, `compute/`, `link`, `power`).

use serde::Deserialize;

use super::{Check, Constant, DeviceConfig, PresetError, Quantity};
use crate::compute::{ComputeConfig, CoresConfig, FixedConfig};
use crate::link::LinkConfig;
use crate::media::{FlatConfig, MediaConfig, NandConfig, SenseTime};
use crate::power::{PowerConfig, ThermalConfig};

/// A preset file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    name: String,
    /// For people: what the device is and what the preset stands for.
    about: String,
    media: RawMedia,
    compute: RawCompute,
    link: RawLink,
    power: RawPower,
    thermal: Option<RawThermal>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
enum RawMedia {
    Instant,
    Flat { latency: Constant, bandwidth: Constant },
    Nand(Box<RawNand>),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNand {
    channels: Constant,
    dies_per_channel: Constant,
    page_size: Constant,
    transfer_unit: Constant,
    channel_bandwidth: Constant,
    sense_4k_lsb: Constant,
    sense_4k_msb: Constant,
    sense_page_lsb: Constant,
    sense_page_msb: Constant,
    firmware_4k: Constant,
    firmware_large: Constant,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
enum RawCompute {
    Measured,
    Cores { cores: Constant, relative_time: Constant },
    Fixed { lanes: Constant, pixel_rate: Constant, memory_bandwidth: Constant },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
enum RawLink {
    Instant,
    Wire { latency: Constant, bandwidth: Constant },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPower {
    idle: Constant,
    media_active: Constant,
    compute_active: Constant,
    link_active: Constant,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawThermal {
    cooled: Constant,
    reservoir: Constant,
    slowdown: Constant,
}

impl Raw {
    /// What the preset is, in words.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Checks every constant.
    pub(super) fn into_config(self, preset: &str) -> Result<DeviceConfig, PresetError> {
        let check = Check { preset };
        Ok(DeviceConfig {
            name: self.name,
            media: self.media.into_config(check)?,
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
            Self::Flat { latency, bandwidth } => MediaConfig::Flat(FlatConfig {
                latency_ns: check.base("media.latency", Quantity::Time, &latency)?,
                bytes_per_s: check.base(
                    "media.bandwidth",
                    Quantity::Bandwidth,
                    &bandwidth,
                )?,
            }),
            Self::Nand(nand) => MediaConfig::Nand(nand.into_config(check)?),
        })
    }
}

impl RawNand {
    fn into_config(self, check: Check<'_>) -> Result<NandConfig, PresetError> {
        let count = |key, constant| check.base_u32(key, Quantity::Count, constant);
        let size = |key, constant| check.base_u32(key, Quantity::Size, constant);
        let time = |key, constant| check.base(key, Quantity::Time, constant);
        Ok(NandConfig {
            n_channels: count("media.channels", &self.channels)?,
            dies_per_channel: count("media.dies_per_channel", &self.dies_per_channel)?,
            page_bytes: size("media.page_size", &self.page_size)?,
            transfer_unit_bytes: size("media.transfer_unit", &self.transfer_unit)?,
            channel_bytes_per_s: check.base(
                "media.channel_bandwidth",
                Quantity::Bandwidth,
                &self.channel_bandwidth,
            )?,
            sense_small: SenseTime {
                lsb_ns: time("media.sense_4k_lsb", &self.sense_4k_lsb)?,
                msb_ns: time("media.sense_4k_msb", &self.sense_4k_msb)?,
            },
            sense_page: SenseTime {
                lsb_ns: time("media.sense_page_lsb", &self.sense_page_lsb)?,
                msb_ns: time("media.sense_page_msb", &self.sense_page_msb)?,
            },
            firmware_small_ns: time("media.firmware_4k", &self.firmware_4k)?,
            firmware_large_ns: time("media.firmware_large", &self.firmware_large)?,
        })
    }
}

impl RawCompute {
    fn into_config(self, check: Check<'_>) -> Result<ComputeConfig, PresetError> {
        let count = |key, constant| check.base_u32(key, Quantity::Count, constant);
        Ok(match self {
            Self::Measured => ComputeConfig::Measured,
            Self::Cores { cores, relative_time } => ComputeConfig::Cores(CoresConfig {
                n_cores: count("compute.cores", &cores)?,
                relative_time_milli: check.base(
                    "compute.relative_time",
                    Quantity::Factor,
                    &relative_time,
                )?,
            }),
            Self::Fixed { lanes, pixel_rate, memory_bandwidth } => {
                ComputeConfig::Fixed(FixedConfig {
                    n_lanes: count("compute.lanes", &lanes)?,
                    pixels_per_s: check.base(
                        "compute.pixel_rate",
                        Quantity::PixelRate,
                        &pixel_rate,
                    )?,
                    memory_bytes_per_s: check.base(
                        "compute.memory_bandwidth",
                        Quantity::Bandwidth,
                        &memory_bandwidth,
                    )?,
                })
            }
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

impl RawPower {
    fn into_config(self, check: Check<'_>) -> Result<PowerConfig, PresetError> {
        let power = |key, constant| check.base(key, Quantity::Power, constant);
        Ok(PowerConfig {
            idle_mw: power("power.idle", &self.idle)?,
            media_mw: power("power.media_active", &self.media_active)?,
            compute_mw: power("power.compute_active", &self.compute_active)?,
            link_mw: power("power.link_active", &self.link_active)?,
        })
    }
}

impl RawThermal {
    fn into_config(self, check: Check<'_>) -> Result<ThermalConfig, PresetError> {
        Ok(ThermalConfig {
            cooled_mw: check.base("thermal.cooled", Quantity::Power, &self.cooled)?,
            reservoir_mj: check.base(
                "thermal.reservoir",
                Quantity::Energy,
                &self.reservoir,
            )?,
            slowdown_milli: check
                .base("thermal.slowdown", Quantity::Factor, &self.slowdown)?
                .max(1000),
        })
    }
}
