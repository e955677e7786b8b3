//! Bounds of the production backend.

/// Operations that the kernel works on at once in one ring; the rest waits in user space. Far more than a device needs to
/// be busy; the completion queue holds twice their entries.
pub(super) const RING_IN_FLIGHT_MAX: u32 = 256;
/// Threads that do file I/O at once. A thread is started when all others are busy.
pub(super) const IO_THREADS_MAX: usize = 32;
/// Buffers in one vectored system call: `IOV_MAX` of Linux.
pub(super) const BUFFERS_PER_CALL_MAX: usize = 1024;
/// Bytes in one system call. The kernel itself stops at 2 GiB less a page.
pub(super) const BYTES_PER_CALL_MAX: usize = 1 << 30;
