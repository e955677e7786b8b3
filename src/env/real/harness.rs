//! What harnesses and benches take from the machine they run on, outside of any node.

use std::time::{Duration, Instant};

/// Real time that has passed, for people.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

pub fn stopwatch() -> Stopwatch {
    Stopwatch(Instant::now())
}

impl Stopwatch {
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Processor time that the calling thread has used; nothing where the system does not count it. What else runs on the
/// machine does not show in it.
pub fn thread_cpu_time() -> Duration {
    #[cfg(target_os = "linux")]
    return counted(rustix::time::ClockId::ThreadCPUTime);
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}

/// [`thread_cpu_time`] of all threads together, and of what the kernel does on its own for them.
pub fn process_cpu_time() -> Duration {
    #[cfg(target_os = "linux")]
    return counted(rustix::time::ClockId::ProcessCPUTime);
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}

/// The machine's memory, where the system says how much that is.
pub fn machine_memory_bytes() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let info = rustix::system::sysinfo();
        // Words of the kernel's, which differ in length between machines.
        #[allow(clippy::unnecessary_cast)]
        return Some(info.totalram as u64 * info.mem_unit as u64);
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
fn counted(clock: rustix::time::ClockId) -> Duration {
    let used = rustix::time::clock_gettime(clock);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// Memory of this process that is there now; 0 where the system does not say.
pub fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statistics = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statistics.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.map_or(0, |pages| pages * PAGE_BYTES)
}

/// A seed to begin with.
pub fn random_u64() -> u64 {
    super::random::next_u64()
}

/// Runs `work` on a thread of its own with that much stack, and waits for it. A panic goes on in the caller.
pub fn on_thread<T: Send + 'static>(stack_bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(stack_bytes).spawn(work).expect("start a thread");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
