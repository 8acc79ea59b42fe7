//! resume
