//! A channel that keeps only the newest value, with an order of waking that is the same in every run.
//!
//! `tokio::sync::watch` spreads its waiters over several lists picked at random, so that two runs of one seed wake them in
//! different orders. Here they are woken in the order in which they began to wait. Many senders, many receivers; a receiver
//! that waits sees the newest value, not every one.
//!
//! Values are borrowed under a lock: a borrow is short and never held across an `await`.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::task::{Context, Poll, Waker};

pub fn channel<T>(init: T) -> (Sender<T>, Receiver<T>) {
    let state = State { version: 0, senders: 1, receivers: 1, next_waiter: 0, waiters: BTreeMap::new() };
    let shared = Arc::new(Shared { value: RwLock::new(init), state: Mutex::new(state) });
    (Sender { shared: shared.clone() }, Receiver { shared, seen: 0 })
}

/// Sets the value. Cloning gives a second sender of the same channel.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Sees the value. A clone has seen what this one has.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The version this receiver has been told of.
    seen: u64,
}

/// Every receiver is gone; gives the value back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Every sender is gone, and the last value has been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// A borrowed value; senders wait while it is held.
pub struct Ref<'a, T>(RwLockReadGuard<'a, T>);

struct Shared<T> {
    /// Locked before `state`, where both are.
    value: RwLock<T>,
    state: Mutex<State>,
}

struct State {
    version: u64,
    senders: usize,
    receivers: usize,
    next_waiter: u64,
    /// By the order in which they began to wait.
    waiters: BTreeMap<u64, Waker>,
}

impl<T> Sender<T> {
    /// Sets the value and wakes whoever waits.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.shared.state().receivers == 0 {
            return Err(SendError(value));
        }
        self.send_if_modified(|current| {
            *current = value;
            true
        });
        Ok(())
    }

    /// Changes the value in place and wakes whoever waits if `modify` says that it did. Works without receivers.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.shared.value.write().unwrap_or_else(PoisonError::into_inner);
        let modified = modify(&mut value);
        if modified {
            let waiters = {
                let mut state = self.shared.state();
                state.version += 1;
                std::mem::take(&mut state.waiters)
            };
            drop(value);
            waiters.into_values().for_each(Waker::wake);
        }
        modified
    }

    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// A receiver that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        let mut state = self.shared.state();
        state.receivers += 1;
        Receiver { shared: self.shared.clone(), seen: state.version }
    }

    pub fn receivers(&self) -> usize {
        self.shared.state().receivers
    }
}

impl<T> Receiver<T> {
    /// Waits for a value that this receiver has not seen, and marks it as seen.
    pub fn changed(&mut self) -> Changed<'_, T> {
        Changed { receiver: self, waiter: None }
    }

    /// Whether [`Receiver::changed`] would answer at once.
    pub fn has_changed(&self) -> Result<bool, Closed> {
        let state = self.shared.state();
        match state.version != self.seen {
            true => Ok(true),
            false if state.senders == 0 => Err(Closed),
            false => Ok(false),
        }
    }

    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// [`Receiver::borrow`], marking the value as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.borrow();
        self.seen = self.shared.state().version;
        value
    }

    /// Waits until the value satisfies `condition`, which is also asked about the present one. Gives what it was satisfied by.
    pub async fn wait_for(&mut self, mut condition: impl FnMut(&T) -> bool) -> Result<T, Closed>
    where
        T: Clone,
    {
        loop {
            {
                let value = self.borrow_and_update();
                if condition(&value) {
                    return Ok(value.clone());
                }
            }
            self.changed().await?;
        }
    }
}

/// The future of [`Receiver::changed`]. Dropping it loses nothing.
pub struct Changed<'a, T> {
    receiver: &'a mut Receiver<T>,
    waiter: Option<u64>,
}

impl<T> Future for Changed<'_, T> {
    type Output = Result<(), Closed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let this = &mut *self;
        let mut state = this.receiver.shared.state();
        if state.version != this.receiver.seen {
            this.receiver.seen = state.version;
            return Poll::Ready(Ok(()));
        }
        if state.senders == 0 {
            return Poll::Ready(Err(Closed));
        }
        let waiter = *this.waiter.get_or_insert_with(|| {
            state.next_waiter += 1;
            state.next_waiter
        });
        state.waiters.insert(waiter, context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Changed<'_, T> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.receiver.shared.state().waiters.remove(&waiter);
        }
    }
}

impl<T> Shared<T> {
    fn borrow(&self) -> Ref<'_, T> {
        Ref(self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("counting does not panic")
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.state().senders += 1;
        Sender { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waiters = {
            let mut state = self.shared.state();
            state.senders -= 1;
            if state.senders > 0 { BTreeMap::new() } else { std::mem::take(&mut state.waiters) }
        };
        waiters.into_values().for_each(Waker::wake);
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.state().receivers += 1;
        Receiver { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.state().receivers -= 1;
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("watch::Sender")
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("watch::Receiver")
    }
}

impl<T> std::fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SendError")
    }
}

impl<T> std::fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("every receiver is gone")
    }
}

impl<T> std::error::Error for SendError<T> {}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("every sender is gone")
    }
}

impl std::error::Error for Closed {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    /// Notes its number when it is woken.
    struct Note(usize, Arc<Mutex<Vec<usize>>>);

    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            self.1.lock().expect("one thread").push(self.0);
        }
    }

    fn poll<T>(changed: &mut Changed<'_, T>, waker: &Waker) -> Poll<Result<(), Closed>> {
        Pin::new(changed).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn waiters_are_woken_in_the_order_in_which_they_began_to_wait() {
        let (sender, receiver) = channel(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let wakers: Vec<Waker> = (0..20).map(|i| Arc::new(Note(i, woken.clone())).into()).collect();
        let mut receivers: Vec<Receiver<u32>> = (0..20).map(|_| receiver.clone()).collect();
        let mut waiting: Vec<Changed<'_, u32>> = receivers.iter_mut().map(Receiver::changed).collect();
        let order = [7, 3, 19, 0, 12];
        for i in order {
            assert!(poll(&mut waiting[i], &wakers[i]).is_pending());
        }
        // Polled again, it keeps its place.
        assert!(poll(&mut waiting[19], &wakers[19]).is_pending());
        sender.send(1).expect("received");
        assert_eq!(*woken.lock().expect("one thread"), order);
    }

    #[test]
    fn a_receiver_is_told_once_of_what_it_has_not_seen() {
        let (sender, mut receiver) = channel("first");
        assert_eq!(receiver.has_changed(), Ok(false));
        assert!(!sender.send_if_modified(|_| false));
        assert!(poll(&mut receiver.changed(), Waker::noop()).is_pending());
        sender.send("second").expect("received");
        sender.send("third").expect("received");
        assert_eq!(receiver.has_changed(), Ok(true));
        assert_eq!(poll(&mut receiver.changed(), Waker::noop()), Poll::Ready(Ok(())));
        assert_eq!(*receiver.borrow(), "third");
        assert!(poll(&mut receiver.changed(), Waker::noop()).is_pending());
        sender.send("fourth").expect("received");
        assert_eq!(*receiver.borrow_and_update(), "fourth");
        assert!(poll(&mut receiver.changed(), Waker::noop()).is_pending());
        assert!(poll(&mut sender.subscribe().changed(), Waker::noop()).is_pending());
    }

    #[test]
    fn the_last_value_is_seen_before_the_end() {
        let (sender, mut receiver) = channel(0);
        let second = sender.clone();
        drop(sender);
        second.send(1).expect("received");
        drop(second);
        assert_eq!(poll(&mut receiver.changed(), Waker::noop()), Poll::Ready(Ok(())));
        assert_eq!(poll(&mut receiver.changed(), Waker::noop()), Poll::Ready(Err(Closed)));
        assert_eq!(receiver.has_changed(), Err(Closed));
    }

    #[test]
    fn sending_to_nobody_gives_the_value_back() {
        let (sender, receiver) = channel(0);
        let clone = receiver.clone();
        drop(receiver);
        assert_eq!(sender.send(1), Ok(()));
        drop(clone);
        assert_eq!(sender.send(2), Err(SendError(2)));
        assert_eq!(*sender.borrow(), 1);
    }

    #[test]
    fn the_end_of_the_last_sender_wakes_whoever_waits() {
        let (sender, mut receiver) = channel(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let waker: Waker = Arc::new(Note(1, woken.clone())).into();
        let mut waiting = receiver.changed();
        assert!(poll(&mut waiting, &waker).is_pending());
        drop(sender);
        assert_eq!(*woken.lock().expect("one thread"), [1]);
    }
}
