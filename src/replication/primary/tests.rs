//! The primary, told what happens and watched for what it decides.

use super::*;
use crate::region::Epoch;
use storage::SegmentId;

const A: ServerId = ServerId(1);
const B: ServerId = ServerId(2);
const C: ServerId = ServerId(3);

fn at(ms: u64) -> Instant {
    Instant::from_origin(Duration::from_millis(ms))
}

fn mark(seqno: u64) -> Mark {
    if seqno == 0 { Mark::ZERO } else { Mark { seqno: Seqno(seqno), checksum: seqno * 1000 } }
}

fn position(seqno: u64) -> Position {
    if seqno == 0 { Position::ZERO } else { Position { mark: mark(seqno), segment: SegmentId(1), offset: seqno * 100 } }
}

/// A primary A whose log has `head` records, all durable here, `committed` of them committed.
fn primary(members: &[ServerId], min_in_sync: u8, head: u64, committed: u64) -> Primary {
    let config = RegionConfig::initial(RegionId(1), members.to_vec());
    let log = LogState { head: position(head), durable: mark(head), committed: Seqno(committed) };
    Primary::new(A, config, min_in_sync, Timing::DEFAULT, log, at(0), at(0))
}

/// Runs `from` through probe, standing and match, so that it is streamed to from `common` on.
fn connect(primary: &mut Primary, from: ServerId, stream: u64, common: u64, now: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    primary.tick(&[], at(now), &mut actions);
    let tail = vec![mark(common)];
    primary.received(from, PeerBody::Standing { stream, tail: tail.clone() }, at(now), &mut actions);
    assert!(actions.contains(&Action::Match { from, stream, tail }), "{actions:?}");
    primary.matched(from, stream, Some(position(common)), at(now), &mut actions);
    assert!(actions.contains(&Action::Send { to: from, body: PeerBody::Resume { stream, from: mark(common) } }));
    actions
}

fn ack(primary: &mut Primary, from: ServerId, stream: u64, seqno: u64, now: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    primary.received(from, PeerBody::Ack { stream, durable: mark(seqno) }, at(now), &mut actions);
    actions
}

fn sent(primary: &Primary, head: u64, is_piece: bool) -> Sent {
    Sent { end: position(head), committed: primary.committed(), is_piece }
}

fn append(primary: &mut Primary, head: u64, now: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    primary.appended(position(head), at(now), &mut actions);
    for follower in [B, C] {
        if let Some((stream, _)) = primary.next_for(follower) {
            primary.streamed(follower, stream, sent(primary, head, false), at(now), &mut actions);
        }
    }
    primary.durable(mark(head), at(now), &mut actions);
    actions
}

fn tick(primary: &mut Primary, silent: &[ServerId], now: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    primary.tick(silent, at(now), &mut actions);
    actions
}

fn asked(actions: &[Action]) -> Option<&Change> {
    actions.iter().find_map(|action| if let Action::Ask(change) = action { Some(change) } else { None })
}

/// A serving primary of `members`, everybody level at `head`.
fn serving(members: &[ServerId], min_in_sync: u8, head: u64) -> Primary {
    let mut primary = primary(members, min_in_sync, head, head);
    for &member in &members[1..] {
        connect(&mut primary, member, member.0, head, 0);
        ack(&mut primary, member, member.0, head, 0);
    }
    tick(&mut primary, &[], 0);
    assert_eq!(primary.phase(), Phase::Serving);
    primary
}

#[test]
fn nothing_is_served_before_all_of_the_old_log_is_everywhere() {
    let mut primary = primary(&[A, B, C], 2, 10, 7);
    connect(&mut primary, B, 20, 10, 0);
    ack(&mut primary, B, 20, 10, 1);
    assert_ne!(primary.phase(), Phase::Serving, "C was not heard of");
    connect(&mut primary, C, 30, 7, 400);
    assert!(!ack(&mut primary, C, 30, 9, 401).contains(&Action::Serve));
    let actions = ack(&mut primary, C, 30, 10, 402);
    assert!(actions.contains(&Action::Committed(Seqno(10))) && actions.contains(&Action::Serve), "{actions:?}");
}

#[test]
fn nothing_is_served_before_older_leases_have_ended() {
    let config = RegionConfig::initial(RegionId(1), vec![A]);
    let log = LogState { head: position(3), durable: mark(3), committed: Seqno(3) };
    let mut primary = Primary::new(A, config, 1, Timing::DEFAULT, log, at(1000), at(0));
    assert!(!tick(&mut primary, &[], 999).contains(&Action::Serve));
    assert!(tick(&mut primary, &[], 1000).contains(&Action::Serve));
}

#[test]
fn a_write_is_committed_when_it_is_durable_on_every_in_sync_replica() {
    let mut primary = serving(&[A, B, C], 2, 0);
    append(&mut primary, 5, 10);
    assert_eq!(primary.committed(), Seqno(0));
    ack(&mut primary, B, B.0, 5, 11);
    assert_eq!(primary.committed(), Seqno(0), "a majority is not enough");
    ack(&mut primary, C, C.0, 4, 12);
    assert_eq!(primary.committed(), Seqno(4));
    ack(&mut primary, C, C.0, 5, 13);
    assert_eq!(primary.committed(), Seqno(5));
}

#[test]
fn acknowledgements_of_a_dead_stream_count_for_nothing() {
    let mut primary = serving(&[A, B], 1, 0);
    append(&mut primary, 5, 10);
    ack(&mut primary, B, 99, 5, 11);
    assert_eq!(primary.committed(), Seqno(0));
}

#[test]
fn a_backup_that_owes_an_answer_is_dropped_by_the_master_group_before_anything_is_acknowledged_without_it() {
    let mut primary = serving(&[A, B, C], 2, 0);
    append(&mut primary, 1, 0);
    ack(&mut primary, B, B.0, 1, 10);
    let actions = tick(&mut primary, &[], 1300);
    let change = Change::Drop { by: A, backups: vec![C] };
    assert_eq!(asked(&actions), Some(&change));
    assert_eq!(primary.committed(), Seqno(0), "asking is not enough");
    let next = primary.config().change(&change).unwrap();
    let mut actions = Vec::new();
    primary.configured(next, at(1400), &mut actions);
    assert_eq!(primary.committed(), Seqno(1));
}

#[test]
fn a_backup_without_a_lease_is_dropped() {
    let mut primary = serving(&[A, B], 1, 0);
    assert_eq!(asked(&tick(&mut primary, &[B], 5000)), Some(&Change::Drop { by: A, backups: vec![B] }));
}

#[test]
fn what_was_asked_is_asked_again_until_it_is_answered() {
    let mut primary = serving(&[A, B], 1, 0);
    let change = Change::Drop { by: A, backups: vec![B] };
    tick(&mut primary, &[B], 5000);
    assert_eq!(asked(&tick(&mut primary, &[], 5100)), None);
    assert_eq!(asked(&tick(&mut primary, &[], 5500)), Some(&change));
    primary.refused(&change);
    assert_eq!(asked(&tick(&mut primary, &[], 6000)), None);
}

#[test]
fn a_learner_counts_from_the_moment_it_is_asked_for() {
    let mut primary = serving(&[A], 1, 3);
    let next = primary.config().change(&Change::AddLearner { server: B }).unwrap();
    primary.configured(next, at(10), &mut Vec::new());
    append(&mut primary, 4, 11);
    assert_eq!(primary.committed(), Seqno(4), "a learner is not waited for");
    connect(&mut primary, B, 20, 0, 400);
    ack(&mut primary, B, 20, 4, 410);
    let actions = tick(&mut primary, &[], 420);
    assert_eq!(asked(&actions), Some(&Change::Admit { by: A, learner: B }));
    assert_eq!(primary.commits_with(), [B]);
    append(&mut primary, 5, 430);
    assert_eq!(primary.committed(), Seqno(4), "from now on it is");
    ack(&mut primary, B, 20, 5, 440);
    assert_eq!(primary.committed(), Seqno(5));
}

#[test]
fn a_learner_that_lacks_something_committed_is_not_asked_for() {
    let mut primary = serving(&[A], 1, 3);
    let next = primary.config().change(&Change::AddLearner { server: B }).unwrap();
    primary.configured(next, at(10), &mut Vec::new());
    connect(&mut primary, B, 20, 0, 400);
    ack(&mut primary, B, 20, 2, 410);
    assert_eq!(asked(&tick(&mut primary, &[], 420)), None);
}

#[test]
fn a_learner_that_was_level_before_it_could_be_asked_for_is_asked_for_though_nothing_is_written() {
    let mut primary = serving(&[A], 2, 3);
    let next = primary.config().change(&Change::AddLearner { server: B }).unwrap();
    primary.configured(next, at(10), &mut Vec::new());
    connect(&mut primary, B, 20, 0, 400);
    ack(&mut primary, B, 20, 3, 410);
    let late = 410 + Timing::DEFAULT.suspect.as_millis() as u64;
    let actions = tick(&mut primary, &[], late);
    assert_eq!(asked(&actions), None, "it may be gone");
    let probe = |action: &Action| matches!(action, Action::Send { to: B, body: PeerBody::Probe { .. } });
    assert!(actions.iter().any(probe), "{actions:?}");
    connect(&mut primary, B, 21, 3, late + 10);
    ack(&mut primary, B, 21, 3, late + 20);
    assert_eq!(asked(&tick(&mut primary, &[], late + 30)), Some(&Change::Admit { by: A, learner: B }));
}

#[test]
fn too_few_replicas_commit_nothing_new() {
    let mut primary = serving(&[A, B], 2, 0);
    append(&mut primary, 1, 10);
    let next = primary.config().change(&Change::Drop { by: A, backups: vec![B] }).unwrap();
    primary.configured(next, at(20), &mut Vec::new());
    assert!(!primary.may_write());
    tick(&mut primary, &[], 30);
    assert_eq!(primary.committed(), Seqno(0));
}

#[test]
fn a_hand_over_waits_until_all_is_committed() {
    let mut primary = serving(&[A, B], 1, 0);
    append(&mut primary, 1, 10);
    let mut actions = Vec::new();
    assert!(primary.hand_over(B, at(11), &mut actions));
    assert_eq!(actions, []);
    let actions = ack(&mut primary, B, B.0, 1, 12);
    let released = actions.iter().position(|action| *action == Action::Released { to: B });
    let asked = actions.iter().position(|action| *action == Action::Ask(Change::HandOver { by: A, to: B }));
    assert!(released.unwrap() < asked.unwrap(), "{actions:?}");
    assert_eq!(primary.phase(), Phase::Resigning { to: B });
    primary.refused(&Change::HandOver { by: A, to: B });
    assert_eq!(primary.phase(), Phase::Serving);
}

#[test]
fn a_follower_whose_frames_were_lost_is_probed_again() {
    let mut primary = serving(&[A, B], 1, 0);
    append(&mut primary, 1, 10);
    let probe = |actions: &[Action]| {
        actions.iter().any(|action| matches!(action, Action::Send { to: B, body: PeerBody::Probe { .. } }))
    };
    assert!(!probe(&tick(&mut primary, &[], 300)));
    assert!(probe(&tick(&mut primary, &[], 700)));
}

#[test]
fn every_change_begins_a_new_stream_with_everybody() {
    let mut primary = serving(&[A, B, C], 2, 0);
    let next = primary.config().change(&Change::Drop { by: A, backups: vec![C] }).unwrap();
    assert_eq!(next.epoch, Epoch(2));
    let mut actions = Vec::new();
    primary.configured(next.clone(), at(10), &mut actions);
    assert!(actions.contains(&Action::Send { to: B, body: PeerBody::Probe { config: next } }));
    assert_eq!(primary.next_for(B), None);
}

#[test]
fn the_next_piece_waits_until_the_last_one_is_taken() {
    let mut primary = serving(&[A], 1, 9);
    let next = primary.config().change(&Change::AddLearner { server: B }).unwrap();
    primary.configured(next, at(10), &mut Vec::new());
    let streams = |actions: &[Action]| actions.contains(&Action::Stream { to: B });
    assert!(streams(&connect(&mut primary, B, 20, 0, 400)));
    let mut actions = Vec::new();
    let piece = Sent { end: position(0), committed: primary.committed(), is_piece: true };
    primary.streamed(B, 20, piece, at(410), &mut actions);
    assert!(!streams(&actions), "it is on its way");
    assert!(!streams(&ack(&mut primary, B, 20, 0, 420)), "it lives, but has not taken the piece");
    assert!(!streams(&tick(&mut primary, &[], 430)));
    primary.received(B, PeerBody::Taken { stream: 19 }, at(440), &mut actions);
    assert!(!streams(&actions), "of another stream");
    primary.received(B, PeerBody::Taken { stream: 20 }, at(450), &mut actions);
    assert!(streams(&actions));
    let probes = |actions: &[Action]| {
        actions.iter().any(|action| matches!(action, Action::Send { to: B, body: PeerBody::Probe { .. } }))
    };
    primary.streamed(B, 20, piece, at(460), &mut Vec::new());
    assert!(!probes(&tick(&mut primary, &[], 700)));
    assert!(probes(&tick(&mut primary, &[], 1400)), "it was lost");
}
