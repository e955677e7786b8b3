//! TCP.

use super::error::context;
use crate::BoxFuture;
use crate::net::{Listener, Net, Stream};
use std::io;
use tokio::net::{TcpListener, TcpStream};

pub(super) struct RealNet;

impl Net for RealNet {
    fn listen(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        let address = address.to_owned();
        Box::pin(async move { listen(&address).await.map_err(|error| context(format!("listen on {address}"), error)) })
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Stream>> {
        let address = address.to_owned();
        Box::pin(async move {
            let connected = TcpStream::connect(&address).await.and_then(ready);
            connected.map_err(|error| context(format!("connect to {address}"), error))
        })
    }
}

async fn listen(address: &str) -> io::Result<Box<dyn Listener>> {
    // Takes a port whose last connections are still waiting to be forgotten (SO_REUSEADDR), never one listened on.
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?.to_string();
    Ok(Box::new(RealListener { listener, address }))
}

struct RealListener {
    listener: TcpListener,
    address: String,
}

impl Listener for RealListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Stream, String)>> {
        Box::pin(async {
            let accepted =
                self.listener.accept().await.and_then(|(stream, peer)| Ok((ready(stream)?, peer.to_string())));
            accepted.map_err(|error| context(format!("accept on {}", self.address), error))
        })
    }

    fn local_address(&self) -> String {
        self.address.clone()
    }
}

/// Small messages leave at once: the writers above batch by themselves.
fn ready(stream: TcpStream) -> io::Result<Stream> {
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}
