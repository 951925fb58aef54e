//! What one render may use beside its steps: live memory, time, values that hold values. All of it is
//! counted per thread; the program asks after every instruction that makes something (see program.rs).
use crate::pystr::bad;
use minijinja::Error;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

/// malloc, with a count of the live bytes of each thread.
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

// SAFETY: every call goes to System as it is.
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

/// The live bytes that this thread allocated, less those that it freed.
pub fn live() -> isize {
    LIVE.with(Cell::get)
}

#[derive(Clone, Copy)]
struct Limits {
    live: isize,
    values: u32,
    end: Option<Instant>,
}

/// Which limit a render ran into.
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

/// Lists, dicts and the like that one render may make. Each may hold the one before, and dropping or
/// printing such a chain takes one stack frame a link: STACK holds MANY, any thread's stack holds FEW.
pub const MANY: u32 = 100_000;
pub const FEW: u32 = 2_000;

/// Stack of a thread that compiles, or renders more than FEW; only what is touched costs memory.
pub const STACK: usize = 256 << 20;

/// Limits what this thread does from now on: bytes beyond those live now, time, values that hold values.
pub fn start(bytes: usize, time: Duration, values: u32) {
    let live = LIVE.with(Cell::get).saturating_add(isize::try_from(bytes).unwrap_or(isize::MAX));
    LIMITS.with(|l| l.set(Limits { live, values, end: Instant::now().checked_add(time) }));
    VALUES.with(|n| n.set(0));
}

fn over(o: Over) -> Error {
    bad("over a limit").with_source(o)
}

/// Fails if n more bytes would be too many.
pub fn room(n: usize) -> Result<(), Error> {
    let live = LIVE.with(Cell::get).saturating_add(isize::try_from(n).unwrap_or(isize::MAX));
    match live > LIMITS.with(Cell::get).live {
        true => Err(over(Over::Memory)),
        false => Ok(()),
    }
}

/// Fails if a limit is exceeded; looks at the clock now and then.
pub fn check() -> Result<(), Error> {
    room(0)?;
    let n = CHECKS.with(|c| c.replace(c.get().wrapping_add(1)));
    match LIMITS.with(Cell::get).end {
        Some(end) if n % 64 == 0 && Instant::now() > end => Err(over(Over::Time)),
        _ => Ok(()),
    }
}

/// Counts one more value that holds values.
pub fn value() -> Result<(), Error> {
    let n = VALUES.with(|v| v.replace(v.get().saturating_add(1)));
    match n >= LIMITS.with(Cell::get).values {
        true => Err(over(Over::Values)),
        false => Ok(()),
    }
}

/// True if the limit of values was the one that was met.
pub fn too_many_values() -> bool {
    VALUES.with(Cell::get) > LIMITS.with(Cell::get).values
}
