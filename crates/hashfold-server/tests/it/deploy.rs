//! Servers that follow the pointer of a group, with a folder in place of object storage.
#![expect(clippy::disallowed_methods, reason = "the test damages the remote behind its back")]

use crate::{
    fixture::{Client, ENTRIES, Home, key},
    http::{Answer, call, get},
};
use hashfold::{Env, work::Watch};
use hashfold_deploy::{Controller, PublishOptions, Remote, push};
use hashfold_server::Server;
use std::{fs, time::Duration};

/// The data sets of a home, and a remote to which its store `people` is pushed.
pub(crate) struct Scene {
    pub(crate) home: Home,
    remote: Remote,
    controller: Controller,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let home = Home::new();
        let env = Env::system();
        let remote = Remote::open(&env, home.path("remote").to_str().unwrap()).unwrap();
        let controller = Controller::new(&env, &remote, "main", "test").unwrap();
        Scene { home, remote, controller }
    }

    pub(crate) fn push(&self, store: &str, version: u64) {
        let (env, watch) = (Env::system(), Watch::default());
        push(&env, &self.home.path("people"), Some(version), &self.remote, store, &watch).unwrap();
    }

    /// Makes versions current, at once and without waiting for servers.
    pub(crate) fn publish(&self, versions: &[(&str, u64)]) {
        let options = PublishOptions {
            min_ready: Some(0),
            lead: Duration::ZERO,
            ..PublishOptions::default()
        };
        let versions: Vec<(String, u64)> =
            versions.iter().map(|(store, version)| ((*store).to_owned(), *version)).collect();
        self.controller.publish(&versions, &options, &Watch::default()).unwrap();
    }

    /// Starts a server of two stores, which it does not have yet.
    fn serve(&self) -> Server {
        self.home.serve_file(
            "http-listen = ['127.0.0.1:0']\nnode = 'a'\ndeploy.remote = 'remote'\n\
             filters.path = 'filters'\n\
             [data.shop]\npath = 'node/shop'\n[data.copy]\npath = 'node/copy'\n\
             [data.table]\npath = 'table'\n\
             [user.default]\nspace = 'shop'\nmakes-filters = true\n[user.copy]\n[user.table]\n",
        )
    }
}

const LOADING: &str = "-LOADING Hashfold is loading the dataset in memory";

fn is_version(version: u32) -> impl Fn(&str) -> bool {
    move |reply| reply == format!("\"value 1 of version {version}\"")
}

#[test]
fn a_server_fetches_what_is_published_and_rolls_back_with_its_group() {
    let scene = Scene::new();
    let server = scene.serve();
    let (mut shop, mut copy) = (Client::of(&server), Client::of(&server));
    copy.check("AUTH copy x", "+OK");
    for command in ["GET key-1", "MGET key-1 key-2", "DBSIZE", "SCAN 0", "KEYS *", "RANDOMKEY"] {
        shop.check(command, LOADING);
    }
    // Filters and tables do not wait for versions of stores.
    assert!(shop.call("INFO persistence").contains("loading:1"));
    let mut table = Client::of(&server);
    table.check("AUTH table x", "+OK");
    table.check("GET key-1", "\"value 1 of version 0\"");
    let (status, body) = get(&server, "/readyz");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(
        body.contains("shop: no version yet") && body.contains("copy: no version yet"),
        "{body}"
    );

    let data: serde_json::Value = serde_json::from_str(&get(&server, "/v1/data").1).unwrap();
    let shop_data = data["data"].as_array().unwrap().iter().find(|it| it["name"] == "shop");
    assert_eq!(shop_data.unwrap()["version"], serde_json::Value::Null);

    scene.push("shop", 1);
    scene.push("copy", 1);
    scene.publish(&[("shop", 1), ("copy", 1)]);
    shop.wait_for("GET key-1", &is_version(1));
    copy.wait_for("GET key-1", &is_version(1));
    let mut pinned = Client::of(&server);
    pinned.check("HASHFOLD.USE 1", "+OK");
    scene.home.publish(2);
    scene.push("shop", 2);
    scene.push("copy", 2);
    scene.publish(&[("shop", 2), ("copy", 2)]);
    shop.wait_for("GET key-1", &is_version(2));
    copy.check("GET key-1", "\"value 1 of version 2\"");
    pinned.check("GET key-1", "\"value 1 of version 1\"");
    assert_eq!(get(&server, "/readyz").1, "ready\n");

    scene.controller.roll_back("tested", Duration::ZERO).unwrap();
    shop.wait_for("GET key-1", &is_version(1));
    server.stop().unwrap();
}

#[test]
fn the_group_decides_and_commands_cannot() {
    let scene = Scene::new();
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    let server = scene.serve();
    let mut client = Client::of(&server);
    client.wait_for("GET key-1", &is_version(1));
    let refused = "-ERR shop follows the group main; use `hashfold deploy publish` or `rollback`";
    client.check("HASHFOLD.PUBLISH shop 1", refused);
    client.check("HASHFOLD.ROLLBACK shop", refused);
    // The local store is busy while the version is noted in it.
    client.wait_for("HASHFOLD.PIN shop 1", &|reply| reply.contains("\"version\" 1"));
    client.wait_for("INFO deploy", &|info| info.contains("deploy_shop_1:current"));
    let info = client.call("INFO deploy");
    for expected in ["deploy_group:main", "deploy_node:a", "deploy_seq:1"] {
        assert!(info.contains(expected), "{expected}: {info}");
    }
    let (_, body) = get(&server, "/v1/deploy");
    assert!(body.contains("\"state\":\"current\""), "{body}");
    assert!(get(&server, "/metrics").1.contains("hashfold_pointer_seq 1"));
}

/// A server on which the holder of the token `secret` may change the group.
fn serve_operators(scene: &Scene) -> Server {
    scene.home.serve_file(
        "http-listen = ['127.0.0.1:0']\nnode = 'a'\ndeploy.remote = 'remote'\n\
         [data.shop]\npath = 'node/shop'\n[user.default]\nspace = 'shop'\n[admin.token.eve]\n\
         sha256 = '2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b'\n\
         role = 'operator'\n",
    )
}

#[test]
fn any_server_of_a_group_can_change_it_for_all() {
    let scene = Scene::new();
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    let server = serve_operators(&scene);
    let mut client = Client::of(&server);
    client.wait_for("GET key-1", &is_version(1));
    scene.home.publish(2);
    scene.push("shop", 2);
    let token = [("Authorization", "Bearer secret")];
    let page = call(&server, "GET", "/store/shop", &token, "").body;
    assert!(page.contains("in object storage only"), "{page}");
    let post = |action: &str, document: &str| {
        call(&server, "POST", &format!("/v1/data/shop/{action}"), &token, document)
    };
    let Answer { status, body, .. } = post("publish", r#"{"version":2,"reason":"tested"}"#);
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"version\":2") && body.contains("\"previous\":1"), "{body}");
    client.wait_for("GET key-1", &is_version(2));
    client.wait_for("INFO deploy", &|info| info.contains("deploy_shop_2:current"));
    let page = call(&server, "GET", "/deploy", &token, "").body;
    for expected in ["Group main", "by eve at a", "tested", "current"] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let refused = post("rollback", r#"{"version":1,"reason":"wrong"}"#);
    assert!(refused.status == 409 && refused.body.contains("publish version 1 instead"));
    assert_eq!(post("rollback", r#"{"reason":"wrong"}"#).status, 200);
    client.wait_for("GET key-1", &is_version(1));
    assert_eq!(post("cancel", r#"{"reason":"nothing is announced"}"#).status, 200);
    let group = call(&server, "GET", "/v1/group", &token, "").body;
    let group: serde_json::Value = serde_json::from_str(&group).unwrap();
    assert_eq!(
        (&group["stores"][0]["current"], &group["stores"][0]["bad"][0]),
        (&1.into(), &2.into())
    );
    assert_eq!(group["nodes"][0]["name"], "a");
}

#[test]
fn a_damaged_version_is_fetched_again_while_it_is_served() {
    let scene = Scene::new();
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    let server = scene.serve();
    let mut client = Client::of(&server);
    client.wait_for("INFO deploy", &|info| info.contains("deploy_shop_1:current"));
    // The server has looked at no block yet: it checks each when it is used for the first time.
    scene.home.damage("node/shop");
    let all = || (0..ENTRIES).map(|i| format!("GET {}", key(i)));
    let mut damaged = Vec::new();
    for command in all() {
        match client.call(&command) {
            reply if reply.starts_with("-DAMAGED ") => damaged.push(command),
            reply => assert!(reply.contains("of version 1"), "{command}: {reply}"),
        }
    }
    assert!(!damaged.is_empty());
    for command in &damaged {
        client.wait_for(command, &|reply| reply.contains("of version 1"));
    }
    all().for_each(|command| assert!(client.call(&command).contains("of version 1"), "{command}"));
}

/// What was served stays served, also after a restart and without the remote.
#[test]
fn without_the_remote_a_server_starts_with_the_version_that_it_had() {
    let scene = Scene::new();
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    let server = scene.serve();
    Client::of(&server).wait_for("GET key-1", &is_version(1));
    // The version is served first, and noted in the local store then.
    let is_noted = |reply: &str| reply.contains("\"current\" 1");
    Client::of(&server).wait_for("HASHFOLD.VERSION", &is_noted);
    server.stop().unwrap();
    // Nothing can be read below a file.
    let groups = scene.home.path("remote").join("groups");
    fs::remove_dir_all(&groups).unwrap();
    fs::write(&groups, "not a folder").unwrap();
    let server = scene.serve();
    let mut client = Client::of(&server);
    client.check("GET key-1", "\"value 1 of version 1\"");
    client.wait_for("INFO deploy", &|info| info.contains("deploy_error:"));
    client.check("GET key-1", "\"value 1 of version 1\"");
    server.stop().unwrap();
}
