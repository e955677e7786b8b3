//! Promises of [`Spawner`](crate::Spawner) and of [`Env`] about tasks.

use super::{Check, Context, checks, join};
use crate::{Env, TaskGone};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    a_task_gives_its_result,
    a_dropped_task_runs_on,
    an_aborted_task_is_dropped,
    aborting_an_ended_task_keeps_its_result,
    the_environment_is_known_in_tasks_and_in_drop,
    tasks_run_beside_each_other,
    blocking_work_gives_its_result,
];

async fn a_task_gives_its_result(c: Context) {
    assert_eq!(c.env.spawn("value", async { 42 }).await, Ok(42));
    let env = c.env.clone();
    let nested = c.env.spawn("outer", async move { env.spawn("inner", async { "inner".to_owned() }).await });
    assert_eq!(nested.await, Ok(Ok("inner".to_owned())));
    let tasks = (0..200u64).map(|i| c.env.spawn("many", async move { i * i })).collect();
    assert_eq!(join(tasks).await, (0..200u64).map(|i| i * i).collect::<Vec<_>>());
}

async fn a_dropped_task_runs_on(c: Context) {
    let (sender, receiver) = oneshot::channel();
    let env = c.env.clone();
    drop(c.env.spawn("detached", async move {
        env.sleep(Duration::from_millis(5)).await;
        sender.send(7).expect("the check waits");
    }));
    assert_eq!(receiver.await, Ok(7));
}

/// Says where it was dropped.
struct Probe(mpsc::UnboundedSender<Option<String>>);

impl Drop for Probe {
    fn drop(&mut self) {
        let node = Env::try_current().map(|env| env.node().to_owned());
        let _ = self.0.send(node);
    }
}

async fn an_aborted_task_is_dropped(c: Context) {
    let (sender, mut dropped) = mpsc::unbounded_channel();
    let polls = Arc::new(AtomicUsize::new(0));
    let (probe, count, env) = (Probe(sender), polls.clone(), c.env.clone());
    let task = c.env.spawn("aborted", async move {
        let _probe = probe;
        loop {
            count.fetch_add(1, Ordering::SeqCst);
            env.sleep(Duration::from_millis(1)).await;
        }
    });
    while polls.load(Ordering::SeqCst) < 3 {
        c.env.sleep(Duration::from_millis(1)).await;
    }
    task.abort();
    assert_eq!(task.await, Err(TaskGone));
    assert!(dropped.recv().await.is_some(), "its future was dropped");
    let after = polls.load(Ordering::SeqCst);
    c.env.sleep(Duration::from_millis(10)).await;
    assert_eq!(polls.load(Ordering::SeqCst), after, "polled after it was dropped");
}

async fn aborting_an_ended_task_keeps_its_result(c: Context) {
    let (sender, receiver) = oneshot::channel();
    let task = c.env.spawn("ended", async move {
        let _ = sender.send(());
        5
    });
    receiver.await.expect("it ran");
    // It has sent its last word; give it the time to end.
    c.env.sleep(Duration::from_millis(5)).await;
    task.abort();
    task.abort();
    assert_eq!(task.await, Ok(5));
}

async fn the_environment_is_known_in_tasks_and_in_drop(c: Context) {
    let node = c.env.node().to_owned();
    let env = c.env.clone();
    let seen = c.env.spawn("current", async move {
        let before = Env::current().node().to_owned();
        env.sleep(Duration::from_millis(1)).await;
        let inner = Env::current().spawn("inner", async { Env::current().node().to_owned() });
        [before, Env::current().node().to_owned(), inner.await.expect("inner task")]
    });
    assert_eq!(seen.await.expect("task"), [node.clone(), node.clone(), node.clone()]);

    let (sender, mut dropped) = mpsc::unbounded_channel();
    let probe = Probe(sender.clone());
    c.env.spawn("ends", async move { drop(probe) }).await.expect("task");
    assert_eq!(dropped.recv().await, Some(Some(node.clone())), "dropped while polled");
    let probe = Probe(sender);
    let task = c.env.spawn("killed", async move {
        let _probe = probe;
        pending::<()>().await;
    });
    c.env.sleep(Duration::from_millis(2)).await;
    task.abort();
    assert_eq!(dropped.recv().await, Some(Some(node)), "dropped by an abort");
}

async fn tasks_run_beside_each_other(c: Context) {
    let (to_pong, mut pong) = mpsc::channel::<u32>(1);
    let (to_ping, mut ping) = mpsc::channel::<u32>(1);
    let task = c.env.spawn("pong", async move {
        while let Some(number) = pong.recv().await {
            to_ping.send(number + 1).await.expect("ping waits");
        }
    });
    let mut number = 0;
    while number < 100 {
        to_pong.send(number).await.expect("pong waits");
        number = ping.recv().await.expect("pong answers");
    }
    assert_eq!(number, 100);
    drop(to_pong);
    task.await.expect("pong ends with its channel");
}

async fn blocking_work_gives_its_result(c: Context) {
    assert_eq!(c.env.blocking(|| 6 * 7).await, Ok(42));
    let tasks = (0..50u64).map(|i| {
        let env = c.env.clone();
        c.env.spawn("blocking", async move { env.blocking(move || (0..=i).sum::<u64>()).await })
    });
    for (i, sum) in join(tasks.collect()).await.into_iter().enumerate() {
        assert_eq!(sum, Ok((i * (i + 1) / 2) as u64));
    }
}
