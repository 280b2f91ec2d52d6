//! Every format, plain and compressed, as a file and on standard input.

use crate::support::{Work, arrow_file, gzip, parquet_file, raw, zstd};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    Float64Array, Int64Array, ListArray, RecordBatch, StringArray, TimestampMicrosecondArray,
    types::{Int32Type, Int64Type},
};
use arrow_ipc::writer::StreamWriter;
use std::sync::Arc;

const ROWS: usize = 3000;

fn key(i: usize) -> String {
    format!("key \u{e9} {i}")
}

fn number(i: usize) -> i64 {
    i as i64 * 1_000_003 - 50_000
}

fn text(i: usize) -> String {
    match i % 4 {
        0 => String::new(),
        1 => format!("plain {i}"),
        2 => format!("a, \"quoted\"\none {i}"),
        _ => "x".repeat(i % 100),
    }
}

fn csv(delimiter: u8) -> Vec<u8> {
    let mut out = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    out.write_record(["number", "key", "text"]).unwrap();
    for i in 0..ROWS {
        out.write_record([number(i).to_string(), key(i), text(i)]).unwrap();
    }
    out.into_inner().unwrap()
}

fn json_lines() -> Vec<u8> {
    let line = |i| serde_json::json!({"number": number(i), "key": key(i), "text": text(i)});
    (0..ROWS).map(|i| format!("{}\n", line(i))).collect::<String>().into_bytes()
}

fn batch() -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(number)));
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(key)));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(text)));
    RecordBatch::try_from_iter([("number", numbers), ("key", keys), ("text", texts)]).unwrap()
}

fn arrow_stream(batch: &RecordBatch) -> Vec<u8> {
    let mut out = StreamWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    out.write(batch).unwrap();
    out.into_inner().unwrap()
}

/// Builds from rows in a file, a gzip file, a zstd file and a pipe, and compares the tables.
#[track_caller]
fn check(format: &str, name: &str, bytes: &[u8], numbers_have_type: bool) {
    let work = Work::new();
    work.write(name, bytes);
    work.write(&format!("{name}.gz"), gzip(bytes));
    work.write(&format!("{name}.zst"), zstd(bytes));
    let mut expected: Vec<_> = (0..ROWS)
        .map(|i| {
            let number = number(i).to_string();
            let number = if numbers_have_type { number } else { format!("\"{number}\"") };
            let text = serde_json::to_string(&text(i)).unwrap();
            format!(r#"{{"key":"{}","number":{number},"text":{text}}}"#, key(i))
        })
        .collect();
    expected.sort();
    for (table, file) in [("a", ""), ("b", ".gz"), ("c", ".zst")] {
        let outcome = work.ok(&format!("build {name}{file} --key key --out {table}"));
        assert!(outcome.text().starts_with(&format!("built {table}: 3,000 entries;")));
        assert_eq!(work.entries(table), expected, "{name}{file}");
    }
    for (table, bytes) in [("d", bytes), ("e", &zstd(bytes))] {
        let line = format!("build - --key key --value text --format {format} --out {table}");
        assert_eq!(work.feed(&line, bytes).code, 0);
    }
    let plain: Vec<_> = work.entries("d");
    assert_eq!(plain, work.entries("e"));
    assert!(plain.contains(&format!("{{\"key\":\"{}\",\"text\":\"plain 1\"}}", key(1))));
}

#[test]
fn csv_and_tsv_are_read() {
    check("csv", "rows.csv", &csv(b','), false);
    check("tsv", "rows.tsv", &csv(b'\t'), false);
}

#[test]
fn json_lines_are_read() {
    check("jsonl", "rows.jsonl", &json_lines(), true);
    check("jsonl", "rows.ndjson", &json_lines(), true);
}

#[test]
fn parquet_is_read() {
    check("parquet", "rows.parquet", &parquet_file(&batch()), true);
}

#[test]
fn arrow_files_and_streams_are_read() {
    check("arrow", "rows.feather", &arrow_file(&batch()), true);
    check("arrow", "rows.arrow", &arrow_stream(&batch()), true);
}

#[test]
fn raw_records_go_in_and_come_out() {
    let entries: Vec<_> = (0..ROWS).map(|i| (key(i), text(i))).collect();
    let entries: Vec<_> = entries.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes())).collect();
    let work = Work::new();
    work.write("rows.raw", raw(&entries)).write("rows.raw.gz", gzip(&raw(&entries)));
    work.ok("build rows.raw --out a --seed 7");
    work.ok("build rows.raw.gz --out b --seed 7");
    let scan = work.ok("scan a --format raw").stdout;
    assert_eq!(scan.len(), raw(&entries).len());
    assert_eq!(scan, work.ok("scan b --format raw").stdout);
    assert_eq!(work.feed("build - --format raw --out c --seed 7", &scan).code, 0);
    assert_eq!(scan, work.ok("scan c --format raw").stdout);
}

/// Returns a column of each type; the second row is null where possible.
fn all_types() -> RecordBatch {
    let lists =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    let decimals = Decimal128Array::from(vec![Some(-12345), None]);
    let columns: [(&str, ArrayRef); 10] = [
        ("id", Arc::new(Int64Array::from(vec![-5, 6]))),
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("float", Arc::new(Float64Array::from(vec![Some(0.1), None]))),
        ("day", Arc::new(Date32Array::from(vec![Some(19_000), None]))),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None]).with_timezone("+00:00")),
        ),
        ("bytes", Arc::new(BinaryArray::from_opt_vec(vec![Some(b"\xff"), None]))),
        ("text", Arc::new(StringArray::from(vec![Some("t"), None]))),
        ("word", Arc::new(DictionaryArray::<Int64Type>::from_iter([Some("w"), None]))),
        ("price", Arc::new(decimals.with_precision_and_scale(9, 2).unwrap())),
        ("list", Arc::new(lists)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .unwrap()
}

#[test]
fn columns_keep_their_types() {
    let work = Work::new();
    work.write("t.parquet", parquet_file(&all_types()))
        .write("t.arrow", arrow_stream(&all_types()));
    for file in ["t.parquet", "t.arrow"] {
        work.ok(&format!("build {file} --key id --out t --replace"));
        assert_eq!(
            work.ok("get t -5 6").text(),
            concat!(
                r#"{"id":-5,"flag":true,"float":0.1,"day":"2022-01-08","#,
                r#""time":"1970-01-01T00:00:00.000001Z","bytes":{"base64":"/w=="},"text":"t","#,
                r#""word":"w","price":"-123.45","list":[1,null]}"#,
                "\n",
                r#"{"id":6,"flag":null,"float":null,"day":null,"time":null,"bytes":null,"#,
                r#""text":null,"word":null,"price":null,"list":null}"#,
                "\n",
            )
        );
    }
}

#[test]
fn keys_of_any_scalar_type_are_their_text() {
    let work = Work::new();
    work.write("t.parquet", parquet_file(&all_types().slice(0, 1)));
    let keys = [
        ("flag", "true"),
        ("float", "0.1"),
        ("day", "2022-01-08"),
        ("time", "1970-01-01T00:00:00.000001Z"),
        ("word", "w"),
        ("price", "-123.45"),
    ];
    for (column, key) in keys {
        work.ok(&format!("build t.parquet --key {column} --value text --out t --replace"));
        assert_eq!(work.ok(&format!("get t {key} --format raw")).text(), "t", "{column}");
    }
}

#[test]
fn of_several_inputs_the_last_row_wins() {
    let work = Work::new();
    work.write("a.csv", "k,v,w\n1,a,b\n2,a,b\n").write("b.csv", "w,k,v\nd,2,c\n");
    let outcome = work.ok("build a.csv b.csv --key k --out t");
    assert!(outcome.text().starts_with("built t: 2 entries, 1 duplicate;"), "{outcome:?}");
    assert_eq!(work.entries("t"), [r#"{"k":"1","v":"a","w":"b"}"#, r#"{"k":"2","v":"c","w":"d"}"#]);
}

#[test]
fn columns_without_names_have_numbers() {
    let work = Work::new();
    work.write("a.csv", "x|1|one\ny|2|two").write("b.tsv", "\"q\" w\t1\n");
    work.ok("build a.csv --no-header --delimiter | --key 2 --value 3 --out t");
    assert_eq!(work.entries("t"), [r#"{"2":"1","3":"one"}"#, r#"{"2":"2","3":"two"}"#]);
    work.ok("build b.tsv --no-header --no-quotes --key 2 --out u");
    assert_eq!(work.entries("u"), [r#"{"2":"1","1":"\"q\" w"}"#]);
}

#[test]
fn the_mark_of_some_editors_is_not_part_of_a_name() {
    let work = Work::new();
    work.write("a.csv", "\u{feff}k,v\r\n1,a\r\n\r\n2,b\r\n");
    work.ok("build a.csv --key k --out t");
    assert_eq!(work.entries("t"), [r#"{"k":"1","v":"a"}"#, r#"{"k":"2","v":"b"}"#]);
}

#[test]
fn named_fields_of_json_lines_keep_their_types() {
    let work = Work::new();
    let lines =
        "{\"k\":1,\"a\":\"x\",\"b\":[1, 2]}\n{\"k\":\"2\",\"b\":null}\n\n{\"k\":3,\"a\":3.50}\n";
    work.write("a.jsonl", lines);
    work.ok("build a.jsonl --key k --value a --value b --out t");
    assert_eq!(
        work.entries("t"),
        [
            r#"{"k":"1","a":"x","b":[1, 2]}"#,
            r#"{"k":"2","a":null,"b":null}"#,
            r#"{"k":"3","a":3.50,"b":null}"#
        ]
    );
    work.ok("build a.jsonl --key k --value a --out u");
    assert_eq!(
        work.entries("u"),
        [r#"{"k":"1","a":"x"}"#, r#"{"k":"2","a":null}"#, r#"{"k":"3","a":3.50}"#]
    );
}

#[test]
fn a_file_without_rows_makes_an_empty_table() {
    let work = Work::new();
    work.write("a.csv", "k,v\n").write("b.jsonl", "").write("c.raw", "");
    work.ok("build a.csv --key k --out a");
    work.ok("build b.jsonl --key k --out b");
    work.ok("build c.raw --out c");
    for table in ["a", "b", "c"] {
        assert_eq!(work.entries(table), [""; 0]);
        assert_eq!(work.run(&format!("get {table} x")).code, 1);
    }
}
