//! Looking up many keys in mapped data files, in passes that prefetch for each other.
//!
//! Each step of a lookup prefetches what the next one reads. The keys of a group take the steps one
//! after another, [`STRIP`] keys apart, so that their cache misses overlap with the work for other keys.
//! The state of a group is a few arrays on the stack. A group may span tables: it consists of
//! *segments*, keys of one table each.

use super::{
    index::Place,
    lookup::{FilesPart, GROUP, OpenFiles, VisitValue},
    mapped::{Aim, Answer, MappedBlocks},
};
use crate::{error::Result, key::KeyHash};
use std::ops::Range;

/// Number of keys whose next step is taken before a key takes its next one. Meanwhile the memory that was
/// prefetched arrives; more keys would prefetch more cache lines than a processor has in flight.
const STRIP: usize = 16;

/// Looks up keys in those tables whose data files are mapped. `visit` is called once for each key of
/// these tables, as by [`Table::get_many`](super::Table::get_many).
pub(super) fn get_many<K: AsRef<[u8]>>(
    parts: &[FilesPart<'_>],
    keys: &[K],
    visit: &mut VisitValue<'_>,
) -> Result<()> {
    let mut group = Group::default();
    for (files, range) in parts {
        let Some(blocks) = files.data.mapped_blocks() else { continue };
        let mut start = range.start;
        while start < range.end {
            let taken = start..range.end.min(start + STRIP.min(GROUP - group.len));
            start = taken.end;
            let slots = group.len..group.len + taken.len();
            group.place(Segment { files, blocks, keys: taken, slots }, keys)?;
            group.aim(STRIP);
            group.answer(STRIP, keys)?;
            if group.len == GROUP {
                group.finish(keys, visit)?;
            }
        }
    }
    group.finish(keys, visit)
}

/// Keys of a group that are looked up in one table.
#[derive(Debug)]
struct Segment<'a> {
    files: &'a OpenFiles,
    blocks: MappedBlocks<'a>,
    /// The range of the keys among all keys.
    keys: Range<usize>,
    /// Their range in the arrays of the group.
    slots: Range<usize>,
}

/// Keys that are looked up together, and how far their lookups are.
#[derive(Debug)]
struct Group<'a> {
    segments: Vec<Segment<'a>>,
    /// Numbers of segments that have taken the second and the third step.
    aimed: usize,
    answered: usize,
    /// Number of slots in use.
    len: usize,
    hashes: [KeyHash; GROUP],
    places: [Place; GROUP],
    aims: [Aim<'a>; GROUP],
    answers: [Answer<'a>; GROUP],
}

impl Default for Group<'_> {
    fn default() -> Self {
        Group {
            segments: Vec::new(),
            aimed: 0,
            answered: 0,
            len: 0,
            hashes: [KeyHash::from_bits(0); GROUP],
            places: [Place::Nowhere; GROUP],
            aims: [Aim::Absent; GROUP],
            answers: [Answer::Absent; GROUP],
        }
    }
}

impl<'a> Group<'a> {
    /// Adds keys that fit into the group: finds their places, and prefetches these.
    fn place<K: AsRef<[u8]>>(&mut self, segment: Segment<'a>, keys: &[K]) -> Result<()> {
        let Segment { files, blocks, keys: range, slots } = &segment;
        files.refuse_lost()?;
        let hashes = &mut self.hashes[slots.clone()];
        for (hash, key) in hashes.iter_mut().zip(&keys[range.clone()]) {
            *hash = blocks.hash(key.as_ref());
        }
        let places = &mut self.places[slots.clone()];
        files.places(hashes, places);
        for place in places {
            if let Some(unchecked) = blocks.prefetch_place(*place) {
                files.data.announce(unchecked);
            }
        }
        self.len = slots.end;
        self.segments.push(segment);
        Ok(())
    }

    /// Finds the entries that may have the keys, and prefetches these; of all segments that have at
    /// least `distance` slots after them.
    fn aim(&mut self, distance: usize) {
        while let Some(Segment { blocks, slots, .. }) = self.segments.get(self.aimed)
            && slots.end + distance <= self.len
        {
            let places = self.hashes[slots.clone()].iter().zip(&self.places[slots.clone()]);
            for (aim, (hash, place)) in self.aims[slots.clone()].iter_mut().zip(places) {
                *aim = blocks.aim(*hash, *place);
                blocks.prefetch_aim(*aim);
            }
            self.aimed += 1;
        }
    }

    /// Compares the keys with these entries; of all segments that have at least `distance` slots after
    /// them with known entries.
    fn answer<K: AsRef<[u8]>>(&mut self, distance: usize, keys: &[K]) -> Result<()> {
        let aimed = self.segments[..self.aimed].last().map_or(0, |last| last.slots.end);
        while let Some(Segment { files, blocks, keys: range, slots }) =
            self.segments.get(self.answered)
            && slots.end + distance <= aimed
        {
            let aims = self.hashes[slots.clone()].iter().zip(&self.aims[slots.clone()]);
            let aims = aims.zip(&keys[range.clone()]);
            for (answer, ((hash, aim), key)) in self.answers[slots.clone()].iter_mut().zip(aims) {
                *answer = blocks.answer(*hash, *aim, key.as_ref());
            }
            // No answer is shown that comes from the zeros in place of lost pages.
            files.check_maps()?;
            self.answered += 1;
        }
        Ok(())
    }

    /// Answers all lookups, and empties the group.
    fn finish<K: AsRef<[u8]>>(&mut self, keys: &[K], visit: &mut VisitValue<'_>) -> Result<()> {
        self.aim(0);
        self.answer(0, keys)?;
        self.show(keys, visit)
    }

    /// Shows the answers to `visit`, and empties the group.
    fn show<K: AsRef<[u8]>>(&mut self, keys: &[K], visit: &mut VisitValue<'_>) -> Result<()> {
        let mut slot = 0;
        let mut joined = Vec::new();
        for Segment { files, keys: range, .. } in self.segments.drain(..) {
            for i in range {
                match self.answers[slot] {
                    Answer::Value(value) => visit(i, Some(value))?,
                    Answer::Absent => visit(i, None)?,
                    Answer::Parts([start, end]) => {
                        joined.clear();
                        joined.extend_from_slice(start);
                        joined.extend_from_slice(end);
                        visit(i, Some(&joined))?;
                    }
                    Answer::Unknown => {
                        let (hash, place) = (self.hashes[slot], self.places[slot]);
                        let value = files.search_mapped(hash, place, keys[i].as_ref())?;
                        visit(i, value.as_deref())?;
                    }
                }
                slot += 1;
            }
        }
        (self.aimed, self.answered, self.len) = (0, 0, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            IndexChoice, Table,
            tests::{
                CHOICES, FOLDER, Pairs, build, colliding_pair, memory, open_as, options, pairs,
            },
        },
        *,
    };
    use crate::{
        io::{Access, Disk, Seal, read_all},
        options::ReadOptions,
        work::{Random as _, SeededRandom},
    };
    use std::{borrow::Cow, path::Path, sync::Arc};

    fn mapped(disk: &Arc<dyn Disk>) -> Table {
        let options = ReadOptions::new().data(Access::Mapped).index(Access::Mapped);
        open_as(options, disk, Path::new(FOLDER))
    }

    /// The result of a lookup by the general search.
    fn general(table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let blocks = table.files().data.mapped_blocks().unwrap();
        let found = table.files().search_mapped(blocks.hash(key), Place::Several, key)?;
        Ok(found.map(Cow::into_owned))
    }

    /// The keys that were shown, with their values.
    type Shown = Vec<Option<Option<Vec<u8>>>>;

    /// The results of lookups in one call.
    fn many(tables: &[&Table], keys: &[Vec<u8>]) -> (Shown, Result<()>) {
        let part = keys.len() / tables.len();
        let range =
            |i: usize| i * part..if i + 1 == tables.len() { keys.len() } else { (i + 1) * part };
        let parts: Vec<FilesPart<'_>> =
            tables.iter().enumerate().map(|(i, table)| (table.files(), range(i))).collect();
        let mut found = vec![None; keys.len()];
        let result = get_many(&parts, keys, &mut |i, value| {
            assert!(found[i].is_none(), "each key is shown once");
            found[i] = Some(value.map(<[u8]>::to_vec));
            Ok(())
        });
        (found, result)
    }

    /// Returns the keys of a table, in an order unlike that of their hashes, and as many absent ones.
    fn keys(pairs: &Pairs) -> Vec<Vec<u8>> {
        let absent = pairs.keys().map(|key| [key, b"-".as_slice()].concat());
        let like_present = pairs.keys().map(|key| key.iter().map(|byte| byte ^ 1).collect());
        pairs.keys().cloned().chain(absent).chain(like_present).collect()
    }

    /// Checks that every lookup gives what the general search gives, in blocks that were not checked
    /// yet and in checked ones, and returns the part of lookups in checked blocks that did without it.
    #[track_caller]
    fn check(pairs: &Pairs, options: super::super::TableOptions) -> f64 {
        let disk = memory();
        build(&disk, Path::new(FOLDER), pairs, options);
        let keys = keys(pairs);
        let by_general = mapped(&disk);
        let expected: Vec<_> = keys.iter().map(|key| general(&by_general, key).unwrap()).collect();
        for (key, value) in keys.iter().zip(&expected) {
            assert_eq!(value.as_ref(), pairs.get(key), "{}", key.escape_ascii());
        }
        let (one_by_one, together) = (mapped(&disk), mapped(&disk));
        for _ in ["unchecked", "checked"] {
            for (key, value) in keys.iter().zip(&expected) {
                assert_eq!(one_by_one.get_ref(key).unwrap().as_deref(), value.as_deref());
            }
            for tables in [&[&together][..], &[&together, &one_by_one, &by_general]] {
                let (found, result) = many(tables, &keys);
                result.unwrap();
                assert!(found.into_iter().eq(expected.iter().cloned().map(Some)));
            }
        }
        let files = together.files();
        let blocks = files.data.mapped_blocks().unwrap();
        let is_known = |key: &&Vec<u8>| {
            let hash = blocks.hash(key);
            let mut place = [Place::Nowhere];
            files.places(&[hash], &mut place);
            let aim = blocks.aim(hash, place[0]);
            blocks.answer(hash, aim, key) != Answer::Unknown
        };
        keys.iter().filter(is_known).count() as f64 / keys.len() as f64
    }

    #[test]
    fn lookups_agree_with_the_general_search_in_every_arrangement() {
        // Tagged, with tags in one cache line and in several.
        for (count, key, value) in [(9000, 16, 84), (5000, 16, 48)] {
            for choice in CHOICES {
                let known = check(&pairs(count, |_| key, |_| value), options(choice));
                assert!(known > 0.9, "{choice}, {key} + {value}: {known}");
            }
        }
        for choice in CHOICES {
            let known =
                check(&pairs(5000, |i| 20 + i as usize % 90, |i| i as usize % 70), options(choice));
            assert!(known > 0.8, "{choice}: {known}");
            let known = check(&pairs(900, |_| 16, |_| 1008), options(choice));
            assert!(known > 0.9 || choice != IndexChoice::Dense, "{choice}: {known}");
        }
        for choice in CHOICES {
            // Packed: entries so small, or so many in a block, that tags would take too much.
            check(&pairs(5000, |_| 10, |_| 12), options(choice));
            check(&pairs(3000, |_| 11, |_| 300), options(choice));
            check(&pairs(3000, |_| 9, |_| 0), options(choice));
            check(&pairs(40, |_| 16, |_| 10_000), options(choice));
            check(
                &pairs(60, |i| 8 + i as usize * 100, |i| i as usize * 301 % 7000),
                options(choice),
            );
            check(&pairs(5, |_| 30, |_| 30), options(choice));
            check(&Pairs::new(), options(choice));
        }
    }

    #[test]
    fn lookups_agree_with_the_general_search_in_large_blocks() {
        for block_size in [8192, 1 << 16] {
            for choice in CHOICES {
                let options = || options(choice).block_size(block_size);
                check(&pairs(5000, |_| 16, |_| 24), options());
                check(&pairs(5000, |i| 12 + i as usize % 9, |i| 50 + i as usize % 20), options());
            }
        }
    }

    #[test]
    fn lookups_agree_with_the_general_search_where_keys_share_a_hash() {
        let mut pairs = pairs(2000, |_| 32, |_| 20);
        for number in 0..100 {
            let [one, other] = colliding_pair(number);
            pairs.insert(one, vec![number as u8; 20]);
            if number % 2 == 0 {
                pairs.insert(other, vec![number as u8 + 1; 20]);
            }
        }
        for choice in CHOICES {
            check(&pairs, options(choice));
        }
    }

    /// Blocks with random damage, half of them with a checksum that hides it.
    #[test]
    fn lookups_agree_with_the_general_search_in_damaged_blocks() {
        let random = SeededRandom::new(14);
        let below = |n: usize| (random.next_u64() % n as u64) as usize;
        for case in 0..60 {
            let pairs = match case % 4 {
                0 => pairs(400, |_| 16, |_| 84),
                1 => pairs(60, |_| 16, |_| 1008),
                2 => pairs(400, |i| 20 + i as usize % 50, |i| i as usize % 90),
                _ => pairs(60, |i| 8 + i as usize * 20, |i| i as usize * 31 % 2000),
            };
            let choice = CHOICES[case / 4 % CHOICES.len()];
            let (disk, folder) = (memory(), Path::new(FOLDER));
            build(&disk, folder, &pairs, options(choice));
            let names = disk.list(folder).unwrap();
            let path = folder.join(names.iter().find(|name| name.starts_with("data-")).unwrap());
            let good =
                read_all(disk.open(&path, Access::Cached).unwrap().as_ref(), u64::MAX).unwrap();
            let mut bad = good.to_vec();
            let blocks = bad.len() / 4096 - 2;
            for _ in 0..1 + below(40) {
                let (number, is_sealed) = (below(blocks), below(2) == 0);
                let block = &mut bad[(number + 1) * 4096..][..4096];
                let at = [below(16), below(64), below(4096), 4096 - 1 - below(160)][below(4)];
                block[at] = [0, 0xff, block[at] ^ 1 << below(8), below(256) as u8][below(4)];
                if is_sealed {
                    Seal::of(number as u64, 1).put(block);
                }
            }
            let file = disk.create(&path, Access::Cached).unwrap();
            file.write_at(0, &bad).unwrap();
            agree_on_damage(&disk, &keys(&pairs), case);
        }
    }

    #[track_caller]
    fn agree_on_damage(disk: &Arc<dyn Disk>, keys: &[Vec<u8>], case: usize) {
        let (by_general, one_by_one, together) = (mapped(disk), mapped(disk), mapped(disk));
        for _ in ["unchecked", "checked"] {
            for key in keys {
                let expected = general(&by_general, key).map_err(|error| error.to_string());
                let found = one_by_one.get_ref(key).map(|found| found.map(Cow::into_owned));
                let found = found.map_err(|error| error.to_string());
                assert_eq!(found, expected, "case {case}: {}", key.escape_ascii());
            }
            for group in keys.chunks(GROUP / 2) {
                let expected: Vec<_> = group.iter().map(|key| general(&by_general, key)).collect();
                let (found, result) = many(&[&together], group);
                assert_eq!(result.is_err(), expected.iter().any(Result::is_err), "case {case}");
                for (found, expected) in found.into_iter().zip(expected) {
                    if let Some(found) = found {
                        assert_eq!(found, expected.unwrap());
                    }
                }
            }
        }
    }
}
