//! bothends-accel
