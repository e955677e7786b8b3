//! What every simulated node has, whatever the scheduler.

use super::dice::Dice;
use crate::Rng;
use std::sync::Mutex;

/// A node's own random stream.
pub struct NodeRng {
    dice: Mutex<Dice>,
}

impl NodeRng {
    pub fn new(dice: Dice) -> NodeRng {
        NodeRng { dice: Mutex::new(dice) }
    }
}

impl Rng for NodeRng {
    fn next_u64(&self) -> u64 {
        self.dice.lock().expect("arithmetic does not panic").next_u64()
    }
}
