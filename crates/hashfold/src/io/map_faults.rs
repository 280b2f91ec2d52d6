//! Pages of mapped files that cannot be read, because the file was cut or the device failed.
//!
//! The system answers the access to such a page with `SIGBUS`, which ends the process. The handler
//! here puts a page of zeros in its place and marks the file as lost; the reader asks after its
//! reads, and returns an error. Signals for other addresses go to the handler that was there before.
#![allow(unsafe_code)]

use std::{
    ffi::{c_int, c_void},
    mem::{MaybeUninit, transmute},
    ptr,
    sync::{
        Once, OnceLock,
        atomic::{
            AtomicBool, AtomicPtr, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

/// A map whose pages may become unreadable. Places are never freed, but used again: there are as many as
/// there were maps at one time.
#[derive(Debug, Default)]
struct Place {
    is_taken: AtomicBool,
    start: AtomicUsize,
    /// The address after the map, or 0 if there is none.
    end: AtomicUsize,
    /// Whether a page of the map was replaced by zeros.
    is_lost: AtomicBool,
    next: AtomicPtr<Place>,
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
        let place = places().find(|place| !place.is_taken.swap(true, AcqRel));
        let place = place.unwrap_or_else(add_place);
        place.is_lost.store(false, Release);
        place.start.store(map.as_ptr().addr(), Release);
        place.end.store(map.as_ptr().addr() + map.len(), Release);
        GuardedMap(place)
    }

    /// Whether a page could not be read, and was replaced by zeros.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
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
    // that `SA_SIGINFO` asks for, and does only what a signal handler may do. The handler before is
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
    // SAFETY: the system passes a valid `info`, with an address if the signal is a fault.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
    if !is_fault || !replace_page(address) {
        pass_on(signal, info, context, is_fault);
    }
}

/// Puts zeros in the place of the page at an address, if it belongs to a guarded map.
fn replace_page(address: usize) -> bool {
    let is_inside =
        |place: &&Place| (place.start.load(Acquire)..place.end.load(Acquire)).contains(&address);
    let Some(place) = places().find(is_inside) else { return false };
    // Whoever sees the zeros also sees that the map is lost.
    place.is_lost.store(true, Release);
    // SAFETY: the page lies in a map that nobody unmaps while a thread reads it, and the thread that
    // was interrupted does. `MAP_FIXED` replaces only this page. Both calls only enter the system.
    unsafe {
        let size = libc::sysconf(libc::_SC_PAGESIZE).cast_unsigned() as usize;
        let page = ptr::without_provenance_mut(address & !(size - 1));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(page, size, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED
    }
}

/// Calls the handler that was there before. If there was none, the signal ends the process: a fault
/// when the access is repeated, the signal of another process when this one is sent.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    // SAFETY: the system, or the code that installed the handler, vouches for its signature, which
    // `SA_SIGINFO` tells.
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
