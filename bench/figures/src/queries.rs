//! Table 4: random lookups on the device.

use crate::{
    Options, Queries, Result,
    builds::{Means, Site, THREADS, describe},
    hashes::pick,
    items::{Items, Kind, URL_VALUE_SIZE},
    measure::{TemporaryFolder, cost, ensure},
    paper,
    sheet::{OURS, PAPER, Row, Sheet},
};
use hashfold::{
    Env, ReadOptions,
    io::{Access, Disk, OsDisk},
    table::Table,
    work::{Executor, Threads},
};
use record::{Bar, Panel, Samples, draw as draw_bars};
use std::{path::Path, sync::Arc, thread};

/// Number of threads that look up, as in the paper.
const READERS: usize = 16;

/// Number of lookups in a batch.
const BATCH: usize = 16384;

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
    for stated in paper::TABLE_4 {
        sheet.add(paper_row(&stated));
    }
    for way in [Way::OneByOne, Way::Batched] {
        let measured = measure(options, &table, &site.items, queries, way)?;
        sheet.add(measured.row(way, queries));
    }
    sheet.save(options, "table4", draw)
}

pub fn draw(rows: &[Row], path: &Path) -> Result<()> {
    let bars = |column: &str| -> Vec<Bar> {
        let bar = |row: &Row| {
            let scheme = row.string("scheme");
            let name = match scheme.strip_prefix("Hashfold, ") {
                Some(way) => format!("ours: {way}"),
                None => format!("paper: {scheme}"),
            };
            row.bar(&name, column)
        };
        rows.iter().filter_map(bar).collect()
    };
    let panel = |title: &str, bars| Panel { title: title.to_owned(), bars, limit: None };
    let panels = [
        panel("Cold random lookups, per second; more is better", bars("queries_per_s")),
        panel(
            "CPU time of a lookup, all of the process, µs; less is better",
            bars("cpu_us_per_query"),
        ),
    ];
    draw_bars(path, "Table 4: random lookups on the device", &panels)
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
    fn row(&self, way: Way, queries: u64) -> Row {
        let scaled = self.cpu_us.median() * paper::TABLE_4_QUERIES / 1e6;
        Row::new("scheme", format!("Hashfold, {}", way.name()), OURS)
            .number("queries", queries as f64)
            .spread("queries_per_s", &self.per_s, 0)
            .spread("cpu_us_per_query", &self.cpu_us, 2)
            .rounded("cpu_s_for_8_m_queries", scaled, 2)
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

fn paper_row(stated: &paper::Lookups) -> Row {
    Row::new("scheme", stated.scheme, PAPER)
        .number("queries", paper::TABLE_4_QUERIES)
        .number("queries_per_s", stated.queries_per_s)
        .rounded("cpu_us_per_query", stated.cpu_s / paper::TABLE_4_QUERIES * 1e6, 2)
        .number("cpu_s_for_8_m_queries", stated.cpu_s)
}

fn new_sheet(options: &Options, items: &Items) -> Sheet {
    let mut sheet = Sheet::new("Table 4: random lookups on the device", options);
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
