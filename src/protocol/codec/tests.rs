use super::*;
use crate::protocol::limits::{FRAME_BYTES_MAX, GREETING_BYTES_MAX, PEER_FRAME_BYTES_MAX};
use crate::protocol::peer::{Beacon, BeaconAck};
use crate::region::{Compression, KeyRange, RegionConfig, Salt, ServerId, TableSpec};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use storage::Mark;

fn encode(message: &Message, id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder { out: &mut out, frame_bytes_max: PEER_FRAME_BYTES_MAX };
    match message {
        Message::Hello(hello) => encoder.hello(hello).unwrap(),
        Message::Challenge(nonce) => encoder.challenge(nonce).unwrap(),
        Message::Proof { nonce, proof } => encoder.proof(nonce, proof).unwrap(),
        Message::Welcome { welcome, proof } => encoder.welcome(welcome, proof.as_ref()).unwrap(),
        Message::Ping => encoder.ping(id).unwrap(),
        Message::Pong => encoder.pong(id).unwrap(),
        Message::Request(request) => encoder.request(id, request).unwrap(),
        Message::Response(response) => encoder.response(id, response),
        Message::Peer(message) => encoder.peer(message).unwrap(),
        Message::Raft(body) => encoder.raft(id, body).unwrap(),
        Message::RaftAnswer(body) => encoder.raft_answer(id, body).unwrap(),
    }
    out
}

/// All messages in `bytes`, the end included: what follows the last whole frame is an error.
fn decode_all(bytes: &[u8]) -> Result<Vec<(u64, Message)>, Malformed> {
    let mut buffer = BytesMut::from(bytes);
    let mut messages = Vec::new();
    while let Some(frame) = take_frame(&mut buffer, PEER_FRAME_BYTES_MAX)? {
        messages.push((frame.id, frame.decode()?));
    }
    if buffer.is_empty() { Ok(messages) } else { Err(Malformed::Truncated("frame")) }
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn error() -> impl Strategy<Value = Error> {
    let code = prop_oneof![
        Just(ErrorCode::WrongRegion),
        Just(ErrorCode::Unknown),
        Just(ErrorCode::Invalid),
        Just(ErrorCode::Exists)
    ];
    (code, ".{0,20}").prop_map(|(code, message)| Error { code, message })
}

fn operation() -> impl Strategy<Value = WriteOperation> {
    prop_oneof![
        (bytes(), bytes(), any::<Option<u64>>()).prop_map(|(key, value, expiry_ms)| WriteOperation::Put {
            key,
            value,
            expiry_ms
        }),
        bytes().prop_map(|key| WriteOperation::Delete { key }),
        (bytes(), option::of(bytes()), option::of(bytes()))
            .prop_map(|(key, expected, new)| WriteOperation::CompareAndSet { key, expected, new }),
        (bytes(), any::<i64>()).prop_map(|(key, delta)| WriteOperation::Increment { key, delta }),
        (bytes(), bytes()).prop_map(|(key, suffix)| WriteOperation::Append { key, suffix }),
    ]
}

fn outcome() -> impl Strategy<Value = WriteOutcome> {
    prop_oneof![
        Just(WriteOutcome::Done),
        any::<bool>().prop_map(|existed| WriteOutcome::Deleted { existed }),
        (any::<bool>(), option::of(bytes())).prop_map(|(set, actual)| WriteOutcome::Compared { set, actual }),
        any::<i64>().prop_map(WriteOutcome::Incremented),
        any::<u64>().prop_map(|len| WriteOutcome::Appended { len }),
        error().prop_map(WriteOutcome::Refused),
    ]
}

fn form() -> impl Strategy<Value = KeyForm> {
    prop_oneof![Just(KeyForm::User), Just(KeyForm::Stored)]
}

fn region() -> impl Strategy<Value = RegionId> {
    any::<u64>().prop_map(RegionId)
}

fn request() -> impl Strategy<Value = Request> {
    let id = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(session, number, floor)| RequestId {
        session,
        number,
        floor,
    });
    prop_oneof![
        (region(), form(), vec(bytes(), 0..20)).prop_map(|(region, form, keys)| Request::Read(ReadRequest {
            region,
            form,
            keys
        })),
        (region(), form(), option::of(id), vec(operation(), 0..20)).prop_map(|(region, form, id, operations)| {
            Request::Write(WriteRequest { region, form, id, operations })
        }),
        (region(), bytes(), any::<u32>()).prop_map(|(region, cursor, limit)| Request::Scan(ScanRequest {
            region,
            cursor,
            limit
        })),
        vec(bytes(), 0..5).prop_map(|splits| Request::Admin(AdminRequest::CreateTable {
            name: "a:b".parse().unwrap(),
            spec: spec(),
            splits
        })),
        Just(Request::Admin(AdminRequest::Status)),
        region().prop_map(|region| Request::Control(ControlRequest::Propose {
            region,
            epoch: Epoch(3),
            change: crate::region::Change::Leave { server: ServerId(7) }
        })),
    ]
}

fn spec() -> TableSpec {
    TableSpec { salt: Some(Salt::Xxh32), compression: Compression::Lz4, ..TableSpec::new(3) }
}

fn response() -> impl Strategy<Value = Response> {
    prop_oneof![
        vec(option::of(bytes()), 0..20).prop_map(Response::Read),
        vec(outcome(), 0..20).prop_map(Response::Written),
        (vec((bytes(), bytes()), 0..20), option::of(bytes()))
            .prop_map(|(records, cursor)| Response::Scanned(Scanned { records, cursor })),
        bytes().prop_map(|start| Response::Admin(AdminResponse::Table(TableMap {
            name: "a:b".parse().unwrap(),
            spec: spec(),
            regions: vec![RegionPlace {
                range: KeyRange { start, end: None },
                config: RegionConfig::initial(RegionId(1), vec![ServerId(1), ServerId(2)]),
                address: Some("10.0.0.1:7400".into())
            }]
        }))),
        Just(Response::Control(ControlResponse::Registered { id: ServerId(4), cluster: ClusterId(5) })),
        error().prop_map(Response::Error),
    ]
}

fn peer() -> impl Strategy<Value = PeerMessage> {
    let body = prop_oneof![
        Just(PeerBody::Stale),
        (any::<u64>(), bytes(), any::<u64>()).prop_map(|(stream, bytes, committed)| PeerBody::Frames {
            stream,
            bytes,
            committed: Seqno(committed)
        }),
        any::<u64>().prop_map(|stream| PeerBody::Standing { stream, tail: vec![Mark::ZERO; 3] }),
    ];
    prop_oneof![
        vec(any::<(u64, u64)>(), 0..5).prop_map(|claims| PeerMessage::Beacon(Beacon {
            number: 9,
            claims: claims.into_iter().map(|(region, epoch)| (RegionId(region), Epoch(epoch))).collect()
        })),
        Just(PeerMessage::BeaconAck(BeaconAck { number: 1, refused: vec![RegionId(2)] })),
        (region(), any::<u64>(), body).prop_map(|(region, epoch, body)| PeerMessage::Region {
            region,
            epoch: Epoch(epoch),
            body
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let purpose = prop_oneof![
        Just(Purpose::Client),
        any::<u64>().prop_map(|server| Purpose::Peer(ServerId(server))),
        Just(Purpose::Raft)
    ];
    prop_oneof![
        (purpose, option::of(any::<u128>())).prop_map(|(purpose, cluster)| Message::Hello(Hello {
            version: VERSION,
            purpose,
            cluster: cluster.map(ClusterId)
        })),
        any::<[u8; 32]>().prop_map(Message::Challenge),
        any::<([u8; 32], [u8; 32])>().prop_map(|(nonce, proof)| Message::Proof { nonce, proof }),
        any::<Option<[u8; 32]>>()
            .prop_map(|proof| Message::Welcome { welcome: Welcome { cluster: None, role: Role::Server }, proof }),
        Just(Message::Ping),
        Just(Message::Pong),
        request().prop_map(Message::Request),
        response().prop_map(Message::Response),
        peer().prop_map(Message::Peer),
        bytes().prop_map(Message::Raft),
        bytes().prop_map(Message::RaftAnswer),
    ]
}

/// The id that a message carries: one-way messages and handshakes carry none.
fn expected_id(message: &Message, id: u64) -> u64 {
    match message {
        Message::Hello(_)
        | Message::Challenge(_)
        | Message::Proof { .. }
        | Message::Welcome { .. }
        | Message::Peer(_) => 0,
        _ => id,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded(messages in vec((message(), any::<u64>()), 1..4)) {
        let bytes: Vec<u8> = messages.iter().flat_map(|(message, id)| encode(message, *id)).collect();
        let expected: Vec<_> =
            messages.into_iter().map(|(message, id)| (expected_id(&message, id), message)).collect();
        prop_assert_eq!(decode_all(&bytes), Ok(expected));
    }

    /// Frames may be cut anywhere by the network: the beginning alone gives nothing, and changes nothing.
    #[test]
    fn half_a_frame_is_none(message in message(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&message, 7);
        let cut = cut.index(bytes.len());
        let mut buffer = BytesMut::from(&bytes[..cut]);
        prop_assert!(!has_frame(&buffer, PEER_FRAME_BYTES_MAX));
        prop_assert_eq!(take_frame(&mut buffer, PEER_FRAME_BYTES_MAX), Ok(None));
        buffer.extend_from_slice(&bytes[cut..]);
        prop_assert!(has_frame(&buffer, PEER_FRAME_BYTES_MAX));
        let frame = take_frame(&mut buffer, PEER_FRAME_BYTES_MAX).unwrap().unwrap();
        prop_assert_eq!(frame.decode(), Ok(message));
    }

    /// A frame whose length was made to fit what is left of its body.
    #[test]
    fn a_body_cut_short_is_an_error_or_another_message(message in message(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&message, 7);
        let cut = ENVELOPE_BYTES + LENGTH_BYTES + cut.index(bytes.len() - ENVELOPE_BYTES - LENGTH_BYTES + 1);
        let mut short = bytes[..cut].to_vec();
        short[..4].copy_from_slice(&((cut - LENGTH_BYTES) as u32).to_le_bytes());
        if let Ok(messages) = decode_all(&short) {
            prop_assert_eq!(encode(&messages[0].1, 7).len(), short.len());
        }
    }

    /// Never a panic; what is accepted is a message that has these bytes, or shorter ones for the same numbers.
    #[test]
    fn flipped_bits_do_no_harm(message in message(), flips in vec(any::<prop::sample::Index>(), 1..4)) {
        let mut bytes = encode(&message, 7);
        for flip in flips {
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let _ = decode_all(&bytes);
    }

    #[test]
    fn random_bytes_do_no_harm(kind in any::<u8>(), body in vec(any::<u8>(), 0..200)) {
        let _ = decode_all(&body);
        let _ = Frame { id: 1, kind, body: Bytes::from(body) }.decode();
    }

    #[test]
    fn a_frame_is_taken_out_of_a_queue(
        messages in vec((request(), 0..1000u64), 1..6),
        picked in any::<prop::sample::Index>(),
    ) {
        let frames: Vec<_> = messages
            .into_iter()
            .enumerate()
            .map(|(i, (request, _))| encode(&Message::Request(request), i as u64))
            .collect();
        let picked = picked.index(frames.len());
        let mut queue = frames.concat();
        prop_assert!(remove_frame(&mut queue, picked as u64));
        prop_assert!(!remove_frame(&mut queue, picked as u64));
        let mut others = frames;
        others.remove(picked);
        prop_assert_eq!(queue, others.concat());
    }
}

#[test]
fn lengths_are_held_against_the_limit() {
    for (len, max) in [(0u32, 100usize), (8, 100), (101, 100), (u32::MAX, FRAME_BYTES_MAX), (1 << 30, FRAME_BYTES_MAX)]
    {
        let mut buffer = BytesMut::from(&len.to_le_bytes()[..]);
        let refused = Err(Malformed::Length { len: len as usize, max });
        assert_eq!(take_frame(&mut buffer, max), refused);
        assert!(has_frame(&buffer, max), "so that it is taken, and refused");
    }
    let mut buffer = BytesMut::from(&100u32.to_le_bytes()[..]);
    assert_eq!(take_frame(&mut buffer, 100), Ok(None));
}

/// Counts and lengths of four billion with nothing behind them, in each place where one is read.
#[test]
fn a_count_alone_allocates_nothing() {
    let huge = u32::MAX.to_le_bytes();
    let almost = (u32::MAX - 1).to_le_bytes();
    let bodies: [(u8, Vec<u8>); 8] = [
        (kind::READ, [&[0; 9][..], &huge].concat()),
        (kind::READ, [&[0; 9][..], &1u32.to_le_bytes(), &huge].concat()),
        (kind::WRITE, [&[0; 10][..], &huge].concat()),
        (kind::WRITE, [&[0; 10][..], &1u32.to_le_bytes(), &[1], &huge, b"k"].concat()),
        (kind::READ_ANSWER, huge.to_vec()),
        (kind::READ_ANSWER, [1u32.to_le_bytes(), almost].concat()),
        (kind::WRITE_ANSWER, huge.to_vec()),
        (kind::SCAN_ANSWER, huge.to_vec()),
    ];
    for (kind, body) in bodies {
        let refused = Frame { id: 1, kind, body: Bytes::from(body) }.decode();
        assert!(matches!(refused, Err(Malformed::Truncated(_))), "{kind:#x}: {refused:?}");
    }
}

#[test]
fn a_message_has_no_more_items_than_the_limit() {
    let outcomes = vec![WriteOutcome::Done; KEYS_PER_REQUEST_MAX + 1];
    let refused = decode_all(&encode(&Message::Response(Response::Written(outcomes)), 1)).unwrap_err();
    assert_eq!(
        refused,
        Malformed::Count { what: "outcomes", count: KEYS_PER_REQUEST_MAX + 1, max: KEYS_PER_REQUEST_MAX }
    );
}

#[test]
fn another_version_is_named_whatever_follows_it() {
    let hello = Hello { version: 2, purpose: Purpose::Client, cluster: None };
    let mut bytes = encode(&Message::Hello(hello), 0);
    assert_eq!(decode_all(&bytes), Err(Malformed::Version(2)));
    bytes.truncate(LENGTH_BYTES + ENVELOPE_BYTES + 6);
    bytes.extend_from_slice(&[0xff; 40]);
    let len = (bytes.len() - LENGTH_BYTES) as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    assert_eq!(decode_all(&bytes), Err(Malformed::Version(2)));
    bytes[13] = b'X';
    assert_eq!(decode_all(&bytes), Err(Malformed::Magic));
}

#[test]
fn what_does_not_fit_leaves_nothing_behind() {
    let mut out = b"before".to_vec();
    let mut encoder = Encoder { out: &mut out, frame_bytes_max: 100 };
    let put = WriteOperation::Put { key: "k".into(), value: vec![0; 100].into(), expiry_ms: None };
    let write = WriteRequest { region: RegionId(1), form: KeyForm::User, id: None, operations: vec![put] };
    assert_eq!(encoder.request(1, &Request::Write(write)), Err(TooLarge { len: 133, max: 100 }));
    assert_eq!(out, b"before");
}

#[test]
fn an_answer_that_does_not_fit_becomes_what_does() {
    let answer = |response: &Response| {
        let mut out = Vec::new();
        Encoder { out: &mut out, frame_bytes_max: GREETING_BYTES_MAX }.response(1, response);
        assert!(out.len() <= LENGTH_BYTES + GREETING_BYTES_MAX);
        let [(1, Message::Response(response))] = &decode_all(&out).unwrap()[..] else { panic!("one answer") };
        response.clone()
    };
    let value = |len: usize| Some(Bytes::from(vec![7; len]));
    let some = Response::Read(vec![value(500), None, value(400), value(300), None]);
    assert_eq!(answer(&some), Response::Read(vec![value(500), None, value(400)]), "the first values are given");
    let exact = GREETING_BYTES_MAX - ENVELOPE_BYTES - 4 - 4;
    assert_eq!(answer(&Response::Read(vec![value(exact)])), Response::Read(vec![value(exact)]));
    for long in [
        Response::Read(vec![value(exact + 1), None]),
        Response::Scanned(Scanned { records: vec![("k".into(), vec![0; 2000].into())], cursor: None }),
        Response::Error(Error::invalid("x".repeat(2000))),
    ] {
        assert!(matches!(answer(&long), Response::Error(Error { code: ErrorCode::Invalid, .. })));
    }
}

#[test]
fn values_are_slices_of_what_was_read() {
    let message = Message::Response(Response::Read(vec![Some(vec![7; 1000].into())]));
    let mut buffer = BytesMut::from(&encode(&message, 1)[..]);
    let range = buffer.as_ptr_range();
    let frame = take_frame(&mut buffer, FRAME_BYTES_MAX).unwrap().unwrap();
    let Message::Response(Response::Read(values)) = frame.decode().unwrap() else { panic!("a read's answer") };
    assert!(range.contains(&values[0].as_ref().unwrap().as_ptr()));
}
