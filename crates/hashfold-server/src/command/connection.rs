//! Commands about the connection itself: greeting, password, closing.

use super::{
    SYNTAX_ERROR,
    entry::{BeginLogin, Call, Command, Flag, Group, Login, Now, Run, Work},
};
use crate::{
    acl_log::{AclLog, Denial, Reason},
    data::View,
    logins::Logins,
    opened::Served,
    protocol::{Protocol, Reply},
    session::{Replies, Session},
    user::{DEFAULT, User},
};
use hashfold::work::Clock;
use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

pub(super) const COMMANDS: &[Command] = &[
    now("ping", -1, "Replies PONG, or its argument.", ping),
    now("echo", 2, "Replies its argument.", echo),
    now("quit", -1, "Closes the connection.", quit)
        .with(Flag::NoAuth)
        .with(Flag::NotQueued)
        .always(),
    now("reset", 1, "Makes the connection as new.", reset)
        .with(Flag::NoAuth)
        .with(Flag::NotQueued)
        .always(),
    login("auth", -2, "Gives a user's name and password.", auth),
    login("hello", -1, "Selects RESP2 or RESP3, and says what the server is.", hello),
    now("select", 2, "Selects database 0, the only one.", select).always(),
    Command::new("time", 1, Group::Server, "Returns the server's time.", Run::Now(time))
        .fast()
        .always(),
];

const fn now(name: &'static str, arity: i32, summary: &'static str, run: Now) -> Command {
    Command::new(name, arity, Group::Connection, summary, Run::Now(run)).fast()
}

const fn login(name: &'static str, arity: i32, summary: &'static str, run: BeginLogin) -> Command {
    let command = Command::new(name, arity, Group::Connection, summary, Run::Login(run));
    command.with(Flag::NoAuth).with(Flag::NoMulti).fast().always()
}

fn ping(call: &mut Call<'_, '_>) {
    match call.arguments.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(call.arguments.at(1)),
        _ => call.reply.error(&super::wrong_arity("ping")),
    }
}

fn echo(call: &mut Call<'_, '_>) {
    call.reply.bulk(call.arguments.at(1));
}

fn quit(call: &mut Call<'_, '_>) {
    call.session.is_closing = true;
    call.ok();
}

fn reset(call: &mut Call<'_, '_>) {
    call.reply.set_protocol(Protocol::Resp2);
    let session = &mut *call.session;
    session.client.set_text(|texts| texts.name.clear());
    session.client.is_resp3.store(false, Relaxed);
    session.protocol = Protocol::Resp2;
    session.replies = Replies::On;
    session.reads_replicas = false;
    session.is_asking = false;
    session.end_transaction();
    session.set_user(call.shared.stranger());
    call.reply.simple("RESET");
}

fn select(call: &mut Call<'_, '_>) {
    match call.arguments.integer(1) {
        Ok(0) => call.ok(),
        Ok(_) => call.reply.error("ERR DB index is out of range"),
        Err(error) => call.reply.error(&error),
    }
}

fn time(call: &mut Call<'_, '_>) {
    let now = call.shared.env.clock.unix_time();
    call.reply.bulks([&*now.as_secs().to_string(), &*now.subsec_micros().to_string()]);
}

fn auth(call: &mut Call<'_, '_>) -> Result<Login, String> {
    let arguments = call.arguments;
    let (name, password) = match arguments.len() {
        2 => (DEFAULT.as_bytes(), arguments.at(1)),
        3 => (arguments.at(1), arguments.at(2)),
        _ => return Err(SYNTAX_ERROR.into()),
    };
    if arguments.len() == 2 && call.shared.stranger().is_some() {
        return Err(
            "ERR AUTH <password> called without any password configured for the default user. Are \
                    you sure your configuration is correct?"
                .into(),
        );
    }
    Credentials::of(call, name, password).log_in(call, |_, reply| reply.simple("OK"))
}

/// What a client says to become a user.
struct Credentials {
    served: Arc<Served>,
    name: Vec<u8>,
    password: Vec<u8>,
    denial: LoginDenial,
}

/// What is noted if a login fails.
struct LoginDenial {
    acl_log: Arc<AclLog>,
    logins: Arc<Logins>,
    clock: Arc<dyn Clock>,
    address: IpAddr,
    denial: Denial,
    /// The connection, as in `CLIENT LIST`.
    client: String,
}

/// The reply to a wrong name or password.
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// The reply to an address from which too many logins have failed.
const TOO_MANY_FAILURES: &str =
    "WRONGPASS too many logins from this address have failed; try again in a second";

impl LoginDenial {
    fn of(call: &Call<'_, '_>, name: &[u8]) -> LoginDenial {
        let (shared, client) = (call.shared, &call.session.client);
        let denial = Denial {
            reason: Reason::Auth,
            is_in_multi: false,
            object: call.arguments.text(0),
            user: String::from_utf8_lossy(name).into_owned(),
        };
        LoginDenial {
            acl_log: shared.acl_log.clone(),
            logins: shared.logins.clone(),
            clock: shared.env.clock.clone(),
            address: client.peer.ip(),
            denial,
            client: super::client::describe(shared, client),
        }
    }

    /// Refuses a login from an address from which too many have failed.
    fn check_rate(&self) -> Result<(), String> {
        match self.logins.refuses(self.address, self.clock.now()) {
            true => Err(TOO_MANY_FAILURES.into()),
            false => Ok(()),
        }
    }

    /// Notes a wrong name or password, and returns the reply.
    fn note(&self) -> String {
        self.logins.note_failure(self.address, self.clock.now());
        let now = self.clock.unix_time();
        self.acl_log.add(self.denial.clone(), self.client.clone(), now);
        WRONG_PASSWORD.into()
    }
}

/// The user that a connection becomes, and the version that it then uses.
struct LoggedIn {
    user: Arc<User>,
    fixed: Option<Arc<View>>,
}

impl LoggedIn {
    fn apply(self, session: &mut Session) {
        session.set_user(Some(self.user));
        session.fixed = self.fixed;
    }
}

impl Credentials {
    fn of(call: &Call<'_, '_>, name: &[u8], password: &[u8]) -> Credentials {
        let (served, denial) = (call.shared.served(), LoginDenial::of(call, name));
        Credentials { served, name: name.into(), password: password.into(), denial }
    }

    /// Returns the user, and the version that the name has behind it: `people`, or `people@41`.
    fn find(&self) -> Option<(&Arc<User>, Option<&str>)> {
        let name = std::str::from_utf8(&self.name).ok()?;
        if let Some(user) = self.served.users.get(name) {
            return Some((user, None));
        }
        let (name, version) = name.rsplit_once('@')?;
        Some((self.served.users.get(name)?, Some(version)))
    }

    /// Makes the client the user, and answers. A password that is known to be right waits for no other one.
    fn log_in(
        self,
        call: &mut Call<'_, '_>,
        answer: impl FnOnce(&mut Session, &mut Reply<'_>) + Send + 'static,
    ) -> Result<Login, String> {
        let found = self.find().map(|(user, version)| (user.clone(), version.is_some()));
        let is_known =
            found.as_ref().is_some_and(|(user, _)| user.password.is_known(&self.password));
        match found {
            Some((user, false)) if is_known => {
                LoggedIn { user, fixed: None }.apply(call.session);
                answer(call.session, call.reply);
                return Ok(Login::Done);
            }
            Some(_) if is_known => {}
            _ => self.denial.check_rate()?,
        }
        if found.is_none() {
            return Err(self.denial.note());
        }
        let work: Work = Box::new(move || {
            let logged_in = self.check();
            Box::new(move |session, reply| match logged_in {
                Ok(logged_in) => {
                    logged_in.apply(session);
                    answer(session, reply);
                }
                Err(error) => reply.error(&error),
            })
        });
        Ok(if is_known { Login::Open(work) } else { Login::Check(work) })
    }

    /// Checks the password when its turn comes: others from the same address may have failed meanwhile, or
    /// have shown that it is right.
    ///
    /// # Errors
    /// The reply: the password is wrong, or there is no such version.
    fn check(&self) -> Result<LoggedIn, String> {
        let (user, version) = self.find().ok_or(WRONG_PASSWORD)?;
        if !user.password.is_known(&self.password) {
            self.denial.check_rate()?;
            if !user.password.is(&self.password) {
                return Err(self.denial.note());
            }
        }
        let fixed = version.map(|version| version_of(user, version)).transpose()?;
        Ok(LoggedIn { user: user.clone(), fixed })
    }
}

/// Returns a version of a user's store.
fn version_of(user: &User, version: &str) -> Result<Arc<View>, String> {
    let none = |data: &str| format!("NOVERSION {data} has no version {version}");
    let data = user.space.data().ok_or_else(|| none(&user.name))?;
    let number = version.parse().map_err(|_| none(data.name()))?;
    super::versions::open(data, number)
}

fn hello(call: &mut Call<'_, '_>) -> Result<Login, String> {
    let (greeting, credentials) = Greeting::parse(call)?;
    match credentials {
        Some(credentials) => {
            credentials.log_in(call, move |session, reply| greeting.answer(session, reply))
        }
        None => {
            greeting.answer(call.session, call.reply);
            Ok(Login::Done)
        }
    }
}

/// What `HELLO` asks for, and what it says about the server.
struct Greeting {
    protocol: Protocol,
    name: Option<String>,
    mode: &'static str,
}

impl Greeting {
    fn parse(call: &Call<'_, '_>) -> Result<(Greeting, Option<Credentials>), String> {
        let arguments = call.arguments;
        let protocol = match arguments.get(1) {
            None => call.session.protocol,
            Some(b"2") => Protocol::Resp2,
            Some(b"3") => Protocol::Resp3,
            Some(other) if crate::protocol::number(other).is_none() => {
                return Err("ERR Protocol version is not an integer or out of range".into());
            }
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
        };
        let (mut i, mut name, mut credentials) = (2, None, None);
        while i < arguments.len() {
            let left = arguments.len() - i - 1;
            if arguments.is(i, "auth") && left >= 2 {
                let given = Credentials::of(call, arguments.at(i + 1), arguments.at(i + 2));
                credentials = Some(given);
                i += 3;
            } else if arguments.is(i, "setname") && left >= 1 {
                name = Some(super::client::checked_name(arguments.at(i + 1))?);
                i += 2;
            } else {
                return Err(format!("ERR Syntax error in HELLO option '{}'", arguments.text(i)));
            }
        }
        if call.session.user().is_none() && credentials.is_none() {
            return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise \
                        the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the \
                        client and select the RESP protocol version at the same time"
                .into());
        }
        let mode = if call.shared.cluster.is_on() { "cluster" } else { "standalone" };
        Ok((Greeting { protocol, name, mode }, credentials))
    }

    /// Does what was asked for, and describes the server.
    fn answer(self, session: &mut Session, reply: &mut Reply<'_>) {
        if let Some(name) = self.name {
            session.client.set_text(|texts| texts.name = name);
        }
        session.protocol = self.protocol;
        session.client.is_resp3.store(self.protocol == Protocol::Resp3, Relaxed);
        reply.set_protocol(self.protocol);
        reply.map(7);
        for (name, value) in [("server", "hashfold"), ("version", super::info::REDIS_VERSION)] {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"proto");
        reply.integer(if self.protocol == Protocol::Resp3 { 3 } else { 2 });
        reply.bulk(b"id");
        reply.integer(session.client.id as i64);
        for (name, value) in [("mode", self.mode), ("role", "master")] {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
        reply.bulk(b"modules");
        super::info::modules(reply);
    }
}
