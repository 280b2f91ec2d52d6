use crate::{DOCUMENTS, Result, page, read, read_results, repository, sheet::Sheet};
use std::{fs, path::Path};

const RUN: &str =
    r#""run":{"title":"x","commit":"0123456789ab","machine":"fast","load":"0.1","rounds":"3"}"#;

fn results(path: &str) -> Result<Option<String>> {
    if path == "later.jsonl" {
        return Ok(None);
    }
    assert_eq!(path, "r.jsonl");
    let rows = [
        r#"{"data":"small","peer":"us","rate":{"median":12345,"min":12000,"max":13000},"note":"ok","#,
        r#"{"data":"small","peer":"them","rate":7.5,"rate_min":7,"rate_max":8,"#,
        r#"{"data":"large","peer":"us","rate":1,"#,
        r#"{"name":"a.b","value":9328123,"min":9000000,"max":9400000,"rounds":3,"#,
    ];
    Ok(Some(rows.map(|row| format!("{row}{RUN}}}\n")).concat()))
}

#[test]
fn the_documents_are_up_to_date() {
    for path in DOCUMENTS {
        let document = read(path).unwrap();
        let fresh = page::refresh(&document, &read_results).unwrap();
        assert!(fresh == document, "{path} is out of date: run `cargo run -p pages` in bench");
    }
}

/// Returns all files of results below a folder.
fn files(folder: &Path, out: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|end| end == "jsonl") {
            out.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_result_was_measured_from_a_commit_in_three_rounds() {
    let mut all = Vec::new();
    files(&repository().join("bench/results"), &mut all);
    for text in all {
        Sheet::parse(&text).unwrap().check().unwrap();
    }
}

#[test]
fn tables_show_the_median_and_the_range_of_the_rows_that_are_wanted() {
    let directive =
        "<!-- table: r.jsonl\nwhere: data = small\npeer: system\nrate: keys/s\nnote: remark\n-->\n";
    let old = format!("before\n{directive}old\n<!-- end -->\nafter\n");
    let table = "\
| system | keys/s | remark |
| --- | ---: | ---: |
| us | 12,345 [12,000 to 13,000] | ok |
| them | 7.50 [7 to 8] | – |
";
    let new = format!("before\n{directive}{table}<!-- end -->\nafter\n");
    assert_eq!(page::refresh(&old, &results).as_ref(), Ok(&new));
    assert_eq!(page::refresh(&new, &results), Ok(new));
}

#[test]
fn rows_are_chosen_by_a_number() {
    let directive = "<!-- table: r.jsonl\nwhere: rate = 7.50\npeer: x\n-->\n";
    let new = format!("{directive}| x |\n| --- |\n| them |\n<!-- end -->\n");
    assert_eq!(page::refresh(&format!("{directive}<!-- end -->\n"), &results), Ok(new));
}

#[test]
fn a_column_is_shown_in_another_unit() {
    let directive = "<!-- table: r.jsonl\nwhere: peer = them\npeer: x\nrate * 1000: ms\n-->\n";
    let table = "| x | ms |\n| --- | ---: |\n| them | 7,500 [7,000 to 8,000] |\n";
    let new = format!("{directive}{table}<!-- end -->\n");
    assert_eq!(page::refresh(&format!("{directive}<!-- end -->\n"), &results), Ok(new));
}

#[test]
fn measurements_stand_beside_what_they_mean() {
    let directive = "<!-- figures: r.jsonl\na.b: lookups/s\n-->\n";
    let new = format!(
        "{directive}| what | median |\n| --- | ---: |\n| lookups/s | 9.33 M [9.00 M to 9.40 M] |\n<!-- end -->\n"
    );
    assert_eq!(page::refresh(&format!("{directive}<!-- end -->\n"), &results), Ok(new));
}

#[test]
fn circumstances_are_those_of_the_file() {
    let old = "<!-- circumstances: r.jsonl -->\n<!-- end -->\n";
    let facts = "commit: 0123456789ab; machine: fast; load: 0.1; rounds: 3.";
    let new =
        format!("<!-- circumstances: r.jsonl -->\nRaw results: `r.jsonl`. {facts}\n<!-- end -->\n");
    assert_eq!(page::refresh(old, &results), Ok(new));
}

#[test]
fn a_table_waits_for_its_results() {
    let table =
        "<!-- table: later.jsonl\npeer: x\n-->\nNot measured yet: `later.jsonl`.\n<!-- end -->\n";
    let facts = "<!-- circumstances: later.jsonl -->\n<!-- end -->\n";
    let new = format!("{table}{facts}");
    assert_eq!(page::refresh(&new, &results), Ok(new));
    let error = read_results("bench/results").unwrap_err();
    assert!(
        error.contains("bench/results"),
        "only a file that does not exist is waited for: {error}"
    );
}

#[test]
fn a_chart_is_shown_when_it_is_there() {
    let chart = |file: &str| format!("<!-- chart: {file}\nx/{file}: Rates\n-->\n");
    let [now, later] = ["r.jsonl", "later.jsonl"].map(chart);
    let old = format!("{now}<!-- end -->\n{later}old\n<!-- end -->\n");
    let new = format!("{now}![Rates](x/r.jsonl)\n<!-- end -->\n{later}<!-- end -->\n");
    assert_eq!(page::refresh(&old, &results), Ok(new));
}

#[test]
fn mistakes_in_a_document_are_named() {
    let cases = [
        ("<!-- table: r.jsonl\nspeed: x\n-->\n<!-- end -->\n", "no column speed"),
        ("<!-- table: r.jsonl\nwhere: data = none\n-->\n<!-- end -->\n", "no row"),
        ("<!-- table: r.jsonl\npeer: x\n-->\n", "expected \"<!-- end"),
        ("<!-- figures: r.jsonl\nb: x\n-->\n<!-- end -->\n", "no measurement b"),
    ];
    for (document, message) in cases {
        let error = page::refresh(document, &results).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn results_that_nobody_can_repeat_are_refused() {
    for (old, new, message) in [
        ("0123456789ab", "0123456789ab-dirty", "commit"),
        ("0123456789ab", "unknown", "commit"),
        (r#""rounds":"3""#, r#""rounds":"2""#, "2 rounds"),
        (r#""rate":1,"#, r#""rate":1,"rounds":2,"#, "2 rounds"),
        (r#""load":"0.1""#, r#""load":"""#, "load"),
        (r#""load":"0.1""#, r#""load":"0.88; of slots""#, "load"),
    ] {
        let text = results("r.jsonl").unwrap().unwrap().replace(old, new);
        let error = Sheet::parse(&text).unwrap().check().unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}
