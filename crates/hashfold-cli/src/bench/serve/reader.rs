//! A client that reads one key after the other at a steady rate, and notes each reply.

use super::client::{Client, Reply};
use crate::{
    bench::{
        ensure,
        pairs::{KEY_SIZE, Pairs, Row},
        random::pick,
    },
    failure::Result,
};
use hashfold::work::{Clock as _, SystemClock};
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Time between two requests.
const INTERVAL: Duration = Duration::from_micros(500);

/// What a client saw.
#[derive(Default)]
pub(super) struct Readings {
    pub(super) replies: Vec<Reading>,
    /// Number of replies that were errors.
    pub(super) errors: u64,
}

/// A reply.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    /// Time of the reply.
    pub(super) at: Instant,
    /// Time from when the request was due.
    pub(super) took: Duration,
    /// Generation of the value.
    pub(super) generation: u64,
}

/// Reads random keys until `is_over`; every value is compared, but for its generation.
pub(super) fn read(address: SocketAddr, pairs: &Pairs, is_over: &AtomicBool) -> Result<Readings> {
    let mut client = Client::connect(address)?;
    let (noise, mut expected) = (pairs.noise(), vec![0; pairs.size()]);
    let (mut readings, mut due) = (Readings::default(), Instant::now());
    for i in 0.. {
        if is_over.load(Relaxed) {
            break;
        }
        due += INTERVAL;
        let since = start_at(due);
        let number = pick(i, pairs.seed, pairs.count);
        let Ok(reply) = client.call(&[b"GET", &pairs.key(number)]) else {
            readings.errors += 1;
            continue;
        };
        let at = Instant::now();
        let row = match &reply {
            Reply::Text(Some(value)) => Row::of(value),
            _ => None,
        };
        let row = row.unwrap_or(Row { number: u64::MAX, generation: 0 });
        pairs.fill(Row { number, ..row }, &noise, &mut expected);
        let value = Reply::Text(Some(expected[KEY_SIZE..].to_vec()));
        ensure(reply == value, || format!("the value of key {number} is wrong: {reply:?}"))?;
        readings.replies.push(Reading { at, took: at - since, generation: row.generation });
    }
    Ok(readings)
}

/// Waits for the time of a request, and returns when its waiting began: earlier than now if the reply before
/// came too late.
fn start_at(due: Instant) -> Instant {
    let early = due.saturating_duration_since(Instant::now());
    if early.is_zero() {
        return due;
    }
    SystemClock.sleep(early);
    Instant::now()
}
