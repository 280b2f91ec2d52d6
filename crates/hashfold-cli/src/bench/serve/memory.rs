//! Memory: of connections that do nothing, and of clients that do not read their replies.

use super::{
    Scene,
    client::{Client, failed, write_request},
    get::in_memory,
};
use crate::failure::Result;
use hashfold::work::{Clock as _, SystemClock};
use std::{
    io::{ErrorKind, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

/// The budget for buffers of connections, in bytes.
const BUDGET: u64 = 16 << 20;
/// Number of clients that do not read.
const SLOW_CLIENTS: usize = 50;
/// Time for which they send.
const SLOW_TIME: Duration = Duration::from_secs(2);
/// Time between two looks at the memory of the server.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    idle(scene)?;
    buffers(scene)
}

fn idle(scene: &Scene<'_>) -> Result<()> {
    let (server, _) = in_memory(scene, "threads = 1")?;
    let count = scene.bench.idle;
    let before = server.memory()?;
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = Client::connect(server.address)?;
        client.call(&[b"PING"])?;
        clients.push(client);
    }
    let bytes = (server.memory()? - before).max(0.0) / count as f64;
    scene.say("memory.idle_connection_bytes", bytes, "bytes", count as u64);
    Ok(())
}

/// Has clients send requests without reading a reply, and measures what the server keeps for them. Other
/// clients are answered meanwhile.
fn buffers(scene: &Scene<'_>) -> Result<()> {
    let (server, pairs) = in_memory(scene, &format!("threads = 1\nclient-memory = {BUDGET}"))?;
    let before = server.memory()?;
    let mut requests = Vec::new();
    for number in 0..1000 {
        write_request(&[b"GET", &pairs.key(number % pairs.count)], &mut requests);
    }
    let mut slow = Vec::new();
    for _ in 0..SLOW_CLIENTS {
        let socket = TcpStream::connect(server.address).and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok((socket, 0))
        });
        slow.push(socket.map_err(|error| failed("connect to", &error))?);
    }
    let mut other = Client::connect(server.address)?;
    let (start, mut most) = (Instant::now(), before);
    while start.elapsed() < SLOW_TIME {
        // A client that was closed cannot send.
        slow.retain_mut(|(socket, sent)| goes_on(socket, sent, &requests));
        other.call(&[b"PING"])?;
        most = most.max(server.memory()?);
        SystemClock.sleep(LOOK_INTERVAL);
    }
    let ratio = (most - before) / BUDGET as f64;
    scene.say("memory.budget_ratio", ratio, "of the budget for buffers", SLOW_CLIENTS as u64);
    Ok(())
}

/// Sends requests, of which `sent` bytes were sent, as far as the socket takes them; returns whether the
/// connection is open.
fn goes_on(socket: &mut TcpStream, sent: &mut usize, requests: &[u8]) -> bool {
    match socket.write(&requests[*sent..]) {
        Ok(count) => {
            *sent = (*sent + count) % requests.len();
            true
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
