//! What clients, exporters and people ask a server about itself.

use crate::fixture::{Client, Home};
use hashfold_server::ClusterConfig;

#[test]
fn commands_with_subcommands_have_help() {
    let home = Home::new();
    let server = home.serve_with(&["table"], |config| config.cluster = ClusterConfig::Emulated);
    let mut client = Client::of(&server);
    let containers = [
        "ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "LATENCY", "MEMORY", "MODULE", "OBJECT",
        "SLOWLOG",
    ];
    for name in containers {
        let help = client.call(&format!("{name} HELP"));
        let first = format!("[+{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are: +");
        assert!(help.starts_with(&first), "{help}");
        assert!(help.ends_with(" +HELP +    Print this help.]"), "{help}");
        let lower = name.to_ascii_lowercase();
        client.check(
            &format!("{name} HELP x"),
            &format!("-ERR wrong number of arguments for '{lower}|help' command"),
        );
        client.check(
            &format!("{name} NOPE"),
            &format!("-ERR unknown subcommand 'NOPE'. Try {name} HELP."),
        );
        if name != "COMMAND" {
            client.check(name, &format!("-ERR wrong number of arguments for '{lower}' command"));
        }
    }
    let help = client.call("SLOWLOG HELP");
    assert!(
        help.contains(" +GET [<count>] +    Returns the last commands that took long. +LEN +"),
        "{help}"
    );
    let help = client.call("COMMAND HELP");
    assert!(help.contains(" +(no subcommand) +    Describes commands. +COUNT +"), "{help}");
}

#[test]
fn commands_are_listed_by_module_category_and_pattern() {
    let home = Home::new();
    let server = home.serve(&["table"]);
    let mut client = Client::of(&server);
    client.check("COMMAND LIST FILTERBY PATTERN *watch", "[\"unwatch\" \"watch\"]");
    client.check("COMMAND LIST FILTERBY PATTERN slowlog|l*", "[\"slowlog|len\"]");
    client.check(
        "COMMAND LIST FILTERBY ACLCAT transaction",
        "[\"discard\" \"exec\" \"multi\" \"unwatch\" \"watch\"]",
    );
    let of_module = client.call("COMMAND LIST FILTERBY MODULE bf");
    assert!(of_module.contains("\"bf.add\"") && of_module.contains("\"cf.add\""), "{of_module}");
    assert!(!of_module.contains("hashfold"), "{of_module}");
    let count: usize = client.call("COMMAND COUNT").parse().unwrap();
    assert_eq!(client.call("COMMAND LIST").split(' ').count(), count);
    let info = client.call("COMMAND INFO client|list nope GET");
    assert!(info.starts_with("[[\"client|list\" -2 [+admin "), "{info}");
    assert!(info.contains("]] nil [\"get\" 2 [+readonly +fast] 1 1 1 "), "{info}");
    let docs = client.call("COMMAND DOCS slowlog client|id nope");
    assert!(docs.starts_with("[\"slowlog\" [\"summary\" "), "{docs}");
    assert!(docs.contains("\"subcommands\" [\"slowlog|get\" ["), "{docs}");
    assert!(docs.contains(" \"client|id\" [\"summary\" \"Returns the number"), "{docs}");
    client.check("COMMAND GETKEYS mget a b", "[\"a\" \"b\"]");
    client.check("COMMAND GETKEYS object encoding a", "[\"a\"]");
    client.check("COMMAND GETKEYS ping a", "-ERR The command has no key arguments");
    client
        .check("COMMAND GETKEYS get a b", "-ERR Invalid number of arguments specified for command");
    client.check("COMMAND GETKEYS nope a", "-ERR Invalid command specified");
}

#[test]
fn refused_calls_and_failed_logins_are_in_the_log() {
    let home = Home::new();
    let server = home.serve_file(
        "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n\
         [user.app]\nspace = 'people'\ncommands = ['+@all', '-mget']\nkeys = ['key-*']\n",
    );
    let (mut admin, mut client) = (Client::of(&server), Client::of(&server));
    client.check("AUTH app x", "+OK");
    // The third has its turn after a lookup.
    for line in
        ["MGET key-1", "MGET key-1", "GET key-1", "GET other", "MULTI", "GET other", "DISCARD"]
    {
        client.ask(line);
    }
    (0..7).for_each(|_| drop(client.reply()));
    client.check("AUTH nobody x", "-WRONGPASS invalid username-password pair or user is disabled.");
    let log = admin.call("ACL LOG");
    let entries: Vec<&str> = log.split("[\"count\" ").skip(1).collect();
    for (entry, start) in entries.iter().zip([
        r#"1 "reason" "auth" "context" "toplevel" "object" "AUTH" "username" "nobody" "age-seconds""#,
        r#"1 "reason" "key" "context" "multi" "object" "other" "username" "app" "age-seconds""#,
        r#"1 "reason" "key" "context" "toplevel" "object" "other" "username" "app" "age-seconds""#,
        r#"2 "reason" "command" "context" "toplevel" "object" "mget" "username" "app" "age-seconds""#,
    ]) {
        assert!(entry.starts_with(start), "{entry}");
        assert!(entry.contains("\"client-info\" \"id=") && entry.contains(" user=app "), "{entry}");
    }
    assert_eq!(entries.len(), 4);
    assert!(entries[3].contains("\"entry-id\" 0 \"timestamp-created\" "), "{log}");
    assert_eq!(admin.call("ACL LOG 1").matches("count").count(), 1);
    admin.check("ACL LOG 0", "[]");
    admin.call("HELLO 3");
    let log = admin.call("ACL LOG 1");
    assert!(log.starts_with("[{\"count\" 1 "), "{log}");
    admin.check("ACL LOG RESET", "+OK");
    admin.check("ACL LOG", "[]");
}

#[test]
fn connections_are_closed_by_filters() {
    let home = Home::new();
    let server = home.serve_file(
        "[data.people]\npath = 'people'\n[user.default]\nspace = 'people'\n[user.app]\nspace = 'people'\n",
    );
    let mut admin = Client::of(&server);
    let closes = |admin: &mut Client, filter: &dyn Fn(&str) -> String| {
        let mut victim = Client::of(&server);
        victim.check("AUTH app x", "+OK");
        let id = victim.call("CLIENT ID");
        let list = admin.call(&format!("CLIENT LIST ID {id}"));
        assert_eq!(admin.call(&format!("CLIENT KILL {}", filter(&list))), "1", "{list}");
        assert!(victim.is_closed());
        admin.check("PING", "+PONG");
    };
    let field = |list: &str, name: &str| {
        let mut fields = list.trim_matches('"').split(' ');
        fields.find_map(|field| field.strip_prefix(name)).unwrap().to_owned()
    };
    closes(&mut admin, &|list| format!("ID {}", field(list, "id=")));
    closes(&mut admin, &|list| format!("ADDR {}", field(list, "addr=")));
    closes(&mut admin, &|list| format!("LADDR {}", field(list, "laddr=")));
    closes(&mut admin, &|_| "USER app SKIPME yes".into());
    closes(&mut admin, &|_| "TYPE normal".into());
    closes(&mut admin, &|list| format!("USER app ID {} TYPE NORMAL", field(list, "id=")));
    admin.check("CLIENT KILL TYPE replica SKIPME no", "0");
    admin.check("CLIENT KILL MAXAGE 100000 SKIPME no", "0");
    admin.check("CLIENT KILL MAXAGE x", "-ERR maxage is not an integer or out of range");
    admin.check("CLIENT KILL MAXAGE 0", "-ERR maxage should be greater than 0");
    admin.check("CLIENT KILL SKIPME perhaps", "-ERR syntax error");
    admin.check("CLIENT KILL ID 1 USER", "-ERR syntax error");
    admin.check("CLIENT KILL USER default SKIPME no", "1");
    assert!(admin.is_closed());
}
