//! Memory that comes from the system page by page and goes back to it at once.
//!
//! An allocator keeps what is freed for later, and grows a vector by copying it. What is large, grows in steps and must
//! shrink in fact (an index) takes its memory from here: pages read as zeros, cost nothing until they are written, and
//! leave the process when they are dropped.
//!
//! Elsewhere than on Linux, and under miri, a vector stands in: the same contents, given back when the allocator likes.

#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};

/// A run of 64-bit words, zero at first.
pub struct Pages {
    memory: system::Memory,
}

impl Pages {
    /// # Panics
    /// If the system has no memory left, as allocations do.
    pub fn new(words: usize) -> Pages {
        assert!(words > 0, "no pages asked for");
        Pages { memory: system::Memory::new(words) }
    }

    /// Makes it longer, by words of any contents, or shorter. What it holds is not copied, though it may lie elsewhere then.
    ///
    /// # Panics
    /// As [`Pages::new`].
    pub fn resize(&mut self, words: usize) {
        assert!(words > 0, "no pages asked for");
        self.memory.resize(words);
    }

    /// The words as the bytes that they consist of.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let words = self.memory.words_mut();
        // SAFETY: any bytes are words and any words bytes, of alignment 1.
        let (before, bytes, after) = unsafe { words.align_to_mut::<u8>() };
        debug_assert!(before.is_empty() && after.is_empty());
        bytes
    }
}

/// As bytes.
impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as in `bytes_mut`.
        let (before, bytes, after) = unsafe { self.memory.words().align_to::<u8>() };
        debug_assert!(before.is_empty() && after.is_empty());
        bytes
    }
}

impl Deref for Pages {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        self.memory.words()
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u64] {
        self.memory.words_mut()
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};
    use std::ptr::NonNull;

    pub(super) struct Memory {
        start: NonNull<u64>,
        words: usize,
    }

    // SAFETY: the mapping belongs to this value alone, and is lent out only through `&self` and `&mut self`.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new(words: usize) -> Memory {
            let bytes = words.checked_mul(8).expect("fits the address space");
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
            let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
            let start = mapped.unwrap_or_else(|error| panic!("mapping {bytes} bytes of memory: {error}"));
            Memory { start: NonNull::new(start.cast()).expect("a mapping is not at address 0"), words }
        }

        pub(super) fn resize(&mut self, words: usize) {
            let bytes = words.checked_mul(8).expect("fits the address space");
            // SAFETY: all of what `new` mapped, and `&mut self` says that nobody has a reference into it; the mapping that
            // comes back replaces it, so that nobody uses the old address.
            let mapped = unsafe { mremap(self.start.as_ptr().cast(), self.words * 8, bytes, MremapFlags::MAYMOVE) };
            let start = mapped.unwrap_or_else(|error| panic!("mapping {bytes} bytes of memory: {error}"));
            self.start = NonNull::new(start.cast()).expect("a mapping is not at address 0");
            self.words = words;
        }

        pub(super) fn words(&self) -> &[u64] {
            // SAFETY: `words` words from `start`, which is aligned to a page, are mapped until `drop`; any bits are a u64.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
        }

        pub(super) fn words_mut(&mut self) -> &mut [u64] {
            // SAFETY: as in `words`, and `&mut self` says that nobody else has a reference into it.
            unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.words) }
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: what `new` mapped, with the same length; no reference outlives this value.
            let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.words * 8) };
            debug_assert!(unmapped.is_ok(), "unmapping what was mapped: {unmapped:?}");
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(super) struct Memory {
        words: Vec<u64>,
    }

    impl Memory {
        pub(super) fn new(words: usize) -> Memory {
            Memory { words: vec![0; words] }
        }

        pub(super) fn resize(&mut self, words: usize) {
            self.words.resize(words, 0);
        }

        pub(super) fn words(&self) -> &[u64] {
            &self.words
        }

        pub(super) fn words_mut(&mut self) -> &mut [u64] {
            &mut self.words
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_at_first_and_keep_what_is_written() {
        for words in [1, 511, 1 << 17] {
            let mut pages = Pages::new(words);
            assert_eq!(pages.len(), words);
            assert!(pages.iter().all(|&word| word == 0));
            pages[words - 1] = u64::MAX;
            pages[0] ^= 5;
            assert_eq!(pages[words - 1] | 5, u64::MAX);
            assert_eq!(pages.as_ref().len(), words * 8);
            pages.bytes_mut()[..8].copy_from_slice(&7u64.to_ne_bytes());
            assert_eq!((pages[0], &pages.as_ref()[..8]), (7, &7u64.to_ne_bytes()[..]));
        }
    }

    #[test]
    fn pages_keep_what_they_hold_when_they_grow_and_shrink() {
        let mut pages = Pages::new(1);
        for words in [3, 1 << 12, 1 << 20, 5000, 700, 1 << 18] {
            let kept = pages.len().min(words);
            let before: Vec<u64> = pages[..kept].to_vec();
            pages.resize(words);
            assert_eq!((pages.len(), &pages[..kept]), (words, &before[..]));
            (0..words).for_each(|at| pages[at] = at as u64 ^ words as u64);
        }
    }
}
