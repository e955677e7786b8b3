//! Whether loading goes on at one speed: puts in each second while a database grows from nothing.
//!
//! What makes a pause shows as a slow second: a table that doubles, a queue that fills, a flush that writers wait for.

use super::{MEMORY_BYTES, Outcome, fresh, key};
use crate::Arguments;
use embedded::{Db, Durability};
use env::real::stopwatch;

/// Puts between two looks at the clock.
const STRIDE: u64 = 64;

pub fn run(arguments: &Arguments, keys: u64) -> Outcome<()> {
    let folder = fresh(arguments, "growth")?;
    let db = Db::builder().durability(Durability::Relaxed).memory_bytes(MEMORY_BYTES).open(&folder)?;
    let value = [0x76u8; 84];
    let mut seconds: Vec<u64> = Vec::new();
    let time = stopwatch();
    for start in (0..keys).step_by(STRIDE as usize) {
        let end = keys.min(start + STRIDE);
        for number in start..end {
            db.put(key(number), value)?;
        }
        let second = time.elapsed().as_secs() as usize;
        seconds.resize(seconds.len().max(second + 1), 0);
        seconds[second] += end - start;
    }
    // The last second is not over.
    seconds.pop();
    let mut loaded = 0;
    for (second, &puts) in seconds.iter().enumerate() {
        loaded += puts;
        println!("growth second={second} durability=relaxed puts_per_second={puts} keys={loaded}");
    }
    db.close()?;
    std::fs::remove_dir_all(&folder)?;
    let ratio = worst_over_median(&mut seconds).ok_or("loaded within a second: ask for more --keys")?;
    println!("worst_bucket_ratio={ratio:.2}");
    Ok(())
}

/// `None` of no numbers.
fn worst_over_median(puts: &mut [u64]) -> Option<f64> {
    puts.sort_unstable();
    let median = *puts.get(puts.len() / 2)?;
    Some(puts[0] as f64 / median as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_second_is_set_against_the_one_in_the_middle() {
        assert_eq!(worst_over_median(&mut [100, 40, 80, 90, 0]), Some(0.0));
        assert_eq!(worst_over_median(&mut [100, 40, 80]), Some(0.5));
        assert_eq!(worst_over_median(&mut []), None);
    }
}
