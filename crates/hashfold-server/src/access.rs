//! Who may see and change what over HTTP: the holders of tokens, and of sessions of the page.
//!
//! A program sends its token with each request, `Authorization: Bearer TOKEN`. A browser sends it once, to
//! `/sign-in`, and gets a cookie. Without tokens in the configuration, everybody is a viewer.

use crate::{
    audit::hex,
    config::{AdminConfig, Role},
};
use arc_swap::ArcSwap;
use axum::http::{HeaderMap, header};
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Name of the cookie of a session.
const COOKIE: &str = "hashfold";

/// Time after which a session ends.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);

/// Maximum number of sessions; the oldest ends if there is one more.
const SESSIONS_MAX: usize = 1000;

/// Maximum number of wrong tokens in a second; others are told to wait.
const FAILURES_MAX: u32 = 10;

/// The holder of a token.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of the token; empty without tokens.
    pub(crate) who: String,
    pub(crate) role: Role,
    /// The secret that forms of the page have, which other sites do not know; empty for programs, which no
    /// other site can make send their token.
    pub(crate) csrf: String,
}

impl Caller {
    /// Whether the caller may change something.
    pub(crate) fn may_change(&self) -> bool {
        self.role == Role::Operator
    }

    /// Whether the caller came with a session of the page.
    pub(crate) fn has_session(&self) -> bool {
        !self.csrf.is_empty()
    }
}

/// The way on which a request came to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Without encryption: from this machine, or from a proxy.
    Plain,
    /// With TLS.
    Tls,
}

/// The reason why a caller is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// There is no token, or a wrong one.
    Unknown,
    /// There were too many wrong tokens in this second.
    TooMany,
}

/// A browser that has shown a token.
#[derive(Debug)]
struct Session {
    /// The name of the token.
    who: String,
    csrf: String,
    /// The time of signing in, by the server's clock.
    since: Duration,
}

/// Wrong tokens in one second.
#[derive(Debug, Default)]
struct Failures {
    second: u64,
    count: u32,
}

/// The tokens of a configuration, and the sessions that were begun with them.
#[derive(Debug)]
pub(crate) struct Access {
    config: ArcSwap<AdminConfig>,
    /// Sessions by the SHA-256 hash of their cookie.
    sessions: Mutex<HashMap<String, Session>>,
    failures: Mutex<Failures>,
}

impl Access {
    pub(crate) fn new(config: &AdminConfig) -> Access {
        Access {
            config: ArcSwap::from_pointee(config.clone()),
            sessions: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// Replaces the tokens. Sessions of tokens that are there no longer end.
    pub(crate) fn replace(&self, config: &AdminConfig) {
        self.config.store(Arc::new(config.clone()));
        self.lock().retain(|_, session| config.tokens.contains_key(&session.who));
    }

    /// Whether there are no tokens, so that everybody sees everything and nobody can change anything.
    pub(crate) fn is_open(&self) -> bool {
        self.config.load().tokens.is_empty()
    }

    /// Returns who has sent a request, by its headers.
    ///
    /// # Errors
    /// The token is missing or wrong.
    pub(crate) fn caller(&self, headers: &HeaderMap, now: Duration) -> Result<Caller, Denied> {
        if self.is_open() {
            return Ok(Caller { who: String::new(), role: Role::Viewer, csrf: String::new() });
        }
        if let Some(token) = bearer(headers) {
            let (who, role) = self.holder(token, now)?;
            return Ok(Caller { who, role, csrf: String::new() });
        }
        let id = cookie(headers).map(hash_of).ok_or(Denied::Unknown)?;
        let sessions = self.lock();
        let session = sessions.get(&id).filter(|session| now < session.since + SESSION_TIME);
        let session = session.ok_or(Denied::Unknown)?;
        let config = self.config.load();
        let token = config.tokens.get(&session.who).ok_or(Denied::Unknown)?;
        Ok(Caller { who: session.who.clone(), role: token.role, csrf: session.csrf.clone() })
    }

    /// Begins a session for the holder of a token, and returns the header that sets its cookie.
    ///
    /// # Errors
    /// The token is wrong.
    pub(crate) fn sign_in(&self, token: &str, way: Way, now: Duration) -> Result<String, Denied> {
        let (who, _) = self.holder(token, now)?;
        let (secret, csrf) = (secret(), secret());
        let mut sessions = self.lock();
        sessions.retain(|_, session| now < session.since + SESSION_TIME);
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.since);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                sessions.remove(&id);
            }
        }
        sessions.insert(hash_of(&secret), Session { who, csrf, since: now });
        Ok(self.cookie(&secret, way, SESSION_TIME))
    }

    /// Ends the session of a browser, and returns the header that removes its cookie.
    pub(crate) fn sign_out(&self, headers: &HeaderMap, way: Way) -> String {
        if let Some(id) = cookie(headers).map(hash_of) {
            self.lock().remove(&id);
        }
        self.cookie("", way, Duration::ZERO)
    }

    /// Returns the header that sets the cookie. A browser that reaches the page by TLS sends it by TLS only.
    fn cookie(&self, value: &str, way: Way, age: Duration) -> String {
        let url = self.public_url();
        let is_encrypted = url.is_some_and(|url| url.starts_with("https://")) || way == Way::Tls;
        let secure = if is_encrypted { "; Secure" } else { "" };
        let age = age.as_secs();
        format!("{COOKIE}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}")
    }

    /// Returns the address under which browsers reach the page through a proxy.
    pub(crate) fn public_url(&self) -> Option<String> {
        self.config.load().public_url.clone()
    }

    /// Returns the name and the role of a token.
    fn holder(&self, token: &str, now: Duration) -> Result<(String, Role), Denied> {
        let hash = hash_of(token);
        let config = self.config.load();
        // Right tokens never wait: whoever sends wrong ones cannot lock operators out.
        if let Some((name, token)) = config.tokens.iter().find(|(_, token)| token.sha256 == hash) {
            return Ok((name.clone(), token.role));
        }
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.second != now.as_secs() {
            *failures = Failures { second: now.as_secs(), count: 0 };
        }
        failures.count += 1;
        Err(if failures.count > FAILURES_MAX { Denied::TooMany } else { Denied::Unknown })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the SHA-256 hash of a secret in hexadecimal digits. Secrets are compared by their hashes, so that
/// the time of a comparison says nothing about them.
fn hash_of(secret: impl AsRef<[u8]>) -> String {
    hex(digest(&SHA256, secret.as_ref()).as_ref())
}

/// Returns 256 random bits in hexadecimal digits.
fn secret() -> String {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    hex(&bytes)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TokenConfig;
    use axum::http::HeaderValue;

    const NOW: Duration = Duration::from_secs(100);

    fn config(tokens: &[(&str, Role)]) -> AdminConfig {
        let token = |(name, role): &(&str, Role)| {
            let token = TokenConfig { sha256: hash_of(format!("secret of {name}")), role: *role };
            ((*name).to_owned(), token)
        };
        AdminConfig { tokens: tokens.iter().map(token).collect(), ..AdminConfig::default() }
    }

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn programs_show_their_token_each_time() {
        let access = Access::new(&config(&[("eve", Role::Operator), ("bob", Role::Viewer)]));
        let call = |value: &str| access.caller(&with(header::AUTHORIZATION, value), NOW);
        let eve = call("Bearer secret of eve").unwrap();
        assert!(eve.who == "eve" && eve.may_change() && !eve.has_session());
        assert!(!call("bearer secret of bob").unwrap().may_change());
        for wrong in ["Bearer secret", "Basic secret of eve", "secret of eve"] {
            assert_eq!(call(wrong).unwrap_err(), Denied::Unknown, "{wrong}");
        }
        assert_eq!(access.caller(&HeaderMap::new(), NOW).unwrap_err(), Denied::Unknown);
    }

    #[test]
    fn without_tokens_everybody_sees_and_nobody_changes() {
        let caller = Access::new(&config(&[])).caller(&HeaderMap::new(), NOW).unwrap();
        assert!(!caller.may_change());
    }

    #[test]
    fn a_session_lasts_until_it_ends_or_its_token_is_gone() {
        let access = Access::new(&config(&[("eve", Role::Operator)]));
        let sign_in = || {
            let cookie = access.sign_in("secret of eve", Way::Plain, NOW).unwrap();
            let pair = cookie.split(';').next().unwrap().to_owned();
            with(header::COOKIE, &format!("theme=dark; {pair}"))
        };
        let headers = sign_in();
        let caller = access.caller(&headers, NOW + SESSION_TIME / 2).unwrap();
        assert!(caller.has_session() && caller.may_change());
        assert!(access.caller(&headers, NOW + SESSION_TIME).is_err());
        access.sign_out(&headers, Way::Plain);
        assert!(access.caller(&headers, NOW).is_err());
        let headers = sign_in();
        assert_ne!(access.caller(&headers, NOW).unwrap().csrf, caller.csrf);
        access.replace(&config(&[("eve", Role::Viewer)]));
        assert!(!access.caller(&headers, NOW).unwrap().may_change());
        access.replace(&config(&[("bob", Role::Viewer)]));
        access.replace(&config(&[("eve", Role::Viewer)]));
        assert!(access.caller(&headers, NOW).is_err());
        for _ in 0..SESSIONS_MAX + 1 {
            access.sign_in("secret of eve", Way::Plain, NOW).unwrap();
        }
        assert_eq!(access.lock().len(), SESSIONS_MAX);
    }

    #[test]
    fn wrong_tokens_are_told_to_wait_and_lock_nobody_out() {
        let access = Access::new(&config(&[("eve", Role::Operator)]));
        for _ in 0..FAILURES_MAX {
            assert_eq!(access.sign_in("guess", Way::Tls, NOW).unwrap_err(), Denied::Unknown);
        }
        assert_eq!(access.sign_in("guess", Way::Tls, NOW).unwrap_err(), Denied::TooMany);
        access.sign_in("secret of eve", Way::Tls, NOW).unwrap();
        let later = NOW + Duration::from_secs(1);
        assert_eq!(access.sign_in("guess", Way::Tls, later).unwrap_err(), Denied::Unknown);
    }

    #[test]
    fn cookies_are_for_encrypted_connections_if_the_page_is_reached_by_them() {
        let tokens = config(&[("eve", Role::Operator)]);
        for (public_url, way, is_secure) in [
            (None, Way::Plain, false),
            (None, Way::Tls, true),
            (Some("https://ops.example.org"), Way::Plain, true),
            (Some("http://ops.example.org"), Way::Plain, false),
            (Some("http://ops.example.org"), Way::Tls, true),
        ] {
            let public_url = public_url.map(str::to_owned);
            let access = Access::new(&AdminConfig { public_url, ..tokens.clone() });
            let set = access.sign_in("secret of eve", way, NOW).unwrap();
            let removed = access.sign_out(&HeaderMap::new(), way);
            for cookie in [set, removed] {
                assert!(cookie.contains("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
                assert_eq!(cookie.ends_with("; Secure"), is_secure, "{cookie}");
            }
        }
    }
}
