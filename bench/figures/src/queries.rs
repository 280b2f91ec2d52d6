//! Table 4: random lookups on the device.

use crate::{
    Options, Queries, Result,
    builds::{Means, Site, THREADS, describe},
    hashes::pick,
    items::{Items, Kind, URL_VALUE_SIZE},
    measure::{TemporaryFolder, cost, ensure},
    paper,
    sheet::{OURS, PAPER, Sheet},
};
use hashfold::{
    Env, ReadOptions,
    io::{Access, Disk, OsDisk},
    table::Table,
    work::{Executor, Threads},
};
use record::{Bar, Panel, Samples, draw as draw_bars};
use std::{sync::Arc, thread};

/// Number of threads that look up, as in the paper.
const READERS: usize = 16;

/// Number of lookups in a batch.
const BATCH: usize = 16384;

const COLUMNS: &[&str] = &[
    "scheme",
    "source",
    "queries",
    "queries_per_s",
    "queries_per_s_min",
    "queries_per_s_max",
    "cpu_us_per_query",
    "cpu_s_for_8_m_queries",
];

/// Keys in random order, and the numbers of their items.
struct Lookups {
    keys: Vec<Vec<u8>>,
    numbers: Vec<u64>,
}

impl Lookups {
    fn new(items: &Items, count: u64, seed: u64) -> Lookups {
        let numbers: Vec<u64> = (0..count).map(|i| pick(i, seed, items.count)).collect();
        let key = |&number: &u64| {
            let mut key = Vec::new();
            items.key(number, &mut key);
            key
        };
        Lookups { keys: numbers.iter().map(key).collect(), numbers }
    }

    /// Looks up one key after the other in each of several threads. Returns the number of wrong
    /// values.
    fn one_by_one(&self, table: &Table, items: &Items) -> Result<u64> {
        let share = self.keys.len().div_ceil(READERS);
        thread::scope(|scope| {
            let parts = self.keys.chunks(share).zip(self.numbers.chunks(share));
            let readers: Vec<_> = parts
                .map(|(keys, numbers)| scope.spawn(move || read(table, items, keys, numbers)))
                .collect();
            let wrong = readers.into_iter().map(|reader| reader.join().expect("no reader panics"));
            Ok(wrong.sum::<hashfold::Result<u64>>()?)
        })
    }

    /// Looks up keys in batches, in one thread.
    fn batched(&self, table: &Table, items: &Items) -> Result<u64> {
        let mut wrong = 0;
        for (keys, numbers) in self.keys.chunks(BATCH).zip(self.numbers.chunks(BATCH)) {
            table.get_many(keys, &mut |i, value| {
                let right = value.is_some_and(|value| value.starts_with(&items.number(numbers[i])));
                wrong += u64::from(!right);
                Ok(())
            })?;
        }
        Ok(wrong)
    }
}

fn read(table: &Table, items: &Items, keys: &[Vec<u8>], numbers: &[u64]) -> hashfold::Result<u64> {
    let mut wrong = 0;
    for (key, &number) in keys.iter().zip(numbers) {
        let expected = items.number(number);
        table.get_with(key, &mut |value| {
            wrong += u64::from(!value.is_some_and(|value| value.starts_with(&expected)));
        })?;
    }
    Ok(wrong)
}

pub fn table_4(options: &Options, sizes: &Queries) -> Result<()> {
    let count = options.size(sizes.items, 1_000_000, 3000);
    let queries = options.size(sizes.queries, 500_000, 2000);
    let folder = TemporaryFolder::create(&options.dir, "table4")?;
    let items = Items::new(Kind::Urls { value_size: URL_VALUE_SIZE }, count, options.seed);
    let mut sheet = new_sheet(options, &items);
    let site = Site::new(&folder.path, items)?;
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(THREADS));
    site.build_table(&site.items, Means { memory_mib: 256, cores: 1 }, &executor)?;
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let open = ReadOptions::new().data(Access::Direct);
    let table = Table::open_with(&site.table, &open.env(Env::on(disk.clone())))?;
    let bits = table.stats().index_bits_per_key();
    sheet.note(
        "index",
        format!("{}, {bits:.2} bits a key", table.stats().index.unwrap_or_default().choice),
    );
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for stated in paper::TABLE_4 {
        sheet.row(paper_row(&stated));
        let name = format!("paper: {}", stated.scheme);
        let bar = |value| Bar { name: name.clone(), value, range: None };
        rates.push(bar(stated.queries_per_s));
        times.push(bar(cpu_us(&stated)));
    }
    for way in [Way::OneByOne, Way::Batched] {
        let measured = measure(options, &table, &site.items, queries, way)?;
        sheet.row(measured.row(way, queries));
        let name = format!("ours: {}", way.name());
        let bar = |rounds: &Samples| Bar {
            name: name.clone(),
            value: rounds.median(),
            range: Some((rounds.min(), rounds.max())),
        };
        rates.push(bar(&measured.per_s));
        times.push(bar(&measured.cpu_us));
    }
    let path = sheet.save(options, "table4")?;
    let panels = [
        Panel {
            title: "Cold random lookups, per second; more is better".to_owned(),
            bars: rates,
            limit: None,
        },
        Panel {
            title: "CPU time of a lookup, all of the process, µs; less is better".to_owned(),
            bars: times,
            limit: None,
        },
    ];
    draw_bars(&path, "Table 4: random lookups on the device", &panels)
}

/// Ways to look up keys.
#[derive(Clone, Copy, Debug)]
enum Way {
    OneByOne,
    Batched,
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::OneByOne => format!("{READERS} threads"),
            Way::Batched => "1 thread, in batches".to_owned(),
        }
    }
}

/// All rounds of one way.
struct Measured {
    per_s: Samples,
    cpu_us: Samples,
}

impl Measured {
    fn row(&self, way: Way, queries: u64) -> Vec<String> {
        let scaled = self.cpu_us.median() * paper::TABLE_4_QUERIES / 1e6;
        let rates = [self.per_s.median(), self.per_s.min(), self.per_s.max()];
        let mut row = vec![format!("Hashfold, {}", way.name()), OURS.to_owned()];
        row.push(queries.to_string());
        row.extend(rates.map(|rate| format!("{rate:.0}")));
        row.extend([self.cpu_us.median(), scaled].map(|time| format!("{time:.2}")));
        row
    }
}

/// Looks up other keys in each round, and checks all values.
fn measure(
    options: &Options,
    table: &Table,
    items: &Items,
    queries: u64,
    way: Way,
) -> Result<Measured> {
    let mut seed = options.seed;
    let mut cpu_us = Vec::new();
    let mut round = || {
        seed += 1;
        let lookups = Lookups::new(items, queries, seed);
        let (cost, wrong) = cost(|| match way {
            Way::OneByOne => lookups.one_by_one(table, items),
            Way::Batched => lookups.batched(table, items),
        })?;
        ensure(wrong == 0, || format!("{wrong} lookups gave a wrong value"))?;
        cpu_us.push(cost.cpu / queries as f64 * 1e6);
        Ok(queries as f64 / cost.wall)
    };
    let per_s = (0..options.rounds).map(|_| round()).collect::<Result<Vec<f64>>>()?;
    Ok(Measured { per_s: per_s.into(), cpu_us: cpu_us.into() })
}

fn cpu_us(stated: &paper::Lookups) -> f64 {
    stated.cpu_s / paper::TABLE_4_QUERIES * 1e6
}

fn paper_row(stated: &paper::Lookups) -> Vec<String> {
    let mut row = vec![stated.scheme.to_owned(), PAPER.to_owned()];
    row.extend([paper::TABLE_4_QUERIES, stated.queries_per_s].map(|number| number.to_string()));
    row.extend([String::new(), String::new()]);
    row.extend([format!("{:.2}", cpu_us(stated)), stated.cpu_s.to_string()]);
    row
}

fn new_sheet(options: &Options, items: &Items) -> Sheet {
    let mut sheet = Sheet::new("Table 4: random lookups on the device", options, COLUMNS);
    sheet.note("data", describe(items));
    sheet.note("threads", format!("{READERS}, or one that hands over {BATCH} keys at a time"));
    sheet.note(
        "time",
        "past the page cache; all values checked; median, least and most of the rounds; CPU time \
         is that of the whole process, system calls included; the machine was shared with other \
         work",
    );
    sheet.note("paper", "8 M lookups in 16 M items, 16 threads");
    sheet.note("paper machine", paper::MACHINE);
    sheet
}
