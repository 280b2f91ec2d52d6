//! The figures on a port: a minimal HTTP server that answers `GET /metrics`, one connection at a time.
//!
//! A request has at most 8 KiB and 2 seconds, so that a client that is slow or hostile holds up others for a moment only.
//! Each connection has one request.

use hashfold::work::{Clock as _, SystemClock};
use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Size of the longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time in which a request must be read, and its answer written.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// Time between two looks for a connection.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(20);

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 200, with the figures.
    Metrics,
    /// 200, without a body.
    MetricsHead,
    /// 400: no request of HTTP/1.
    Bad,
    /// 404: another path.
    NotFound,
    /// 405: another method.
    NotAllowed,
    /// 431: a head that is too long.
    TooLong,
}

/// Decides the answer to a request by the bytes of its head that have come so far; `None` if more are needed.
pub fn answer(head: &[u8]) -> Option<Answer> {
    let end = head.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end else {
        return (head.len() >= HEAD_BYTES_MAX).then_some(Answer::TooLong);
    };
    let line = head[..end].split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let is_http = version.is_some_and(|version| version.starts_with(b"HTTP/1."));
    let path = target.map(|target| target.split(|byte| *byte == b'?').next().unwrap_or_default());
    Some(match (method, path) {
        _ if !is_http || words.next().is_some() => Answer::Bad,
        (Some(b"GET"), Some(b"/metrics")) => Answer::Metrics,
        (Some(b"HEAD"), Some(b"/metrics")) => Answer::MetricsHead,
        (_, Some(b"/metrics")) => Answer::NotAllowed,
        _ => Answer::NotFound,
    })
}

/// Answers requests until the run is to stop.
pub(crate) fn serve(listener: &TcpListener, stop: &AtomicBool, text: &dyn Fn() -> String) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            // A client that breaks off has no answer.
            Ok((connection, _)) => drop(reply(connection, text)),
            Err(_) => SystemClock.sleep(ACCEPT_INTERVAL),
        }
    }
}

fn reply(mut connection: TcpStream, text: &dyn Fn() -> String) -> io::Result<()> {
    let deadline = SystemClock.now() + REQUEST_MAX;
    connection.set_nonblocking(false)?;
    let mut head = Vec::new();
    let answer = loop {
        if let Some(answer) = answer(&head) {
            break answer;
        }
        connection.set_read_timeout(Some(left(deadline)?))?;
        let mut bytes = [0; 1024];
        let read = connection.read(&mut bytes)?;
        if read == 0 {
            return Ok(());
        }
        head.extend_from_slice(&bytes[..read]);
    };
    let (status, body) = match answer {
        Answer::Metrics | Answer::MetricsHead => ("200 OK", text()),
        Answer::Bad => ("400 Bad Request", String::new()),
        Answer::NotFound => ("404 Not Found", String::new()),
        Answer::NotAllowed => ("405 Method Not Allowed\r\nAllow: GET, HEAD", String::new()),
        Answer::TooLong => ("431 Request Header Fields Too Large", String::new()),
    };
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if answer != Answer::MetricsHead {
        bytes.push_str(&body);
    }
    let mut rest = bytes.as_bytes();
    while !rest.is_empty() {
        connection.set_write_timeout(Some(left(deadline)?))?;
        match connection.write(rest)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}

/// Returns the time until a deadline.
///
/// # Errors
/// `TimedOut` if there is none.
fn left(deadline: Duration) -> io::Result<Duration> {
    let left = deadline.saturating_sub(SystemClock.now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_when_its_head_has_ended() {
        let check = |head: &str, expected| {
            let head = head.as_bytes();
            assert_eq!(answer(head), Some(expected), "{}", head.escape_ascii());
            // No beginning of it has an answer.
            (0..head.len()).for_each(|end| assert_eq!(answer(&head[..end]), None));
        };
        check("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Answer::Metrics);
        check("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Answer::Metrics);
        check("HEAD /metrics HTTP/1.1\r\n\r\n", Answer::MetricsHead);
        check("POST /metrics HTTP/1.1\r\n\r\n", Answer::NotAllowed);
        check("GET / HTTP/1.1\r\n\r\n", Answer::NotFound);
        check("GET /metrics/ HTTP/1.1\r\n\r\n", Answer::NotFound);
        check("GET /metrics\r\n\r\n", Answer::Bad);
        check("GET /metrics HTTP/1.1 x\r\n\r\n", Answer::Bad);
        check("\r\n\r\n", Answer::Bad);
        check("\u{16}\u{3}\u{1}\r\n\r\n", Answer::Bad);
        let long = [b"GET /metrics HTTP/1.1\r\n", &[b'a'; HEAD_BYTES_MAX][..]].concat();
        assert_eq!(answer(&long[..HEAD_BYTES_MAX - 1]), None);
        assert_eq!(answer(&long), Some(Answer::TooLong));
    }
}
