//! A naive object store in RAM, with faults that follow from a seed.

use hashfold::work::{Clock, Random, SeededRandom};
use hashfold_deploy::{Error, ErrorKind, Found, Listed, Object, Objects, Parts, Result, Tag, When};
use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

/// A callback that gets the number of a range that was read, from 1 on.
type Hook = dyn FnMut(u64) + Send;

/// Frequencies of faults, each in 1 of N calls; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// A call fails, and does nothing.
    pub(crate) error: u64,
    /// A write is done, and its reply is lost.
    pub(crate) lost_reply: u64,
    /// A range has a flipped bit.
    pub(crate) wrong: u64,
    /// A range is short.
    pub(crate) short: u64,
    /// A call takes a second.
    pub(crate) slow: u64,
}

pub(crate) struct Naive {
    objects: Mutex<BTreeMap<String, (Vec<u8>, u64)>>,
    pub(crate) faults: Mutex<Faults>,
    random: SeededRandom,
    clock: Arc<dyn Clock>,
    /// Number of the last content.
    last: AtomicU64,
    /// Whether conditions of writes are kept.
    pub(crate) keeps_conditions: AtomicBool,
    /// Whether each write is repeated after it was done, as if its first reply had been lost on the way.
    pub(crate) repeats_writes: AtomicBool,
    /// Whether every call fails.
    pub(crate) is_gone: AtomicBool,
    /// Ranges that are always wrong: the name of the object contains the text, and the range has the
    /// offset.
    pub(crate) rotten: Mutex<Option<(String, u64)>>,
    /// Called after each range.
    pub(crate) hook: Mutex<Option<Box<Hook>>>,
    /// Number of ranges that were read.
    pub(crate) ranges: AtomicU64,
    /// Number of whole objects of stores that were read, or found absent.
    pub(crate) reads: AtomicU64,
    /// Bytes that were written.
    pub(crate) written: AtomicU64,
}

impl Naive {
    pub(crate) fn new(seed: u64, clock: &Arc<dyn Clock>) -> Naive {
        Naive {
            objects: Mutex::default(),
            faults: Mutex::default(),
            random: SeededRandom::new(seed),
            clock: clock.clone(),
            last: AtomicU64::new(0),
            keeps_conditions: AtomicBool::new(true),
            repeats_writes: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            rotten: Mutex::default(),
            hook: Mutex::default(),
            ranges: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Whether a fault that happens in 1 of `n` calls happens now.
    fn happens(&self, n: u64) -> bool {
        n > 0 && self.random.next_u64().is_multiple_of(n)
    }

    fn faults(&self) -> Faults {
        *self.faults.lock().unwrap()
    }

    /// Begins a call.
    fn begin(&self, name: &str) -> Result<()> {
        if self.happens(self.faults().slow) {
            self.clock.sleep(Duration::from_secs(1));
        }
        match self.is_gone.load(SeqCst) || self.happens(self.faults().error) {
            true => Err(Error::remote("connect", "connection refused").at(self.place(name))),
            false => Ok(()),
        }
    }

    /// Ends a write.
    fn end(&self, name: &str) -> Result<()> {
        match self.happens(self.faults().lost_reply) {
            true => Err(Error::remote("write", "connection reset").at(self.place(name))),
            false => Ok(()),
        }
    }

    fn set(&self, objects: &mut BTreeMap<String, (Vec<u8>, u64)>, name: &str, bytes: &[u8]) -> Tag {
        let number = self.last.fetch_add(1, SeqCst) + 1;
        self.written.fetch_add(bytes.len() as u64, SeqCst);
        objects.insert(name.to_owned(), (bytes.to_vec(), number));
        tag(number)
    }

    /// Returns the names of all objects.
    pub(crate) fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        self.objects.lock().unwrap()[name].0.clone()
    }

    pub(crate) fn overwrite(&self, name: &str, bytes: &[u8]) {
        self.set(&mut self.objects.lock().unwrap(), name, bytes);
    }
}

impl fmt::Debug for Naive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Naive")
    }
}

fn tag(number: u64) -> Tag {
    Tag { e_tag: Some(format!("\"{number}\"")), version: None }
}

impl Objects for Naive {
    fn place(&self, name: &str) -> String {
        format!("naive://{name}")
    }

    fn get(&self, name: &str, size_max: u64, known: Option<&Tag>) -> Result<Found> {
        self.begin(name)?;
        if name.starts_with("stores/") {
            self.reads.fetch_add(1, SeqCst);
        }
        let objects = self.objects.lock().unwrap();
        let Some((bytes, number)) = objects.get(name) else { return Ok(Found::Absent) };
        let (tag, got) = (tag(*number), bytes.len() as u64);
        if got > size_max {
            let kind = ErrorKind::Limit { what: "size", limit: size_max, got };
            return Err(Error::new(kind).at(self.place(name)));
        }
        match known == Some(&tag) {
            true => Ok(Found::Unchanged),
            false => Ok(Found::Object(Object { bytes: bytes.clone(), tag })),
        }
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        self.begin(name)?;
        let number = self.ranges.fetch_add(1, SeqCst) + 1;
        // The hook may read and write objects, but no ranges.
        if let Some(hook) = self.hook.lock().unwrap().as_mut() {
            hook(number);
        }
        let objects = self.objects.lock().unwrap();
        let Some((bytes, _)) = objects.get(name) else {
            let what = "object of this name".to_owned();
            return Err(Error::new(ErrorKind::Absent { what }).at(self.place(name)));
        };
        let end = bytes.len().min(range.end as usize);
        let mut bytes = bytes[(range.start as usize).min(end)..end].to_vec();
        let rotten = self.rotten.lock().unwrap();
        let is_rotten = rotten
            .as_ref()
            .is_some_and(|(part, offset)| name.contains(part) && range.contains(offset));
        if is_rotten || self.happens(self.faults().wrong) {
            let at = self.random.next_u64() as usize % bytes.len();
            bytes[at] ^= 1 << (self.random.next_u64() % 8);
        }
        if self.happens(self.faults().short) {
            bytes.truncate(self.random.next_u64() as usize % bytes.len());
        }
        Ok(bytes)
    }

    fn put(&self, name: &str, bytes: &[u8], when: When<'_>) -> Result<Option<Tag>> {
        self.begin(name)?;
        let mut objects = self.objects.lock().unwrap();
        let there = objects.get(name).map(|(_, number)| tag(*number));
        let holds = match when {
            When::Always => true,
            When::Absent => there.is_none(),
            When::Is(tag) => there.as_ref() == Some(tag),
        };
        if !holds && self.keeps_conditions.load(SeqCst) {
            return Ok(None);
        }
        let tag = self.set(&mut objects, name, bytes);
        drop(objects);
        if self.repeats_writes.load(SeqCst) && !matches!(when, When::Always) {
            return Ok(None);
        }
        self.end(name).map(|()| Some(tag))
    }

    fn upload(&self, name: &str, size: u64, parts: &mut Parts<'_>) -> Result<()> {
        self.begin(name)?;
        let mut bytes = Vec::new();
        while let Some(part) = parts()? {
            bytes.extend(part);
        }
        assert_eq!(bytes.len() as u64, size);
        self.set(&mut self.objects.lock().unwrap(), name, &bytes);
        self.end(name)
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.begin(folder)?;
        let objects = self.objects.lock().unwrap();
        let folder = format!("{folder}/");
        let inside = objects.iter().filter(|(name, _)| name.starts_with(&folder));
        let listed = inside
            .map(|(name, (bytes, _))| Listed { name: name.clone(), size: bytes.len() as u64 });
        Ok(listed.collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.begin(name)?;
        self.objects.lock().unwrap().remove(name);
        Ok(())
    }
}
