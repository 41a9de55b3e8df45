//! The loop in which matrix kernels run their tasks, with a number for each worker that picks its scratch.
//!
//! Sums are cut by shape alone and added in a fixed order, so results do not depend on the number of workers. Scratch does.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static STATED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Number of workers of [`for_each`]: the threads of the pool that the caller runs in, or as many as [`stated`] says.
pub fn count() -> usize {
    STATED.get().unwrap_or_else(rayon::current_num_threads)
}

/// Runs `body` with kernels that are only asked what they need counting so many workers: the way into a pool and back would cost more
/// than the answer, and planning asks for every node.
pub fn stated<R>(workers: usize, body: impl FnOnce() -> R) -> R {
    let before = STATED.replace(Some(workers));
    let result = body();
    STATED.set(before);
    result
}

/// Calls `body(task, worker)` once for each task below `tasks`. At most one task runs on a worker at a time, and `worker < count()`, so a
/// worker's number picks its scratch. Tasks are handed out in order as workers become free.
pub fn for_each(tasks: usize, body: impl Fn(usize, usize) + Sync) {
    let workers = count().min(tasks);
    if workers <= 1 {
        return (0..tasks).for_each(|task| body(task, 0));
    }
    let next = AtomicUsize::new(0);
    let work = |worker: usize| {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            body(task, worker);
        }
    };
    rayon::scope(|scope| {
        for worker in 1..workers {
            let work = &work;
            scope.spawn(move |_| work(worker));
        }
        work(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_number_of_workers_holds_while_the_body_runs() {
        let before = count();
        assert_eq!(stated(before + 3, count), before + 3);
        assert_eq!(count(), before);
    }

    #[test]
    fn runs_every_task_once_and_never_two_on_one_worker() {
        rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap().install(|| {
            let runs: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            let busy: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
            for_each(100, |task, worker| {
                assert_eq!(busy[worker].fetch_add(1, Ordering::SeqCst), 0);
                runs[task].fetch_add(1, Ordering::SeqCst);
                busy[worker].fetch_sub(1, Ordering::SeqCst);
            });
            assert!(runs.iter().all(|r| r.load(Ordering::SeqCst) == 1));
        });
    }
}
