//! `BF.*` and `CF.*`, with the replies of RedisBloom.

use crate::fixture::{Client, Home};

#[test]
fn sets_are_made_filled_and_described() {
    let home = Home::new();
    let server = home.serve_with(&["table", "seen", "counts"], |config| {
        config.filters = Some(home.path("made"));
    });
    let mut client = Client::of(&server);
    client.check("BF.EXISTS seen a", "1");
    client.check("BF.MEXISTS seen a b", "[1 0]");
    client.check("BF.ADD seen b", "1");
    client.check("BF.ADD seen b", "0");
    client.check("BF.MADD seen b c d", "[0 1 1]");
    client.check("BF.CARD seen", "4");
    client.check("BF.RESERVE new 0.001 1000", "+OK");
    client.check("BF.RESERVE new 0.001 1000", "-ERR item exists");
    client.check("BF.INFO new CAPACITY", "[1000]");
    client.check("BF.INFO new expansion", "[2]");
    client.check("BF.INFO new nope", "-Invalid information value");
    client.check("BF.INFO nope", "-ERR not found");
    client.check("BF.ADD made-by-adding x", "1");
    client.check("BF.INFO made-by-adding capacity", "[100]");
    client.check("BF.INSERT other CAPACITY 50 ERROR 0.1 EXPANSION 3 ITEMS a b a", "[1 1 0]");
    client.check("BF.INFO other expansion", "[3]");
    client.check("BF.INSERT absent NOCREATE ITEMS a", "-ERR not found");
    client.check("BF.EXISTS absent a", "0");
    client.check("BF.CARD absent", "0");
    client.check(
        "BF.ADD counts a",
        "-WRONGTYPE Operation against a key holding the wrong kind of value",
    );
    client.check(
        "BF.ADD key-1 a",
        "-WRONGTYPE Operation against a key holding the wrong kind of value",
    );
    client.check("BF.EXISTS key-1 a", "0");
    let impossible = client.call("BF.RESERVE x 0.00000001 1073741824");
    assert!(impossible.starts_with("-ERR ") && impossible.contains("expected"), "{impossible}");
    client.check("BF.RESERVE x 2 10", "-ERR error rate must be in the range (0.000000, 1.000000)");
    client.check("BF.RESERVE x y 10", "-ERR bad error rate");
    client.check("BF.RESERVE x 0.1 0", "-ERR capacity must be in the range [1, 1073741824]");
    client.check("BF.RESERVE x 0.1 10 EXPANSION", "-ERR no expansion");
    client.check("BF.RESERVE x 0.1 10 EXPANSION 2 NONSCALING", "-Nonscaling filters cannot expand");
}

#[test]
fn a_filter_that_does_not_grow_becomes_full() {
    let home = Home::new();
    let server = home.serve_with(&["table"], |config| config.filters = Some(home.path("made")));
    let mut client = Client::of(&server);
    client.check("BF.RESERVE small 0.001 3 NONSCALING", "+OK");
    client.check("BF.MADD small a b c", "[1 1 1]");
    client.check("BF.ADD small a", "0");
    client.check("BF.ADD small d", "-ERR non scaling filter is full");
    client.check("BF.MADD small a e f", "[0 -ERR non scaling filter is full]");
    client.check("BF.INFO small expansion", "[nil]");
}

#[test]
fn filters_that_grow_say_how_many_filters_another_server_would_have() {
    let home = Home::new();
    let server = home.serve_with(&["table"], |config| config.filters = Some(home.path("made")));
    let mut client = Client::of(&server);
    client.check("BF.RESERVE f 0.01 10", "+OK");
    let items: Vec<String> = (0..11).map(|i| i.to_string()).collect();
    client.call(&format!("BF.MADD f {}", items.join(" ")));
    client.check("BF.INFO f capacity", "[30]");
    client.check("BF.INFO f filters", "[2]");
    client.check("BF.INFO f items", "[11]");
}

#[test]
fn multisets_count_and_forget() {
    let home = Home::new();
    let server =
        home.serve_with(&["table", "counts"], |config| config.filters = Some(home.path("made")));
    let mut client = Client::of(&server);
    client.check("CF.ADD counts a", "1");
    client.check("CF.ADD counts a", "1");
    client.check("CF.ADDNX counts a", "0");
    client.check("CF.COUNT counts a", "2");
    client.check("CF.DEL counts a", "1");
    client.check("CF.COUNT counts a", "1");
    client.check("CF.DEL counts a", "1");
    client.check("CF.DEL counts a", "0");
    client.check("CF.DEL absent a", "-Not found");
    client.check("CF.EXISTS counts a", "0");
    client.check("CF.RESERVE new 1000", "+OK");
    client.check("CF.RESERVE new 1000", "-ERR item exists");
    client.check("CF.RESERVE x 1", "-Capacity must be in the range [2 * BUCKETSIZE, 1073741824]");
    client.check("CF.RESERVE x 10 BUCKETSIZE z", "-Couldn't parse BUCKETSIZE");
    client
        .check("CF.RESERVE x 10 BUCKETSIZE 0", "-BUCKETSIZE: value must be in the range [1, 255]");
    client.check("CF.INSERT new ITEMS a b", "[1 1]");
    client.check("CF.INSERTNX new ITEMS a c", "[0 1]");
    client.check("CF.MEXISTS new a c d", "[1 1 0]");
    client.check("CF.COMPACT new", "+OK");
    client.check("CF.COMPACT absent", "-Cuckoo filter was not found");
    client.check("TYPE new", "+MBbloomCF");
    assert!(client.call("CF.INFO new").contains("\"Number of items inserted\" 3"));
}

#[test]
fn filters_that_clients_made_are_there_after_a_restart() {
    let home = Home::new();
    let serve = || home.serve_with(&["table"], |config| config.filters = Some(home.path("made")));
    let server = serve();
    let mut client = Client::of(&server);
    client.check("BF.RESERVE ../odd/name 0.01 10 EXPANSION 4", "+OK");
    client.check("BF.ADD ../odd/name a", "1");
    server.stop().unwrap();
    let server = serve();
    let mut client = Client::of(&server);
    client.check("BF.EXISTS ../odd/name a", "1");
    client.check("BF.INFO ../odd/name expansion", "[4]");
    client.check("SCAN 0 TYPE MBbloom--", "[\"0\" [\"../odd/name\"]]");
}

#[test]
fn filters_open_elsewhere_are_read_only_and_without_a_home_none_are_made() {
    let home = Home::new();
    let mut writer = hashfold::Filter::open(home.path("seen")).unwrap();
    let server = home.serve(&["table", "seen"]);
    let mut client = Client::of(&server);
    client.check("BF.EXISTS seen a", "1");
    assert!(
        client.call("BF.ADD seen x").starts_with("-NOPERM filter 'seen' is open for reading only")
    );
    assert!(client.call("BF.ADD new x").starts_with("-NOPERM filters cannot be made here"));
    // What the other process makes durable is seen, once the server has looked.
    client.check("BF.EXISTS seen later", "0");
    writer.insert("later").unwrap();
    writer.flush().unwrap();
    client.wait_for("BF.EXISTS seen later", &|reply| reply == "1");
}

#[test]
fn a_filter_forgets_the_keys_of_old_epochs() {
    let home = Home::new();
    let server = home.serve(&["seen"]);
    let mut client = Client::of(&server);
    client.check("BF.EXISTS seen a", "1");
    client.check("HASHFOLD.FILTER.ADVANCE seen", "[\"epochs\" 2]");
    client.check("BF.ADD seen b", "1");
    client.check("BF.MEXISTS seen a b", "[1 1]");
    client.check("HASHFOLD.FILTER.ADVANCE seen KEEP 2", "[\"epochs\" 2]");
    client.check("BF.MEXISTS seen a b", "[0 1]");
    assert!(client.call("HASHFOLD.FILTER.STATS seen").contains("\"epochs\" 2"));
    client.check("HASHFOLD.FILTER.STATS nope", "-ERR not found");
    client.check("HASHFOLD.FILTER.ADVANCE seen KEEP 0", "-ERR KEEP must be at least 1");
    client.check("HASHFOLD.FILTER.ADVANCE seen KEEP", "-ERR syntax error");
}
