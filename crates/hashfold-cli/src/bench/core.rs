//! The write-ahead log: durable appends from several threads, compared with the same writes and
//! syncs without a log.

use super::{
    CoreBench, ensure,
    measure::{Report, wall_seconds},
};
use crate::failure::Result;
use hashfold::{
    Seed,
    env::Env,
    io::{ALIGNMENT, Access, BlockFile, Buffer, CountingDisk, Disk, Moved, OsDisk},
    wal::{Record, Segments, Wal, WalFolder, replay},
    work::Threads,
};
use std::{
    path::Path,
    sync::{Arc, Barrier},
    thread,
};

/// Size of the payload of each append, in bytes.
const PAYLOAD_SIZE: usize = 100;
/// Size of the log's segments, in bytes.
const SEGMENT_SIZE: u64 = 64 << 20;
/// Numbers of concurrently committing threads, and the factor by which they commit more in total
/// than one thread.
const THREADS: [(u64, u64); 3] = [(1, 1), (8, 4), (64, 16)];

/// The measurements of one round.
#[derive(Clone, Copy, Debug)]
struct Round {
    seconds: f64,
    bare_seconds: f64,
    moved: Moved,
}

pub(crate) fn run(bench: &CoreBench) -> Result<()> {
    let report = Report::new(bench.json, 1, bench.seed, 1);
    OsDisk.create_folder(&bench.dir)?;
    for (threads, times) in THREADS {
        let each = (bench.commits * times).div_ceil(threads);
        let rounds = rounds(bench, threads, each)?;
        let (commits, bytes) = ((each * threads) as f64, PAYLOAD_SIZE as u64);
        let say = |name: &str, unit: &str, value: &dyn Fn(&Round) -> f64| {
            let name = format!("core.wal.{threads}.{name}");
            report.add_rounds(
                &name,
                rounds.iter().map(value).collect(),
                unit,
                each * threads,
                bytes,
            );
        };
        say("commits_s", "commits/s", &|round| commits / round.seconds);
        say("ratio_to_bare", "", &|round| round.bare_seconds / round.seconds);
        say("bytes_per_commit", "bytes", &|round| round.moved.written_bytes as f64 / commits);
        say("commits_per_sync", "commits", &|round| commits / round.moved.writes as f64);
    }
    OsDisk.remove_folder(&bench.dir)?;
    Ok(())
}

/// Measures rounds of commits by `threads` threads, each followed by the same writes and syncs
/// without a log. All files stay until the end, because the discards of a removal slow the device
/// down for a while.
fn rounds(bench: &CoreBench, threads: u64, each: u64) -> Result<Vec<Round>> {
    let disk = CountingDisk::on(Arc::new(OsDisk));
    let env =
        Env { disk: Arc::new(disk.clone()), executor: Arc::new(Threads::new(1)), ..Env::system() };
    let home = WalFolder { env, folder: bench.dir.clone(), seed: Seed(bench.seed), id: bench.seed };
    let wal = Wal::open(home.clone(), Segments::of_size(SEGMENT_SIZE), 0..0, &mut |_| Ok(()))?;
    // The first segment is created before the clock starts.
    wal.commit(wal.append(1, &payload(threads, 0))?)?;
    let mut bare = Bare::new(&bench.dir.join("bare"))?;
    let mut rounds = Vec::new();
    for round in 0..bench.rounds {
        disk.take();
        let seconds = commit_all(&wal, threads, round * each, each)?;
        let moved = disk.take();
        let bare_seconds = bare.write(moved)?;
        rounds.push(Round { seconds, bare_seconds, moved });
    }
    drop((wal, bare));
    check(&home, threads, each * bench.rounds)?;
    for name in OsDisk.list(&bench.dir)? {
        OsDisk.remove(&bench.dir.join(name))?;
    }
    Ok(rounds)
}

fn payload(thread: u64, i: u64) -> [u8; PAYLOAD_SIZE] {
    let mut bytes = [thread as u8; PAYLOAD_SIZE];
    bytes[..8].copy_from_slice(&i.to_le_bytes());
    bytes
}

/// Appends and commits records one after the other, in each thread. Returns the seconds since all
/// threads have started.
fn commit_all(wal: &Wal, threads: u64, first: u64, each: u64) -> hashfold::Result<f64> {
    let start = Barrier::new(threads as usize + 1);
    let commit = |thread| {
        start.wait();
        (first..first + each).try_for_each(|i| wal.commit(wal.append(1, &payload(thread, i))?))
    };
    thread::scope(|scope| {
        let commit = &commit;
        let commits: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || commit(thread))).collect();
        let (seconds, done) = wall_seconds(|| {
            start.wait();
            commits.into_iter().try_for_each(|thread| thread.join().expect("no commit panics"))
        });
        done.map(|()| seconds)
    })
}

/// Checks that the log holds all committed records, once and in each thread's order.
fn check(home: &WalFolder, threads: u64, each: u64) -> Result<()> {
    let mut next = vec![0; threads as usize + 1];
    let mut is_right = true;
    let take = &mut |record: Record<'_>| {
        let thread = u64::from(*record.payload.last().unwrap_or(&0)).min(threads);
        let i = &mut next[thread as usize];
        is_right &= record.payload == payload(thread, *i);
        *i += 1;
        Ok(())
    };
    replay(home.files(), 0..0, take)?;
    let is_whole = next[..threads as usize].iter().all(|count| *count == each);
    ensure(is_right && is_whole, || format!("the log holds {next:?} records of each thread"))
}

/// A preallocated file that is written and synced, without a log.
struct Bare {
    file: Arc<dyn BlockFile>,
    buffer: Buffer,
    offset: u64,
}

impl Bare {
    fn new(path: &Path) -> Result<Bare> {
        let file = OsDisk.create(path, Access::Direct)?;
        let mut buffer = Buffer::zeroed(1 << 20);
        buffer.fill(1);
        file.allocate(SEGMENT_SIZE)?;
        file.write_at(0, &buffer[..ALIGNMENT])?;
        file.sync()?;
        Ok(Bare { file, buffer, offset: ALIGNMENT as u64 })
    }

    /// Writes the same number of bytes in the same number of writes, each with a sync. Uses a new
    /// thread, because writes are slower on a CPU that the device does not interrupt. Returns the
    /// duration in seconds.
    fn write(&mut self, moved: Moved) -> hashfold::Result<f64> {
        let blocks = moved.written_bytes / ALIGNMENT as u64;
        let start = |i: u64| i * blocks / moved.writes * ALIGNMENT as u64;
        let mut lens = (0..moved.writes).map(|i| (start(i + 1) - start(i)) as usize);
        let write_all = || wall_seconds(|| lens.try_for_each(|len| self.write_one(len)));
        let (seconds, done) =
            thread::scope(|scope| scope.spawn(write_all).join().expect("no write panics"));
        done.map(|()| seconds)
    }

    fn write_one(&mut self, len: usize) -> hashfold::Result<()> {
        if self.offset + len as u64 > SEGMENT_SIZE {
            self.offset = 0;
        }
        self.file.write_at(self.offset, &self.buffer[..len])?;
        self.file.sync()?;
        self.offset += len as u64;
        Ok(())
    }
}
