//! What many jobs have in common: how many agents a pool needs, for whom each works next, and how work is
//! dealt to ranks that step together.
//!
//! A pool is a set of agents that serve several jobs. Nothing here decides who makes a batch: that is
//! `scheduling`, separately for each rank. `size` says how many agents a pool should have, from measured
//! rates; a simulator, a program that starts processes and a person with a pencil get the same answer.
//! `lease` says for which job a free agent works next. `together` arranges samples of unequal work so
//! that the ranks of a step have equal work.

pub mod lease;
pub mod size;
pub mod together;
