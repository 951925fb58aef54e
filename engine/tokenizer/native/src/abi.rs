//! The types that cross the C ABI: owned buffers, error values, borrowed slices, caught panics.
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Once;

/// Error codes, the same numbers as in vapptext.h.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Code {
    Argument = 1,
    Tokenizer = 2,
    Template = 3,
    Raised = 4,
    Fuel = 5,
    Output = 6,
    Context = 7,
    Grammar = 8,
    Panic = 9,
    Memory = 10,
    Time = 11,
    Length = 12,
    Unavailable = 13,
    Image = 14,
    Truncated = 15,
}

/// An error: its code, the template line (0: none), and its message.
#[derive(Debug)]
pub struct Fail {
    pub code: Code,
    pub line: u32,
    pub text: String,
}

pub type Res<T> = Result<T, Fail>;

pub fn fail(code: Code, text: impl Into<String>) -> Fail {
    Fail { code, line: 0, text: text.into() }
}

/// Bytes owned by the caller of the C function until vapptext_free.
#[repr(C)]
pub struct Buf {
    pub ptr: *mut u8,
    pub len: usize,
    pub cap: usize,
}

impl Buf {
    pub fn new(v: Vec<u8>) -> Buf {
        let mut v = std::mem::ManuallyDrop::new(v);
        Buf { ptr: v.as_mut_ptr(), len: v.len(), cap: v.capacity() }
    }

    /// The ids as native-endian 32-bit words.
    pub fn from_ids(ids: &[u32]) -> Buf {
        Buf::new(ids.iter().flat_map(|i| i.to_ne_bytes()).collect())
    }
}

#[repr(C)]
pub struct Error {
    pub code: i32,
    pub line: u32,
    pub text: Buf,
}

/// # Safety
/// b was returned by this library and is freed once.
#[no_mangle]
pub unsafe extern "C" fn vapptext_free(b: Buf) {
    if !b.ptr.is_null() && b.cap != 0 {
        drop(Vec::from_raw_parts(b.ptr, b.len, b.cap));
    }
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Suppresses the default panic report on stderr under guard, which reports panics as errors.
fn quiet_under_guard() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !GUARDED.try_with(Cell::get).unwrap_or(false) {
                default(info);
            }
        }));
    });
}

/// The maximum stack that on_stack gives a thread.
static MOST_STACK: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Limits the stack of threads that on_stack starts from now on.
#[no_mangle]
pub extern "C" fn vapptext_limit_stack(bytes: usize) {
    MOST_STACK.store(bytes, Ordering::Relaxed);
}

/// Runs f on a new thread with a stack of that many bytes.
pub fn on_stack<T: Send>(bytes: usize, f: impl FnOnce() -> Res<T> + Send) -> Res<T> {
    std::thread::scope(|s| {
        let quiet = || {
            GUARDED.with(|g| g.set(true));
            f()
        };
        let bytes = bytes.min(MOST_STACK.load(Ordering::Relaxed));
        match std::thread::Builder::new().stack_size(bytes).spawn_scoped(s, quiet) {
            Ok(t) => t.join().unwrap_or_else(|p| Err(fail(Code::Panic, panic_text(&*p)))),
            Err(e) => Err(fail(Code::Unavailable, format!("no thread can be started: {e}"))),
        }
    })
}

/// Runs f and writes an error or a panic to *err. Returns the code, 0 for success.
pub unsafe fn guard(err: *mut Error, f: impl FnOnce() -> Res<()>) -> i32 {
    quiet_under_guard();
    GUARDED.with(|g| g.set(true));
    let done = catch_unwind(AssertUnwindSafe(f));
    GUARDED.with(|g| g.set(false));
    let e = match done {
        Ok(Ok(())) => return 0,
        Ok(Err(e)) => e,
        Err(p) => fail(Code::Panic, panic_text(&*p)),
    };
    let code = e.code as i32;
    if !err.is_null() {
        err.write(Error { code, line: e.line, text: Buf::new(e.text.into_bytes()) });
    }
    code
}

fn panic_text(p: &(dyn std::any::Any + Send)) -> String {
    match (p.downcast_ref::<&str>(), p.downcast_ref::<String>()) {
        (Some(s), _) => s.to_string(),
        (_, Some(s)) => s.clone(),
        _ => "panic without a message".into(),
    }
}

pub unsafe fn slice<'a, T>(p: *const T, n: usize) -> Res<&'a [T]> {
    match n {
        0 => Ok(&[]),
        _ if p.is_null() => Err(fail(Code::Argument, "null pointer")),
        _ => Ok(std::slice::from_raw_parts(p, n)),
    }
}

pub unsafe fn text<'a>(p: *const u8, n: usize) -> Res<&'a str> {
    std::str::from_utf8(slice(p, n)?).map_err(|e| fail(Code::Argument, format!("text is not UTF-8 at byte {}", e.valid_up_to())))
}

/// Passes v to the caller as an opaque handle.
pub unsafe fn give_handle<T, P>(out: *mut *mut P, v: T) {
    out.write(Box::into_raw(Box::new(v)).cast());
}

/// Borrows a handle made by give_handle.
pub unsafe fn borrow_handle<'a, T, P>(p: *const P) -> Res<&'a T> {
    p.cast::<T>().as_ref().ok_or_else(|| fail(Code::Argument, "null handle"))
}

/// Drops a handle made by give_handle.
pub unsafe fn drop_handle<T, P>(p: *mut P) {
    if !p.is_null() {
        drop(Box::from_raw(p.cast::<T>()));
    }
}
