use crate::{DOCUMENTS, Result, page, read};

const RESULTS: &str = "\
# cpu: fast
# rounds: 3
data,peer,rate,rate_min,rate_max,note
small,\"us, batched\",12345,12000,13000,\"says \"\"ok\"\"\"
small,them,7.50,7.50,7.50,
large,us,1,1,1,
";

fn results(path: &str) -> Result<String> {
    assert_eq!(path, "r.csv");
    Ok(RESULTS.to_owned())
}

#[test]
fn the_documents_are_up_to_date() {
    for path in DOCUMENTS {
        let document = read(path).unwrap();
        let fresh = page::refresh(&document, &read).unwrap();
        assert!(fresh == document, "{path} is out of date: run `cargo run -p pages` in bench");
    }
}

#[test]
fn tables_show_the_median_and_the_range_of_the_rows_that_are_wanted() {
    let directive =
        "<!-- table: r.csv\nwhere: data = small\npeer: system\nrate: keys/s\nnote: remark\n-->\n";
    let old = format!("before\n{directive}old\n<!-- end -->\nafter\n");
    let table = "\
| system | keys/s | remark |
| --- | ---: | ---: |
| us, batched | 12,345 [12,000 to 13,000] | says \"ok\" |
| them | 7.50 | – |
";
    let new = format!("before\n{directive}{table}<!-- end -->\nafter\n");
    assert_eq!(page::refresh(&old, &results).as_ref(), Ok(&new));
    assert_eq!(page::refresh(&new, &results), Ok(new));
}

#[test]
fn circumstances_are_those_of_the_file() {
    let old = "<!-- circumstances: r.csv -->\n<!-- end -->\n";
    let new = "<!-- circumstances: r.csv -->\nRaw results: `r.csv`. cpu: fast; rounds: 3.\n<!-- end -->\n";
    assert_eq!(page::refresh(old, &results).as_deref(), Ok(new));
}

#[test]
fn mistakes_in_a_document_are_named() {
    let cases = [
        ("<!-- table: r.csv\nspeed: x\n-->\n<!-- end -->\n", "no column speed"),
        ("<!-- table: r.csv\nwhere: data = none\n-->\n<!-- end -->\n", "no row"),
        ("<!-- table: r.csv\npeer: x\n-->\n", "expected \"<!-- end"),
    ];
    for (document, message) in cases {
        let error = page::refresh(document, &results).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}
