//! bothends-dataset
