//! Servers that follow the pointer of a group, with a folder in place of object storage.
#![expect(clippy::disallowed_methods, reason = "the test damages the remote behind its back")]

use crate::{
    admin::Visitor,
    fixture::{Client, ENTRIES, Home, key},
    http::{Answer, call, get},
};
use hashfold::{
    Env, ErrorClass, Store,
    work::{SystemRandom, Watch},
};
use hashfold_deploy::{
    Bake, Controller, GroupPointer, PublishOptions, Remote, Result, SigningKey, push, push_signed,
};
use hashfold_server::{Config, Server, StartError};
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

    fn push_signed(&self, store: &str, version: u64, key: &SigningKey) {
        let (env, watch, folder) = (Env::system(), Watch::default(), self.home.path("people"));
        push_signed(&env, &folder, Some(version), &self.remote, store, key, &watch).unwrap();
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

    /// Starts a server of the store `shop` in a zone, which checks each block whenever it is read. Its folder
    /// has the name of the server.
    fn serve_in(&self, node: &str, zone: &str) -> Server {
        self.home.serve_file(&format!(
            "node = '{node}'\ndeploy = {{ remote = 'remote', zone = '{zone}' }}\n\
             [data.shop]\npath = '{node}/shop'\naccess = 'cached'\n\
             [user.default]\nspace = 'shop'\n"
        ))
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
    // Pins are of this server alone, but the state that was looked at is that of the group.
    let pin = |seq| {
        let headers = [token[0], ("If-Match", seq)];
        call(&server, "POST", "/v1/data/shop/pin", &headers, r#"{"version":2,"reason":"x"}"#).status
    };
    let seq = serde_json::from_str::<serde_json::Value>(
        &call(&server, "GET", "/v1/data/shop/versions", &token, "").body,
    )
    .unwrap()["seq"]
        .to_string();
    assert_eq!((pin("1"), pin("no")), (412, 400));
    assert_eq!(pin(&seq), 200);
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

/// Issue 15: before its first version, the group has none of the store `copy`.
#[test]
fn a_store_whose_first_version_is_rolled_back_has_no_version_until_the_next_one() {
    let scene = Scene::new();
    scene.push("shop", 1);
    scene.push("copy", 1);
    scene.publish(&[("shop", 1)]);
    let server = scene.serve();
    let (mut shop, mut copy) = (Client::of(&server), Client::of(&server));
    copy.check("AUTH copy x", "+OK");
    shop.wait_for("GET key-1", &is_version(1));
    copy.check("GET key-1", LOADING);
    scene.publish(&[("copy", 1)]);
    copy.wait_for("GET key-1", &is_version(1));
    scene.controller.roll_back("tested", Duration::ZERO).unwrap();
    let none = "-NOVERSION copy has no current version";
    copy.wait_for("GET key-1", &|reply| reply == none);
    for command in ["MGET key-1 key-2", "EXISTS key-1", "DBSIZE", "SCAN 0"] {
        copy.check(command, none);
    }
    shop.check("GET key-1", "\"value 1 of version 1\"");
    assert_eq!(get(&server, "/readyz").1, "ready\n");
    assert!(shop.call("INFO persistence").contains("loading:0"));
    // A server that starts then serves none either.
    server.stop().unwrap();
    let server = scene.serve();
    let (mut shop, mut copy) = (Client::of(&server), Client::of(&server));
    copy.check("AUTH copy x", "+OK");
    shop.wait_for("GET key-1", &is_version(1));
    copy.wait_for("GET key-1", &|reply| reply == none);
    scene.home.publish(2);
    scene.push("copy", 2);
    scene.publish(&[("copy", 2)]);
    copy.wait_for("GET key-1", &is_version(2));
}

/// Issue 15: the folder of the store is damaged while the server does not run.
#[test]
fn a_damaged_local_copy_keeps_no_server_from_starting() {
    let scene = Scene::new();
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    let folder = scene.home.path("node/shop");
    let start = || {
        let server = scene.serve();
        let mut shop = Client::of(&server);
        shop.wait_for("GET key-1", &is_version(1));
        shop.wait_for("INFO deploy", &|info| info.contains("deploy_shop_1:current"));
        server.stop().unwrap();
    };
    scene.push("copy", 1);
    scene.publish(&[("copy", 1)]);
    start();
    let table = fs::read_dir(folder.join("tables")).unwrap().next().unwrap().unwrap().path();
    let version = folder.join("versions/0000000001");
    let current = folder.join("CURRENT");
    for files in [
        vec![current.clone()],
        vec![version.clone()],
        vec![table.join("MANIFEST")],
        vec![current.clone(), version, table.join("MANIFEST")],
    ] {
        for path in &files {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }
        let config = Config::parse(
            "node = 'a'\ndeploy.remote = 'remote'\n[data.shop]\npath = 'node/shop'\n",
            "test.toml",
            scene.home.path("x").parent().unwrap(),
        );
        let checked = Server::check(&config.unwrap(), &Env::system()).unwrap_err();
        let StartError::Data(error) = &checked else { panic!("{files:?}: {checked}") };
        assert_eq!(error.class(), ErrorClass::Damage, "{files:?}: {error}");
        start();
    }
    // Without the remote, what can be served is served.
    let bytes = fs::read(&current).unwrap();
    fs::write(&current, &bytes[..bytes.len() / 2]).unwrap();
    fs::rename(scene.home.path("remote"), scene.home.path("gone")).unwrap();
    let server = scene.serve();
    Client::of(&server).check("GET key-1", "\"value 1 of version 1\"");
}

/// Two servers in two zones, of which one gets version 2 first.
fn two_zones(scene: &Scene) -> [Server; 2] {
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    let servers = [scene.serve_in("a", "east"), scene.serve_in("b", "west")];
    for server in &servers {
        let mut client = Client::of(server);
        client.wait_for("INFO deploy", &|info| info.contains("deploy_shop_1:current"));
    }
    scene.home.publish(2);
    scene.push("shop", 2);
    servers
}

/// Publishes version 2 to the zone east first; returns the result and whatever was seen meanwhile.
fn bake<T>(scene: &Scene, seconds: u64, look: impl FnOnce() -> T) -> (Result<GroupPointer>, T) {
    let bake = Bake { zone: "east".into(), time: Duration::from_secs(seconds) };
    let options = PublishOptions { bake: Some(bake), ..PublishOptions::default() };
    let versions = [("shop".to_owned(), 2)];
    std::thread::scope(|scope| {
        let controller = &scene.controller;
        let publishing = scope.spawn(|| controller.publish(&versions, &options, &Watch::default()));
        let seen = look();
        (publishing.join().unwrap(), seen)
    })
}

#[test]
fn one_zone_gets_a_version_first() {
    let scene = Scene::new();
    let [east, west] = two_zones(&scene);
    let (mut first, mut other) = (Client::of(&east), Client::of(&west));
    assert!(first.call("INFO deploy").contains("deploy_zone:east"));
    let (result, before) = bake(&scene, 1, || {
        first.wait_for("GET key-1", &is_version(2));
        other.call("GET key-1")
    });
    assert!(is_version(1)(&before), "{before}");
    assert_eq!(result.unwrap().stores["shop"].version, 2);
    other.wait_for("GET key-1", &is_version(2));
}

#[test]
fn a_zone_whose_server_cannot_answer_goes_back() {
    let scene = Scene::new();
    let [east, west] = two_zones(&scene);
    let (mut first, mut other) = (Client::of(&east), Client::of(&west));
    let (result, ()) = bake(&scene, 60, || {
        first.wait_for("GET key-1", &is_version(2));
        scene.home.damage("a/shop");
        (0..ENTRIES).for_each(|i| drop(first.call(&format!("GET {}", key(i)))));
    });
    let error = result.unwrap_err();
    assert!(error.to_string().contains("a (shop 2: current, "), "{error}");
    assert!(error.to_string().contains(" failed lookups)"), "{error}");
    let pointer = scene.controller.pointer().unwrap();
    assert_eq!((pointer.stores["shop"].version, pointer.trial), (1, None));
    first.wait_for("GET key-1", &|reply| is_version(1)(reply) || reply.starts_with("-DAMAGED"));
    other.check("GET key-1", "\"value 1 of version 1\"");
}

#[test]
fn a_version_that_changes_too_much_is_not_published_over_http() {
    let scene = Scene::new();
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    let server = serve_operators(&scene);
    Client::of(&server).wait_for("INFO deploy", &|info| info.contains("deploy_shop_1:current"));
    scene.home.publish(2);
    scene.push("shop", 2);
    let token = [("Authorization", "Bearer secret")];
    let publish = |document: &str| call(&server, "POST", "/v1/data/shop/publish", &token, document);
    for wrong in ["2", "-0.1", "\"x\""] {
        let document = format!(r#"{{"version":2,"reason":"tested","max_change":{wrong}}}"#);
        assert_eq!(publish(&document).status, 400, "{wrong}");
    }
    let Answer { status, body, .. } =
        publish(r#"{"version":2,"reason":"tested","max_change":0.5}"#);
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("at most 0.5 of the sampled keys") && body.contains("got 1.0"), "{body}");
    let page = call(&server, "GET", "/deploy", &token, "").body;
    assert!(page.contains("keys of 1: ") && page.contains(" changed, 0 removed"), "{page}");
    let force = r#"{"version":2,"reason":"tested","max_change":0.5,"force":true}"#;
    assert_eq!(publish(force).status, 200);
    Client::of(&server).wait_for("GET key-1", &is_version(2));
}

/// The version lacks most keys, which servers notice when it is announced: the form that is shown again is about the
/// pointer after the announcement.
#[test]
fn a_form_can_be_sent_again_after_a_refusal_that_has_changed_the_pointer() {
    let scene = Scene::new();
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    let server = serve_operators(&scene);
    Client::of(&server).wait_for("INFO deploy", &|info| info.contains("deploy_shop_1:current"));
    let mut update = Store::open(scene.home.path("people")).unwrap().update().unwrap();
    for i in 0..ENTRIES * 3 / 5 {
        update.delete(key(i)).unwrap();
        update.put(format!("other {i}"), "value").unwrap();
    }
    update.publish().unwrap();
    scene.push("shop", 2);
    let eve = Visitor::browser(&server, "secret");
    let form = eve.form("store=shop&action=publish&version=2");
    let answer = eve.submit(&format!("{form}&reason=tested&confirm=shop"));
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("does not pass the gate"), "{}", answer.body);
    let seq = scene.controller.pointer().unwrap().seq;
    assert_eq!(seq, 2, "it is announced");
    assert!(answer.body.contains(&format!("name=\"seq\" value=\"{seq}\"")), "{}", answer.body);
}

#[test]
fn a_server_with_trusted_keys_serves_only_versions_that_one_of_them_has_signed() {
    let scene = Scene::new();
    let [old, new] = [(); 2].map(|()| SigningKey::generate(&SystemRandom));
    for (name, key) in [("old.pub", &old), ("new.pub", &new)] {
        fs::write(scene.home.path(name), key.public().to_pem()).unwrap();
    }
    scene.push_signed("shop", 1, &old);
    scene.publish(&[("shop", 1)]);
    let config = |keys: &str| {
        format!(
            "http-listen = ['127.0.0.1:0']\nnode = 'a'\n[deploy]\nremote = 'remote'\n\
             trusted-keys = {keys}\n[data.shop]\npath = 'node/shop'\n[user.default]\n\
             space = 'shop'\n[admin.token.eve]\nrole = 'operator'\n\
             sha256 = '2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b'\n"
        )
    };
    let server = scene.home.serve_file(&config("['old.pub', 'new.pub']"));
    let mut client = Client::of(&server);
    client.wait_for("GET key-1", &is_version(1));
    // The server notices that the version was noted in its store only in the next step.
    client.wait_for("INFO deploy", &|info| info.contains("deploy_shop_1:current"));
    assert!(client.call("INFO deploy").contains("deploy_trusted_keys:2"));

    scene.home.publish(2);
    scene.push("shop", 2);
    let token = [("Authorization", "Bearer secret")];
    let publish = "/v1/data/shop/publish";
    let Answer { status, body, .. } =
        call(&server, "POST", publish, &token, r#"{"version":2,"reason":"not signed"}"#);
    assert!(status == 409 && body.contains("is refused: expected a signature"), "{status} {body}");
    // A controller that trusts everybody.
    scene.publish(&[("shop", 2)]);
    client.wait_for("INFO deploy", &|info| info.contains("deploy_shop_2:failed"));
    let info = client.call("INFO deploy");
    assert!(info.contains("version 2 of store shop is refused: expected a signature"), "{info}");
    client.check("GET key-1", "\"value 1 of version 1\"");
    scene.push_signed("shop", 2, &new);
    scene.publish(&[("shop", 1)]);
    client.wait_for("INFO deploy", &|info| !info.contains("deploy_shop_2"));
    scene.publish(&[("shop", 2)]);
    client.wait_for("GET key-1", &is_version(2));
    server.stop().unwrap();

    fs::write(scene.home.path("no.pub"), new.to_pem()).unwrap();
    for (keys, class, expected) in [
        ("['absent.pub']", ErrorClass::Io, "absent.pub"),
        ("['old.pub', 'no.pub']", ErrorClass::Usage, "no.pub: trusted key is a text that is none"),
    ] {
        let error = scene.home.start_file(&config(keys)).unwrap_err();
        let StartError::Deploy(error) = error else { panic!("{error}") };
        assert!(error.class() == class && error.to_string().contains(expected), "{error}");
    }
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

/// Returns the configuration of a server that follows a group with some stores.
fn following(scene: &Scene, stores: &[&str]) -> Config {
    let mut text = "listen = ['127.0.0.1:0']\nnode = 'a'\ndeploy.remote = 'remote'\n".to_owned();
    for store in stores {
        text.push_str(&format!("[data.{store}]\npath = 'node/{store}'\n[user.{store}]\n"));
    }
    Config::parse(&text, "test.toml", &scene.home.path("")).unwrap()
}

#[test]
fn a_store_that_is_added_follows_the_group_and_one_that_is_removed_does_not() {
    let scene = Scene::new();
    for store in ["shop", "copy"] {
        scene.push(store, 1);
    }
    scene.publish(&[("shop", 1), ("copy", 1)]);
    let server = Server::start(following(&scene, &["shop"]), &Env::system()).unwrap();
    let mut shop = Client::of(&server);
    shop.check("AUTH shop x", "+OK");
    shop.wait_for("GET key-1", &is_version(1));
    server.reload(&following(&scene, &["shop", "copy"])).unwrap();
    shop.check("GET key-1", "\"value 1 of version 1\"");
    let mut copy = Client::of(&server);
    copy.check("AUTH copy x", "+OK");
    copy.wait_for("GET key-1", &is_version(1));
    let reported = || {
        let nodes = scene.controller.status().unwrap().nodes;
        nodes.into_values().flat_map(|node| node.stores).collect::<Vec<_>>()
    };
    assert_eq!(reported(), ["copy", "shop"]);
    server.reload(&following(&scene, &["copy"])).unwrap();
    assert!(shop.call("GET key-1").starts_with("-ERR data set shop is no longer served"));
    scene.home.publish(2);
    for store in ["shop", "copy"] {
        scene.push(store, 2);
    }
    scene.publish(&[("shop", 2), ("copy", 2)]);
    copy.wait_for("GET key-1", &is_version(2));
    assert_eq!(reported(), ["copy"]);
    assert!(!scene.home.path("node/shop/versions/0000000002").exists());
    server.stop().unwrap();
}

#[test]
fn a_remote_that_is_not_mounted_is_an_error_until_it_is_there() {
    let scene = Scene::new();
    let server = Server::start(following(&scene, &["shop"]), &Env::system()).unwrap();
    let mut client = Client::of(&server);
    client.check("AUTH shop x", "+OK");
    client.wait_for("INFO deploy", &|info| {
        info.contains("deploy_error:")
            && info.contains("remote: cannot read: the folder does not exist")
    });
    client.check("GET key-1", LOADING);
    assert!(!scene.home.path("remote").exists(), "a server does not make it");
    scene.push("shop", 1);
    scene.publish(&[("shop", 1)]);
    client.wait_for("GET key-1", &is_version(1));
    client.wait_for("INFO deploy", &|info| !info.contains("deploy_error:"));
}
