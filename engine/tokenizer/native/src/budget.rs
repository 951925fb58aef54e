//! The limits of one render besides its steps: live memory, time, and containers (values that hold
//! other values). They are counted per thread; the program checks them after every instruction that
//! creates a value (see program.rs).
use crate::pystr::bad;
use minijinja::Error;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

/// The system allocator, with a count of each thread's live bytes.
struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static LIMITS: Cell<Limits> = const { Cell::new(Limits { live: isize::MAX, values: u32::MAX, end: None }) };
    static VALUES: Cell<u32> = const { Cell::new(0) };
    static CHECKS: Cell<u32> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = LIVE.try_with(|n| n.set(n.get().wrapping_add(bytes)));
}

// SAFETY: every call is passed to System unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        let p = System.alloc(l);
        if !p.is_null() {
            count(l.size() as isize);
        }
        p
    }

    unsafe fn alloc_zeroed(&self, l: Layout) -> *mut u8 {
        let p = System.alloc_zeroed(l);
        if !p.is_null() {
            count(l.size() as isize);
        }
        p
    }

    unsafe fn dealloc(&self, p: *mut u8, l: Layout) {
        System.dealloc(p, l);
        count(-(l.size() as isize));
    }

    unsafe fn realloc(&self, p: *mut u8, l: Layout, size: usize) -> *mut u8 {
        let q = System.realloc(p, l, size);
        if !q.is_null() {
            count(size as isize - l.size() as isize);
        }
        q
    }
}

/// The bytes that this thread allocated minus those that it freed.
pub fn live() -> isize {
    LIVE.with(Cell::get)
}

#[derive(Clone, Copy)]
struct Limits {
    live: isize,
    values: u32,
    end: Option<Instant>,
}

/// The limit that a render exceeded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Over {
    Memory,
    Time,
    Values,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Over::Memory => "the render needs more memory than its limit",
            Over::Time => "the render takes longer than its limit",
            Over::Values => "the render makes more lists and dicts than its limit",
        })
    }
}

impl std::error::Error for Over {}

/// The maximum number of containers that one render may create. They can form a chain, and dropping
/// or printing a chain takes one stack frame per link. STACK is large enough for MAX_VALUES, the
/// stack of any thread for MAX_VALUES_SMALL_STACK.
pub const MAX_VALUES: u32 = 100_000;
pub const MAX_VALUES_SMALL_STACK: u32 = 2_000;

/// Stack of a thread that compiles, or that renders more than MAX_VALUES_SMALL_STACK; pages that
/// are not touched cost no memory.
pub const STACK: usize = 256 << 20;

/// Sets this thread's limits: bytes beyond those live now, time, containers.
pub fn start(bytes: usize, time: Duration, values: u32) {
    let live = LIVE.with(Cell::get).saturating_add(isize::try_from(bytes).unwrap_or(isize::MAX));
    LIMITS.with(|l| l.set(Limits { live, values, end: Instant::now().checked_add(time) }));
    VALUES.with(|n| n.set(0));
}

fn over(o: Over) -> Error {
    bad("over a limit").with_source(o)
}

/// Fails if n more bytes would exceed the limit.
pub fn check_bytes(n: usize) -> Result<(), Error> {
    let live = LIVE.with(Cell::get).saturating_add(isize::try_from(n).unwrap_or(isize::MAX));
    match live > LIMITS.with(Cell::get).live {
        true => Err(over(Over::Memory)),
        false => Ok(()),
    }
}

/// Fails if a limit is exceeded. It reads the clock only from time to time.
pub fn check() -> Result<(), Error> {
    check_bytes(0)?;
    let n = CHECKS.with(|c| c.replace(c.get().wrapping_add(1)));
    match LIMITS.with(Cell::get).end {
        Some(end) if n % 64 == 0 && Instant::now() > end => Err(over(Over::Time)),
        _ => Ok(()),
    }
}

/// Counts one more container.
pub fn value() -> Result<(), Error> {
    let n = VALUES.with(|v| v.replace(v.get().saturating_add(1)));
    match n >= LIMITS.with(Cell::get).values {
        true => Err(over(Over::Values)),
        false => Ok(()),
    }
}

/// True if the limit of containers was exceeded.
pub fn too_many_values() -> bool {
    VALUES.with(Cell::get) > LIMITS.with(Cell::get).values
}
