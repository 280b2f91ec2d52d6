//! The load: connections that send requests at the same time, and compare every value.

use crate::{
    Result,
    data::{Data, mix},
};
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::AsRawFd as _,
    time::{Duration, Instant},
};

/// A way to ask for keys.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// This number of `GET`s in a pipeline.
    Gets(u64),
    /// One `MGET` of this number of keys.
    MultiGet(u64),
}

impl Way {
    /// Returns the keys of a request.
    fn keys(self) -> u64 {
        match self {
            Way::Gets(keys) | Way::MultiGet(keys) => keys,
        }
    }
}

/// The cost of a load.
#[derive(Debug)]
pub struct Load {
    pub keys: u64,
    pub seconds: f64,
    /// Times between sending and the last byte of the reply, ascending.
    pub latencies_us: Vec<f64>,
}

/// Connections to a server.
pub struct Connections {
    sockets: Vec<TcpStream>,
    next: u64,
}

impl Connections {
    pub fn open(address: SocketAddr, count: usize) -> Result<Connections> {
        let open = |_| -> Result<TcpStream> {
            let socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            Ok(socket)
        };
        Ok(Connections { sockets: (0..count).map(open).collect::<Result<_>>()?, next: 0 })
    }

    /// Sends requests on all connections, and reads their replies, until `keys` were asked for, or as
    /// many as a whole turn of all connections has.
    pub fn load(&mut self, way: Way, data: &Data, keys: u64) -> Result<Load> {
        let turns = keys.div_ceil(way.keys() * self.sockets.len() as u64).max(1);
        let (mut request, mut expected, mut reply) = (Vec::new(), Vec::new(), Vec::new());
        let mut latencies_us = Vec::new();
        let start = Instant::now();
        for _ in 0..turns {
            let mut asked = Vec::with_capacity(self.sockets.len());
            for socket in &mut self.sockets {
                let numbers = self.next..self.next + way.keys();
                self.next = numbers.end;
                write_request(way, data, numbers.clone(), &mut request);
                asked.push((numbers, Instant::now()));
                socket.write_all(&request)?;
            }
            for (socket, (numbers, since)) in self.sockets.iter_mut().zip(asked) {
                write_reply(way, data, numbers, &mut expected);
                reply.resize(expected.len(), 0);
                socket.read_exact(&mut reply)?;
                latencies_us.push(since.elapsed().as_secs_f64() * 1e6);
                if reply != expected {
                    let got = String::from_utf8_lossy(&reply[..reply.len().min(80)]).into_owned();
                    return Err(format!("a wrong reply: {got}").into());
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        latencies_us.sort_by(f64::total_cmp);
        Ok(Load { keys: turns * way.keys() * self.sockets.len() as u64, seconds, latencies_us })
    }
}

impl Connections {
    /// Sends single `GET`s at a steady rate, each on a connection that waits for none, and returns the times
    /// from when each was due to its reply, ascending. A request that finds no free connection waits, and
    /// its time goes on.
    pub fn paced(&mut self, data: &Data, per_s: f64, keys: u64) -> Result<Vec<f64>> {
        let mut waiting: Vec<Option<Waiting>> = self.sockets.iter().map(|_| None).collect();
        let (mut sent, mut latencies_us, mut request) = (0, Vec::new(), Vec::new());
        let start = Instant::now();
        while (latencies_us.len() as u64) < keys {
            let due = Duration::from_secs_f64(sent as f64 / per_s);
            let is_due = sent < keys && start.elapsed() >= due;
            if let Some(free) = waiting.iter().position(Option::is_none).filter(|_| is_due) {
                let place = self.next..self.next + 1;
                self.next += 1;
                write_request(Way::Gets(1), data, place.clone(), &mut request);
                self.sockets[free].write_all(&request)?;
                let mut expected = Vec::new();
                write_reply(Way::Gets(1), data, place, &mut expected);
                waiting[free] = Some(Waiting { due, expected });
                sent += 1;
            }
            for place in self.readable()? {
                let Some(Waiting { due, expected }) = waiting[place].take() else {
                    return Err("a server closed a connection".into());
                };
                let mut reply = vec![0; expected.len()];
                self.sockets[place].read_exact(&mut reply)?;
                if reply != expected {
                    return Err("a wrong reply".into());
                }
                latencies_us.push((start.elapsed() - due).as_secs_f64() * 1e6);
            }
        }
        latencies_us.sort_by(f64::total_cmp);
        Ok(latencies_us)
    }

    /// Returns the places of the connections that have something to read now.
    fn readable(&self) -> Result<Vec<usize>> {
        let poll = |socket: &TcpStream| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polled: Vec<libc::pollfd> = self.sockets.iter().map(poll).collect();
        // SAFETY: the array has this length, and the descriptors are open.
        if unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 0) } < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok((0..polled.len()).filter(|place| polled[*place].revents != 0).collect())
    }
}

/// A request whose reply is missing.
struct Waiting {
    due: Duration,
    expected: Vec<u8>,
}

/// Returns the number of the key that is asked for at a place in the sequence.
fn chosen(place: u64, data: &Data) -> u64 {
    mix(place ^ mix(data.seed)) % data.count
}

/// Appends bytes as a bulk string.
fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(format!("${}\r\n", bytes.len()).into_bytes());
    out.extend(bytes);
    out.extend(b"\r\n");
}

fn write_request(way: Way, data: &Data, places: std::ops::Range<u64>, out: &mut Vec<u8>) {
    out.clear();
    if let Way::MultiGet(keys) = way {
        out.extend(format!("*{}\r\n$4\r\nMGET\r\n", keys + 1).into_bytes());
    }
    for place in places {
        if let Way::Gets(_) = way {
            out.extend(b"*2\r\n$3\r\nGET\r\n");
        }
        bulk(&data.key(chosen(place, data)), out);
    }
}

fn write_reply(way: Way, data: &Data, places: std::ops::Range<u64>, out: &mut Vec<u8>) {
    out.clear();
    if let Way::MultiGet(keys) = way {
        out.extend(format!("*{keys}\r\n").into_bytes());
    }
    let mut value = Vec::new();
    for place in places {
        data.fill_value(chosen(place, data), &mut value);
        bulk(&value, out);
    }
}

/// Fills a server with all entries, by `SET`s in pipelines.
pub fn fill(address: SocketAddr, data: &Data) -> Result<()> {
    /// Number of entries in a pipeline.
    const PIPELINE: u64 = 1000;
    const OK: &[u8] = b"+OK\r\n";
    let mut socket = TcpStream::connect(address)?;
    let (mut request, mut value) = (Vec::new(), Vec::new());
    for start in (0..data.count).step_by(PIPELINE as usize) {
        let numbers = start..data.count.min(start + PIPELINE);
        request.clear();
        for number in numbers.clone() {
            request.extend(b"*3\r\n$3\r\nSET\r\n");
            bulk(&data.key(number), &mut request);
            data.fill_value(number, &mut value);
            bulk(&value, &mut request);
        }
        socket.write_all(&request)?;
        let mut reply = vec![0; OK.len() * (numbers.end - numbers.start) as usize];
        socket.read_exact(&mut reply)?;
        if reply.chunks(OK.len()).any(|reply| reply != OK) {
            return Err("a SET was refused".into());
        }
    }
    Ok(())
}
