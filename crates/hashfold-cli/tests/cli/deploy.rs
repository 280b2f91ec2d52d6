//! `deploy`: versions through a folder, to other stores; the pointer of a group.

use crate::support::{Outcome, Work, list};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Returns a store `s` with two versions, both pushed to the remote `r`.
fn work() -> Work {
    let work = Work::new();
    let rows: String = (0..5000).map(|key| format!("{key},a\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}")).write("b.csv", "k,v\n7,b\n");
    work.ok("update s a.csv --key k");
    work.ok("deploy push s r");
    work.ok("update s b.csv --mode delta");
    work.ok("deploy push s r");
    work
}

#[track_caller]
fn check_refused(outcome: &Outcome, code: i32, message: &str) {
    assert_eq!(outcome.code, code, "{outcome:?}");
    assert!(outcome.stderr.contains(message), "{outcome:?}");
}

/// The value of a JSON field in the last line of an output.
#[track_caller]
fn field(outcome: &Outcome, name: &str) -> serde_json::Value {
    let last = outcome.text().lines().last().unwrap();
    let object: serde_json::Value = serde_json::from_str(last).unwrap();
    object.get(name).unwrap_or_else(|| panic!("{name}: {last}")).clone()
}

#[test]
fn a_version_goes_through_a_folder_to_another_store() {
    let work = work();
    for number in [1, 2] {
        let fetched = work.ok(&format!("deploy fetch r copy --version {number}"));
        let text = fetched.text();
        assert!(text.starts_with(&format!("fetched s {number} from r to copy: 5,00")), "{text}");
        work.ok(&format!("publish copy {number}"));
        assert_eq!(
            work.ok("scan copy").stdout,
            work.ok(&format!("scan s --version {number}")).stdout
        );
        work.ok("verify copy --all");
    }
    let again = work.ok("deploy push s r --json");
    assert_eq!((field(&again, "bytes"), field(&again, "version")), (0.into(), 2.into()));
    let again = work.ok("deploy fetch r copy --version 2 --json");
    assert_eq!((field(&again, "bytes"), field(&again, "tables")), (0.into(), 0.into()));
    // A delta applies to the copy: it has the same ids.
    work.write("c.csv", "k,v\n8,c\n").ok("update s c.csv");
    work.ok("diff s 2 3 --out delta");
    work.ok("update copy --delta delta");
    assert_eq!(work.ok("scan copy").stdout, work.ok("scan s").stdout);
}

#[test]
fn publish_rollback_and_marks_are_seen_by_status_and_fetch() {
    let work = work();
    assert!(
        work.ok("deploy status r").text().starts_with("group main: nothing was published yet\n")
    );
    check_refused(&work.run("deploy rollback r"), 1, "there is no version to roll back to");
    check_refused(
        &work.run("deploy fetch r copy"),
        2,
        "no version of s is current in the group main",
    );
    work.ok("deploy publish r 1");
    work.ok("deploy publish r s=2 --reason better");
    let again = work.ok("deploy publish r 2");
    assert!(again.text().ends_with("group main: s 2 (change 2); nothing to change\n"), "{again:?}");
    let status = work.ok("deploy status r --json");
    assert_eq!(field(&status, "stores"), serde_json::json!({ "s": 2 }));
    assert_eq!((field(&status, "change"), field(&status, "reason")), (2.into(), "better".into()));
    work.ok("deploy fetch r copy --json");
    let back = work.ok("deploy rollback r");
    let text = back.text();
    assert!(
        text.starts_with("rolled back in r, group main: s 1 (change 3), marked bad: s 2;"),
        "{text}"
    );
    check_refused(&work.run("deploy publish r 2"), 1, "version 2 of store s is marked bad");
    check_refused(&work.run("deploy mark-bad r 1"), 2, "a version that is not current");
    work.ok("deploy publish r 2 --force");
    work.ok("deploy publish r 1 --group other");
    let status = work.ok("deploy status r");
    let table: Vec<&str> = status.text().lines().skip(1).collect();
    assert_eq!(
        table,
        [
            "store  current  next  previous  bad  pinned  pushed",
            "s      2        -     1         2    -       1 2"
        ]
    );
}

#[test]
fn a_pinned_version_stays_in_the_remote_until_it_is_released() {
    let work = Work::new();
    for value in ["a", "b", "c"] {
        work.write("a.csv", format!("key,value\n1,{value}\n"));
        work.ok("update s a.csv --key key");
        work.ok("deploy push s r");
    }
    let pinned = work.ok("deploy pin r 1 --reason audit");
    assert_eq!(
        pinned.text(),
        "pinned in r, group main: s 1: `hashfold deploy gc` keeps it (change 1)\n"
    );
    let again = work.ok("deploy pin r s=1 --json");
    assert_eq!(field(&again, "pinned"), serde_json::json!([{ "store": "s", "version": 1 }]));
    assert_eq!(field(&again, "change"), 1, "nothing was to be changed");
    check_refused(&work.run("deploy pin r 9"), 2, "no version 9");
    check_refused(&work.run("deploy pin r 2 --release"), 2, "pin of version 2 of store s");
    let removed = work.ok("deploy gc r --keep 1 --json");
    assert_eq!(field(&removed, "kept"), serde_json::json!([1, 3]));
    work.ok("deploy pin r 1 --release");
    let removed = work.ok("deploy gc r --keep 1 --json");
    assert_eq!(field(&removed, "kept"), serde_json::json!([3]));
}

/// Adds the report of a server that never gets ready.
fn add_server_that_is_never_ready(work: &Work) {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let report = format!(r#"{{"format":1,"epoch":1,"at_ms":{now_ms},"seq":0,"versions":{{}}}}"#);
    fs::create_dir_all(work.path("r/groups/main/ready")).unwrap();
    work.write("r/groups/main/ready/a", report);
}

#[test]
fn a_publication_that_waits_is_cancelled() {
    let work = work();
    let nothing = work.ok("deploy cancel r");
    assert_eq!(nothing.text(), "nothing to cancel in r, group main\n");
    add_server_that_is_never_ready(&work);
    let mut publish = work.command("deploy publish r 2").stderr(Stdio::piped()).spawn().unwrap();
    let cancelled = loop {
        let cancelled = work.ok("deploy cancel r --reason wrong");
        if !cancelled.text().starts_with("nothing") {
            break cancelled;
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(cancelled.text(), "cancelled in r, group main: s 2 (change 2)\n");
    let mut stderr = String::new();
    publish.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(publish.wait().unwrap().code(), Some(1), "{stderr}");
    assert!(stderr.contains("wrong"), "{stderr}");
}

#[test]
fn a_publication_that_waits_says_so_and_stops() {
    let work = work();
    add_server_that_is_never_ready(&work);
    let mut publish = work.command("deploy publish r 2").stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(publish.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let waiting = "hashfold: waiting for servers; `hashfold deploy status r` shows what each has\n";
    assert_eq!(line, waiting);
    let kill = Command::new("kill").args(["-INT", &publish.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(publish.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("no server has switched: run it again to go on"), "{rest}");
    assert!(work.ok("deploy cancel r").text().starts_with("cancelled in r"));
}

#[test]
fn limits_and_zones_need_servers() {
    let work = work();
    work.ok("deploy publish r 1 --max-change 0%");
    check_refused(
        &work.run("deploy publish r 2 --max-change 100%"),
        1,
        "version 2 of store s does not pass the gate: expected a server that has compared keys",
    );
    check_refused(&work.run("deploy publish r 2 --zone east"), 1, "none in zone east");
    for line in ["deploy publish r 2 --bake 1m", "deploy publish r 2 --zone ../x"] {
        assert_eq!(work.run(line).code, 2, "{line}");
    }
    work.ok("deploy publish r 2 --max-change 0% --force");
}

/// A controller has died while one zone had a version before all others.
#[test]
fn a_zone_is_shown_and_taken_back() {
    let work = work();
    work.ok("deploy publish r 1");
    let sample = r#"{"from":1,"keys":1000,"removed":0,"changed":12}"#;
    let version = format!(r#"{{"state":"ready","bytes":0,"of":0,"sample":{sample}}}"#);
    let report = format!(
        r#"{{"format":1,"epoch":1,"at_ms":0,"seq":1,"zone":"east","versions":{{"s":{{"2":{version}}}}}}}"#
    );
    fs::create_dir_all(work.path("r/groups/main/ready")).unwrap();
    work.write("r/groups/main/ready/a", report);
    let pointer = work.path("r/groups/main/CURRENT");
    let text = fs::read_to_string(&pointer).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["next"] = json["stores"].clone();
    json["next"]["s"]["version"] = 2.into();
    json["next"]["s"]["id"] = "00000000000000aa".into();
    json["trial"] = serde_json::json!({ "zone": "east", "activate_at_ms": 0 });
    fs::write(&pointer, json.to_string()).unwrap();
    let status = work.ok("deploy status r");
    for expected in [
        "\nzone east uses the next versions from 1970-01-01",
        "\na (east)",
        "s 2: ready (of 1,000 keys of version 1: 12 changed, 0 removed)",
    ] {
        assert!(status.text().contains(expected), "{expected}: {}", status.text());
    }
    assert_eq!(field(&work.ok("deploy status r --json"), "trial")["zone"], "east");
    let cancelled = work.ok("deploy cancel r");
    assert_eq!(
        cancelled.text(),
        "cancelled in r, group main: s 2 (change 2); zone east goes back to the versions before\n"
    );
    assert_eq!(field(&work.ok("deploy status r --json"), "trial"), serde_json::Value::Null);
}

#[test]
fn a_damaged_version_is_repaired_from_the_remote() {
    let work = work();
    work.ok("deploy fetch r copy --version 1");
    work.ok("publish copy 1");
    let good = work.ok("scan copy").stdout;
    let compared = work.ok("deploy fetch r copy --version 1 --repair");
    assert_eq!(compared.text(), "compared copy: s 1 has no damage\n");
    let table = work.path("copy/tables").read_dir().unwrap().next().unwrap().unwrap().path();
    let data = list(&table).into_iter().find(|name| name.starts_with("data")).unwrap();
    let mut bytes = fs::read(table.join(&data)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(table.join(&data), bytes).unwrap();
    assert_ne!(work.run("verify copy --all").code, 0);
    let repaired = work.ok("deploy fetch r copy --version 1 --repair");
    assert!(repaired.text().starts_with("repaired s 1 in copy from r: 1 file, "), "{repaired:?}");
    work.ok("verify copy --all");
    assert_eq!(work.ok("scan copy").stdout, good);
    // The bytes of one store never replace those of another one.
    work.ok("update other a.csv --key k");
    let before = work.ok("scan other").stdout;
    check_refused(
        &work.run("deploy fetch r other --version 1 --repair"),
        4,
        "belongs to another data set",
    );
    assert_eq!(work.ok("scan other").stdout, before);
}

#[test]
fn several_stores_have_one_pointer_and_need_names() {
    let work = work();
    work.ok("deploy push s r --store prices --version 1");
    for line in ["deploy publish r 1", "deploy fetch r copy --version 1", "deploy mark-bad r 1"] {
        check_refused(
            &work.run(line),
            2,
            "there are several stores: prices, s; name one with --store",
        );
    }
    work.ok("deploy publish r s=1 prices=1");
    let published = work.ok("deploy publish r 2 --store s");
    let text = published.text();
    assert!(text.starts_with("published in r, group main: prices 1, s 2 (change 2);"), "{text}");
    check_refused(&work.run("deploy publish r s=1 s=2"), 2, "expected each store once");
    work.ok("deploy fetch r copy --store prices");
}

#[test]
fn a_topology_is_set_by_compare_and_swap_and_printed() {
    let work = work();
    let none = work.run("deploy topology r");
    check_refused(&none, 1, "r: there is no topology; set one with --set FILE");
    let shards = |first: u32| {
        format!(
            r#""shards": [{{"slots": [[0, {}]], "nodes": [{{"id": "a", "host": "h", "port": 1}}]}},
               {{"slots": [[{first}, 16383]], "nodes": [{{"id": "b", "host": "h", "port": 2}}]}}]"#,
            first - 1
        )
    };
    work.write("t.json", format!("{{{}}}", shards(8192)));
    let set = work.ok("deploy topology r --set t.json");
    assert_eq!(set.text(), "set topology of r: epoch 1, shards 2, servers 2\n");
    let printed = work.ok("deploy topology r");
    assert!(printed.text().starts_with("{\"epoch\":1,\"shards\":[\n{\"slots\":[[0,8191]],"));
    assert_eq!(fs::read(work.path("r/TOPOLOGY")).unwrap(), printed.stdout);
    // What was printed is a document, too, and its epoch is not larger.
    work.write("same.json", printed.text());
    let refused =
        "expected an epoch larger than 1, which is that of the topology that is there, got 1";
    check_refused(&work.run("deploy topology r --set same.json"), 1, refused);
    work.write("next.json", format!("{{\"epoch\": 7, {}}}", shards(100)));
    let set = work.ok("deploy topology r --set next.json --json");
    assert_eq!((field(&set, "epoch"), field(&set, "nodes")), (7.into(), 2.into()));
    let again = work.ok("deploy topology r --set t.json --json");
    assert_eq!(field(&again, "epoch"), 8);
    for (text, message) in [
        ("{\"shards\": []}", "bad.json: shards: expected slot 0 in one shard, got it in none"),
        ("epoch 9", "bad.json: line 1, column 1: expected a topology in JSON"),
    ] {
        work.write("bad.json", text);
        check_refused(&work.run("deploy topology r --set bad.json"), 3, message);
    }
    check_refused(&work.run("deploy topology r --set absent.json"), 2, "there is no such file");
    check_refused(&work.run("deploy topology absent"), 5, "the folder does not exist");
    work.write("r/TOPOLOGY", "{");
    check_refused(&work.run("deploy topology r"), 3, "r/TOPOLOGY: line 1, column 1: expected");
    // Servers of both shards would open all of a chunk that lies in both.
    work.write("r/TOPOLOGY", printed.text());
    let third = r#"{"slots": [[16383, 16383]], "nodes": [{"id": "c", "host": "h", "port": 3}]}"#;
    let three = shards(8192).replace("16383", "16382").replace("}]}]", &format!("}}]}},{third}]"));
    work.write("three.json", format!("{{{three}}}"));
    let noted = work.ok("deploy topology r --set three.json");
    assert!(
        noted.stderr.contains("s has 16 chunks, expected a multiple of the 3 shards"),
        "{noted:?}"
    );
}

#[test]
fn mistakes_are_explained() {
    let work = work();
    work.write("t.csv", "k,v\n1,a\n").ok("update other t.csv --key k");
    work.ok("build t.csv --key k --out table");
    fs::create_dir(work.path("empty")).unwrap();
    for (line, code, message) in [
        ("deploy push nowhere r", 2, "nowhere: there is no data set here"),
        ("deploy push table r", 2, "is a table"),
        ("deploy push s r --version 9", 2, "s: there is no version 9"),
        ("deploy push s s", 2, "expected a folder for pushed versions"),
        ("deploy push s r --store ../x", 2, "letters, digits"),
        ("deploy push s ftp://host/r", 2, "expected s3://"),
        ("deploy push other r --store s", 2, "objects are written once"),
        ("deploy publish r 9", 2, "there is no version 9 of store s; push it"),
        ("deploy publish r x", 2, "expected the number of a version"),
        ("deploy publish empty 1", 2, "nothing was pushed here yet"),
        ("deploy publish absent 1", 5, "absent: cannot read: the folder does not exist"),
        ("deploy status absent", 5, "absent: cannot read: the folder does not exist"),
        ("deploy fetch absent copy", 5, "absent: cannot read: the folder does not exist"),
        ("deploy fetch r other --version 1", 4, "the file belongs to another data set"),
        ("deploy fetch r copy --version 1 --max-size 10", 3, "the largest accepted is 10"),
        ("deploy fetch r copy --version last", 2, "expected the number of a version, or `current`"),
    ] {
        check_refused(&work.run(line), code, message);
    }
    assert!(!work.path("copy").exists());
}

#[test]
fn only_signed_versions_are_used_where_keys_are_trusted() {
    let work = Work::new();
    work.write("a.csv", "k,v\n1,a\n").ok("update s a.csv --key k");
    for name in ["old", "new"] {
        let made = work.ok(&format!("deploy keygen {name}"));
        assert!(made.text().starts_with("generated key "), "{made:?}");
        let mode = |name: &str| fs::metadata(work.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(name), 0o600);
        assert_ne!(mode(&format!("{name}.pub")) & 0o400, 0);
    }
    check_refused(&work.run("deploy keygen old"), 2, "old: the file exists");
    fs::remove_file(work.path("old")).unwrap();
    check_refused(&work.run("deploy keygen old"), 2, "old.pub: the file exists");
    assert!(!work.path("old").exists(), "it would have another public key");

    work.ok("deploy push s r");
    let refused = "is refused: expected a signature by a trusted key (";
    let fetch = |keys: &str| work.run(&format!("deploy fetch r copy --version 1 {keys}"));
    check_refused(&fetch("--trusted-key new.pub"), 3, refused);
    check_refused(&fetch("--trusted-key new.pub --repair"), 3, refused);
    assert!(!work.path("copy").exists());
    check_refused(&work.run("deploy publish r 1 --trusted-key new.pub"), 3, refused);
    let pushed = work.ok("deploy push s r --sign-with new --json");
    assert_eq!((field(&pushed, "bytes"), field(&pushed, "tables")), (108.into(), 0.into()));
    work.ok("deploy publish r 1 --trusted-key new.pub");
    check_refused(&fetch("--trusted-key old.pub"), 3, "which is not trusted");
    let both = fetch("--trusted-key old.pub --trusted-key new.pub");
    assert_eq!(both.code, 0, "{both:?}");
    check_refused(&fetch("--trusted-key old.pub --repair"), 3, "which is not trusted");
    let repaired = fetch("--trusted-key new.pub --repair");
    assert_eq!(repaired.code, 0, "{repaired:?}");

    for (line, code, message) in [
        ("deploy push s r --sign-with absent", 2, "absent: there is no such file; make keys"),
        ("deploy push s r --sign-with new.pub", 2, "new.pub: signing key is a text that is none"),
        ("deploy fetch r copy --trusted-key new", 2, "new: trusted key is a text that is none"),
        ("deploy keygen absent/key", 5, "absent/key: cannot create"),
    ] {
        check_refused(&work.run(line), code, message);
    }
}

#[test]
fn a_damaged_object_is_named_and_nothing_of_it_is_used() {
    let work = work();
    let tables = work.path("r/stores/s/tables");
    let table = list(&tables).into_iter().find(|table| {
        list(&tables.join(table)).iter().any(|name| {
            name.starts_with("data")
                && fs::metadata(tables.join(table).join(name)).unwrap().len() > 12_288
        })
    });
    let table = tables.join(table.unwrap());
    let name = list(&table).into_iter().find(|name| name.starts_with("data")).unwrap();
    let mut bytes = fs::read(table.join(&name)).unwrap();
    bytes[5000] ^= 1;
    fs::write(table.join(&name), &bytes).unwrap();
    let refused = work.run("deploy fetch r copy --version 1");
    check_refused(&refused, 4, &format!("{name}: at byte 4096: expected"));
    assert!(list(&work.path("copy/versions")).is_empty());
    bytes[5000] ^= 1;
    fs::write(table.join(&name), &bytes).unwrap();
    let fetched = work.ok("deploy fetch r copy --version 1 --json");
    assert_ne!(field(&fetched, "bytes_resumed"), 0);
    work.ok("publish copy 1");
    work.ok("verify copy");
}

/// A process that is killed while it fetches, again and again, gets there.
#[test]
fn a_fetch_that_is_killed_goes_on_where_it_was() {
    let work = Work::new();
    let rows: String = (0..60_000).map(|key| format!("{key},{key:0>100}\n")).collect();
    work.write("a.csv", format!("k,v\n{rows}")).ok("update s a.csv --key k");
    work.ok("deploy push s r");
    // Eight MiB at this rate take too long for one attempt.
    let (line, start) =
        ("deploy fetch r copy --version 1 --rate 8MiB --requests 1", Instant::now());
    let mut attempts = 0;
    loop {
        attempts += 1;
        let mut child =
            work.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let end = Instant::now() + Duration::from_millis(400);
        while Instant::now() < end && child.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(10));
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(start.elapsed() < Duration::from_secs(120));
    }
    assert!(attempts > 1);
    work.ok("publish copy 1");
    work.ok("verify copy");
    assert_eq!(work.ok("scan copy").stdout, work.ok("scan s").stdout);
}

#[test]
fn old_versions_are_removed_from_a_remote() {
    let work = Work::new();
    for number in 1..=4 {
        work.write("t.csv", format!("id,v\n1,{number}\n"));
        work.ok("update s t.csv --key id --mode merge");
        work.ok("deploy push s r");
    }
    work.ok("deploy publish r 1");
    let dry = work.ok("deploy gc r --keep 1 --dry-run");
    assert!(dry.text().starts_with("would remove from r: s, versions 2, 3; "), "{}", dry.text());
    let done = work.ok("deploy gc r --keep 1");
    let text = done.text();
    assert!(text.starts_with("removed from r: s, versions 2, 3; 2 tables, "), "{text}");
    assert!(text.ends_with("versions that stay: 1, 4\n"), "{text}");
    check_refused(&work.run("deploy fetch r copy --version 2"), 2, "there is no version 2");
    work.ok("deploy fetch r copy --version 4");
    let json = work.ok("deploy gc r --keep 1 --json");
    assert!(
        json.text().contains("\"versions\":[],\"kept\":[1,4],\"signatures\":0,\"tables\":0"),
        "{}",
        json.text()
    );
    check_refused(&work.run("deploy gc r --keep 0"), 2, "expected at least 1");
}
