//! Events that rsyslogd sends, if it is installed: the rate at which it sends them to a reader that throws all away, and to
//! summaries. Both times are from the start of rsyslogd until the last event has come.

use super::{
    super::{
        PipelineBench,
        measure::{Report, process_seconds, wall_seconds},
        pairs::remove_all,
    },
    BLOCKS_A_WINDOW, READ_BYTES, add, check, config,
    events::{Block, Kind, Sent},
};
use crate::{
    failure::{Failure, Result},
    summarize::failure,
};
use hashfold::{
    Env,
    work::{Clock as _, SystemClock},
};
use hashfold_summarize::Run;
use std::{
    fs,
    io::{self, Read as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Where rsyslogd is: users who are not root seldom have the second folder in their path.
const PROGRAMS: [&str; 2] = ["rsyslogd", "/usr/sbin/rsyslogd"];
/// Time between two looks whether rsyslogd has connected, or has ended.
const LOOK: Duration = Duration::from_millis(1);

const LISTEN: &str = "listen = [\"127.0.0.1:0\"]\nframing = \"octets\"\nenvelope = \"syslog\"\n";

/// Measures rsyslogd with events in a file. Returns `false` if none is installed.
pub(super) fn measure(
    bench: &PipelineBench,
    report: &Report,
    kind: &Kind,
    block: &mut Block,
    folder: &Path,
) -> Result<bool> {
    let Some(program) = PROGRAMS.into_iter().find(|program| is_installed(program)) else {
        return Ok(false);
    };
    let path = folder.join("rsyslog.events");
    let failed = |error| Failure::io(path.display(), "write", &error);
    let mut file = fs::File::create(&path).map_err(failed)?;
    let sent = block
        .send(&mut file, BLOCKS_A_WINDOW, &mut |sent| sent.events < bench.events)
        .map_err(failed)?;
    drop(file);
    let source = Source { program, path: &path, folder };
    let own = to_reader(&source, &sent)?;
    let rate = sent.events as f64 / own;
    let name = format!("pipeline.{}.rsyslog.sender.events_per_s", kind.name);
    report.add(&name, rate, "events/s", sent.events, sent.bytes);
    let (seconds, cpu) = to_summaries(bench, kind, &source, (block, &sent))?;
    add(report, &format!("{}.rsyslog", kind.name), (seconds, cpu), &sent);
    let name = format!("pipeline.{}.rsyslog.ratio", kind.name);
    report.add(&name, own / seconds, "of the rate of rsyslogd", sent.events, sent.bytes);
    fs::remove_file(&path).map_err(|error| Failure::io(path.display(), "remove", &error))?;
    Ok(true)
}

fn is_installed(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("-v").stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok()
}

/// A file of events that rsyslogd sends.
struct Source<'a> {
    program: &'static str,
    path: &'a Path,
    /// The folder in which rsyslogd has its own.
    folder: &'a Path,
}

/// A process of rsyslogd; killed when it is dropped.
struct Rsyslog(Child);

impl Source<'_> {
    /// Starts rsyslogd, which sends all events to an address, in frames with counted octets and headers of RFC 5424.
    fn send(&self, to: SocketAddr) -> Result<Rsyslog> {
        let state = self.folder.join("rsyslog");
        // Of the run before; rsyslogd would go on at the end of the file.
        let _ = fs::remove_dir_all(&state);
        let failed = |error: io::Error| Failure::io("rsyslogd", "start", &error);
        fs::create_dir_all(&state).map_err(failed)?;
        let state = fs::canonicalize(state).map_err(failed)?;
        let file = fs::canonicalize(self.path).map_err(failed)?;
        let config = state.join("rsyslog.conf");
        // One worker keeps the events in the order of the file.
        let text = format!(
            "global(workDirectory=\"{}\" maxMessageSize=\"64k\")\nmodule(load=\"imfile\")\n\
             ruleset(name=\"events\" queue.type=\"FixedArray\" queue.size=\"50000\" queue.dequeueBatchSize=\"4096\" \
             queue.workerThreads=\"1\") {{\n action(type=\"omfwd\" Target=\"127.0.0.1\" Port=\"{}\" Protocol=\"tcp\" \
             TCP_Framing=\"octet-counted\" Template=\"RSYSLOG_SyslogProtocol23Format\" action.resumeRetryCount=\"-1\")\n}}\n\
             input(type=\"imfile\" File=\"{}\" Tag=\"events\" Facility=\"local0\" Severity=\"info\" freshStartTail=\"off\" \
             ruleset=\"events\")\n",
            state.display(),
            to.port(),
            file.display()
        );
        let mut out = fs::File::create(&config).map_err(failed)?;
        io::Write::write_all(&mut out, text.as_bytes()).map_err(failed)?;
        let child = Command::new(self.program)
            .arg("-n")
            .arg("-f")
            .arg(&config)
            .arg("-i")
            .arg(state.join("rsyslog.pid"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        child.map(Rsyslog).map_err(failed)
    }
}

impl Rsyslog {
    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Rsyslog {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Lets rsyslogd send the events to a reader that throws them away. Returns the seconds until it has read all.
fn to_reader(source: &Source<'_>, sent: &Sent) -> Result<f64> {
    let failed = |error| Failure::io("a connection of rsyslogd", "read", &error);
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (seconds, read) = wall_seconds(|| -> Result<()> {
        let mut rsyslog = source.send(address)?;
        let connection = accept(&listener, &mut rsyslog).map_err(failed)?;
        read_frames(connection, sent.events).map_err(failed)
    });
    read.map(|()| seconds)
}

/// Waits for a connection, unless rsyslogd ends.
fn accept(listener: &TcpListener, rsyslog: &mut Rsyslog) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((connection, _)) => {
                connection.set_nonblocking(false)?;
                return Ok(connection);
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if rsyslog.has_ended() => return Err(io::ErrorKind::ConnectionAborted.into()),
            Err(_) => SystemClock.sleep(LOOK),
        }
    }
}

/// Reads this number of frames, and throws them away.
fn read_frames(mut connection: TcpStream, count: u64) -> io::Result<()> {
    let (mut frames, mut buffer) = (Frames::default(), vec![0; READ_BYTES]);
    while frames.count < count {
        match connection.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            size => frames.take(&buffer[..size])?,
        }
    }
    Ok(())
}

/// Counts frames that begin with their length (RFC 6587), wherever the bytes are cut.
#[derive(Debug, Default)]
struct Frames {
    count: u64,
    /// The digits of a length so far.
    length: usize,
    /// Bytes of the frame that are to come.
    left: usize,
}

impl Frames {
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let size = self.left.min(bytes.len());
                (self.left, bytes) = (self.left - size, &bytes[size..]);
                self.count += u64::from(self.left == 0);
                continue;
            }
            bytes = rest;
            match first {
                b' ' => (self.left, self.length) = (self.length, 0),
                b'0'..=b'9' if self.length < 1 << 24 => {
                    self.length = self.length * 10 + usize::from(first - b'0');
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(())
    }
}

/// Lets rsyslogd send the events to summaries, and checks these. Returns the seconds until all have come, and the CPU time
/// of this process.
fn to_summaries(
    bench: &PipelineBench,
    kind: &Kind,
    source: &Source<'_>,
    (block, sent): (&Block, &Sent),
) -> Result<(f64, f64)> {
    let config = config(bench, kind, source.folder, (bench.workers[0], LISTEN))?;
    let stop = Arc::<AtomicBool>::default();
    let run = Run::start(&config, &Env::system(), stop.clone()).map_err(|error| failure(&error))?;
    let (_, address) = run.addresses()[0];
    let cpu = process_seconds();
    let (seconds, stats) = wall_seconds(|| -> Result<_> {
        let mut rsyslog = source.send(address)?;
        let stats = run.wait(&mut |stats| {
            let is_done = stats[0].stats.totals.frames >= sent.events || rsyslog.has_ended();
            stop.store(is_done, Ordering::Relaxed);
        });
        stats.map_err(|error| failure(&error))
    });
    let cpu = process_seconds() - cpu;
    check::check(source.folder, &stats?, block, sent)?;
    remove_all(&source.folder.join("out"))?;
    Ok((seconds, cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_wherever_they_are_cut() {
        let bytes = b"3 abc12 abc 5 abc 5 1 x10 0123456789";
        for cut in 0..=bytes.len() {
            let mut frames = Frames::default();
            frames.take(&bytes[..cut]).unwrap();
            frames.take(&bytes[cut..]).unwrap();
            assert_eq!((frames.count, frames.left), (4, 0), "{cut}");
        }
        assert!(Frames::default().take(b"x").is_err());
    }
}
