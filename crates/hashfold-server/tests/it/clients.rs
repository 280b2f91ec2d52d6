//! Client libraries of others.

use crate::fixture::{Home, key, value};
use hashfold_server::ClusterConfig;
use redis::{Commands as _, RedisResult};

#[test]
fn the_rust_client_reads_and_pipelines() {
    let home = Home::new();
    let server = home.serve(&["people"]);
    for suffix in ["", "/?protocol=resp3"] {
        let url = format!("redis://{}{suffix}", server.addresses()[0]);
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let found: Option<String> = connection.get(key(1)).unwrap();
        assert_eq!(found, Some(value(1, 1)));
        let found: Option<String> = connection.get("nope").unwrap();
        assert_eq!(found, None);
        let found: Vec<Option<String>> = connection.mget(&[key(1), "nope".into(), key(2)]).unwrap();
        assert_eq!(found, [Some(value(1, 1)), None, Some(value(2, 1))]);
        let (a, b): (String, bool) =
            redis::pipe().get(key(3)).exists(key(4)).query(&mut connection).unwrap();
        assert_eq!((a, b), (value(3, 1), true));
        let written: RedisResult<()> = connection.set("a", "b");
        assert_eq!(written.unwrap_err().code(), Some("NOPERM"));
        let keys: Vec<String> = connection.scan().unwrap().map(Result::unwrap).collect();
        assert_eq!(keys.len(), 2000);
    }
}

#[test]
fn the_rust_client_finds_its_way_in_a_cluster() {
    let home = Home::new();
    let server = home.serve_with(&["people"], |config| config.cluster = ClusterConfig::Emulated);
    let url = format!("redis://{}", server.addresses()[0]);
    let client = redis::cluster::ClusterClient::new(vec![url]).unwrap();
    let mut connection = client.get_connection().unwrap();
    for i in 0..100 {
        let found: String = connection.get(key(i)).unwrap();
        assert_eq!(found, value(i, 1));
    }
}
