//! `hashfold sketch add`: which key a value becomes, in one sketch and in a sketch for each group; and what is said of
//! arguments that are no sets, columns or expressions.

use crate::support::{Work, parquet_file};
use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, types::Int64Type};
use serde_json::Value;
use std::{fs, sync::Arc};

#[track_caller]
fn check_refused(work: &Work, command: &str, says: &str) {
    let refused = work.run(command);
    assert_eq!(refused.code, 2, "{command}: {refused:?}");
    assert!(refused.stderr.contains(says), "{command}: {refused:?}");
}

/// Checks that a column of values is the same sketch alone and as a group of rows, or refused in the same words.
#[track_caller]
fn check_same(work: &Work, file: &str, number: usize, refused: Option<&str>) {
    let (one, groups) = (format!("one{number}.hll"), format!("groups{number}"));
    let alone = work.run(&format!("sketch add {one} --keys {file} --key n"));
    let grouped = work.run(&format!("sketch add {groups} --by g --key n {file}"));
    let Some(reason) = refused else {
        assert_eq!((alone.code, grouped.code), (0, 0), "{alone:?} {grouped:?}");
        work.ok(&format!("sketch union group.hll {groups}:x --replace"));
        let [one, group] = [&one[..], "group.hll"].map(|name| fs::read(work.path(name)).unwrap());
        assert_eq!(one, group, "{file} {number}");
        return;
    };
    for outcome in [&alone, &grouped] {
        assert_eq!(outcome.code, 3, "{outcome:?}");
        assert!(outcome.stderr.contains(reason), "{outcome:?}");
    }
    assert!(!work.path(&one).exists() && !work.path(&groups).exists());
}

#[test]
fn a_json_value_is_the_same_key_in_a_sketch_and_in_a_group() {
    let work = Work::new();
    let list = Some("the key \"n\" is a list, expected a string or a number");
    let long = format!("\"{}\"", "k".repeat(70_000));
    for (i, (json, refused)) in [
        (r#""a""#, None),
        (r#""a\u0062\n""#, None),
        (r#""""#, None),
        ("1", None),
        ("-1.50", None),
        ("1e3", None),
        ("true", None),
        (r#"{"base64":"/wA="}"#, None),
        ("[1]", list),
        ("[]", list),
        (r#"{"a":1}"#, Some("the key \"n\" is an object, expected a string or a number")),
        (r#""\ud800""#, Some("the key \"n\" is not Unicode text")),
        (&long[..], Some("the key is 70000 bytes long")),
    ]
    .into_iter()
    .enumerate()
    {
        work.write("row.jsonl", format!("{{\"g\":\"x\",\"n\":{json}}}\n"));
        check_same(&work, "row.jsonl", i, refused);
    }
    // Rows that cannot be used are skipped and counted in both.
    work.write("rows.jsonl", "{\"g\":\"x\",\"n\":[1]}\n{\"g\":\"x\",\"n\":2}\n");
    for command in ["one.hll --keys rows.jsonl --key n", "groups --by g --key n rows.jsonl"] {
        let added = work.ok(&format!("sketch add {command} --bad-rows skip --max-bad-rows 1"));
        assert!(added.text().contains(", 1 bad row skipped"), "{added:?}");
    }
    assert_eq!(work.ok("sketch count groups x").text(), "g,distinct,low,high\nx,1,1,1\n");
}

#[test]
fn a_value_of_a_column_is_the_same_key_in_all_formats() {
    let work = Work::new();
    let groups: ArrayRef = Arc::new(StringArray::from(vec!["x", "x", "x"]));
    let columns: [(&str, ArrayRef); 3] = [
        ("texts", Arc::new(StringArray::from(vec!["1", "[1]", ""]))),
        ("numbers", Arc::new(Int64Array::from(vec![1, -7, 0]))),
        (
            "lists",
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
                Some(vec![Some(1)]);
                3
            ])),
        ),
    ];
    for (i, (kind, column)) in columns.into_iter().enumerate() {
        let batch = RecordBatch::try_from_iter([("g", groups.clone()), ("n", column)]).unwrap();
        work.write("rows.parquet", parquet_file(&batch));
        let refused = (kind == "lists").then_some("and a key must be text, bytes or a number");
        check_same(&work, "rows.parquet", i, refused);
    }
    work.write("rows.csv", "g,n\nx,1\nx,-7\nx,0\n");
    work.write(
        "rows.jsonl",
        "{\"g\":\"x\",\"n\":1}\n{\"g\":\"x\",\"n\":\"-7\"}\n{\"g\":\"x\",\"n\":0}\n",
    );
    work.ok("sketch add all --by g --key n rows.csv rows.jsonl");
    work.ok("sketch add other --by g --key n rows.jsonl rows.csv");
    assert_eq!(work.entries("all"), work.entries("groups1"));
    assert_eq!(work.entries("other"), work.entries("groups1"));
}

/// A null in a column of text was counted as the empty key.
#[test]
fn a_null_is_no_key_in_any_format() {
    let work = Work::new();
    let groups: ArrayRef = Arc::new(StringArray::from(vec!["x", "x", "y"]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("1"), None, None]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, None]));
    for (name, column) in [("texts", texts), ("numbers", numbers)] {
        let batch = RecordBatch::try_from_iter([("g", groups.clone()), ("n", column)]).unwrap();
        work.write("rows.parquet", parquet_file(&batch));
        work.ok(&format!("sketch add {name} --by g --key n rows.parquet"));
        let counts = work.ok(&format!("sketch count {name} x y"));
        assert_eq!(counts.text(), "g,distinct,low,high\nx,1,1,1\ny,0,0,0\n", "{name}");
    }
}

#[test]
fn a_field_that_no_row_has_is_refused() {
    let work = Work::new();
    work.write("rows.jsonl", "{\"g\":\"x\",\"n\":1}\n{\"g\":\"y\"}\n");
    let refused = work.run("sketch add groups --by g --key m rows.jsonl");
    assert!(
        refused.code == 3 && refused.stderr.contains("no row has the field \"m\""),
        "{refused:?}"
    );
    assert!(!work.path("groups").exists());
}

#[test]
fn groups_need_another_column_than_their_keys() {
    let work = Work::new();
    work.write("rows.csv", "n,page\n1,home\n");
    let says =
        "--by and --key name the same column \"page\", so that each group would have one key";
    check_refused(&work, "sketch add groups --by page --key page rows.csv", says);
    assert!(!work.path("groups").exists());
}

#[test]
fn sets_and_expressions_are_explained() {
    let work = Work::new();
    work.ok("sketch add a.kmv 1 2 3 --bottom-k 16");
    for (expression, says) in [
        ("A&", "expression is \"A&\", which ends after character 2, expected a set (A to Z, or"),
        ("A&&B", "expression is \"A&&B\", with \"&\" at character 3, expected a set (A to Z, or"),
        ("A)B", "with \")\" at character 2, expected &, |, - or the end there"),
        ("(A|B", "which ends after character 4, expected &, |, - or ) there; the ( at character 1"),
        ("A&C", "--expression names the set C, but 2 sets are given, A to B: the first one is A"),
    ] {
        let command = format!("sketch intersect a.kmv a.kmv --expression {expression}");
        check_refused(&work, &command, says);
    }
    let many = format!("sketch intersect{}", " a.kmv".repeat(65));
    check_refused(&work, &many, "65 sets are given, expected 2 to 64");
    work.ok(&format!("sketch intersect{}", " a.kmv".repeat(64)));
}

#[test]
fn unions_print_json() {
    let work = Work::new();
    work.ok("sketch add a.hll 1 2");
    work.ok("sketch add b.hll 2 3");
    let json = |command: &str| -> Value {
        let outcome = work.ok(command);
        serde_json::from_str(outcome.text().lines().last().unwrap()).unwrap()
    };
    let union = json("sketch union all.hll a.hll b.hll --json");
    let count = json("sketch count all.hll --json");
    let bytes = fs::read(work.path("all.hll")).unwrap().len();
    assert_eq!((&union["sketch"], &union["distinct"]), (&"all.hll".into(), &count));
    assert_eq!(union["bytes"], bytes);
    work.write("rows.csv", "n,page\n1,home\n2,shop\n");
    work.ok("sketch add groups --by page --key n rows.csv");
    let union = json("sketch union week groups groups --json");
    assert_eq!((&union["event"], &union["groups"]), (&"united".into(), &"week".into()));
    let shown = json("sketch show week --json");
    assert_eq!((&union["group_count"], &union["bytes"]), (&2.into(), &shown["bytes"]));
}
