//! arith
