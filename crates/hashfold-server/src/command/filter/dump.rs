//! `SCANDUMP` and `LOADCHUNK`: filters that a client copies from server to server, piece by piece.

use super::{Target, Work, failed, job, making_failed};
use crate::{
    command::entry::Call,
    data::{Duplicates, LoadError, MakeError, NextPiece},
};

/// The words in which RedisBloom refuses something, which differ between its two families.
struct Words {
    bad_iterator_of_dump: &'static str,
    bad_iterator_of_load: &'static str,
    bad_piece: &'static str,
    not_next: &'static str,
}

const BLOOM: Words = Words {
    bad_iterator_of_dump: "Second argument must be numeric",
    bad_iterator_of_load: "ERR Second argument must be numeric",
    bad_piece: "ERR received bad data",
    not_next: "ERR invalid offset - no link found",
};

const CUCKOO: Words = Words {
    bad_iterator_of_dump: "Invalid position",
    bad_iterator_of_load: "Invalid position",
    bad_piece: "Couldn't load chunk!",
    not_next: "Couldn't load chunk!",
};

fn words(duplicates: Duplicates) -> &'static Words {
    match duplicates {
        Duplicates::Ignored => &BLOOM,
        Duplicates::Counted => &CUCKOO,
    }
}

/// Returns the iterator of a call; `None` if it is no number that an iterator may be.
fn iterator(call: &Call<'_, '_>, duplicates: Duplicates) -> Option<i64> {
    let iterator = crate::protocol::number(call.arguments.at(2))?;
    (iterator >= 0 || duplicates == Duplicates::Ignored).then_some(iterator)
}

/// Returns the first piece of a dump for the iterator 0, or else the one after the piece of the iterator.
pub(super) fn scan_dump(call: &mut Call<'_, '_>, duplicates: Duplicates) -> Result<Work, String> {
    let target = Target::of(call, duplicates)?;
    let iterator = iterator(call, duplicates).ok_or(words(duplicates).bad_iterator_of_dump);
    let shared = call.shared;
    let (dumps, random, now) = (shared.dumps.clone(), shared.env.random.next_u64(), shared.now());
    let next = move || -> Result<NextPiece, String> {
        let filter = target.existing()?;
        match iterator? {
            0 => dumps.begin(&filter, random, now).map_err(|error| failed(&error)),
            iterator => {
                let next = dumps.next(&filter, iterator, now).map_err(|error| failed(&error))?;
                let ended = "ERR the dump has ended, because it was not asked for its next piece, or because \
                             it has failed; begin again with 0";
                next.ok_or_else(|| ended.to_owned())
            }
        }
    };
    Ok(job(next, move |NextPiece { iterator, bytes }, reply| {
        reply.array(2);
        reply.integer(iterator);
        match (iterator, duplicates) {
            (0, Duplicates::Counted) => reply.null(),
            _ => reply.bulk(&bytes),
        }
    }))
}

/// Takes a piece of a dump. The filter exists after the last one.
pub(super) fn load_chunk(call: &mut Call<'_, '_>, duplicates: Duplicates) -> Result<Work, String> {
    let words = words(duplicates);
    let iterator = iterator(call, duplicates).ok_or(words.bad_iterator_of_load)?;
    let (target, bytes) = (Target::of(call, duplicates)?, call.arguments.at(3).to_vec());
    let now = call.shared.now();
    let load = move || {
        if target.find()?.is_some() {
            return Err(making_failed(MakeError::Exists));
        }
        let (key, piece) = (&target.key, (iterator, &bytes[..]));
        let views = target.views();
        let admit = |show: &mut dyn FnMut()| target.admit(&views, show);
        let loaded = target.space.load_filter(key, duplicates, piece, now, &admit);
        let loaded = loaded.map_err(|error| match error {
            LoadError::BadPiece => words.bad_piece.to_owned(),
            LoadError::NotNext => words.not_next.to_owned(),
            LoadError::Busy => "ERR another connection loads a piece of this filter".to_owned(),
            LoadError::TooMany(count) => {
                format!("OOM {count} filters are being loaded, the largest number that is accepted")
            }
            LoadError::Make(error) => making_failed(error),
        })?;
        loaded.map_or(Ok(()), |new| target.keep(new, &views).map(drop))
    };
    Ok(job(load, |(), reply| reply.simple("OK")))
}
