//! The bytes of the protocol. No I/O: frames are appended to a buffer, and taken from one.
//!
//! A frame, as all of this little-endian:
//!
//! ```text
//!  0   4  length of the rest (9 ..= the connection's maximum)
//!  4   8  request id: an answer carries that of its request; 0 where nobody waits for an answer
//! 12   1  kind
//! 13   …  body
//! ```
//!
//! | kind | message | body |
//! |---|---|---|
//! | 01 | Hello | `SDFT`, version u16, then postcard of purpose and cluster (nothing after the version may be read by another version) |
//! | 02 | Challenge | 32 random bytes |
//! | 03 | Proof | 32 random bytes, 32 bytes of HMAC |
//! | 04 | Welcome | postcard of Welcome and of the server's HMAC, if a proof was asked for |
//! | 05, 06 | Ping, Pong | nothing |
//! | 10 | Read | region u64, form u8, n u32, n × (length u32, key) |
//! | 11 | Write | region u64, form u8, id, n u32, n × operation |
//! | 12 | Scan | postcard |
//! | 13 | Admin | postcard |
//! | 14 | Control | postcard |
//! | 20 | Read's answer | n u32, n × optional |
//! | 21 | Write's answer | n u32, n × outcome |
//! | 22 | Scan's answer | n u32, n × (length u32, key, length u32, value), optional |
//! | 23 | Admin's answer | postcard |
//! | 24 | Control's answer | postcard |
//! | 2f | Error | postcard |
//! | 30 | Frames between servers | region u64, epoch u64, stream u64, committed u64, the frames' bytes to the end |
//! | 31 | other messages between servers | postcard |
//! | 40, 41 | Raft call and its answer | bytes that mean something to the masters alone |
//!
//! ```text
//! id         00 | 01, session u64, number u64, floor u64
//! optional   length u32, bytes; length ff ff ff ff: none
//! operation  01 Put           length u32, key, length u32, value
//!            02 Put, expiring length u32, key, length u32, value, expiry_ms u64
//!            03 Delete        length u32, key
//!            04 CompareAndSet length u32, key, optional expected, optional new
//!            05 Increment     length u32, key, delta i64
//!            06 Append        length u32, key, length u32, suffix
//! outcome    01 Done
//!            02 Deleted       existed u8
//!            03 Compared      set u8, optional actual
//!            04 Incremented   value i64
//!            05 Appended      length u64
//!            06 Refused       length u32, postcard of Error
//! ```
//!
//! Keys and values on the data path are slices of the buffer that they were read into. Nothing is allocated on the word of
//! a count or a length alone: both are held against the bytes that are there.

use crate::protocol::limits::KEYS_PER_REQUEST_MAX;
use crate::protocol::message::*;
use crate::protocol::peer::{PeerBody, PeerMessage};
use crate::region::{Epoch, RegionId, Seqno};
use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The length field.
const LENGTH_BYTES: usize = 4;
/// Request id and kind, which the length field counts.
const ENVELOPE_BYTES: usize = 9;
const MAGIC: &[u8; 4] = b"SDFT";
const NONE: u32 = u32::MAX;

pub type Nonce = [u8; 32];
pub type Proof = [u8; 32];

/// One message as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub id: u64,
    pub kind: u8,
    pub body: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Hello(Hello),
    Challenge(Nonce),
    Proof { nonce: Nonce, proof: Proof },
    Welcome { welcome: Welcome, proof: Option<Proof> },
    Ping,
    Pong,
    Request(Request),
    Response(Response),
    Peer(PeerMessage),
    Raft(Bytes),
    RaftAnswer(Bytes),
}

/// Why bytes are no message. The connection they came from has lost its place and ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a frame of {len} bytes; here a frame has {ENVELOPE_BYTES} to {max}")]
    Length { len: usize, max: usize },
    #[error("no message has the kind {0:#04x}")]
    Kind(u8),
    #[error("a hello that does not begin with SDFT")]
    Magic,
    #[error("version {0} of the protocol, this is version {VERSION}")]
    Version(u16),
    #[error("{count} {what}, a message has at most {max}")]
    Count { what: &'static str, count: usize, max: usize },
    #[error("the message ends within its {0}")]
    Truncated(&'static str),
    #[error("{0} bytes follow the message's end")]
    Trailing(usize),
    #[error("{value:#04x} is no {what}")]
    Tag { what: &'static str, value: u8 },
    #[error("{0} cannot be read")]
    Postcard(&'static str),
}

/// The message has no place in a frame. Nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message has {len} bytes, a frame takes {max}")]
pub struct TooLarge {
    pub len: usize,
    pub max: usize,
}

mod kind {
    pub const HELLO: u8 = 0x01;
    pub const CHALLENGE: u8 = 0x02;
    pub const PROOF: u8 = 0x03;
    pub const WELCOME: u8 = 0x04;
    pub const PING: u8 = 0x05;
    pub const PONG: u8 = 0x06;
    pub const READ: u8 = 0x10;
    pub const WRITE: u8 = 0x11;
    pub const SCAN: u8 = 0x12;
    pub const ADMIN: u8 = 0x13;
    pub const CONTROL: u8 = 0x14;
    pub const READ_ANSWER: u8 = 0x20;
    pub const WRITE_ANSWER: u8 = 0x21;
    pub const SCAN_ANSWER: u8 = 0x22;
    pub const ADMIN_ANSWER: u8 = 0x23;
    pub const CONTROL_ANSWER: u8 = 0x24;
    pub const ERROR: u8 = 0x2f;
    pub const PEER_FRAMES: u8 = 0x30;
    pub const PEER: u8 = 0x31;
    pub const RAFT: u8 = 0x40;
    pub const RAFT_ANSWER: u8 = 0x41;
}

/// Takes the first whole frame from `buffer`; `None` if it is not all there yet.
pub fn take_frame(buffer: &mut BytesMut, frame_bytes_max: usize) -> Result<Option<Frame>, Malformed> {
    let Some(len) = frame_len(buffer, frame_bytes_max)? else { return Ok(None) };
    if buffer.len() < LENGTH_BYTES + len {
        return Ok(None);
    }
    let mut body = buffer.split_to(LENGTH_BYTES + len).freeze();
    body.advance(LENGTH_BYTES);
    let id = body.get_u64_le();
    let kind = body.get_u8();
    Ok(Some(Frame { id, kind, body }))
}

/// What the length field of the first frame says; `None` if it is not there yet.
fn frame_len(buffer: &[u8], frame_bytes_max: usize) -> Result<Option<usize>, Malformed> {
    let Some(field) = buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let len = u32::from_le_bytes(*field) as usize;
    if (ENVELOPE_BYTES..=frame_bytes_max).contains(&len) {
        Ok(Some(len))
    } else {
        Err(Malformed::Length { len, max: frame_bytes_max })
    }
}

/// Whether `buffer` begins with a whole frame, or with something that [`take_frame`] refuses.
pub fn has_frame(buffer: &[u8], frame_bytes_max: usize) -> bool {
    match frame_len(buffer, frame_bytes_max) {
        Ok(Some(len)) => buffer.len() >= LENGTH_BYTES + len,
        Ok(None) => false,
        Err(_) => true,
    }
}

/// Takes the frame with the request id `id` out of `buffer`, which holds whole frames of ours. Whether it was there.
pub fn remove_frame(buffer: &mut Vec<u8>, id: u64) -> bool {
    let mut at = 0;
    while at < buffer.len() {
        let field = |from: usize, len: usize| &buffer[from..from + len];
        let len = u32::from_le_bytes(field(at, 4).try_into().expect("four bytes")) as usize;
        let end = at + LENGTH_BYTES + len;
        if u64::from_le_bytes(field(at + LENGTH_BYTES, 8).try_into().expect("eight bytes")) == id {
            buffer.drain(at..end);
            return true;
        }
        at = end;
    }
    false
}

impl Frame {
    pub fn decode(self) -> Result<Message, Malformed> {
        let mut input = Input(self.body);
        let message = match self.kind {
            kind::HELLO => Message::Hello(input.hello()?),
            kind::CHALLENGE => Message::Challenge(input.array("challenge")?),
            kind::PROOF => Message::Proof { nonce: input.array("nonce")?, proof: input.array("proof")? },
            kind::WELCOME => {
                let (welcome, proof) = input.postcard("welcome")?;
                Message::Welcome { welcome, proof }
            }
            kind::PING => Message::Ping,
            kind::PONG => Message::Pong,
            kind::READ => Message::Request(Request::Read(input.read()?)),
            kind::WRITE => Message::Request(Request::Write(input.write()?)),
            kind::SCAN => Message::Request(Request::Scan(input.postcard("scan")?)),
            kind::ADMIN => Message::Request(Request::Admin(input.postcard("admin request")?)),
            kind::CONTROL => Message::Request(Request::Control(input.postcard("control request")?)),
            kind::READ_ANSWER => Message::Response(Response::Read(input.values()?)),
            kind::WRITE_ANSWER => Message::Response(Response::Written(input.outcomes()?)),
            kind::SCAN_ANSWER => Message::Response(Response::Scanned(input.scanned()?)),
            kind::ADMIN_ANSWER => Message::Response(Response::Admin(input.postcard("admin response")?)),
            kind::CONTROL_ANSWER => Message::Response(Response::Control(input.postcard("control response")?)),
            kind::ERROR => Message::Response(Response::Error(input.postcard("error")?)),
            kind::PEER_FRAMES => Message::Peer(input.peer_frames()?),
            kind::PEER => Message::Peer(input.postcard("peer message")?),
            kind::RAFT => Message::Raft(input.rest()),
            kind::RAFT_ANSWER => Message::RaftAnswer(input.rest()),
            other => return Err(Malformed::Kind(other)),
        };
        match input.0.len() {
            0 => Ok(message),
            trailing => Err(Malformed::Trailing(trailing)),
        }
    }
}

/// A message's body while it is read.
struct Input(Bytes);

impl Input {
    fn need(&self, len: usize, what: &'static str) -> Result<(), Malformed> {
        if self.0.len() < len { Err(Malformed::Truncated(what)) } else { Ok(()) }
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        self.need(1, what)?;
        Ok(self.0.get_u8())
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.need(4, what)?;
        Ok(self.0.get_u32_le())
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.need(8, what)?;
        Ok(self.0.get_u64_le())
    }

    fn i64(&mut self, what: &'static str) -> Result<i64, Malformed> {
        self.need(8, what)?;
        Ok(self.0.get_i64_le())
    }

    fn bool(&mut self, what: &'static str) -> Result<bool, Malformed> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::Tag { what, value }),
        }
    }

    fn array<const LEN: usize>(&mut self, what: &'static str) -> Result<[u8; LEN], Malformed> {
        self.need(LEN, what)?;
        let mut array = [0; LEN];
        self.0.copy_to_slice(&mut array);
        Ok(array)
    }

    fn take(&mut self, len: u32, what: &'static str) -> Result<Bytes, Malformed> {
        self.need(len as usize, what)?;
        Ok(self.0.split_to(len as usize))
    }

    fn bytes(&mut self, what: &'static str) -> Result<Bytes, Malformed> {
        let len = self.u32(what)?;
        self.take(len, what)
    }

    fn optional(&mut self, what: &'static str) -> Result<Option<Bytes>, Malformed> {
        match self.u32(what)? {
            NONE => Ok(None),
            len => Ok(Some(self.take(len, what)?)),
        }
    }

    /// Reads a count and that many items, each of which has `item_bytes_min` or more: a count that cannot be true is
    /// refused before anything is allocated for it.
    fn list<T>(
        &mut self,
        what: &'static str,
        item_bytes_min: usize,
        mut item: impl FnMut(&mut Input) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32(what)? as usize;
        if count > self.0.len() / item_bytes_min {
            return Err(Malformed::Truncated(what));
        }
        // An item in memory may be twenty times as long as its bytes here.
        if count > KEYS_PER_REQUEST_MAX {
            return Err(Malformed::Count { what, count, max: KEYS_PER_REQUEST_MAX });
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }

    fn postcard<T: DeserializeOwned>(&mut self, what: &'static str) -> Result<T, Malformed> {
        let body = self.rest();
        let (value, rest) = postcard::take_from_bytes(&body).map_err(|_| Malformed::Postcard(what))?;
        if rest.is_empty() { Ok(value) } else { Err(Malformed::Trailing(rest.len())) }
    }

    fn hello(&mut self) -> Result<Hello, Malformed> {
        if self.array("hello")? != *MAGIC {
            return Err(Malformed::Magic);
        }
        match u16::from_le_bytes(self.array("version")?) {
            VERSION => {}
            other => return Err(Malformed::Version(other)),
        }
        let (purpose, cluster) = self.postcard("hello")?;
        Ok(Hello { version: VERSION, purpose, cluster })
    }

    fn form(&mut self) -> Result<KeyForm, Malformed> {
        match self.u8("key form")? {
            0 => Ok(KeyForm::User),
            1 => Ok(KeyForm::Stored),
            value => Err(Malformed::Tag { what: "key form", value }),
        }
    }

    fn read(&mut self) -> Result<ReadRequest, Malformed> {
        let region = RegionId(self.u64("region")?);
        let form = self.form()?;
        let keys = self.list("keys", 4, |input| input.bytes("key"))?;
        Ok(ReadRequest { region, form, keys })
    }

    fn write(&mut self) -> Result<WriteRequest, Malformed> {
        let region = RegionId(self.u64("region")?);
        let form = self.form()?;
        let id = match self.bool("request id")? {
            false => None,
            true => Some(RequestId {
                session: self.u64("session")?,
                number: self.u64("request number")?,
                floor: self.u64("floor")?,
            }),
        };
        let operations = self.list("operations", 5, Input::operation)?;
        Ok(WriteRequest { region, form, id, operations })
    }

    fn operation(&mut self) -> Result<WriteOperation, Malformed> {
        let tag = self.u8("operation")?;
        let key = self.bytes("key")?;
        Ok(match tag {
            1 => WriteOperation::Put { key, value: self.bytes("value")?, expiry_ms: None },
            2 => WriteOperation::Put { key, value: self.bytes("value")?, expiry_ms: Some(self.u64("expiry")?) },
            3 => WriteOperation::Delete { key },
            4 => WriteOperation::CompareAndSet {
                key,
                expected: self.optional("expected value")?,
                new: self.optional("new value")?,
            },
            5 => WriteOperation::Increment { key, delta: self.i64("delta")? },
            6 => WriteOperation::Append { key, suffix: self.bytes("suffix")? },
            value => return Err(Malformed::Tag { what: "operation", value }),
        })
    }

    fn values(&mut self) -> Result<Vec<Option<Bytes>>, Malformed> {
        self.list("values", 4, |input| input.optional("value"))
    }

    fn outcomes(&mut self) -> Result<Vec<WriteOutcome>, Malformed> {
        self.list("outcomes", 1, Input::outcome)
    }

    fn outcome(&mut self) -> Result<WriteOutcome, Malformed> {
        Ok(match self.u8("outcome")? {
            1 => WriteOutcome::Done,
            2 => WriteOutcome::Deleted { existed: self.bool("existed")? },
            3 => WriteOutcome::Compared { set: self.bool("set")?, actual: self.optional("actual value")? },
            4 => WriteOutcome::Incremented(self.i64("new value")?),
            5 => WriteOutcome::Appended { len: self.u64("new length")? },
            6 => WriteOutcome::Refused(Input(self.bytes("refusal")?).postcard("refusal")?),
            value => return Err(Malformed::Tag { what: "outcome", value }),
        })
    }

    fn scanned(&mut self) -> Result<Scanned, Malformed> {
        let records = self.list("records", 8, |input| Ok((input.bytes("key")?, input.bytes("value")?)))?;
        Ok(Scanned { records, cursor: self.optional("cursor")? })
    }

    fn peer_frames(&mut self) -> Result<PeerMessage, Malformed> {
        let region = RegionId(self.u64("region")?);
        let epoch = Epoch(self.u64("epoch")?);
        let stream = self.u64("stream")?;
        let committed = Seqno(self.u64("commit point")?);
        Ok(PeerMessage::Region { region, epoch, body: PeerBody::Frames { stream, bytes: self.rest(), committed } })
    }
}

/// Appends frames to a buffer. What does not fit leaves the buffer as it was.
pub struct Encoder<'a> {
    pub out: &'a mut Vec<u8>,
    pub frame_bytes_max: usize,
}

impl Encoder<'_> {
    pub fn hello(&mut self, hello: &Hello) -> Result<(), TooLarge> {
        self.frame(0, kind::HELLO, |out| {
            out.extend_from_slice(MAGIC);
            out.extend_from_slice(&hello.version.to_le_bytes());
            put_postcard(out, &(hello.purpose, hello.cluster));
        })
    }

    pub fn challenge(&mut self, nonce: &Nonce) -> Result<(), TooLarge> {
        self.frame(0, kind::CHALLENGE, |out| out.extend_from_slice(nonce))
    }

    pub fn proof(&mut self, nonce: &Nonce, proof: &Proof) -> Result<(), TooLarge> {
        self.frame(0, kind::PROOF, |out| {
            out.extend_from_slice(nonce);
            out.extend_from_slice(proof);
        })
    }

    pub fn welcome(&mut self, welcome: &Welcome, proof: Option<&Proof>) -> Result<(), TooLarge> {
        self.frame(0, kind::WELCOME, |out| put_postcard(out, &(welcome, proof)))
    }

    pub fn ping(&mut self, id: u64) -> Result<(), TooLarge> {
        self.frame(id, kind::PING, |_| {})
    }

    pub fn pong(&mut self, id: u64) -> Result<(), TooLarge> {
        self.frame(id, kind::PONG, |_| {})
    }

    pub fn request(&mut self, id: u64, request: &Request) -> Result<(), TooLarge> {
        match request {
            Request::Read(read) => self.frame(id, kind::READ, |out| put_read(out, read)),
            Request::Write(write) => self.frame(id, kind::WRITE, |out| put_write(out, write)),
            Request::Scan(scan) => self.frame(id, kind::SCAN, |out| put_postcard(out, scan)),
            Request::Admin(admin) => self.frame(id, kind::ADMIN, |out| put_postcard(out, admin)),
            Request::Control(control) => self.frame(id, kind::CONTROL, |out| put_postcard(out, control)),
        }
    }

    /// An answer that does not fit becomes an error that says so; but of a read's values, as many as fit are given.
    pub fn response(&mut self, id: u64, response: &Response) {
        let appended = match response {
            Response::Read(values) => self.read_answer(id, values),
            Response::Written(outcomes) => self.frame(id, kind::WRITE_ANSWER, |out| put_outcomes(out, outcomes)),
            Response::Scanned(scanned) => self.frame(id, kind::SCAN_ANSWER, |out| put_scanned(out, scanned)),
            Response::Admin(admin) => self.frame(id, kind::ADMIN_ANSWER, |out| put_postcard(out, admin)),
            Response::Control(control) => self.frame(id, kind::CONTROL_ANSWER, |out| put_postcard(out, control)),
            Response::Error(error) => self.frame(id, kind::ERROR, |out| put_postcard(out, error)),
        };
        if let Err(TooLarge { len, max }) = appended {
            let message = format!("the answer has {len} bytes, a frame takes {max}: ask for less at a time");
            self.error(id, &Error::invalid(message));
        }
    }

    pub fn error(&mut self, id: u64, error: &Error) {
        if self.frame(id, kind::ERROR, |out| put_postcard(out, error)).is_err() {
            let short = Error::new(error.code, "the message of this error is too long");
            self.frame(id, kind::ERROR, |out| put_postcard(out, &short)).expect("a short error fits any frame");
        }
    }

    pub fn peer(&mut self, message: &PeerMessage) -> Result<(), TooLarge> {
        match message {
            PeerMessage::Region { region, epoch, body: PeerBody::Frames { stream, bytes, committed } } => {
                self.frame(0, kind::PEER_FRAMES, |out| {
                    for number in [region.0, epoch.0, *stream, committed.0] {
                        put_u64(out, number);
                    }
                    out.extend_from_slice(bytes);
                })
            }
            other => self.frame(0, kind::PEER, |out| put_postcard(out, other)),
        }
    }

    pub fn raft(&mut self, id: u64, body: &[u8]) -> Result<(), TooLarge> {
        self.frame(id, kind::RAFT, |out| out.extend_from_slice(body))
    }

    pub fn raft_answer(&mut self, id: u64, body: &[u8]) -> Result<(), TooLarge> {
        self.frame(id, kind::RAFT_ANSWER, |out| out.extend_from_slice(body))
    }

    fn read_answer(&mut self, id: u64, values: &[Option<Bytes>]) -> Result<(), TooLarge> {
        let mut room = self.frame_bytes_max.saturating_sub(ENVELOPE_BYTES + 4);
        let fits = |value: &&Option<Bytes>| {
            let len = 4 + value.as_ref().map_or(0, Bytes::len);
            room.checked_sub(len).map(|left| room = left).is_some()
        };
        let fitting = values.iter().take_while(fits).count();
        // One at least, so that who asks for the rest comes to an end.
        let given = &values[..fitting.max(1).min(values.len())];
        self.frame(id, kind::READ_ANSWER, |out| {
            put_count(out, given.len());
            given.iter().for_each(|value| put_optional(out, value.as_ref()));
        })
    }

    fn frame(&mut self, id: u64, kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> Result<(), TooLarge> {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; LENGTH_BYTES]);
        put_u64(self.out, id);
        self.out.push(kind);
        body(self.out);
        let len = self.out.len() - start - LENGTH_BYTES;
        // Lengths within the body are written as u32 unchecked; this check covers them all.
        if len > self.frame_bytes_max {
            self.out.truncate(start);
            return Err(TooLarge { len, max: self.frame_bytes_max });
        }
        self.out[start..start + LENGTH_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
        Ok(())
    }
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_optional(out: &mut Vec<u8>, bytes: Option<&Bytes>) {
    match bytes {
        Some(bytes) => put_bytes(out, bytes),
        None => out.extend_from_slice(&NONE.to_le_bytes()),
    }
}

fn put_postcard<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    postcard::to_io(value, out).expect("our messages can be written to memory");
}

fn put_region(out: &mut Vec<u8>, region: RegionId, form: KeyForm) {
    put_u64(out, region.0);
    out.push(match form {
        KeyForm::User => 0,
        KeyForm::Stored => 1,
    });
}

fn put_read(out: &mut Vec<u8>, read: &ReadRequest) {
    put_region(out, read.region, read.form);
    put_count(out, read.keys.len());
    read.keys.iter().for_each(|key| put_bytes(out, key));
}

fn put_write(out: &mut Vec<u8>, write: &WriteRequest) {
    put_region(out, write.region, write.form);
    out.push(write.id.is_some().into());
    if let Some(id) = write.id {
        [id.session, id.number, id.floor].into_iter().for_each(|number| put_u64(out, number));
    }
    put_count(out, write.operations.len());
    write.operations.iter().for_each(|operation| put_operation(out, operation));
}

fn put_operation(out: &mut Vec<u8>, operation: &WriteOperation) {
    out.push(match operation {
        WriteOperation::Put { expiry_ms: None, .. } => 1,
        WriteOperation::Put { expiry_ms: Some(_), .. } => 2,
        WriteOperation::Delete { .. } => 3,
        WriteOperation::CompareAndSet { .. } => 4,
        WriteOperation::Increment { .. } => 5,
        WriteOperation::Append { .. } => 6,
    });
    put_bytes(out, operation.key());
    match operation {
        WriteOperation::Put { value, expiry_ms, .. } => {
            put_bytes(out, value);
            expiry_ms.iter().for_each(|&expiry_ms| put_u64(out, expiry_ms));
        }
        WriteOperation::Delete { .. } => {}
        WriteOperation::CompareAndSet { expected, new, .. } => {
            put_optional(out, expected.as_ref());
            put_optional(out, new.as_ref());
        }
        WriteOperation::Increment { delta, .. } => put_u64(out, *delta as u64),
        WriteOperation::Append { suffix, .. } => put_bytes(out, suffix),
    }
}

fn put_outcomes(out: &mut Vec<u8>, outcomes: &[WriteOutcome]) {
    put_count(out, outcomes.len());
    outcomes.iter().for_each(|outcome| put_outcome(out, outcome));
}

fn put_outcome(out: &mut Vec<u8>, outcome: &WriteOutcome) {
    match outcome {
        WriteOutcome::Done => out.push(1),
        WriteOutcome::Deleted { existed } => out.extend_from_slice(&[2, (*existed).into()]),
        WriteOutcome::Compared { set, actual } => {
            out.extend_from_slice(&[3, (*set).into()]);
            put_optional(out, actual.as_ref());
        }
        WriteOutcome::Incremented(value) => {
            out.push(4);
            put_u64(out, *value as u64);
        }
        WriteOutcome::Appended { len } => {
            out.push(5);
            put_u64(out, *len);
        }
        WriteOutcome::Refused(error) => {
            out.push(6);
            let start = out.len();
            put_count(out, 0);
            put_postcard(out, error);
            let len = (out.len() - start - 4) as u32;
            out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        }
    }
}

fn put_scanned(out: &mut Vec<u8>, scanned: &Scanned) {
    put_count(out, scanned.records.len());
    for (key, value) in &scanned.records {
        put_bytes(out, key);
        put_bytes(out, value);
    }
    put_optional(out, scanned.cursor.as_ref());
}

#[cfg(test)]
mod tests;
