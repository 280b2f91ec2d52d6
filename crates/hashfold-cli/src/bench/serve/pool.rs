//! Many connections that ask for keys at the same time, from one thread. Each has a pipeline of `GET`s, or a `SET`,
//! under way all the time, and every byte of every reply is compared.

use super::{
    super::{
        ensure,
        pairs::{KEY_SIZE, Pairs, Row},
        random::pick,
        times::Times,
    },
    client::{failed, write_request, write_string},
};
use crate::failure::Result;
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Time without any reply after which the server counts as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Connections to a server.
pub(super) struct Pool<'a> {
    pairs: &'a Pairs,
    noise: Vec<u8>,
    lanes: Vec<Lane>,
    /// Place in the sequence of keys.
    next: u64,
    /// Number of requests that may still be sent.
    left: u64,
    /// Whether they are `SET`s.
    sets: bool,
}

/// A connection, and the pipeline that is under way on it.
struct Lane {
    socket: TcpStream,
    request: Vec<u8>,
    /// Bytes of the request that were sent.
    sent: usize,
    expected: Vec<u8>,
    /// Bytes of the reply that came.
    received: usize,
    since: Instant,
}

/// The cost of a number of requests.
pub(super) struct Load {
    pub(super) gets: u64,
    pub(super) seconds: f64,
    /// Times from sending a pipeline to the last byte of its replies.
    pub(super) times: Times,
}

impl Load {
    pub(super) fn per_second(&self) -> f64 {
        self.gets as f64 / self.seconds
    }
}

impl<'a> Pool<'a> {
    pub(super) fn connect(
        address: SocketAddr,
        connections: usize,
        pairs: &'a Pairs,
    ) -> Result<Pool<'a>> {
        let lanes = (0..connections).map(|_| Lane::connect(address)).collect::<Result<_>>()?;
        Ok(Pool { pairs, noise: pairs.noise(), lanes, next: 0, left: 0, sets: false })
    }

    /// Sets `sets` random keys, one at a time on each connection.
    pub(super) fn set(&mut self, sets: u64) -> Result<Load> {
        self.sets = true;
        let load = self.run(1, sets);
        self.sets = false;
        load
    }

    /// Begins the sequence of keys anew.
    pub(super) fn restart(&mut self) {
        self.next = 0;
    }

    /// Asks for `gets` random keys, or for a pipeline on each connection if that is more.
    pub(super) fn run(&mut self, pipeline: u64, gets: u64) -> Result<Load> {
        let first = self.next;
        self.left = gets.max(pipeline * self.lanes.len() as u64);
        let (start, mut times) = (Instant::now(), Times::new());
        let mut lanes = std::mem::take(&mut self.lanes);
        lanes.iter_mut().for_each(|lane| self.begin(lane, pipeline));
        let (mut last, mut buffer) = (start, vec![0; 1 << 16]);
        while lanes.iter().any(Lane::is_busy) {
            for place in ready(&lanes)? {
                let lane = &mut lanes[place];
                lane.write()?;
                while lane.is_busy() && lane.read(&mut buffer)? {
                    if !lane.is_busy() {
                        last = Instant::now();
                        times.add(last - lane.since);
                        self.begin(lane, pipeline);
                        lane.write()?;
                    }
                }
            }
            ensure(last.elapsed() < SILENCE_MAX, || "a server does not reply".into())?;
        }
        self.lanes = lanes;
        Ok(Load { gets: self.next - first, seconds: (last - start).as_secs_f64(), times })
    }

    /// Gives a connection its next pipeline, if there is one.
    fn begin(&mut self, lane: &mut Lane, pipeline: u64) {
        lane.clear();
        let count = pipeline.min(self.left);
        self.left -= count;
        let mut pair = vec![0; self.pairs.size()];
        for place in self.next..self.next + count {
            let number = pick(place, self.pairs.seed, self.pairs.count);
            self.pairs.fill(Row::first(number), &self.noise, &mut pair);
            let (key, value) = pair.split_at(KEY_SIZE);
            match self.sets {
                true => {
                    write_request(&[b"SET", key, value], &mut lane.request);
                    lane.expected.extend(b"+OK\r\n");
                }
                false => {
                    write_request(&[b"GET", key], &mut lane.request);
                    write_string(value, &mut lane.expected);
                }
            }
        }
        self.next += count;
        lane.since = Instant::now();
    }
}

impl Lane {
    fn connect(address: SocketAddr) -> Result<Lane> {
        let socket = TcpStream::connect(address).and_then(|socket| {
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Ok(Lane {
            socket: socket.map_err(|error| failed("connect to", &error))?,
            request: Vec::new(),
            sent: 0,
            expected: Vec::new(),
            received: 0,
            since: Instant::now(),
        })
    }

    fn clear(&mut self) {
        self.request.clear();
        self.expected.clear();
        (self.sent, self.received) = (0, 0);
    }

    /// Whether replies are missing.
    fn is_busy(&self) -> bool {
        self.received < self.expected.len()
    }

    /// Sends as much of the request as the socket takes.
    fn write(&mut self) -> Result<()> {
        while self.sent < self.request.len() {
            match self.socket.write(&self.request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(failed("write to", &error)),
            }
        }
        Ok(())
    }

    /// Reads and compares what is there; returns whether there was something.
    fn read(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let count = match self.socket.read(buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(failed("read from", &error)),
        };
        let expected = self.expected.get(self.received..self.received + count);
        ensure(count > 0 && expected == Some(&buffer[..count]), || {
            let got = String::from_utf8_lossy(&buffer[..count.min(80)]).into_owned();
            format!("a server gave a wrong reply: {got:?}")
        })?;
        self.received += count;
        Ok(true)
    }
}

/// Waits until a connection can go on, and returns the places of those that can.
fn ready(lanes: &[Lane]) -> Result<Vec<usize>> {
    let interest = |lane: &Lane| match lane.sent < lane.request.len() {
        true => PollFlags::IN | PollFlags::OUT,
        false => PollFlags::IN,
    };
    let mut polled: Vec<PollFd<'_>> =
        lanes.iter().map(|lane| PollFd::new(&lane.socket, interest(lane))).collect();
    let timeout = SILENCE_MAX.try_into().expect("it is short");
    poll(&mut polled, Some(&timeout)).map_err(|error| failed("wait for", &error.into()))?;
    let events = polled.iter().enumerate();
    Ok(events.filter(|(_, fd)| !fd.revents().is_empty()).map(|(place, _)| place).collect())
}
