//! The speed of peers in the course of their work: a file of curves beside the rows of a report, and their chart.

use crate::Result;
use record::{
    curves::{
        AMBER, Axis, BLUE, Chart, GREY, INK, Look, ORANGE, PURPLE, Point, RGBColor, SKY, Series,
        TEAL, draw_grid,
    },
    short,
};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The times of parts of equal work of one peer, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pub data: String,
    pub peer: String,
    /// Number of operations of a part.
    pub operations: u64,
    /// Time of each part, in seconds.
    pub seconds: Vec<f64>,
    /// Number of rounds, of which this is the one with the median time.
    pub rounds: usize,
}

impl Curve {
    /// Returns the line of a file of results.
    pub fn to_json(&self) -> Map<String, Value> {
        let fields = [
            ("data", json!(self.data)),
            ("peer", json!(self.peer)),
            ("operations", json!(self.operations)),
            ("seconds", json!(self.seconds)),
            ("rounds", json!(self.rounds)),
        ];
        fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    }

    pub fn from_json(line: &Value) -> Result<Curve> {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let times = line["seconds"].as_array().ok_or("expected a list of seconds")?;
        Ok(Curve {
            data: text("data"),
            peer: text("peer"),
            operations: line["operations"].as_u64().ok_or("expected a number of operations")?,
            seconds: times.iter().filter_map(Value::as_f64).collect(),
            rounds: line["rounds"].as_u64().unwrap_or(0) as usize,
        })
    }

    /// Returns the number of the slowest part and its time.
    fn slowest(&self) -> Option<(usize, f64)> {
        let times = self.seconds.iter().copied().enumerate();
        times.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// Returns million operations at the end of a part, and million operations per second in it.
    fn point(&self, (part, seconds): (usize, f64)) -> Point {
        let million = self.operations as f64 / 1e6;
        Point::new((part + 1) as f64 * million, million / seconds)
    }

    /// Returns the curve, and the mark of its slowest part.
    fn series(&self, colour: RGBColor) -> Vec<Series> {
        let Some(slowest) = self.slowest() else { return Vec::new() };
        let time = format!("{} s", short(slowest.1));
        let points = self.seconds.iter().copied().enumerate().map(|part| self.point(part));
        let name = format!("{}:\nslowest {time}", self.peer);
        let mark = vec![self.point(slowest).labelled(time)];
        vec![
            Series { name, look: Look::Line, colour, points: points.collect() },
            Series { name: String::new(), look: Look::Dots, colour, points: mark },
        ]
    }
}

/// Draws a chart for each data set.
pub fn draw(path: &Path, curves: &[Curve]) -> Result<()> {
    let mut data: Vec<&str> = Vec::new();
    for curve in curves {
        if !data.contains(&curve.data.as_str()) {
            data.push(&curve.data);
        }
    }
    let chart = |data: &&str| {
        let mine: Vec<&Curve> = curves.iter().filter(|curve| curve.data == **data).collect();
        chart(data, &mine)
    };
    let charts: Vec<Chart> = data.iter().filter_map(chart).collect();
    draw_grid(&charts, path)
}

/// Returns the chart of one data set, if something was measured of it.
fn chart(data: &str, curves: &[&Curve]) -> Option<Chart> {
    const COLOURS: [RGBColor; 8] = [BLUE, ORANGE, TEAL, PURPLE, AMBER, SKY, GREY, INK];
    let colours = COLOURS.into_iter().cycle();
    let series: Vec<Series> =
        curves.iter().zip(colours).flat_map(|(curve, colour)| curve.series(colour)).collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let most = |of: &dyn Fn(&Point) -> f64| points().map(of).fold(0.0, f64::max);
    let (right, high) = (most(&|point| point.x), most(&|point| point.y));
    let low = points().map(|point| point.y).fold(f64::INFINITY, f64::min);
    let operations = curves.first().map_or(0, |curve| curve.operations);
    let part = match operations {
        1_000_000 => "million".to_owned(),
        _ => record::count(operations),
    };
    let title = format!("The speed of each {part}, {data}; the slowest is marked");
    (right > 0.0 && low > 0.0).then(|| Chart {
        title,
        x: Axis::from_zero("million done", right),
        y: Axis::logarithmic("million per second; more is better", low, high),
        series,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> Curve {
        let seconds = vec![0.5, 2.0, 0.25];
        let [data, peer] = ["puts", "a map"].map(str::to_owned);
        Curve { data, peer, operations: 1_000_000, seconds, rounds: 3 }
    }

    #[test]
    fn a_curve_comes_back_from_its_line() {
        let line = Value::Object(curve().to_json());
        assert_eq!(Curve::from_json(&line).unwrap(), curve());
        assert!(Curve::from_json(&json!({})).is_err());
    }

    #[test]
    fn the_slowest_part_is_marked() {
        let path = std::env::temp_dir().join(format!("curves-{}.svg", std::process::id()));
        draw(&path, &[curve()]).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for words in ["The speed of each million, puts;", "a map:", "slowest 2 s", "<circle"] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
    }
}
