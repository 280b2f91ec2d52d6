//! The priority of background work.

/// Nice value of background work: a thread with it gets a tenth of the time of one that has work at the usual
/// priority.
const BACKGROUND_NICE: i32 = 10;

/// Lowers the priority of the calling thread, and of threads that it starts from now on: they use the CPU time
/// that others leave, and a thread of usual priority that wakes up need not wait for them.
///
/// There is no way back without privileges, so a thread should call this at its start. Where the system
/// refuses, the priority stays as it is.
pub fn lower_priority() {
    // Linux takes the calling thread for the calling process here.
    let _ = rustix::process::setpriority_process(None, BACKGROUND_NICE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;
    use std::thread;

    #[test]
    fn threads_that_a_thread_of_low_priority_starts_have_low_priority() {
        let own = || getpriority_process(None).unwrap();
        let before = own();
        thread::scope(|scope| {
            let inherited = scope.spawn(|| {
                lower_priority();
                thread::scope(|scope| scope.spawn(own).join().unwrap())
            });
            assert_eq!(inherited.join().unwrap(), before.max(BACKGROUND_NICE));
        });
        assert_eq!(own(), before, "other threads keep theirs");
    }
}
