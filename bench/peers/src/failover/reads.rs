//! The client: reads one key after the other, while a server is lost.

use super::clusters::Cluster;
use crate::{
    Result,
    data::{Data, mix},
};
use hashfold::store::{SLOTS, slot_of};
use redis::{Commands as _, cluster::ClusterConnection};
use std::time::{Duration, Instant};

/// Number of slots of the first group, whose first server is lost.
const SLOTS_OF_LOST: u32 = SLOTS / 3;

/// A way to lose a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// SIGKILL: connections are closed.
    Killed,
    /// SIGSTOP: connections stay open, and nothing answers.
    Stopped,
}

/// Times of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Time that the client waits for a reply.
    pub timeout: Duration,
    /// Time for which the client reads before the loss.
    pub before: Duration,
    /// Time for which it reads after the loss.
    pub after: Duration,
}

/// What the client saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// The longest time between two right answers for keys of the lost server.
    pub outage: Duration,
    /// Number of calls that failed.
    pub failed: u64,
    pub wrong: u64,
}

/// Reads random keys, loses the first server of the first group, and reads on.
pub fn read(cluster: &Cluster, data: &Data, loss: Loss, times: Times) -> Result<Seen> {
    let mut connection = cluster.client(times.timeout)?.get_connection()?;
    let (mut seen, mut place) = (Seen::default(), 0);
    let start = Instant::now();
    while start.elapsed() < times.before {
        place += 1;
        get(&mut connection, data, place, &mut seen);
    }
    if seen.failed > 0 || seen.wrong > 0 {
        return Err(format!("before the loss: {seen:?}").into());
    }
    let signal = if loss == Loss::Killed { libc::SIGKILL } else { libc::SIGSTOP };
    // SAFETY: it sends a signal to a process of ours, which was not waited for.
    if unsafe { libc::kill(cluster.pid(0), signal) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let lost = Instant::now();
    let mut answered = lost;
    while lost.elapsed() < times.after {
        place += 1;
        let (is_right, is_of_lost) = get(&mut connection, data, place, &mut seen);
        if is_right && is_of_lost {
            let now = Instant::now();
            seen.outage = seen.outage.max(now - answered);
            answered = now;
        }
    }
    // Keys without an answer to the end.
    seen.outage = seen.outage.max(answered.elapsed());
    Ok(seen)
}

/// Reads a key. Returns whether the answer is right, and whether the lost server had the key.
fn get(
    connection: &mut ClusterConnection,
    data: &Data,
    place: u64,
    seen: &mut Seen,
) -> (bool, bool) {
    let number = mix(place ^ mix(data.seed)) % data.count;
    let key = data.key(number);
    let is_of_lost = slot_of(&key) < SLOTS_OF_LOST;
    let mut expected = Vec::new();
    data.fill_value(number, &mut expected);
    let got: redis::RedisResult<Option<Vec<u8>>> = connection.get(&key);
    let is_right = match got {
        Ok(value) => {
            let is_right = value.as_deref() == Some(&expected[..]);
            seen.wrong += u64::from(!is_right);
            is_right
        }
        Err(_) => {
            seen.failed += 1;
            false
        }
    };
    (is_right, is_of_lost)
}
