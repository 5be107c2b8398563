//! A few threads for work on the backing directory that may block.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    stopping: bool,
}

impl Pool {
    pub(crate) fn start(threads: usize) -> std::io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let pool = Arc::new(Pool::default());
        let threads = (0..threads)
            .map(|n| {
                let pool = pool.clone();
                std::thread::Builder::new()
                    .name(format!("volume-io-{n}"))
                    .spawn(move || pool.work())
            })
            .collect::<std::io::Result<_>>()?;
        Ok((pool, threads))
    }

    /// Runs `job` on one of the threads. The queue needs no bound: every job is a request of the kernel, which bounds
    /// those.
    pub(crate) fn execute(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        state.jobs.push_back(Box::new(job));
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_all();
    }

    fn work(&self) {
        crate::pacer::raise_priority();
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                parking_lot::MutexGuard::unlocked(&mut state, job);
            } else if state.stopping {
                return;
            } else {
                state.idle += 1;
                self.wake.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_job_runs_before_the_end() {
        let (pool, threads) = Pool::start(3).unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            let ran = ran.clone();
            pool.execute(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        pool.stop();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(ran.load(Ordering::Relaxed), 1000);
    }
}
