//! Work that is done ahead of who needs it: on threads of its own, handed out in order, never further ahead than a bound.
//!
//! What is made depends on its number alone, so the results are the same whatever the number of threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How far ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Threads; 0: each thing is made when it is asked for.
    pub workers: usize,
    /// Things that may be made before they are asked for, all threads together; at least 1.
    pub window: usize,
}

struct State<T> {
    made: BTreeMap<u64, T>,
    /// The first number that nobody has begun.
    to_make: u64,
    /// The number that is handed out next.
    to_take: u64,
    /// Nobody will ask for more, or a thread has failed.
    over: bool,
}

struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    end: u64,
    window: u64,
}

impl<T> Queue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, make: &(dyn Fn(u64) -> T + Sync)) {
        let _failed = OverOnPanic(self);
        loop {
            let number = {
                let mut state = self.state();
                while !state.over && state.to_make < self.end && state.to_make >= state.to_take + self.window {
                    state = self.wait(state);
                }
                if state.over || state.to_make >= self.end {
                    return;
                }
                state.to_make += 1;
                state.to_make - 1
            };
            let thing = make(number);
            self.state().made.insert(number, thing);
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        self.state().over = true;
        self.changed.notify_all();
    }
}

/// Ends the queue when the one who takes is done, however he leaves.
struct Over<'a, T>(&'a Queue<T>);

impl<T> Drop for Over<'_, T> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Ends the queue when a thread panics: nobody may wait for what never comes.
struct OverOnPanic<'a, T>(&'a Queue<T>);

impl<T> Drop for OverOnPanic<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end();
        }
    }
}

/// What is made ahead, in order.
pub struct Ahead<'a, T> {
    queue: &'a Queue<T>,
    make: &'a (dyn Fn(u64) -> T + Sync),
    workers: usize,
}

impl<T> Iterator for Ahead<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let mut state = self.queue.state();
        let number = state.to_take;
        if number >= self.queue.end {
            return None;
        }
        if self.workers == 0 {
            state.to_take += 1;
            drop(state);
            return Some((self.make)(number));
        }
        loop {
            if let Some(thing) = state.made.remove(&number) {
                state.to_take += 1;
                self.queue.changed.notify_all();
                return Some(thing);
            }
            assert!(!state.over, "a thread that works ahead has failed");
            state = self.queue.wait(state);
        }
    }
}

/// Lets `body` take what `make` makes of each number, in order. The threads live as long as `body`.
pub fn with<T: Send, R>(numbers: Range<u64>, reach: Reach, make: impl Fn(u64) -> T + Sync, body: impl FnOnce(&mut Ahead<'_, T>) -> R) -> R {
    let state = State { made: BTreeMap::new(), to_make: numbers.start, to_take: numbers.start, over: false };
    let queue = Queue { state: Mutex::new(state), changed: Condvar::new(), end: numbers.end, window: reach.window.max(1) as u64 };
    std::thread::scope(|scope| {
        let _over = Over(&queue);
        let (queue, make) = (&queue, &make);
        (0..reach.workers).for_each(|_| drop(scope.spawn(move || queue.work(make))));
        body(&mut Ahead { queue, make, workers: reach.workers })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    #[test]
    fn everything_comes_once_and_in_order_and_never_too_far_ahead() {
        for (workers, window) in [(0, 1), (1, 1), (1, 3), (4, 1), (4, 7), (9, 2)] {
            let (taken, furthest) = (AtomicU64::new(5), AtomicU64::new(0));
            let make = |number: u64| {
                furthest.fetch_max(number - taken.load(SeqCst), SeqCst);
                number * number
            };
            let all = with(5..200, Reach { workers, window }, make, |ahead| {
                let take = |square| {
                    taken.fetch_add(1, SeqCst);
                    square
                };
                ahead.map(take).collect::<Vec<u64>>()
            });
            assert_eq!(all, (5..200).map(|n| n * n).collect::<Vec<u64>>(), "{workers} {window}");
            // The count of what is taken lags behind by the one that is being handed over.
            assert!(furthest.load(SeqCst) <= window as u64, "{} ahead of {workers} workers with {window}", furthest.load(SeqCst));
        }
    }

    #[test]
    fn leaving_early_and_having_nothing_to_make_end_the_threads() {
        let first = with(0..1_000_000, Reach { workers: 3, window: 4 }, |n| n, |ahead| ahead.take(2).collect::<Vec<u64>>());
        assert_eq!(first, [0, 1]);
        assert_eq!(with(3..3, Reach { workers: 2, window: 4 }, |n| n, |ahead| ahead.count()), 0);
    }

    #[test]
    fn a_thread_that_fails_is_noticed_by_the_one_who_waits() {
        let failed = std::panic::catch_unwind(|| {
            let make = |n| if n == 3 { panic!("on purpose") } else { n };
            with(0..10, Reach { workers: 2, window: 2 }, make, |ahead| ahead.count())
        });
        assert!(failed.is_err());
    }
}
