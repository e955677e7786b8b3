//! Random numbers that nobody can guess.

use std::cell::RefCell;

/// Fetched from the kernel at once: a system call for each number would cost more than what most are drawn for.
const FETCHED: usize = 512;

struct Store {
    bytes: [u8; FETCHED],
    used: usize,
}

thread_local! {
    static STORE: RefCell<Store> = const { RefCell::new(Store { bytes: [0; FETCHED], used: FETCHED }) };
}

pub(super) fn next_u64() -> u64 {
    STORE.with(|store| store.borrow_mut().next())
}

impl Store {
    fn next(&mut self) -> u64 {
        if self.used == FETCHED {
            // Without it nothing that has to be secret is, and no two clusters differ for certain.
            getrandom::fill(&mut self.bytes).expect("the kernel gives random numbers");
            self.used = 0;
        }
        let at = self.used;
        self.used += 8;
        let number = u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"));
        // What was given away is not kept.
        self.bytes[at..at + 8].fill(0);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_repeat_across_fetches() {
        let drawn: std::collections::BTreeSet<u64> = (0..FETCHED).map(|_| next_u64()).collect();
        assert_eq!(drawn.len(), FETCHED);
    }
}
