//! Tests that walk every op: its kernels against the oracle, the oracle's gradients against finite differences, plans against plain runs.
//!
//! The tests stand in `tests/`; what they share is here. They iterate over THE list of ops, so a new op is tested by being in it.
//! Each prints its seed; `VELATURA_TEST_SEED` sets another one.

pub mod compare;
pub mod finite;
pub mod isolated;
pub mod large;
pub mod oracle_backend;
pub mod planned;
pub mod random_graph;
pub mod values;

use base::Rng;

/// The random numbers of a test; `cargo test` shows the seed if it fails.
pub fn rng(test: &str) -> Rng {
    let seed = std::env::var("VELATURA_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    println!("{test}: VELATURA_TEST_SEED={seed}");
    Rng::new(seed, test, &[])
}
