//! Pages of mapped files that cannot be read, because the file was cut or the device failed.
//!
//! The system answers the access to such a page with `SIGBUS`, which ends the process. The handler
//! here puts zeros in the place of this page and of all later ones of the map, and marks the map as
//! lost. A reader checks the mark after its reads, and returns an error. Signals for other addresses
//! go to the handler that was there before.
#![allow(unsafe_code)]

use std::{
    ffi::{c_int, c_void},
    mem::{MaybeUninit, transmute},
    ptr,
    sync::{
        Once, OnceLock,
        atomic::{
            AtomicBool, AtomicPtr, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
            fence,
        },
    },
};

/// A map whose pages may become unreadable. Places are never freed, but used again: there are as many as
/// there were maps at one time. Each has a cache line of its own, because every lookup reads its mark.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    is_taken: AtomicBool,
    start: AtomicUsize,
    /// The address after the map, or 0 if there is none.
    end: AtomicUsize,
    /// Whether pages of the map were replaced by zeros.
    is_lost: AtomicBool,
    next: AtomicPtr<Place>,
}

impl Place {
    /// Returns the end of the map if it has this address.
    fn end_around(&self, address: usize) -> Option<usize> {
        let (start, end) = (self.start.load(Acquire), self.end.load(Acquire));
        // Meanwhile this map may have been closed and another one opened in its place: then the two
        // numbers may be of different maps.
        let is_one_map = start != 0 && self.start.load(Acquire) == start;
        (is_one_map && (start..end).contains(&address)).then_some(end)
    }
}

/// The first of all places.
static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

/// The handler of the signal that was there before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A map that survives the loss of its pages, until it is dropped.
#[derive(Debug)]
pub(super) struct GuardedMap(&'static Place);

impl GuardedMap {
    /// Guards a map of a file. The guard must be dropped before the map.
    pub(super) fn new(map: &[u8]) -> GuardedMap {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        // Most places are taken. Reading does not move their cache lines, as a swap does.
        let is_free = |place: &&Place| !place.is_taken.load(Relaxed);
        let place = places().filter(is_free).find(|place| !place.is_taken.swap(true, AcqRel));
        let place = place.unwrap_or_else(add_place);
        place.is_lost.store(false, Release);
        place.start.store(map.as_ptr().addr(), Release);
        place.end.store(map.as_ptr().addr() + map.len(), Release);
        GuardedMap(place)
    }

    /// Whether a page could not be read, and zeros were put in its place. The answer holds for all
    /// bytes that the calling thread has read before.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        // The bytes were read with plain loads, which only a fence keeps before the load of the mark.
        fence(Acquire);
        self.0.is_lost.load(Acquire)
    }
}

impl Drop for GuardedMap {
    fn drop(&mut self) {
        self.0.end.store(0, Release);
        self.0.start.store(0, Release);
        self.0.is_taken.store(false, Release);
    }
}

/// Returns all places, taken or not.
fn places() -> impl Iterator<Item = &'static Place> {
    let at = |pointer: *mut Place| {
        // SAFETY: a pointer in the list is null or that of a place, which is never freed.
        unsafe { pointer.as_ref() }
    };
    std::iter::successors(at(PLACES.load(Acquire)), move |place| at(place.next.load(Acquire)))
}

/// Adds a place, which is taken.
fn add_place() -> &'static Place {
    let place: &'static Place =
        Box::leak(Box::new(Place { is_taken: AtomicBool::new(true), ..Place::default() }));
    let mut first = PLACES.load(Acquire);
    loop {
        place.next.store(first, Release);
        let new = ptr::from_ref(place).cast_mut();
        match PLACES.compare_exchange_weak(first, new, AcqRel, Acquire) {
            Ok(_) => return place,
            Err(other) => first = other,
        }
    }
}

/// Installs the handler.
fn install() {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the structures are plain data, for which zeros are valid; the handler has the signature
    // that `SA_SIGINFO` selects, and does only what a signal handler may do. The handler before is
    // stored before ours can run: it is read first.
    unsafe {
        if libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) != 0 {
            return;
        }
        let _ = BEFORE.set(before.assume_init());
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
}

/// Handles `SIGBUS`. Uses atomic numbers and system calls only, as a signal handler must.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid `info`, with an address if the signal is a fault. The
    // interrupted code may be about to read its error number, which the calls below may change.
    unsafe {
        let (is_fault, address) = ((*info).si_code > 0, (*info).si_addr().addr());
        let error_number = *libc::__errno_location();
        if !is_fault || !replace_pages(address) {
            pass_on(signal, info, context, is_fault);
        }
        *libc::__errno_location() = error_number;
    }
}

/// Puts zeros in the place of the page at an address and of all later pages of its map, if it belongs
/// to a guarded map. One call for all of them adds one map to the process: its number of maps is
/// limited, and a map for each lost page would reach the limit.
fn replace_pages(address: usize) -> bool {
    let found = places().find_map(|place| Some((place, place.end_around(address)?)));
    let Some((place, end)) = found else { return false };
    // A reader that sees the zeros also sees the mark.
    place.is_lost.store(true, Release);
    // SAFETY: the pages lie in a map that is not unmapped while a reader uses it, and the thread that
    // was interrupted does. `MAP_FIXED` replaces only these pages. Both calls only enter the system.
    unsafe {
        let size = libc::sysconf(libc::_SC_PAGESIZE).cast_unsigned() as usize;
        let start = address & !(size - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let page = ptr::without_provenance_mut(start);
        libc::mmap(page, end - start, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED
    }
}

/// Calls the handler that was there before. If there was none, the signal ends the process: a fault
/// when the access is repeated, the signal of another process when this one is sent.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    // SAFETY: the system, or the code that installed the handler, vouches for its signature, which
    // `SA_SIGINFO` selects.
    unsafe {
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
            if !is_fault {
                libc::raise(signal);
            }
        } else if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            transmute::<usize, Handler>(handler)(signal, info, context);
        } else {
            transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 14: the start of one map and the end of the next one in its place looked like one map.
    #[test]
    fn an_address_belongs_to_a_map_that_is_open() {
        let at = |start: usize, end: usize| Place {
            start: AtomicUsize::new(start),
            end: AtomicUsize::new(end),
            ..Place::default()
        };
        assert_eq!(at(8, 20).end_around(7), None);
        assert_eq!(at(8, 20).end_around(8), Some(20));
        assert_eq!(at(8, 20).end_around(20), None);
        for (start, end) in [(0, 0), (0, 20), (8, 0)] {
            assert_eq!(at(start, end).end_around(9), None, "it is being closed or opened");
        }
    }
}
