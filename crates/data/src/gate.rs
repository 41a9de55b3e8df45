//! Bounds what pictures take while they are decoded: many workers may each hold a small one, only one may hold a huge one.

use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes that decoding may take at once, over all threads. A picture that needs more on its own is decoded alone.
pub const LIMIT: u64 = 1 << 30;

pub struct Gate {
    limit: u64,
    held: Mutex<u64>,
    freed: Condvar,
}

/// Room for one picture; given back when dropped.
pub struct Room<'a> {
    gate: &'a Gate,
    /// At most the limit.
    bytes: u64,
    /// What was asked for.
    pub wanted: u64,
}

/// The gate that every decoding thread of the process passes.
pub static DECODING: Gate = Gate::new(LIMIT);

impl Gate {
    pub const fn new(limit: u64) -> Gate {
        Gate { limit, held: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until there is room for so many bytes. Who holds room must not ask for more: two of that kind would wait for each other.
    pub fn enter(&self, wanted: u64) -> Room<'_> {
        let bytes = wanted.min(self.limit);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while *held + bytes > self.limit {
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        *held += bytes;
        Room { gate: self, bytes, wanted }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        *self.gate.held.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.gate.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn never_more_than_the_limit_is_held_and_what_is_larger_goes_alone() {
        let (gate, inside, most) = (Gate::new(10), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for bytes in [3, 4, 1000, 5, 2, 10, 7, 1] {
                let (gate, inside, most) = (&gate, &inside, &most);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let _room = gate.enter(bytes);
                        let counted = bytes.min(10);
                        most.fetch_max(inside.fetch_add(counted, Ordering::SeqCst) + counted, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(counted, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 10, "{} were held", most.load(Ordering::SeqCst));
        assert_eq!(*gate.held.lock().unwrap(), 0);
    }
}
