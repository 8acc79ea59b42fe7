//! What is known of every record without reading one.

/// What is known of every record without reading one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordShape {
    /// Images of any size.
    Image,
    /// Planes of one size.
    Planar {
        /// Rows.
        height: u32,
        /// Columns.
        width: u32,
        /// Planes.
        channels: u32,
    },
    /// Bytes of one length.
    Opaque {
        /// That length.
        len_bytes: u32,
    },
}
