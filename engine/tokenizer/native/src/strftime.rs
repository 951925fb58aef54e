//! strftime_now(format): datetime.now().strftime(format) under the clock of the render.
use crate::pystr::bad;
use minijinja::Error;
use std::cell::Cell;

thread_local! {
    /// Local wall-clock seconds of this thread's render, as if the zone were UTC.
    static NOW: Cell<i64> = const { Cell::new(0) };
}

pub fn set_now(local_seconds: i64) {
    NOW.with(|n| n.set(local_seconds));
}

/// Replaces directives that Python evaluates differently: a naive time has no zone, and no
/// microseconds here.
fn to_c(format: &str) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(format.len() + 1);
    let mut it = format.bytes();
    while let Some(b) = it.next() {
        match b {
            0 => return Err(bad("embedded null character")),
            b'%' => match it.next() {
                Some(b'z' | b'Z') => {}
                Some(b'f') => out.extend_from_slice(b"000000"),
                Some(0) => return Err(bad("embedded null character")),
                Some(c) => out.extend_from_slice(&[b'%', c]),
                None => out.extend_from_slice(b"%%"),
            },
            _ => out.push(b),
        }
    }
    Ok(out)
}

pub fn strftime_now(format: &str) -> Result<String, Error> {
    if format.len() > 4096 {
        return Err(bad("strftime_now: the format is over 4096 bytes"));
    }
    let mut c = to_c(format)?;
    if c.is_empty() {
        return Ok(String::new());
    }
    c.push(0);
    let t: libc::time_t = NOW.with(|n| n.get());
    let mut out = vec![0u8; 256 + 32 * c.len()];
    // SAFETY: c ends in NUL, out's length is passed, tm is filled by gmtime_r.
    let n = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::gmtime_r(&t, &mut tm).is_null() {
            return Err(bad("strftime_now: the year is out of range"));
        }
        libc::strftime(out.as_mut_ptr().cast(), out.len(), c.as_ptr().cast(), &tm)
    };
    out.truncate(n);
    Ok(String::from_utf8_lossy(&out).into_owned())
}
