//! How both ends of a new connection come to trust each other. No I/O.
//!
//! ```text
//! caller                       server
//!   Hello ───────────────────▶          version, purpose, cluster
//!         ◀─────────── Challenge        32 random bytes; only where a cluster secret is set
//!   Proof ───────────────────▶          32 random bytes of its own, HMAC(secret, "caller", both, the hello)
//!         ◀───────────── Welcome        who the server is, HMAC(secret, "server", both, the hello)
//! ```
//!
//! Each end proves that it knows the secret without saying it, and a recorded handshake is worth nothing later. What follows
//! is neither encrypted nor signed, on purpose: who can change packets between two nodes can still take over a connection.
//! Networks that others share need a tunnel below.

use crate::protocol::codec::{Encoder, Nonce, Proof};
use crate::protocol::limits::GREETING_BYTES_MAX;
use crate::protocol::message::Hello;
use env::Env;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::sync::Arc;

/// What all nodes and clients of a cluster know and nobody else.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cluster secret has 16 bytes or more, this one has {0}")]
pub struct SecretTooShort(pub usize);

impl Secret {
    pub const BYTES_MIN: usize = 16;

    /// White space at the end is not part of it, so that a file may end with a line's end.
    pub fn new(bytes: &[u8]) -> Result<Secret, SecretTooShort> {
        let bytes = bytes.trim_ascii_end();
        if bytes.len() < Self::BYTES_MIN { Err(SecretTooShort(bytes.len())) } else { Ok(Secret(bytes.into())) }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Which end a proof is of. A proof of one end is none of the other, so that nobody can send ours back to us.
#[derive(Clone, Copy)]
pub enum End {
    Caller,
    Server,
}

/// What both ends know of one handshake.
pub struct Transcript<'a> {
    pub challenge: &'a Nonce,
    pub nonce: &'a Nonce,
    pub hello: &'a Hello,
}

impl Transcript<'_> {
    pub fn prove(&self, secret: &Secret, end: End) -> Proof {
        self.mac(secret, end).finalize().into_bytes().into()
    }

    /// Takes the same time whatever `proof` is.
    pub fn is_proof(&self, secret: &Secret, end: End, proof: &Proof) -> bool {
        self.mac(secret, end).verify_slice(proof).is_ok()
    }

    fn mac(&self, secret: &Secret, end: End) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
        mac.update(match end {
            End::Caller => b"steadfast caller",
            End::Server => b"steadfast server",
        });
        mac.update(self.challenge);
        mac.update(self.nonce);
        mac.update(&hello_bytes(self.hello));
        mac
    }
}

fn hello_bytes(hello: &Hello) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder { out: &mut bytes, frame_bytes_max: GREETING_BYTES_MAX };
    encoder.hello(hello).expect("a hello is short");
    bytes
}

pub fn random_nonce(env: &Env) -> Nonce {
    let mut nonce = Nonce::default();
    nonce.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&env.random().to_le_bytes()));
    nonce
}

/// A listener that others could reach was asked for, and nothing would keep them out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "refusing to listen on {0}: other machines can reach that address, and without a cluster secret anybody there may read \
     and change everything. Give all nodes and clients the same secret (--secret-file FILE), or listen on 127.0.0.1"
)]
pub struct Unprotected(pub String);

/// Whether a node may listen on `address` (`host:port`): on loopback always, elsewhere with a secret only.
pub fn check_bind_address(address: &str, has_secret: bool) -> Result<(), Unprotected> {
    if has_secret || env::net::is_loopback(address) { Ok(()) } else { Err(Unprotected(address.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Purpose, VERSION};

    #[test]
    fn a_proof_is_of_one_end_one_secret_and_one_handshake() {
        let hello = Hello { version: VERSION, purpose: Purpose::Client, cluster: None };
        let secret = Secret::new(b"sixteen bytes of it").unwrap();
        let transcript = Transcript { challenge: &[1; 32], nonce: &[2; 32], hello: &hello };
        let proof = transcript.prove(&secret, End::Caller);
        assert!(transcript.is_proof(&secret, End::Caller, &proof));
        assert!(!transcript.is_proof(&secret, End::Server, &proof));
        assert!(!transcript.is_proof(&Secret::new(b"sixteen bytes of another").unwrap(), End::Caller, &proof));
        for (challenge, nonce) in [([3; 32], [2; 32]), ([1; 32], [3; 32]), ([2; 32], [1; 32])] {
            let other = Transcript { challenge: &challenge, nonce: &nonce, hello: &hello };
            assert!(!other.is_proof(&secret, End::Caller, &proof));
        }
        let raft = Hello { purpose: Purpose::Raft, ..hello };
        assert!(!Transcript { hello: &raft, ..transcript }.is_proof(&secret, End::Caller, &proof));
    }

    #[test]
    fn a_secret_is_not_shown_and_not_short() {
        assert_eq!(Secret::new(b"short\n").unwrap_err(), SecretTooShort(5));
        assert_eq!(format!("{:?}", Secret::new(b"0123456789abcdef\n").unwrap()), "Secret");
    }

    #[test]
    fn without_a_secret_a_node_listens_on_loopback_only() {
        for address in ["127.0.0.1:7400", "127.1.2.3:0", "localhost:7400", "[::1]:7400"] {
            assert_eq!(check_bind_address(address, false), Ok(()), "{address}");
        }
        for address in ["0.0.0.0:7400", "[::]:7400", "10.0.0.1:7400", "example.org:7400", ":7400", ""] {
            assert_eq!(check_bind_address(address, false), Err(Unprotected(address.to_owned())), "{address}");
            assert_eq!(check_bind_address(address, true), Ok(()), "{address}");
        }
    }
}
