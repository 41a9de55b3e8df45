//! The wish to stop: set by a signal handler (in the binary) or a test, looked at between micro-batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shared with the signal handler. Holds the signal's number, 0 while nobody wants to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    pub fn raise(&self, signal: usize) {
        self.0.store(signal, Ordering::SeqCst);
    }

    /// The flag itself, for signal handlers that store into it.
    pub fn flag(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0)
    }

    pub fn signal(&self) -> Option<usize> {
        Some(self.0.load(Ordering::SeqCst)).filter(|s| *s != 0)
    }
}
