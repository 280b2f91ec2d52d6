//! The command `figures sal`: rounds of all experiments, sheets and charts.

use super::{
    experiments::{Cell, Claim, Round, claims, round},
    traces::World,
};
use crate::{
    Options, Result, SalTraces,
    chart::{self, Axis, Chart, Look, Point, Scale, Series},
    sheet::{OURS, PAPER, Row, Sheet, THEORY},
};
use plotters::style::RGBColor;
use record::{Bar, Panel, Samples, draw as draw_bars};
use std::path::Path;

/// Default folder of the results.
pub const FOLDER: &str = "results/sal";

/// Scale of the paper's sizes, and of tests.
const SCALE: u64 = 64;
pub const TINY_SCALE: u64 = 16384;

/// Colours of the series, in their order.
const COLOURS: [RGBColor; 6] =
    [chart::GREY, chart::AMBER, chart::PURPLE, chart::ORANGE, chart::SKY, chart::BLUE];

/// A chart of one file of results.
struct Figure {
    /// Name of the file, without its extension.
    name: &'static str,
    title: &'static str,
    /// Column of the positions, and its label.
    x: (&'static str, &'static str),
    x_scale: Scale,
    /// Column of the values, and its label.
    y: (&'static str, &'static str),
    y_scale: Scale,
}

const TIME: (&str, &str) =
    ("nvme_us", "device time per operation, µs (NVMe costs); less is better");
const READS: (&str, &str) = ("reads", "page reads per search; less is better");
const MILLIONS: (&str, &str) = ("million_records", "million records in the paper");
const PARTS: (&str, &str) = ("search_part", "part of the operations that are searches");
const SPLIT: (&str, &str) = ("split_factor", "part of the buckets that are split");
const GROUPS: (&str, &str) = ("group_buckets", "buckets in a group");

const FIGURES: [Figure; 11] = [
    Figure {
        name: "sal-fig3",
        title: "Figures 2 and 3: overflow by the split factor, computed",
        x: SPLIT,
        x_scale: Scale::Linear,
        y: ("part", "part of the buckets or records"),
        y_scale: Scale::Linear,
    },
    Figure {
        name: "sal-fig6",
        title: "Figures 6 and 7: random inserts (Trace A), simulated",
        x: MILLIONS,
        x_scale: Scale::Logarithmic,
        y: TIME,
        y_scale: Scale::Logarithmic,
    },
    Figure {
        name: "sal-fig8a",
        title: "Figure 8: searches after inserts (Trace B), simulated",
        x: MILLIONS,
        x_scale: Scale::Logarithmic,
        y: READS,
        y_scale: Scale::Linear,
    },
    Figure {
        name: "sal-fig8b",
        title: "Figure 8: searches by locality (Trace C), simulated",
        x: ("hot_percent", "percentage of searches in the hot buckets: 80 is 80-20"),
        x_scale: Scale::Linear,
        y: READS,
        y_scale: Scale::Linear,
    },
    Figure {
        name: "sal-fig9",
        title: "Figures 9 and 11: updates and searches, uniform (Trace D), simulated",
        x: PARTS,
        x_scale: Scale::Linear,
        y: TIME,
        y_scale: Scale::Linear,
    },
    Figure {
        name: "sal-fig10",
        title: "Figures 10 and 12: the same with 80-20 locality (Trace E), simulated",
        x: PARTS,
        x_scale: Scale::Linear,
        y: TIME,
        y_scale: Scale::Linear,
    },
    Figure {
        name: "sal-hot-sets",
        title: "Trace E with hot sets instead of hot buckets (in no paper), simulated",
        x: PARTS,
        x_scale: Scale::Linear,
        y: TIME,
        y_scale: Scale::Linear,
    },
    Figure {
        name: "sal-fig13",
        title: "Figure 13: searches by the split factor (Trace F), simulated",
        x: SPLIT,
        x_scale: Scale::Linear,
        y: READS,
        y_scale: Scale::Linear,
    },
    Figure {
        name: "sal-fig14",
        title: "Figure 14: memory that finds virtual splits (Trace G), 2^18 buckets",
        x: SPLIT,
        x_scale: Scale::Linear,
        y: ("kib", "memory, KiB; less is better"),
        y_scale: Scale::Linear,
    },
    Figure {
        name: "sal-fig15",
        title: "Figure 15: cost of writes by the group size, by formula 7",
        x: GROUPS,
        x_scale: Scale::Logarithmic,
        y: ("page_writes", "page writes per change; less is better"),
        y_scale: Scale::Linear,
    },
    Figure {
        name: "sal-fig16",
        title: "Figure 16: half searches, half updates by the group size (Trace H), simulated",
        x: GROUPS,
        x_scale: Scale::Logarithmic,
        y: TIME,
        y_scale: Scale::Linear,
    },
];

/// Figures 17 and 18 have their own colours: one for each index, a look for each policy.
const POLICIES: Figure = Figure {
    name: "sal-fig17",
    title: "Figures 17 and 18: buffer policies (Trace E), simulated",
    x: PARTS,
    x_scale: Scale::Linear,
    y: TIME,
    y_scale: Scale::Linear,
};

pub fn all(options: &Options, traces: &SalTraces) -> Result<()> {
    let options = &options.by_default_in(FOLDER);
    let scale = options.size(traces.scale, SCALE, TINY_SCALE);
    let rounds: Vec<Round> = (0..u64::from(options.rounds))
        .map(|i| round(&World { scale, seed: options.seed + i }))
        .collect();
    for figure in FIGURES.iter().chain([&POLICIES]) {
        let mut sheet = new_sheet(figure.title, options, scale);
        let rows = figure.rows(&rounds);
        rows.iter().cloned().for_each(|row| sheet.add(row));
        let path = sheet.write(options, figure.name)?;
        figure.draw(&rows, &path.with_extension("svg"))?;
    }
    let mut sheet =
        new_sheet("The paper's statements, and the simulator's numbers", options, scale);
    claim_rows(&rounds).into_iter().for_each(|row| sheet.add(row));
    sheet.save(options, "sal-claims", draw_claims)
}

pub fn new_sheet(title: &str, options: &Options, scale: u64) -> Sheet {
    let mut sheet = Sheet::new(title, options);
    sheet.note("scale", format!("1/{scale} of the paper's records, operations and memory"));
    sheet.note("data", "records of 16 bytes, 256 in a page; a bucket is its number of records");
    sheet.note("threads", "1");
    sheet.note(
        "time",
        "counted requests by cost: a page read 68 or 150 µs, written 54 or 250, 16 pages read 85 or 400, \
         written 75 or 800 (NVMe or SATA-like); nothing is measured; medians of rounds with other seeds",
    );
    sheet.note(
        "paper machine",
        "OCZ Core (low end) and Intel 520 (high end) SATA drives, direct I/O",
    );
    sheet
}

impl Figure {
    fn rows(&self, rounds: &[Round]) -> Vec<Row> {
        let mine = |round: &Round| -> Vec<Cell> {
            round.0.iter().filter(|cell| cell.file == self.name).cloned().collect()
        };
        let cells: Vec<Vec<Cell>> = rounds.iter().map(mine).collect();
        let is_computed = ["sal-fig3", "sal-fig15"].contains(&self.name);
        let source = if is_computed { THEORY } else { OURS };
        let row = |i: usize| {
            let Cell { series, x, columns, .. } = &cells[0][i];
            let row = Row::new("index", series.clone(), source).number(self.x.0, *x);
            columns.iter().enumerate().fold(row, |row, (j, (name, _))| {
                let all: Vec<f64> = cells.iter().map(|round| round[i].columns[j].1).collect();
                row.spread(name, &all.into(), 4)
            })
        };
        (0..cells[0].len()).map(row).collect()
    }

    fn draw(&self, rows: &[Row], path: &Path) -> Result<()> {
        let mut names: Vec<&str> = Vec::new();
        for row in rows {
            if !names.contains(&row.string("index")) {
                names.push(row.string("index"));
            }
        }
        let series = |(i, name): (usize, &&str)| {
            let mine = rows.iter().filter(|row| row.string("index") == *name);
            // A logarithmic axis has no zero.
            let is_drawn = |point: &Point| {
                let low = point.range.map_or(point.y, |(low, _)| low);
                self.y_scale == Scale::Linear || low > 0.0
            };
            let points = mine.filter_map(|row| row.point(self.x.0, self.y.0)).filter(is_drawn);
            let (look, colour) = self.look(i);
            Series { name: (*name).to_owned(), look, colour, points: points.collect() }
        };
        let series: Vec<Series> = names.iter().enumerate().map(series).collect();
        let of = |of: fn(&Point) -> f64| {
            let all = series.iter().flat_map(|series| &series.points).map(of);
            all.fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)))
        };
        let (left, right) = of(|point| point.x);
        // In quick runs, everything may fit the buffer.
        let (low, high) = of(|point| point.y.max(0.01));
        let x = match self.x_scale {
            Scale::Logarithmic if self.x.0 == GROUPS.0 => {
                Axis::powers_of_two(self.x.1, left, right)
            }
            Scale::Logarithmic => Axis::logarithmic(self.x.1, left, right),
            Scale::Linear if right > 1.0 => Axis::linear(self.x.1, left, right, 10.0),
            Scale::Linear => Axis::linear(self.x.1, 0.0, 1.0, 0.2),
        };
        let y = match self.y_scale {
            Scale::Logarithmic => Axis::decades(self.y.1, low, high),
            Scale::Linear => Axis::from_zero(self.y.1, high),
        };
        Chart { title: self.title.to_owned(), x, y, series }.draw(path)
    }

    fn look(&self, i: usize) -> (Look, RGBColor) {
        let looks = [Look::DottedLine, Look::Dashed, Look::Line];
        match self.name {
            "sal-fig17" => (looks[i / 2 % 3], [chart::ORANGE, chart::BLUE][i % 2]),
            "sal-fig3" | "sal-fig15" => (Look::Line, COLOURS[(i + 3) % COLOURS.len()]),
            "sal-fig13" => (looks[i % 2], [chart::ORANGE, chart::BLUE][i / 2 % 2]),
            "sal-fig14" => (looks[2 - i % 2], [chart::BLUE, chart::TEAL][i % 2]),
            "sal-fig16" => (Look::DottedLine, [chart::SKY, chart::BLUE][i % 2]),
            _ => (Look::DottedLine, COLOURS[i % COLOURS.len()]),
        }
    }
}

/// Draws the charts of all files in a folder again.
pub fn draw(options: &Options) -> Result<()> {
    let folder = options.out.as_deref().unwrap_or(Path::new(FOLDER));
    for figure in FIGURES.iter().chain([&POLICIES]) {
        let path = folder.join(format!("{}.jsonl", figure.name));
        figure.draw(&crate::sheet::read(&path)?, &path.with_extension("svg"))?;
    }
    let path = folder.join("sal-claims.jsonl");
    draw_claims(&crate::sheet::read(&path)?, &path.with_extension("svg"))
}

fn claim_rows(rounds: &[Round]) -> Vec<Row> {
    let all: Vec<Vec<Claim>> = rounds.iter().map(claims).collect();
    let row = |i: usize| {
        let Claim { what, paper: (least, most), ours } = &all[0][i];
        let row = Row::new("claim", what.clone(), PAPER)
            .number("paper_least", *least)
            .number("paper_most", *most);
        ours.iter().enumerate().fold(row, |row, (j, (name, _))| {
            let values: Vec<f64> = all.iter().map(|claims| claims[i].ours[j].1).collect();
            row.spread(name, &Samples::from(values), 2)
        })
    };
    (0..all[0].len()).map(row).collect()
}

/// Draws the time of SAL-hashing as a percentage of that of each rival.
pub fn draw_claims(rows: &[Row], path: &Path) -> Result<()> {
    let panel = |row: &Row| {
        let part = |name: &str, column: &str| {
            let value = 100.0 + row.get(column)?;
            Some(Bar { name: name.to_owned(), value, range: None })
        };
        let bars = [
            part("paper: least", "paper_least"),
            part("paper: most", "paper_most"),
            part("ours, paper's layout, NVMe costs", "paper_layout_nvme"),
            part("ours, filters in RAM, NVMe costs", "filters_in_ram_nvme"),
        ];
        let title = row.string("claim").replace("time of SAL against", "SAL,");
        let title = title.trim_end_matches(", %").to_owned() + " = 100; less is better";
        Panel { title, bars: bars.into_iter().flatten().collect(), limit: None }
    };
    let is_time = |row: &&Row| row.get("paper_layout_nvme").is_some();
    let panels: Vec<Panel> = rows.iter().filter(is_time).map(panel).collect();
    draw_bars(path, "Device time of SAL-hashing by that of its rivals, simulated", &panels)
}
