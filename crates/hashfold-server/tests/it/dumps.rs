//! Filters that clients copy from server to server, piece by piece.

use crate::fixture::{Client, Home, Piece};
use hashfold_server::Server;

/// Number of keys of a filter whose dump has several pieces.
const KEYS: usize = 400_000;

fn serve(home: &Home) -> Server {
    home.serve_with(&["table", "seen", "counts"], |config| {
        config.filters = Some(home.path("made"));
    })
}

/// Calls a command with many items, in parts that a request can have.
fn for_all(client: &mut Client, command: &str, items: &[String]) -> Vec<String> {
    let mut replies = Vec::new();
    for part in items.chunks(10_000) {
        let reply = client.call(&format!("{command} {}", part.join(" ")));
        let inner = reply.trim_start_matches('[').trim_end_matches(']');
        replies.extend(inner.split(' ').map(str::to_owned));
    }
    assert_eq!(replies.len(), items.len());
    replies
}

/// Returns all pieces of a dump.
pub(crate) fn dump(client: &mut Client, command: &str, key: &str) -> Vec<Piece> {
    let (mut pieces, mut iterator) = (Vec::new(), 0);
    loop {
        let piece = client.dump(command, key, iterator).unwrap();
        if piece.0 == 0 {
            assert!(piece.1.is_empty());
            return pieces;
        }
        assert!(piece.1.len() <= 1 << 20);
        iterator = piece.0;
        pieces.push(piece);
    }
}

fn load(client: &mut Client, command: &str, key: &str, pieces: &[Piece]) {
    for piece in pieces {
        assert_eq!(client.load(command, key, piece), "+OK");
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}-{i}")).collect()
}

#[test]
fn a_large_set_goes_to_another_server_while_it_is_written_to() {
    let (home, other) = (Home::new(), Home::new());
    let (source, target) = (serve(&home), serve(&other));
    let (mut from, mut to) = (Client::of(&source), Client::of(&target));
    let keys = names("key", KEYS);
    from.check("BF.RESERVE big 0.0001 1000000 EXPANSION 3", "+OK");
    for_all(&mut from, "BF.MADD big", &keys);
    // False positives are the same, too.
    let probes: Vec<String> = keys.iter().cloned().chain(names("absent", 100_000)).collect();
    let expected = for_all(&mut from, "BF.MEXISTS big", &probes);
    let card = from.call("BF.CARD big");

    let (mut pieces, mut iterator) = (Vec::new(), 0);
    loop {
        let piece = from.dump("BF.SCANDUMP", "big", iterator).unwrap();
        // A client that did not get the reply asks again.
        if iterator > 0 {
            assert_eq!(from.dump("BF.SCANDUMP", "big", iterator).unwrap(), piece);
        }
        if piece.0 == 0 {
            break;
        }
        iterator = piece.0;
        pieces.push(piece);
        // The filter changes while it is dumped.
        let more = names(&format!("later-{}", pieces.len()), 10_000);
        for_all(&mut from, "BF.MADD big", &more);
        from.check(&format!("BF.ADD big later-{}-x", pieces.len()), "1");
    }
    assert!(pieces.len() > 1, "{}", pieces.len());
    for (i, piece) in pieces.iter().enumerate() {
        to.check("BF.EXISTS big key-1", "0");
        to.check("BF.INFO big", "-ERR not found");
        assert_eq!(to.load("BF.LOADCHUNK", "big", piece), "+OK");
        if i + 1 < pieces.len() {
            let reply = to.call("BF.ADD big x");
            assert_eq!(reply, "-ERR a filter of this name is being loaded");
            assert_eq!(to.load("BF.LOADCHUNK", "big", piece), "+OK", "the reply was lost");
        }
    }
    assert_eq!(for_all(&mut to, "BF.MEXISTS big", &probes), expected);
    to.check("BF.CARD big", &card);
    to.check("BF.INFO big expansion", "[3]");
    to.check("BF.INFO big capacity", "[1000000]");
    assert_eq!(to.load("BF.LOADCHUNK", "big", &pieces[0]), "-ERR item exists");
    to.check("BF.ADD big new", "1");
    target.stop().unwrap();
    let target = serve(&other);
    let mut to = Client::of(&target);
    to.check("BF.EXISTS big new", "1");
    assert_eq!(for_all(&mut to, "BF.MEXISTS big", &keys[..10_000]), vec!["1"; 10_000]);
}

#[test]
fn multisets_keep_their_counts() {
    let home = Home::new();
    let server = serve(&home);
    let mut client = Client::of(&server);
    for item in ["a", "b", "a", "c", "a"] {
        client.check(&format!("CF.ADD counts {item}"), "1");
    }
    client.check("CF.DEL counts b", "1");
    let pieces = dump(&mut client, "CF.SCANDUMP", "counts");
    load(&mut client, "CF.LOADCHUNK", "copy", &pieces);
    for (item, count) in [("a", "3"), ("b", "0"), ("c", "1"), ("d", "0")] {
        client.check(&format!("CF.COUNT copy {item}"), count);
    }
    client.check("TYPE copy", "+MBbloomCF");
    client.check("CF.DEL copy a", "1");
    client.check("CF.COUNT copy a", "2");
    // An empty filter has a piece, too.
    client.check("CF.RESERVE empty 100", "+OK");
    let pieces = dump(&mut client, "CF.SCANDUMP", "empty");
    assert_eq!(pieces.len(), 1);
    load(&mut client, "CF.LOADCHUNK", "empty-copy", &pieces);
    client.check("CF.EXISTS empty-copy a", "0");
    client.check("CF.ADD empty-copy a", "1");
}

#[test]
fn calls_that_make_no_sense_have_the_replies_of_redis() {
    let home = Home::new();
    let server = serve(&home);
    let mut client = Client::of(&server);
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    for (call, expected) in [
        ("BF.SCANDUMP nope 0", "-ERR not found"),
        ("CF.SCANDUMP nope 0", "-ERR not found"),
        ("BF.SCANDUMP seen x", "-Second argument must be numeric"),
        ("CF.SCANDUMP counts x", "-Invalid position"),
        ("CF.SCANDUMP counts -1", "-Invalid position"),
        ("BF.SCANDUMP counts 0", wrong),
        ("BF.SCANDUMP key-1 0", wrong),
        ("BF.LOADCHUNK new x y", "-ERR Second argument must be numeric"),
        ("CF.LOADCHUNK new -1 y", "-Invalid position"),
        ("BF.LOADCHUNK new 1 y", "-ERR received bad data"),
        ("CF.LOADCHUNK new 1 y", "-Couldn't load chunk!"),
        ("BF.LOADCHUNK key-1 1 y", wrong),
        ("BF.LOADCHUNK counts 1 y", wrong),
        ("BF.LOADCHUNK seen 1 y", "-ERR item exists"),
        ("BF.SCANDUMP seen", "-ERR wrong number of arguments for 'bf.scandump' command"),
        ("CF.LOADCHUNK a b", "-ERR wrong number of arguments for 'cf.loadchunk' command"),
    ] {
        client.check(call, expected);
    }
    let ended = client.call("BF.SCANDUMP seen 77");
    assert!(ended.starts_with("-ERR the dump has ended"), "{ended}");
    // In RESP2 and RESP3, the end of a cuckoo filter has no bytes at all.
    for (protocol, end) in [("2", "[0 nil]"), ("3", "[0 nil]")] {
        client.call(&format!("HELLO {protocol}"));
        let (last, _) = client.dump("CF.SCANDUMP", "counts", 0).unwrap();
        client.check(&format!("CF.SCANDUMP counts {last}"), end);
        let (last, _) = client.dump("BF.SCANDUMP", "seen", 0).unwrap();
        client.check(&format!("BF.SCANDUMP seen {last}"), "[0 \"\"]");
    }
    // A set is no multiset.
    let (iterator, piece) = client.dump("BF.SCANDUMP", "seen", 0).unwrap();
    let reply = client.load("CF.LOADCHUNK", "new", &(iterator, piece));
    assert_eq!(reply, "-Couldn't load chunk!");
    // A server that reads what another one writes can dump it, and makes no filters without a folder.
    let reader = home.serve(&["table", "seen"]);
    let mut client = Client::of(&reader);
    let piece = client.dump("BF.SCANDUMP", "seen", 0).unwrap();
    let refused = client.load("BF.LOADCHUNK", "new", &piece);
    assert!(refused.starts_with("-NOPERM filters cannot be made here"), "{refused}");
}

/// A dump of several pieces.
fn pieces_of(home: &Home) -> Vec<Piece> {
    let server = serve(home);
    let mut client = Client::of(&server);
    for_all(&mut client, "BF.MADD seen", &names("key", KEYS));
    let pieces = dump(&mut client, "BF.SCANDUMP", "seen");
    assert!(pieces.len() > 2);
    pieces
}

#[test]
fn only_all_pieces_of_one_dump_in_order_make_a_filter() {
    let home = Home::new();
    let pieces = pieces_of(&home);
    let server = serve(&home);
    let mut client = Client::of(&server);
    let other = dump(&mut client, "BF.SCANDUMP", "seen");
    let load = |client: &mut Client, piece: &Piece| client.load("BF.LOADCHUNK", "copy", piece);
    let (bad, not_next) = ("-ERR received bad data", "-ERR invalid offset - no link found");
    assert_eq!(load(&mut client, &pieces[1]), not_next);
    assert_eq!(load(&mut client, &pieces[0]), "+OK");
    assert_eq!(load(&mut client, &pieces[2]), not_next);
    assert_eq!(load(&mut client, &other[1]), not_next);
    assert_eq!(load(&mut client, &(pieces[2].0, pieces[1].1.clone())), bad);
    for place in [0, 40, 86, 88, 1000, pieces[1].1.len() - 1] {
        let (iterator, mut bytes) = pieces[1].clone();
        bytes[place] ^= 1;
        assert_eq!(load(&mut client, &(iterator, bytes)), bad, "{place}");
    }
    // The load is as it was, and goes on.
    assert_eq!(load(&mut client, &pieces[1]), "+OK");
    client.check("BF.EXISTS copy key-1", "0");
    // Another dump begins anew.
    for piece in &other {
        assert_eq!(load(&mut client, piece), "+OK");
    }
    client.check("BF.EXISTS copy key-1", "1");
    let card = client.call("BF.CARD seen");
    client.check("BF.CARD copy", &card);
}

#[test]
fn a_load_that_is_not_finished_leaves_nothing() {
    let home = Home::new();
    let pieces = pieces_of(&home);
    let server = serve(&home);
    let mut client = Client::of(&server);
    for piece in &pieces[..pieces.len() - 1] {
        assert_eq!(client.load("BF.LOADCHUNK", "copy", piece), "+OK");
    }
    // At most four are loaded at a time.
    for name in ["b", "c", "d"] {
        assert_eq!(client.load("BF.LOADCHUNK", name, &pieces[0]), "+OK");
    }
    let refused = client.load("BF.LOADCHUNK", "e", &pieces[0]);
    assert!(refused.starts_with("-OOM 4 filters are being loaded"), "{refused}");
    server.stop().unwrap();
    let server = serve(&home);
    let mut client = Client::of(&server);
    client.check("BF.EXISTS copy key-1", "0");
    client.check("SCAN 0 TYPE MBbloom--", "[\"0\" [\"seen\"]]");
    assert!(!home.path("made").join("copy").exists());
    assert_eq!(
        client.load("BF.LOADCHUNK", "copy", pieces.last().unwrap()),
        "-ERR invalid offset - no link found"
    );
    // The name is free.
    client.check("BF.ADD copy x", "1");
    assert_eq!(client.load("BF.LOADCHUNK", "copy", &pieces[0]), "-ERR item exists");
}
