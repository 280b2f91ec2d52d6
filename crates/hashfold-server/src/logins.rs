//! Logins that fail: each address may fail a few times a second, so that guessing passwords takes no more of
//! the processor than that.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Maximum number of failed logins a second from one address. Further ones are refused without a look at
/// their passwords, unless these are known to be right.
const FAILURES_MAX: u32 = 10;

/// The failed logins of the current second.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    second: u64,
    by_address: HashMap<IpAddr, u32>,
}

impl Failures {
    /// Returns the number of failures from an address in the second of `now`.
    fn of(&mut self, address: IpAddr, now: Duration) -> &mut u32 {
        if self.second != now.as_secs() {
            *self = Failures { second: now.as_secs(), by_address: HashMap::new() };
        }
        self.by_address.entry(address.to_canonical()).or_default()
    }
}

impl Logins {
    /// Whether logins from an address are refused now.
    pub(crate) fn refuses(&self, address: IpAddr, now: Duration) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).of(address, now) >= FAILURES_MAX
    }

    /// Notes a login that failed.
    pub(crate) fn note_failure(&self, address: IpAddr, now: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).of(address, now) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_fails_ten_times_a_second() {
        let logins = Logins::default();
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mapped = IpAddr::from(std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        let now = Duration::from_millis(5_300);
        for _ in 0..5 {
            assert!(!logins.refuses(one, now));
            logins.note_failure(one, now);
            logins.note_failure(mapped, now);
        }
        assert!(logins.refuses(one, now) && logins.refuses(mapped, now));
        assert!(!logins.refuses(two, now));
        assert!(logins.refuses(one, Duration::from_millis(5_999)));
        assert!(!logins.refuses(one, Duration::from_secs(6)));
    }
}
