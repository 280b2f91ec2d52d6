//! A number for the fields, summaries and chains of a pipeline: a checkpoint is read only by the pipeline that it is of.
//! `docs/formats/checkpoint.md` says what is hashed, and in which order.

use super::{
    chains::Chains,
    definition::{Aggregate, Column, Field, FieldKind, Rule, Summary, Test},
};
use crate::codec::{put_bytes, put_varint};
use xxhash_rust::xxh3::xxh3_64;

/// Returns the number of a definition: its fields, summaries, and chains with the summaries of their credits.
pub(super) fn identity(
    fields: &[Field],
    summaries: &[Summary],
    chains: &[(Chains, Vec<Summary>)],
) -> u64 {
    let mut out = Vec::new();
    put_all(&mut out, fields, |out, Field { name, kind }| {
        put_bytes(out, name.as_bytes());
        out.push(match kind {
            FieldKind::Int => 0,
            FieldKind::Float => 1,
            FieldKind::Text => 2,
        });
    });
    put_all(&mut out, summaries, put_summary);
    // Nothing without chains, so that the number is that of version 1.
    for (chains, summaries) in chains {
        put_chains(&mut out, chains);
        put_all(&mut out, summaries, put_summary);
    }
    xxh3_64(&out)
}

fn put_chains(out: &mut Vec<u8>, chains: &Chains) {
    // The memory can be changed.
    let Chains { name, user, channel, touch, conversion, value, age_ms_max, touches_max, .. } =
        chains;
    let Chains { lateness_ms, restarts, models, memory_bytes: _, dump_ms, .. } = chains;
    put_bytes(out, name.as_bytes());
    put_varint(out, *user as u64);
    put_all(out, channel, |out, field| put_varint(out, *field as u64));
    put_all(out, touch, put_rule);
    put_all(out, conversion, put_rule);
    put_varint(out, value.map_or(0, |field| field as u64 + 1));
    out.extend(age_ms_max.to_le_bytes());
    put_varint(out, *touches_max as u64);
    out.extend(lateness_ms.to_le_bytes());
    out.push(u8::from(*restarts));
    put_all(out, models, |out, model| {
        put_bytes(out, model.name().as_bytes());
        put_all(out, &model.parameters(), |out, number| out.extend(number.to_le_bytes()));
    });
    out.extend(dump_ms.unwrap_or(0).to_le_bytes());
}

/// Appends the number of items, then each.
fn put_all<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_varint(out, items.len() as u64);
    items.iter().for_each(|item| put(out, item));
}

fn put_summary(out: &mut Vec<u8>, summary: &Summary) {
    let Summary { name, rules, group_by, columns, window_ms, lateness_ms, groups_max } = summary;
    put_bytes(out, name.as_bytes());
    put_all(out, rules, put_rule);
    put_all(out, group_by, |out, field| put_varint(out, *field as u64));
    put_all(out, columns, |out, Column { name, aggregate }| {
        put_bytes(out, name.as_bytes());
        put_aggregate(out, aggregate);
    });
    out.extend(window_ms.unwrap_or(0).to_le_bytes());
    out.extend(lateness_ms.to_le_bytes());
    put_varint(out, *groups_max as u64);
}

fn put_rule(out: &mut Vec<u8>, Rule { field, test }: &Rule) {
    put_varint(out, *field as u64);
    let texts = |out: &mut Vec<u8>, number, texts: &[Vec<u8>]| {
        out.push(number);
        put_all(out, texts, |out, text| put_bytes(out, text));
    };
    match test {
        Test::In(all) => texts(out, 0, all),
        Test::NotIn(all) => texts(out, 1, all),
        Test::Present => out.push(2),
        Test::AtLeast(least) => {
            out.push(3);
            out.extend(least.to_le_bytes());
        }
    }
}

fn put_aggregate(out: &mut Vec<u8>, aggregate: &Aggregate) {
    let of_field = |out: &mut Vec<u8>, number, field: &usize| {
        out.push(number);
        put_varint(out, *field as u64);
    };
    let numbers = |out: &mut Vec<u8>, all: &[f64]| {
        put_all(out, all, |out, number| out.extend(number.to_le_bytes()));
    };
    match aggregate {
        Aggregate::Count => out.push(0),
        Aggregate::Sum(field) => of_field(out, 1, field),
        Aggregate::Min(field) => of_field(out, 2, field),
        Aggregate::Max(field) => of_field(out, 3, field),
        Aggregate::Distinct { field, precision } => {
            of_field(out, 4, field);
            out.push(*precision);
        }
        Aggregate::Top { field, count } => {
            of_field(out, 5, field);
            put_varint(out, *count as u64);
        }
        Aggregate::Quantiles { field, at } => {
            of_field(out, 6, field);
            numbers(out, at);
        }
        Aggregate::Histogram { field, bounds } => {
            of_field(out, 7, field);
            numbers(out, bounds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::TimeDecay;
    use std::sync::Arc;

    /// A definition with all kinds of parts.
    fn definition() -> (Vec<Field>, Vec<Summary>) {
        let fields = [("a", FieldKind::Int), ("b", FieldKind::Float), ("c", FieldKind::Text)];
        let columns = vec![
            Column::new("n", Aggregate::Count),
            Column::new("s", Aggregate::Sum(0)),
            Column::new("d", Aggregate::Distinct { field: 2, precision: 12 }),
            Column::new("t", Aggregate::Top { field: 2, count: 3 }),
            Column::new("q", Aggregate::Quantiles { field: 1, at: vec![0.5] }),
            Column::new("h", Aggregate::Histogram { field: 0, bounds: vec![1.0, 2.0] }),
        ];
        let tests = [Test::Present, Test::AtLeast(7), Test::In(vec![b"x".to_vec()])];
        let rules = tests.map(|test| Rule { field: 0, test }).to_vec();
        let fields = fields.map(|(name, kind)| Field::new(name, kind)).to_vec();
        (fields, vec![Summary::new("all", columns).rules(rules)])
    }

    /// The number is part of a file format: it does not change with the compiler or the names in the code.
    #[test]
    fn a_definition_has_this_number_for_ever() {
        let (fields, summaries) = definition();
        assert_eq!(identity(&fields, &summaries, &[]), 8_411_519_251_124_850_655);
    }

    /// A change of a definition.
    type Change = dyn Fn(&mut Vec<Field>, &mut Summary);

    #[test]
    fn each_part_changes_the_number() {
        let (fields, summaries) = definition();
        let before = identity(&fields, &summaries, &[]);
        let changed = |change: &Change| {
            let (mut fields, mut summaries) = definition();
            change(&mut fields, &mut summaries[0]);
            identity(&fields, &summaries, &[])
        };
        let changes: [&Change; 9] = [
            &|fields, _| fields[0].name = "z".into(),
            &|fields, _| fields[0].kind = FieldKind::Float,
            &|_, summary| summary.name = "z".into(),
            &|_, summary| summary.rules[1].test = Test::AtLeast(8),
            &|_, summary| summary.group_by.push(0),
            &|_, summary| summary.columns[1].aggregate = Aggregate::Min(0),
            &|_, summary| summary.window_ms = Some(1000),
            &|_, summary| summary.lateness_ms = 1,
            &|_, summary| summary.groups_max = 1,
        ];
        for (i, change) in changes.iter().enumerate() {
            assert_ne!(changed(change), before, "{i}");
        }
    }

    #[test]
    fn each_part_of_chains_changes_the_number_but_their_memory() {
        let (fields, summaries) = definition();
        let chains = || {
            let rule = Rule { field: 2, test: Test::Present };
            Chains { conversion: vec![rule], ..Chains::new("all", 0, vec![2]) }
        };
        let number = |chains: &Chains, summaries: &[Summary]| {
            identity(&fields, &[], &[(chains.clone(), summaries.to_vec())])
        };
        let before = number(&chains(), &[]);
        let changes: [fn(&mut Chains); 12] = [
            |chains| chains.name = "z".into(),
            |chains| chains.user = 2,
            |chains| chains.channel.push(0),
            |chains| chains.touch.push(Rule { field: 0, test: Test::Present }),
            |chains| chains.conversion.clear(),
            |chains| chains.value = Some(0),
            |chains| chains.age_ms_max = 7,
            |chains| chains.touches_max = 7,
            |chains| chains.lateness_ms = 7,
            |chains| chains.restarts = true,
            |chains| chains.models = vec![Arc::new(TimeDecay::new(7).unwrap())],
            |chains| chains.dump_ms = Some(7),
        ];
        let mut seen = vec![before, number(&chains(), &summaries)];
        for change in changes {
            let mut changed = chains();
            change(&mut changed);
            seen.push(number(&changed, &[]));
        }
        let other = Chains { models: vec![Arc::new(TimeDecay::new(8).unwrap())], ..chains() };
        seen.push(number(&other, &[]));
        seen.sort_unstable();
        assert!(seen.windows(2).all(|two| two[0] != two[1]), "{seen:?}");
        let larger = Chains { memory_bytes: 1 << 30, ..chains() };
        assert_eq!(number(&larger, &[]), before);
    }
}
