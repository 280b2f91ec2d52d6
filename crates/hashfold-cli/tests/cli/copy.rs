//! `copy`: the first copy of a store or a table.

use crate::support::{Work, list};
use std::{fs, thread};

/// Returns a store `s` of several versions, with deltas and chunks, whose last version is not current.
fn work() -> Work {
    let work = Work::new();
    let rows = |value: &str| (0..500).map(|key| format!("{key},{value}\n")).collect::<String>();
    work.write("a.csv", format!("k,v\n{}", rows("a"))).write("b.csv", "k,v\n7,b\nx,b\n");
    work.write("c.csv", "k,v\n8,c\n");
    work.ok("update s a.csv --key k --chunks 3");
    work.ok("update s b.csv --mode delta");
    work.ok("update s c.csv --no-publish");
    work
}

/// Issue 12: the first copy for deltas was made with `cp -r`.
#[test]
fn deltas_apply_to_a_copy() {
    let work = work();
    let text = work.ok("copy s copy").text().to_owned();
    assert!(text.starts_with("copied s to copy: version 2, 500 to 502 entries; "), "{text}");
    assert_eq!(work.ok("scan copy").stdout, work.ok("scan s").stdout);
    work.ok("verify copy --all");
    assert_eq!(list(&work.path("copy/versions")), ["0000000002"]);
    let mut names = list(&work.path("copy"));
    names.sort();
    assert_eq!(names, ["CURRENT", "tables", "versions"]);
    work.ok("publish s 3");
    work.ok("diff s 2 3 --out delta");
    work.ok("update copy --delta delta");
    assert_eq!(work.ok("scan copy").stdout, work.ok("scan s").stdout);
    work.ok("copy s old --version 1");
    assert_eq!(work.ok("scan old").stdout, work.ok("scan s --version 1").stdout);
    for (line, code, message) in [
        (
            "copy s copy",
            2,
            "copy: there is a store here already, with version 3; `hashfold diff` and \
                            `hashfold update --delta` bring it up to date",
        ),
        (
            "copy s new --version 9",
            2,
            "s: there is no version 9; `hashfold versions` lists all versions",
        ),
        ("copy nowhere new", 2, "nowhere: there is no data set here"),
    ] {
        let refused = work.run(line);
        assert_eq!(
            (refused.code, refused.stderr),
            (code, format!("hashfold: {message}\n")),
            "{line}"
        );
    }
    fs::create_dir(work.path("full")).unwrap();
    work.write("full/notes", "");
    let refused = work.run("copy s full");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("expected an empty folder"), "{refused:?}");
    assert_eq!(work.run("copy s s/inside").code, 2);
}

#[test]
fn tables_are_copied_with_their_columns() {
    let work = work();
    work.write("d.csv", "k,v,w\n1,a,b\n2,c,d\n");
    for index in ["auto", "dense --absent-bits 4", "sparse", "fences"] {
        work.ok(&format!(
            "build d.csv --key k --out t --replace --index {index} --block-size 8KiB"
        ));
        let text = work.ok("copy t u").text().to_owned();
        assert!(text.starts_with("copied t to u: 2 entries; "), "{text}");
        assert_eq!(work.entries("u"), work.entries("t"));
        let stat = |table: &str| -> Vec<String> {
            let lines = work.ok(&format!("stat {table}")).text().to_owned();
            lines.lines().map(String::from).collect()
        };
        assert_eq!(stat("u"), stat("t"));
        assert_eq!(work.run("copy t u").code, 2);
        fs::remove_dir_all(work.path("u")).unwrap();
    }
    work.ok("filter create f --exact");
    assert_eq!(work.run("copy f g").code, 2);
}

/// Issue 12: a copy while the store is written has to be a whole version.
#[test]
fn a_store_is_copied_while_it_is_written() {
    let work = work();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..6 {
                work.ok("update s a.csv --mode merge");
                work.ok("update s b.csv --mode merge");
                work.ok("gc s --keep 0 --unpublished-age 0s");
            }
        });
        for i in 0.. {
            if writer.is_finished() {
                break;
            }
            let text = work.ok(&format!("copy s copy-{i}")).text().to_owned();
            work.ok(&format!("verify copy-{i}"));
            assert!(text.contains(" entries; "), "{text}");
        }
    });
}

#[test]
fn a_damaged_byte_is_not_copied() {
    let work = work();
    let tables = work.path("s/tables");
    for table in list(&tables) {
        for name in list(&tables.join(&table)).into_iter().filter(|name| name.starts_with("data")) {
            let path = tables.join(&table).join(name);
            let mut bytes = fs::read(&path).unwrap();
            bytes[4200] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    let failed = work.run("copy s copy");
    assert_eq!(failed.code, 4, "{failed:?}");
    assert!(failed.stderr.contains("s/tables/"), "{failed:?}");
    assert_eq!(work.run("get copy 7").code, 2);
}
