//! redis-server: PFADD of many keys in a command, in pipelines, and PFCOUNT.

use super::{
    local::PASSES,
    peer::{Measured, Peer, error_of, words},
};
use crate::{
    Result,
    serve::{Server, start_redis},
};
use redis::{Connection, FromRedisValue, cmd, pipe};
use std::{ops::Range, time::Instant};

pub(super) const NAME: &str = "redis-server";
/// Number of keys of a command.
const KEYS: u64 = 1000;
/// Number of commands in a pipeline.
const COMMANDS: u64 = 16;

struct Redis {
    server: Box<dyn Server>,
    connection: Connection,
}

/// Starts a server; `None` if it is not installed.
pub(super) fn start() -> Result<Option<Box<dyn Peer>>> {
    let Some(server) = start_redis(NAME)? else { return Ok(None) };
    let connection =
        redis::Client::open(format!("redis://{}", server.address()))?.get_connection()?;
    Ok(Some(Box::new(Redis { server: Box::new(server), connection })))
}

impl Redis {
    fn ask<T: FromRedisValue>(&mut self, command: &str, sketches: &[&str]) -> Result<T> {
        Ok(cmd(command).arg(sketches).query(&mut self.connection)?)
    }

    fn add(&mut self, sketch: &str, keys: Range<u64>) -> Result<()> {
        for start in keys.clone().step_by((KEYS * COMMANDS) as usize) {
            let end = keys.end.min(start + KEYS * COMMANDS);
            let mut pipeline = pipe();
            for first in (start..end).step_by(KEYS as usize) {
                let command = pipeline.cmd("PFADD").arg(sketch);
                for word in words(first..end.min(first + KEYS)) {
                    command.arg(&word.to_le_bytes());
                }
                command.ignore();
            }
            pipeline.query::<()>(&mut self.connection)?;
        }
        Ok(())
    }

    fn count(&mut self, sketches: &[&str]) -> Result<f64> {
        Ok(self.ask::<u64>("PFCOUNT", sketches)? as f64)
    }
}

impl Peer for Redis {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn note(&self) -> String {
        format!(
            "{}; PFADD of {KEYS} keys, {COMMANDS} in a pipeline; CPU time of the server, which parses \
             and hashes",
            self.server.note()
        )
    }

    fn is_served(&self) -> bool {
        true
    }

    fn time(&mut self, keys: Range<u64>) -> Result<Measured> {
        let count = keys.end - keys.start;
        let (mut seconds, mut wall) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..PASSES {
            self.ask::<()>("DEL", &["a"])?;
            let (before, start) = (self.server.cpu_seconds()?, Instant::now());
            self.add("a", keys.clone())?;
            wall = wall.min(start.elapsed().as_secs_f64());
            seconds = seconds.min(self.server.cpu_seconds()? - before);
            error_of(self.count(&["a"])?, count)?;
        }
        let memory: u64 = self.ask("MEMORY", &["USAGE", "a"])?;
        let stored: u64 = self.ask("STRLEN", &["a"])?;
        Ok(Measured {
            insert_ns: seconds * 1e9 / count as f64,
            insert_wall_ns: Some(wall * 1e9 / count as f64),
            memory_bytes: Some(memory as f64),
            stored_bytes: Some(stored as f64),
            ..Measured::default()
        })
    }

    fn growth(&mut self, start: u64, sizes: &[u64]) -> Result<Vec<f64>> {
        self.ask::<()>("DEL", &["a"])?;
        let (mut known, mut estimates) = (0, Vec::new());
        for &size in sizes {
            self.add("a", start + known..start + size)?;
            known = size;
            estimates.push(self.count(&["a"])?);
        }
        Ok(estimates)
    }

    fn intersection(&mut self, sets: [Range<u64>; 2]) -> Result<f64> {
        self.ask::<()>("DEL", &["a", "b"])?;
        for (sketch, keys) in ["a", "b"].into_iter().zip(sets) {
            self.add(sketch, keys)?;
        }
        Ok(self.count(&["a"])? + self.count(&["b"])? - self.count(&["a", "b"])?)
    }
}
