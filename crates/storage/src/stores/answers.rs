//! Answers of stores that this crate parses itself, read from bytes: what fuzz targets call.

use super::{cql, redis};

/// Whether these bytes are a Redis server's answer to a request for a value of at most 4 KiB, and for its length if
/// `bytes` are of an odd number.
#[must_use]
pub fn is_redis_value(bytes: &[u8]) -> bool {
    redis::is_value(bytes)
}

/// How many answers of a CQL server these bytes begin with. One that means nothing ends a connection.
#[must_use]
pub fn n_cql_answers(bytes: &[u8]) -> usize {
    cql::n_answers(bytes)
}
