//! Types of keys, lists, inferred and converted kinds, and columns that come and go.

use crate::support::{Work, arrow_file, parquet_file, raw};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float64Array, Int64Array, LargeListArray, ListArray, RecordBatch,
    StringArray, UInt64Array,
    types::{Float32Type, Int64Type, UInt8Type},
};
use serde_json::Value;
use std::sync::Arc;

/// Runs a command that must fail with this exit code; returns its message.
#[track_caller]
fn refused(work: &Work, line: &str, code: i32) -> String {
    let outcome = work.run(line);
    assert_eq!(outcome.code, code, "{line}: {outcome:?}");
    outcome.stderr
}

fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .unwrap()
}

#[test]
fn a_key_that_was_a_number_comes_back_as_a_number() {
    let work = Work::new();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![4711, -5]));
    let large: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 1]));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["Eve", "Adam"]));
    let rows = batch([("id", ids), ("large", large), ("name", names)]);
    work.write("a.parquet", parquet_file(&rows)).write("a.arrow", arrow_file(&rows));
    work.write("a.jsonl", "{\"id\":4711,\"name\":\"Eve\"}\n{\"id\":-5,\"name\":\"Adam\"}\n");
    work.write("a.csv", "id,name\n4711,Eve\n-5,Adam\n");
    for input in ["a.parquet", "a.arrow", "a.jsonl", "a.csv --infer"] {
        work.ok(&format!("build {input} --key id --value name --out t --replace"));
        let found = work.run("get t 4711 -5 7 x");
        let expected = "{\"id\":4711,\"name\":\"Eve\"}\n{\"id\":-5,\"name\":\"Adam\"}\n\
                        {\"id\":7,\"found\":false}\n{\"id\":\"x\",\"found\":false}\n";
        assert_eq!((found.code, found.text()), (1, expected), "{input}");
        assert_eq!(work.ok("get t 4711 --format csv").text(), "id,name\n4711,Eve\n");
        let stat = work.ok("stat t").text().to_owned();
        assert!(stat.contains("columns      id int64, name "), "{stat}");
    }
    work.ok("build a.parquet --key large --value name --out t --replace");
    let found = work.ok("get t 18446744073709551615").text().to_owned();
    assert_eq!(found, "{\"large\":18446744073709551615,\"name\":\"Eve\"}\n");
    // Text keys stay text, also if only some of them are numbers.
    work.write("b.jsonl", "{\"id\":1,\"name\":\"a\"}\n{\"id\":\"2\",\"name\":\"b\"}\n");
    for input in ["a.csv", "b.jsonl", "a.jsonl b.jsonl"] {
        work.ok(&format!("build {input} --key id --value name --out t --replace"));
        assert!(work.entries("t").iter().all(|line| line.starts_with("{\"id\":\"")), "{input}");
    }
}

#[test]
fn a_store_keeps_the_type_of_its_keys() {
    let work = Work::new();
    work.write("a.jsonl", "{\"id\":1,\"v\":1}\n")
        .write("b.csv", "id,v\n2,x\n")
        .write("c.csv", "id,v\nx,x\n");
    work.ok("update s a.jsonl --key id --value v");
    // Text of an integer is one; other text is not.
    work.ok("update s b.csv");
    assert_eq!(work.entries("s"), [r#"{"id":1,"v":1}"#, r#"{"id":2,"v":"x"}"#]);
    let message = refused(&work, "update s c.csv", 3);
    assert_eq!(
        message,
        "hashfold: c.csv:2: the key is \"x\", and those of the store are integers\n"
    );
    // Keys of integers fit a store of text.
    work.ok("update t c.csv --key id");
    work.ok("update t a.jsonl");
    assert_eq!(work.entries("t"), [r#"{"id":"1","v":"1"}"#, r#"{"id":"x","v":"x"}"#]);
}

#[test]
fn lists_of_numbers_are_lists() {
    let places = || [Some(vec![Some(0.5), Some(2.0)]), None];
    let fixed = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(places(), 2);
    let counts = [Some(vec![Some(1), None, Some(-3)]), Some(vec![])];
    let large = LargeListArray::from_iter_primitive::<Int64Type, _, _>(counts);
    let small = [Some(vec![Some(255)]), None];
    let small = ListArray::from_iter_primitive::<UInt8Type, _, _>(small);
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let rows = batch([
        ("id", ids),
        ("place", Arc::new(fixed)),
        ("counts", Arc::new(large)),
        ("small", Arc::new(small)),
    ]);
    let work = Work::new();
    work.write("a.parquet", parquet_file(&rows)).write("a.arrow", arrow_file(&rows));
    let json = "{\"id\":1,\"place\":[0.5,2],\"counts\":[1,null,-3],\"small\":[255]}\n\
                {\"id\":2,\"place\":null,\"counts\":[],\"small\":null}\n";
    work.write("a.jsonl", json);
    for (input, kinds) in [
        ("a.parquet", "place list[float32], counts list[int64], small list[int32]"),
        ("a.arrow", "place list[float32], counts list[int64], small list[int32]"),
        ("a.jsonl --infer", "place list[float64], counts list[int64], small list[int64]"),
    ] {
        work.ok(&format!("build {input} --key id --out t --replace"));
        assert_eq!(work.ok("get t 1 2").text(), json, "{input}");
        let stat = work.ok("stat t").text().to_owned();
        assert!(stat.contains(&format!("columns      id int64, {kinds}\n")), "{input}: {stat}");
    }
    let csv = "id,place,counts,small\n1,\"[0.5,2]\",\"[1,null,-3]\",[255]\n";
    assert_eq!(work.ok("get t 1 --format csv").text(), csv);
    // An update may bring a list in any form.
    work.ok("update s a.parquet --key id");
    work.write("b.jsonl", "{\"id\":1,\"place\":[1],\"counts\":[2],\"small\":[3]}\n");
    work.write("b.csv", "id,place,counts,small\n2,\"[4]\",[5],\n");
    work.ok("update s b.jsonl");
    work.ok("update s b.csv");
    assert_eq!(
        work.entries("s"),
        [
            r#"{"id":1,"place":[1],"counts":[2],"small":[3]}"#,
            r#"{"id":2,"place":[4],"counts":[5],"small":null}"#
        ]
    );
}

#[test]
fn kinds_of_csv_are_inferred_on_demand() {
    let work = Work::new();
    work.write(
        "a.csv",
        "id,size,price,zip,day,at,ok,note\n\
         1,5,791.42,01067,2026-01-31,2026-01-31T12:00:00Z,true,\n\
         2,,3,80331,,,false,x\n",
    );
    work.ok("build a.csv --key id --infer --out t");
    assert_eq!(
        work.ok("get t 1 2").text(),
        "{\"id\":1,\"size\":5,\"price\":791.42,\"zip\":\"01067\",\"day\":\"2026-01-31\",\
         \"at\":\"2026-01-31T12:00:00.000000Z\",\"ok\":true,\"note\":\"\"}\n\
         {\"id\":2,\"size\":null,\"price\":3,\"zip\":\"80331\",\"day\":null,\"at\":null,\
         \"ok\":false,\"note\":\"x\"}\n"
    );
    let stat = work.ok("stat t").text().to_owned();
    assert!(stat.contains("price float64, zip text, day date, at timestamp[us, UTC]"), "{stat}");
    // A value behind the first MiB that does not fit is a bad row, with its place.
    let rows: String = (0..200_000).map(|i| format!("{i},{i}\n")).collect();
    work.write("b.csv", format!("id,size\n{rows}x,many\n"));
    let message = refused(&work, "build b.csv --key id --infer --out u", 3);
    let expected = "b.csv:200002:3: the column \"size\": expected int64 (a whole number from -2^63 to 2^63 - 1), got \"many\"";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn values_become_the_kinds_of_the_store_where_nothing_is_lost() {
    let work = Work::new();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let prices: ArrayRef = Arc::new(Float64Array::from(vec![0.5]));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let rows = batch([("id", ids), ("price", prices), ("name", names)]);
    work.write("a.parquet", parquet_file(&rows));
    work.write("b.csv", "id,price,name\n2,791.42,b\n");
    work.write("c.jsonl", "{\"id\":3,\"price\":7,\"name\":8}\n");
    work.write("d.csv", "id,price,name\n4,cheap,b\n");
    work.ok("update s a.parquet --key id");
    work.ok("update s b.csv");
    work.ok("update s c.jsonl");
    assert_eq!(
        work.entries("s"),
        [
            r#"{"id":1,"price":0.5,"name":"a"}"#,
            r#"{"id":2,"price":791.42,"name":"b"}"#,
            r#"{"id":3,"price":7,"name":"8"}"#
        ]
    );
    assert_eq!(
        refused(&work, "update s d.csv", 3),
        "hashfold: d.csv:2:3: the column \"price\": expected float64 (a number of at most 17 digits), got \"cheap\"\n"
    );
}

#[test]
fn a_new_column_is_added_if_asked_and_never_dropped() {
    for modes in [["auto", "auto"], ["merge", "merge"], ["delta", "delta"]] {
        let work = Work::new();
        work.write("a.csv", "k,u,v\n1,a,b\n2,c,d\n").write("b.csv", "k,v,u,w\n2,D,C,x\n3,E,F,y\n");
        work.ok("update s a.csv --key k --chunks 2");
        let before = work.entries("s");
        let message = refused(&work, "update s b.csv", 3);
        assert!(message.contains("b.csv: has the column \"w\"; "), "{message}");
        assert!(message.contains("--schema extend"), "{message}");
        assert_eq!(work.entries("s"), before);
        let outcome = work.ok(&format!("update s b.csv --schema extend --mode {}", modes[0]));
        assert!(outcome.text().contains("columns added, null in older rows: w text\n"));
        let expected = [
            r#"{"k":"1","u":"a","v":"b","w":null}"#,
            r#"{"k":"2","u":"C","v":"D","w":"x"}"#,
            r#"{"k":"3","u":"F","v":"E","w":"y"}"#,
        ];
        assert_eq!(work.entries("s"), expected);
        // The version before has its own columns.
        assert_eq!(work.ok("get s 1 --version 1").text(), format!("{}\n", before[0]));
        // Later batches need the new column, too.
        let message = refused(&work, "update s a.csv", 3);
        assert!(message.contains("a.csv: has no column \"w\"; "), "{message}");
        assert!(message.contains("--schema fill"), "{message}");
        work.ok(&format!("update s a.csv --schema fill --mode {}", modes[1]));
        work.ok("merge s");
        assert_eq!(work.entries("s")[1], r#"{"k":"2","u":"c","v":"d","w":null}"#);
        assert_eq!(work.entries("s")[2], expected[2]);
    }
}

/// Issue 12: a delta file did not carry the columns of its version.
#[test]
fn a_delta_file_brings_new_columns() {
    let work = Work::new();
    work.write("a.csv", "k,u,v\n1,a,b\n2,c,d\n").write("b.csv", "k,u,v,w\n2,C,D,x\n");
    work.ok("update s a.csv --key k");
    work.ok("copy s copy");
    work.ok("update s b.csv --schema extend");
    work.ok("diff s 1 2 --out delta");
    work.ok("update copy --delta delta");
    let rows = [r#"{"k":"1","u":"a","v":"b","w":null}"#, r#"{"k":"2","u":"C","v":"D","w":"x"}"#];
    assert_eq!(work.entries("copy"), rows);
    let json: Value = serde_json::from_str(work.ok("stat copy --json").text()).unwrap();
    assert_eq!(json["schema"]["columns"][2]["name"], "w");
}

#[test]
fn a_single_plain_column_gets_company() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n2,\n")
        .write("b.csv", "k,v,w\n2,B,x\n3,C,y\n")
        .write("d.csv", "k\n1\n");
    work.ok("update s a.csv --key k --chunks 3");
    assert_eq!(refused(&work, "update s b.csv --schema extend --mode delta", 2).lines().count(), 1);
    work.ok("update s b.csv --schema extend");
    let expected = [
        r#"{"k":"1","v":"a","w":null}"#,
        r#"{"k":"2","v":"B","w":"x"}"#,
        r#"{"k":"3","v":"C","w":"y"}"#,
    ];
    assert_eq!(work.entries("s"), expected);
    assert_eq!(work.ok("get s 1 --version 1 --format raw").text(), "a");
    // The next extension leaves older rows as they are.
    work.write("c.csv", "k,x,v,w\n4,1,D,z\n");
    work.ok("update s c.csv --schema extend --infer --mode delta");
    assert_eq!(work.entries("s")[3], r#"{"k":"4","v":"D","w":"z","x":1}"#);
    assert_eq!(work.entries("s")[0], r#"{"k":"1","v":"a","w":null,"x":null}"#);
    work.ok("update s d.csv --schema fill");
    assert_eq!(work.entries("s")[0], r#"{"k":"1","v":null,"w":null,"x":null}"#);
}

#[test]
fn inputs_of_a_build_may_differ_if_asked() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n").write("b.csv", "k,w\n2,b\n");
    let message = refused(&work, "build a.csv b.csv --key k --out t", 3);
    assert!(message.contains("b.csv: has no column \"v\""), "{message}");
    work.ok("build a.csv b.csv --key k --schema extend --out t");
    assert_eq!(
        work.entries("t"),
        [r#"{"k":"1","v":"a","w":null}"#, r#"{"k":"2","v":null,"w":"b"}"#]
    );
}

#[test]
fn a_column_that_no_row_has_is_an_error() {
    let work = Work::new();
    work.write("a.jsonl", "{\"k\":1,\"email\":\"x\"}\n{\"k\":2}\n").write("none.jsonl", "");
    let message = refused(&work, "build a.jsonl --key k --value email --value mail --out t", 3);
    assert!(message.contains("a.jsonl: no row has the field \"mail\"; "), "{message}");
    assert!(message.contains("--schema fill"), "{message}");
    work.ok("build a.jsonl --key k --value email --value mail --schema fill --out t");
    work.ok("build none.jsonl --key k --value mail --out u");
    assert!(refused(&work, "update s a.jsonl --key k --value mail", 3).contains("\"mail\""));
    work.ok("update s a.jsonl --key k --value email");
    work.write("b.jsonl", "{\"k\":3,\"e-mail\":\"y\"}\n");
    assert!(refused(&work, "update s b.jsonl", 3).contains("\"email\""));
}

#[test]
fn keys_and_values_may_be_nested_in_json() {
    let work = Work::new();
    let line = r#"{"user":{"id":7,"name":"Eve","at":{"x":[1]}},"user.name":"literal"}"#;
    work.write("a.jsonl", format!("{line}\n"));
    work.ok("build a.jsonl --key user.id --value user.at.x --value user.name --out t");
    let expected = "{\"user.id\":7,\"user.at.x\":[1],\"user.name\":\"literal\"}\n";
    assert_eq!(work.ok("get t 7").text(), expected);
    // The output can be read again.
    work.write("b.jsonl", expected);
    work.ok("build b.jsonl --key user.id --value user.at.x --value user.name --out u");
    assert_eq!(work.ok("get u 7").text(), expected);
    work.write("c.jsonl", "{\"user\":[7]}\n");
    assert!(
        refused(&work, "build c.jsonl --key user.id --out v", 3).contains("no key \"user.id\"")
    );
}

#[test]
fn inferred_columns_of_json_are_all_there_are() {
    let work = Work::new();
    let rows: String = (0..100_000).map(|i| format!("{{\"k\":{i},\"v\":{i}.5}}\n")).collect();
    work.write("a.jsonl", format!("{rows}{{\"k\":-1,\"w\":1}}\n"));
    let message = refused(&work, "build a.jsonl --key k --infer --out t", 3);
    assert!(message.contains("a.jsonl:100001: the field \"w\" is new"), "{message}");
    work.write("a.jsonl", rows);
    work.ok("build a.jsonl --key k --infer --out t");
    assert_eq!(work.ok("get t 99999").text(), "{\"k\":99999,\"v\":99999.5}\n");
}

#[test]
fn a_store_without_names_takes_no_columns() {
    let work = Work::new();
    work.write("a.raw", raw(&[(b"k", b"v")])).write("a.csv", "k,v\n1,a\n");
    work.ok("update s a.raw");
    let message = refused(&work, "update s a.csv --key k", 3);
    assert!(message.contains("has the key \"k\"; that of the store is \"key\""), "{message}");
}
