//! Salvages without a catalog of maps whose log lacks something: no older value of a key is returned in silence.

use super::*;
use crate::{
    env::Env,
    io::{Access, Disk, FaultPlan, FaultyDisk, MemoryDisk},
    map::{
        Durability, Map, MapOptions, Write,
        block::BLOCK_SIZE,
        maintain,
        tests::{Model, Numbers, folder, tiny},
    },
    run::Run,
    work::Watch,
};
use std::{collections::BTreeMap, ops::Range, sync::Arc};

const KEYS: u32 = 60;

fn options(disk: &MemoryDisk) -> MapOptions {
    let env = Env { disk: Arc::new(disk.clone()), ..Env::simulated(1) };
    let options = tiny(env).durability(Durability::Buffered);
    MapOptions { wal_bytes: 1 << 30, ..options }
}

/// For each key, its values, each with the sequence numbers of the change, or of its transaction.
type Values = BTreeMap<Vec<u8>, Vec<(Range<u64>, Vec<u8>)>>;

/// A map without its catalog, and what it had.
struct Left {
    disk: MemoryDisk,
    values: Values,
    /// The first blocks of parts and lists of records.
    parts: Vec<u64>,
}

impl Left {
    /// Makes a map by puts one by one, long records, transactions that spill, flushes and merges.
    fn make(seed: u64) -> Left {
        let disk = MemoryDisk::default();
        let map = Map::create(folder(), options(&disk)).unwrap();
        let mut random = Numbers::new(seed);
        let mut values = Values::new();
        // The first batch of the log, whose loss cannot be noticed.
        map.put("first", "value").unwrap();
        map.sync().unwrap();
        let mut note = |seqs: Range<u64>, key: &[u8], value: &[u8]| {
            values.entry(key.to_vec()).or_default().push((seqs, value.to_vec()));
        };
        for _ in 0..60 {
            let mut pair = || {
                let value = (random.0, vec![7; random.below(500) as usize]);
                (random.key(KEYS), [&value.0.to_le_bytes()[..], &value.1].concat())
            };
            let pairs: Vec<_> = (0..25).map(|_| pair()).collect();
            let before = map.seq();
            match random.below(10) {
                0 => {
                    let puts = pairs.iter().map(|(key, value)| Write::put(key, value));
                    map.write(&puts.collect::<Vec<_>>()).unwrap();
                    let seqs = (before..).map(|seq| seq..seq + 1);
                    seqs.zip(&pairs).for_each(|(seqs, (key, value))| note(seqs, key, value));
                }
                1 => {
                    let mut transaction = map.transaction();
                    let puts = pairs.iter().cycle().take(3 * pairs.len());
                    puts.for_each(|(key, value)| transaction.put(key, value).unwrap());
                    let end = transaction.commit().unwrap();
                    pairs.iter().for_each(|(key, value)| note(before..end, key, value));
                }
                2 => maintain::relieve(map.core(), 0).unwrap(),
                3 if random.below(2) == 0 => maintain::merge_all(map.core()).unwrap(),
                3 if random.below(4) == 0 => map.checkpoint().unwrap(),
                3 => map.sync().unwrap(),
                _ => {
                    let (key, value) = &pairs[0];
                    map.put(key, value).unwrap();
                    note(before..before + 1, key, value);
                }
            }
        }
        let owners = map.core().logged.lock().unwrap();
        let parts = owners.iter().map(|(_, owner)| owner.first).collect();
        drop(owners);
        drop(map);
        let disk = FaultyDisk::over(&disk, FaultPlan::default()).snapshot();
        let names = disk.list(folder()).unwrap();
        let is_gone = |name: &&String| *name == "MANIFEST" || name.starts_with("catalog-");
        names.iter().filter(is_gone).for_each(|name| disk.remove(&folder().join(name)).unwrap());
        Left { disk, values, parts }
    }

    /// Overwrites a block of a file with zeros.
    fn damaged(&self, name: &str, block: u64) -> MemoryDisk {
        let disk = FaultyDisk::over(&self.disk, FaultPlan::default()).snapshot();
        let file = disk.open_to_write(&folder().join(name), Access::Cached).unwrap();
        file.write_at(block * BLOCK_SIZE as u64, &[0; BLOCK_SIZE]).unwrap();
        disk
    }

    /// Checks what is left of the map: an older value of a key is excused by the report. Returns the number of keys
    /// with their newest value.
    fn check(&self, disk: &MemoryDisk, moment: &str) -> usize {
        let mut run = salvage(folder(), "spill", options(disk), &Watch::default()).unwrap();
        let mut found = Model::new();
        while run.advance().unwrap() {
            found.insert(run.entry().key.to_vec(), run.entry().value.unwrap().to_vec());
        }
        found.remove(&b"first"[..]);
        let losses = run.losses();
        let mut newest = 0;
        for (key, values) in &self.values {
            let got = found.remove(key);
            let at = got.and_then(|got| values.iter().rposition(|(_, value)| *value == got));
            if at == Some(values.len() - 1) {
                newest += 1;
                continue;
            }
            let missed = &values[at.map_or(0, |at| at + 1)..];
            let excuses = |loss: &Loss| match &loss.lost {
                Lost::Records(lost) | Lost::Order(lost) => {
                    missed.iter().any(|(seqs, _)| seqs.start < lost.end && lost.start < seqs.end)
                }
                _ => false,
            };
            assert!(losses.iter().any(excuses), "{moment}: {key:?}: {losses:?}");
        }
        assert!(found.is_empty(), "{moment}: {found:?}");
        newest
    }
}

#[test]
fn a_missing_part_or_batch_brings_no_older_value_back_in_silence() {
    let (mut all, mut newest, mut sound) = (0, 0, 0);
    for seed in 0..40 {
        let left = Left::make(seed);
        sound += left.check(&left.disk, &format!("seed {seed}"));
        let names = left.disk.list(folder()).unwrap();
        // The loss of the first batch of all is not noticed.
        let logs = names.iter().filter(|name| name.starts_with("wal-")).enumerate();
        let logs = logs.filter(|(i, name)| *i > 0 || *name == "wal-0000000000");
        let batches = logs.flat_map(|(i, name)| {
            (if i == 0 { 2..5 } else { 1..5 }).map(move |block| (&name[..], block))
        });
        let parts = left.parts.iter().map(|block| ("map-data", *block));
        for (name, block) in parts.chain(batches) {
            let disk = left.damaged(name, block);
            newest += left.check(&disk, &format!("seed {seed}, {name} without block {block}"));
            all += left.values.len();
        }
    }
    assert!(sound > 2000 && newest * 100 > all * 97, "{sound}; {newest} of {all}");
}
