//! One connection to a server, for single requests.

use crate::{
    bench::ensure,
    failure::{Exit, Failure, Result},
};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

/// A connection in RESP2.
pub(super) struct Client {
    socket: BufReader<TcpStream>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A status, or a string; `None` is null.
    Text(Option<Vec<u8>>),
    Number(i64),
    List(Vec<Reply>),
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Result<Client> {
        let socket = TcpStream::connect(address).and_then(|socket| {
            socket.set_nodelay(true)?;
            Ok(socket)
        });
        Ok(Client { socket: BufReader::new(socket.map_err(|error| failed("connect to", &error))?) })
    }

    /// Sends one request and returns its reply.
    pub(super) fn call(&mut self, arguments: &[&[u8]]) -> Result<Reply> {
        let mut request = Vec::new();
        write_request(arguments, &mut request);
        self.send(&request)?;
        self.reply()
    }

    /// Sends requests.
    pub(super) fn send(&mut self, requests: &[u8]) -> Result<()> {
        self.socket.get_mut().write_all(requests).map_err(|error| failed("write to", &error))
    }

    /// Reads as many bytes of replies as `expected` has, which they must be; `got` is memory for them.
    pub(super) fn expect(&mut self, expected: &[u8], got: &mut Vec<u8>) -> Result<()> {
        got.resize(expected.len(), 0);
        self.socket.read_exact(got).map_err(|error| failed("read from", &error))?;
        ensure(got[..] == *expected, || {
            let same = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
            let end = got.len().min(same + 80);
            format!("a server gave a wrong reply: {:?}", got[same..end].escape_ascii().to_string())
        })
    }

    /// Reads one reply; an error reply is an error.
    pub(super) fn reply(&mut self) -> Result<Reply> {
        let mut line = String::new();
        self.socket.read_line(&mut line).map_err(|error| failed("read from", &error))?;
        let line = line.trim_end();
        let wrong =
            || Failure { exit: Exit::Damage, message: format!("a server replied {line:?}") };
        let number = || line.get(1..).and_then(|text| text.parse::<i64>().ok()).ok_or_else(wrong);
        match line.as_bytes().first() {
            Some(b'+') => Ok(Reply::Text(Some(line.as_bytes()[1..].to_vec()))),
            Some(b':') => Ok(Reply::Number(number()?)),
            Some(b'*') => {
                let count = number()?;
                Ok(Reply::List((0..count).map(|_| self.reply()).collect::<Result<_>>()?))
            }
            Some(b'$') => match usize::try_from(number()?) {
                Err(_) => Ok(Reply::Text(None)),
                Ok(size) => {
                    let mut bytes = vec![0; size + 2];
                    let read = self.socket.read_exact(&mut bytes);
                    read.map_err(|error| failed("read from", &error))?;
                    bytes.truncate(size);
                    Ok(Reply::Text(Some(bytes)))
                }
            },
            _ => Err(wrong()),
        }
    }
}

/// Appends a request.
pub(super) fn write_request(arguments: &[&[u8]], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", arguments.len()).into_bytes());
    arguments.iter().for_each(|argument| write_string(argument, out));
}

/// Appends a string, as in requests and replies.
pub(super) fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend(bytes.len().to_string().as_bytes());
    out.extend(b"\r\n");
    out.extend(bytes);
    out.extend(b"\r\n");
}

pub(super) fn failed(action: &str, error: &std::io::Error) -> Failure {
    Failure::io("server", action, error)
}
