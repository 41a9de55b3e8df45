//! The wish to stop: set by a signal handler (in the binary) or a test, looked at between micro-batches.

use crate::Interrupted;
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

    /// An error if somebody wants to stop and nothing has to be saved for it.
    pub fn check(&self) -> Result<(), Interrupted> {
        self.signal().map_or(Ok(()), |signal| Err(Interrupted { signal, saved: None }))
    }

    pub fn signal(&self) -> Option<usize> {
        Some(self.0.load(Ordering::SeqCst)).filter(|s| *s != 0)
    }
}
