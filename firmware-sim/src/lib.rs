//! bothends-firmware-sim
