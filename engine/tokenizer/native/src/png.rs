//! The rows of a PNG that is not interlaced: its data is inflated by fdeflate, and each row is
//! computed from the differences that its filter says. Memory beside the rows is the window of deflate
//! and a row. All code is safe but the ABI's pointers.
use crate::abi::{fail, guard, slice, Code, Error, Fail, Res};
use fdeflate::{DecompressionError, Decompressor};

/// How far back deflate refers.
const WINDOW: usize = 1 << 15;

/// Bytes that are inflated at a time, at least.
const STEP: usize = 1 << 17;

/// Writes height rows of row bytes to out. A pixel has 1, 3 or 4 bytes. data is the zlib stream: its
/// checksum is compared, and nothing may follow the last row.
///
/// # Safety
/// data has n bytes, out has out_n, err can be written.
#[no_mangle]
pub unsafe extern "C" fn vapptext_png(data: *const u8, n: usize, height: u32, row: usize, pixel: u32, out: *mut u8, out_n: usize, err: *mut Error) -> i32 {
    guard(err, || {
        if out.is_null() || row == 0 || out_n == 0 || row.checked_mul(height as usize) != Some(out_n) {
            return Err(fail(Code::Argument, format!("{out_n} bytes for {height} rows of {row}")));
        }
        let out = std::slice::from_raw_parts_mut(out, out_n);
        match pixel {
            1 => rows::<1>(slice(data, n)?, row, out),
            3 => rows::<3>(slice(data, n)?, row, out),
            4 => rows::<4>(slice(data, n)?, row, out),
            _ => Err(fail(Code::Argument, format!("pixels of {pixel} bytes"))),
        }
    })
}

fn rows<const N: usize>(data: &[u8], row: usize, out: &mut [u8]) -> Res<()> {
    let mut inflate = Decompressor::new();
    let mut buffer = vec![0u8; WINDOW + STEP + row + 1];
    // buffer[..end] is inflated, and the rows before buffer[start] are done.
    let (mut at, mut start, mut end, mut done) = (0, 0, 0, 0);
    let none = vec![0u8; row];
    loop {
        let (read, written) = inflate.read(&data[at..], &mut buffer, end, true).map_err(damaged)?;
        at += read;
        end += written;
        while end - start > row && done < out.len() {
            let (before, rest) = out.split_at_mut(done);
            let above = if done == 0 { &none[..] } else { &before[done - row..] };
            let now = &mut rest[..row];
            now.copy_from_slice(&buffer[start + 1..start + 1 + row]);
            if !unfilter::<N>(buffer[start], above, now) {
                return Err(fail(Code::Image, format!("row {} has the unknown filter {}", done / row, buffer[start])));
            }
            start += row + 1;
            done += row;
        }
        if done == out.len() && end > start {
            return Err(fail(Code::Image, "data follows its last row"));
        }
        if inflate.is_done() {
            break;
        }
        if read == 0 && written == 0 {
            return Err(too_early());
        }
        let old = start.min(end.saturating_sub(WINDOW));
        buffer.copy_within(old..end, 0);
        start -= old;
        end -= old;
    }
    if done < out.len() {
        return Err(too_early());
    }
    if at < data.len() {
        return Err(fail(Code::Image, "data follows its last row"));
    }
    Ok(())
}

fn damaged(e: DecompressionError) -> Fail {
    match e {
        DecompressionError::InsufficientInput => too_early(),
        DecompressionError::WrongChecksum => fail(Code::Image, "its data has a wrong checksum"),
        _ => fail(Code::Image, "its data is no zlib stream"),
    }
}

fn too_early() -> Fail {
    fail(Code::Truncated, "the file ends before its last row")
}

/// Replaces the differences in now, of pixels of N bytes, by the row. Pixels beside the first one and
/// above the first row are 0. It returns whether the filter is one of PNG's.
fn unfilter<const N: usize>(filter: u8, above: &[u8], now: &mut [u8]) -> bool {
    match filter {
        0 => {}
        1 => {
            let mut left = [0u8; N];
            for p in now.chunks_exact_mut(N) {
                for i in 0..N {
                    p[i] = p[i].wrapping_add(left[i]);
                    left[i] = p[i];
                }
            }
        }
        2 => {
            for (p, up) in now.iter_mut().zip(above) {
                *p = p.wrapping_add(*up);
            }
        }
        3 => {
            let mut left = [0u8; N];
            for (p, up) in now.chunks_exact_mut(N).zip(above.chunks_exact(N)) {
                for i in 0..N {
                    p[i] = p[i].wrapping_add(((u16::from(left[i]) + u16::from(up[i])) / 2) as u8);
                    left[i] = p[i];
                }
            }
        }
        4 => {
            let (mut left, mut corner) = ([0i16; N], [0i16; N]);
            for (p, up) in now.chunks_exact_mut(N).zip(above.chunks_exact(N)) {
                for i in 0..N {
                    let up = i16::from(up[i]);
                    let v = p[i].wrapping_add(paeth(left[i], up, corner[i]) as u8);
                    p[i] = v;
                    left[i] = i16::from(v);
                    corner[i] = up;
                }
            }
        }
        _ => return false,
    }
    true
}

/// The one of three neighbours that is next to left + up − corner; the first of equals.
#[inline(always)]
fn paeth(left: i16, up: i16, corner: i16) -> i16 {
    let (a, b) = (up - corner, left - corner);
    let c = (a + b).abs();
    let (a, b) = (a.abs(), b.abs());
    let other = if b <= c { up } else { corner };
    if a <= b && a <= c {
        left
    } else {
        other
    }
}
