//! Events of both formats, and their counts: blocks of events that are sent again and again, with new times in each
//! window, so that a minute of events needs the memory of a block.

use super::super::random::pick;
use std::{
    collections::HashMap,
    fmt::Write as _,
    io::{self, Write},
};

/// The start of the first window, in milliseconds since 1970.
const START_MS: u64 = 28_333_333 * WINDOW_MS;
/// Milliseconds of a window.
const WINDOW_MS: u64 = 60_000;
/// Digits of a time in milliseconds.
const TIME_DIGITS: usize = 13;
const USERS: u64 = 20_000;
const PAGES: u64 = 500;
/// Size of a JSON event with its line end, in bytes: that of the nested events in the literature.
const JSON_BYTES: usize = 927;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Pseudorandom numbers.
struct Random {
    seed: u64,
    next: u64,
}

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.next += 1;
        pick(self.next, self.seed, end)
    }
}

/// A format that is measured.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The part of a configuration with the format and the fields.
    pub(super) config: &'static str,
    /// The place of the time in an event.
    time_at: usize,
    event: fn(u64, [u64; 3], &mut String),
}

pub(super) const V1: Kind = Kind {
    name: "v1",
    time_at: 0,
    config: "format = \"csv\"\ncolumns = [\"time\", \"user\", \"page\", \"ms\", \"agent\"]\n\
             [stream.s.fields]\nuser = { type = \"text\" }\npage = { type = \"text\" }\nms = { type = \"int\" }\n",
    event: csv_event,
};

pub(super) const V2: Kind = Kind {
    name: "v2",
    time_at: "{\"time\":".len(),
    config: "format = \"json\"\n[stream.s.fields]\nuser = { from = \"user.id\", type = \"text\" }\n\
             page = { from = \"request.page\", type = \"text\" }\nms = { from = \"request.ms\", type = \"int\" }\n",
    event: json_event,
};

fn csv_event(time_ms: u64, [user, page, ms]: [u64; 3], out: &mut String) {
    writeln!(
        out,
        "{time_ms},user{user},/page/{page},{ms},Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firef"
    )
    .expect("a text takes all");
}

fn json_event(time_ms: u64, [user, page, ms]: [u64; 3], out: &mut String) {
    let start = out.len();
    write!(
        out,
        "{{\"time\":{time_ms},\"user\":{{\"id\":\"user{user}\",\"segments\":[1,5,9],\"home\":{{\"city\":\"Oslo\"}}}},\
         \"request\":{{\"page\":\"/page/{page}\",\"ms\":{ms},\"headers\":{{\"agent\":\"Mozilla\"}}}},\"parts\":["
    )
    .expect("a text takes all");
    const TAIL: &str = "\"\"]}\n";
    while out.len() - start < JSON_BYTES - 60 {
        out.push_str("{\"id\":4711,\"price\":19.5,\"name\":\"a thing\"},");
    }
    out.push('"');
    let padding = JSON_BYTES - (out.len() - start) - (TAIL.len() - 1);
    out.extend(std::iter::repeat_n('x', padding));
    out.push_str(&TAIL[1..]);
}

/// Returns user, page and milliseconds; small numbers of users and pages are more frequent.
fn values(random: &mut Random) -> [u64; 3] {
    let mut skewed = |end: u64| random.below(end) * random.below(end) / end;
    let (user, page) = (skewed(USERS), skewed(PAGES));
    [user, page, random.below(1000)]
}

/// Number of events, and the sum of their milliseconds.
pub(super) type Counts = HashMap<String, [u64; 2]>;

/// Events whose times are written anew for each window.
pub(super) struct Block {
    bytes: Vec<u8>,
    /// Places of the times in `bytes`.
    times: Vec<usize>,
    /// Counts by page and by user.
    pub(super) pages: Counts,
    pub(super) users: Counts,
}

/// Events that were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// Number of blocks in each window.
    pub(super) blocks: Vec<u64>,
    pub(super) events: u64,
    pub(super) bytes: u64,
}

impl Block {
    /// Makes a block of pseudorandom events.
    pub(super) fn new(kind: &Kind, len: u64, seed: u64) -> Block {
        let mut random = Random { seed, next: 0 };
        let (mut text, mut times) = (String::new(), Vec::new());
        let (mut pages, mut users) = (Counts::new(), Counts::new());
        for _ in 0..len {
            let values = values(&mut random);
            let [user, page, ms] = values;
            times.push(text.len() + kind.time_at);
            (kind.event)(START_MS, values, &mut text);
            for (counts, name) in
                [(&mut pages, format!("/page/{page}")), (&mut users, format!("user{user}"))]
            {
                let [count, sum] = counts.entry(name).or_default();
                *count += 1;
                *sum += ms;
            }
        }
        Block { bytes: text.into_bytes(), times, pages, users }
    }

    /// Writes the times of a window, in ascending order.
    fn set_window(&mut self, window: u64) {
        let len = self.times.len() as u64;
        for (i, place) in self.times.iter().enumerate() {
            let time = START_MS + window * WINDOW_MS + i as u64 * WINDOW_MS / len;
            let mut rest = time;
            for digit in self.bytes[*place..*place + TIME_DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }

    /// Writes blocks, `a_window` of them in each window, until `goes_on` returns `false` for what was sent.
    pub(super) fn send(
        &mut self,
        to: &mut dyn Write,
        a_window: u64,
        goes_on: &mut dyn FnMut(&Sent) -> bool,
    ) -> io::Result<Sent> {
        let mut sent = Sent::default();
        loop {
            self.set_window(sent.blocks.len() as u64);
            sent.blocks.push(0);
            for _ in 0..a_window {
                self.bytes.chunks(WRITE_BYTES).try_for_each(|bytes| to.write_all(bytes))?;
                *sent.blocks.last_mut().expect("a window was begun") += 1;
                sent.events += self.times.len() as u64;
                sent.bytes += self.bytes.len() as u64;
                if !goes_on(&sent) {
                    return Ok(sent);
                }
            }
        }
    }
}
