//! PostgreSQL with the extension hll: `hll_add_agg` of the numbers of keys, which it hashes.

use super::{
    PRECISION,
    local::PASSES,
    peer::{Measured, Peer, error_of},
};
use crate::{Result, measure::TemporaryFolder};
use std::{
    env, fs,
    io::Write as _,
    ops::Range,
    os::unix::fs::{MetadataExt as _, chown},
    path::Path,
    process::{Command, Stdio},
};

pub(super) const NAME: &str = "postgresql-hll";
/// Where Debian has the programs and the extension.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const EXTENSION: &str = "/usr/share/postgresql/15/extension/hll.control";
/// CPU time of the process of a session in nanoseconds, and the time of day in seconds.
const CLOCKS: &str = "select split_part(pg_read_file('/proc/self/schedstat'), ' ', 1), \
    extract(epoch from clock_timestamp());";

/// A server in a folder of its own, with a Unix socket only.
struct Postgres {
    folder: TemporaryFolder,
    /// CPU time of a query that only makes the numbers, in nanoseconds for each.
    numbers_ns: f64,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let data = self.folder.path.join("data");
        let stop = ["-m", "immediate", "stop"];
        let _ = program("pg_ctl").arg("-D").arg(data).args(stop).output();
    }
}

/// Starts a server; `None` if it is not installed.
pub(super) fn start() -> Result<Option<Box<dyn Peer>>> {
    if !Path::new(PROGRAMS).join("initdb").exists() || !Path::new(EXTENSION).exists() {
        return Ok(None);
    }
    // The path of a socket has few bytes.
    let folder = TemporaryFolder::create(&env::temp_dir(), "peers-postgres")?;
    if fs::metadata(&folder.path)?.uid() == 0 {
        let user = Command::new("id").args(["-u", "postgres"]).output()?;
        let user = String::from_utf8_lossy(&user.stdout).trim().parse()?;
        chown(&folder.path, Some(user), None)?;
    }
    let data = folder.path.join("data");
    let postgres = Postgres { folder, numbers_ns: 0.0 };
    let socket = postgres.folder.path.display();
    succeed(program("initdb").arg("-D").arg(&data).args(["-A", "trust", "-U", "postgres"]))?;
    let options =
        format!("-c listen_addresses='' -c unix_socket_directories={socket} -c fsync=off");
    let log = postgres.folder.path.join("log");
    let mut start = program("pg_ctl");
    start.arg("-D").arg(&data).args(["-w", "-o", &options, "-l"]).arg(log).arg("start");
    succeed(&mut start)?;
    postgres.ask("create extension hll;")?;
    Ok(Some(Box::new(postgres)))
}

/// Returns a command that runs a program of the server, which refuses to run as root.
fn program(name: &str) -> Command {
    let path = Path::new(PROGRAMS).join(name);
    // SAFETY: the call has no arguments and changes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(path);
    command.current_dir("/");
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    // A server that stays in the background would keep a pipe open.
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

impl Postgres {
    /// Runs queries in a session of their own. Returns the numbers of their rows.
    fn ask(&self, queries: &str) -> Result<Vec<f64>> {
        let mut command = Command::new("psql");
        command.arg("-h").arg(&self.folder.path).args(["-U", "postgres", "-AtqX", "-f", "-"]);
        command.args(["-v", "ON_ERROR_STOP=1"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().ok_or("no pipe")?.write_all(queries.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("psql: {}: {queries}", output.status).into());
        }
        let text = String::from_utf8(output.stdout)?;
        let numbers = text.split(['|', '\n']).filter(|number| !number.is_empty());
        numbers.map(|number| Ok(number.parse()?)).collect()
    }

    /// Runs a query that returns one number or several. Returns them, and the CPU time and time in seconds.
    fn timed(&self, query: &str) -> Result<(Vec<f64>, f64, f64)> {
        let mut numbers = self.ask(&format!("{CLOCKS} {query}; {CLOCKS}"))?;
        if numbers.len() < 4 {
            return Err(format!("psql has answered {numbers:?}").into());
        }
        let after = numbers.split_off(numbers.len() - 2);
        let answer = numbers.split_off(2);
        Ok((answer, (after[0] - numbers[0]) / 1e9, after[1] - numbers[1]))
    }
}

/// Returns the query of a sketch of some numbers.
fn sketch(keys: &Range<u64>) -> String {
    let Range { start, end } = keys;
    format!(
        "select hll_add_agg(hll_hash_bigint(i), {PRECISION}) as h \
         from (select generate_series({start}, {end} - 1) as i) n"
    )
}

impl Peer for Postgres {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn note(&self) -> String {
        format!(
            "PostgreSQL 15, hll 2.17; hll_add_agg over generate_series, which takes {:.0} ns of the time; \
             registers of 5 bits",
            self.numbers_ns
        )
    }

    fn is_served(&self) -> bool {
        true
    }

    fn time(&mut self, keys: Range<u64>) -> Result<Measured> {
        let count = keys.end - keys.start;
        let (mut seconds, mut wall, mut stored, mut numbers) =
            (f64::INFINITY, f64::INFINITY, 0.0, f64::INFINITY);
        let query =
            format!("select pg_column_size(h), hll_cardinality(h) from ({}) s", sketch(&keys));
        let only = format!(
            "select count(i) from (select generate_series({}, {} - 1) as i) n",
            keys.start, keys.end
        );
        for _ in 0..PASSES {
            let (answer, cpu, time) = self.timed(&query)?;
            let [bytes, estimate] = answer[..] else {
                return Err(format!("psql has answered {answer:?}").into());
            };
            error_of(estimate, count)?;
            (seconds, wall, stored) = (seconds.min(cpu), wall.min(time), bytes);
            numbers = numbers.min(self.timed(&only)?.1);
        }
        self.numbers_ns = numbers * 1e9 / count as f64;
        Ok(Measured {
            insert_ns: seconds * 1e9 / count as f64,
            insert_wall_ns: Some(wall * 1e9 / count as f64),
            stored_bytes: Some(stored),
            ..Measured::default()
        })
    }

    fn growth(&mut self, start: u64, sizes: &[u64]) -> Result<Vec<f64>> {
        let query = |size: &u64| {
            format!("select hll_cardinality(h) from ({}) s;\n", sketch(&(start..start + size)))
        };
        let estimates = self.ask(&sizes.iter().map(query).collect::<String>())?;
        let all = estimates.len() == sizes.len();
        if all { Ok(estimates) } else { Err(format!("psql: {estimates:?}").into()) }
    }

    fn intersection(&mut self, sets: [Range<u64>; 2]) -> Result<f64> {
        let [a, b] = sets.map(|keys| sketch(&keys));
        let query = format!(
            "with a as ({a}), b as ({b}) select hll_cardinality(a.h) + hll_cardinality(b.h) \
             - hll_cardinality(hll_union(a.h, b.h)) from a, b;"
        );
        let answer = self.ask(&query)?;
        answer.first().copied().ok_or_else(|| "psql has no answer".into())
    }
}
