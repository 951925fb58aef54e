//! JPEG by libjpeg-turbo's decoder (as mozjpeg has it) and WebP by libwebp, to rows of red, green
//! and blue with Pillow's pixels. Callers know an image's size from its header and give the memory
//! of its pixels. libjpeg reports errors by a function that must not return: here it unwinds, which
//! its C code is compiled for (feature "unwinding").
use crate::abi::{fail, guard, slice, Code, Error, Fail, Res};
use libwebp_sys as webp;
use mozjpeg_sys as jpeg;
use std::mem::{size_of, zeroed, MaybeUninit};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// Decodes a JPEG of width × height pixels into out: 3 · width · height bytes. A file with more
/// than that many scans fails: a scan of a few bytes takes the time of the whole image.
///
/// # Safety
/// data has n bytes, out has out_n, err can be written.
#[no_mangle]
pub unsafe extern "C" fn vapptext_jpeg(data: *const u8, n: usize, width: u32, height: u32, scans: u32, out: *mut u8, out_n: usize, err: *mut Error) -> i32 {
    guard(err, || {
        let out = pixels(out, out_n, width, height, 1)?;
        decode_jpeg(slice(data, n)?, width, height, scans, out)
    })
}

/// Decodes frames of a WebP of width × height pixels into out, 3 · width · height bytes each, and
/// writes to starts when each begins, in milliseconds. picks are indexes of frames that rise; the
/// frame of a still image is 0.
///
/// # Safety
/// data has n bytes, picks and starts have picks_n numbers, out has out_n bytes, err can be written.
#[no_mangle]
pub unsafe extern "C" fn vapptext_webp(
    data: *const u8, n: usize, width: u32, height: u32, picks: *const u32, picks_n: usize, starts: *mut i32, out: *mut u8, out_n: usize, err: *mut Error,
) -> i32 {
    guard(err, || {
        let picks = slice(picks, picks_n)?;
        if starts.is_null() || picks.is_empty() || !picks.windows(2).all(|w| w[0] < w[1]) {
            return Err(fail(Code::Argument, "indexes of frames do not rise"));
        }
        let out = pixels(out, out_n, width, height, picks_n)?;
        decode_webp(slice(data, n)?, width, height, picks, std::slice::from_raw_parts_mut(starts, picks_n), out)
    })
}

/// The memory of that many images, if it has their size.
unsafe fn pixels<'a>(out: *mut u8, n: usize, width: u32, height: u32, images: usize) -> Res<&'a mut [u8]> {
    let want = (width as usize).checked_mul(height as usize).and_then(|p| p.checked_mul(3)).and_then(|p| p.checked_mul(images));
    if out.is_null() || n == 0 || want != Some(n) {
        return Err(fail(Code::Argument, format!("{n} bytes for {images} × {width} × {height} pixels")));
    }
    Ok(std::slice::from_raw_parts_mut(out, n))
}

/// What error_exit and the monitor unwind with.
struct Stopped;

/// libjpeg's monitor of progress, with the most scans that a file may have.
#[repr(C)]
struct Monitor {
    progress: jpeg::jpeg_progress_mgr,
    most: i64,
    exceeded: bool,
}

unsafe extern "C-unwind" fn error_exit(_: &mut jpeg::jpeg_common_struct) {
    resume_unwind(Box::new(Stopped));
}
unsafe extern "C-unwind" fn no_message(_: &mut jpeg::jpeg_common_struct, _: i32) {}
unsafe extern "C-unwind" fn no_output(_: &mut jpeg::jpeg_common_struct) {}
unsafe extern "C-unwind" fn count_scans(c: &mut jpeg::jpeg_common_struct) {
    let m = c.progress.cast::<Monitor>();
    let d: *const jpeg::jpeg_decompress_struct = (c as *mut jpeg::jpeg_common_struct).cast();
    if i64::from((*d).input_scan_number) > (*m).most {
        (*m).exceeded = true;
        resume_unwind(Box::new(Stopped));
    }
}
unsafe extern "C-unwind" fn nothing(_: &mut jpeg::jpeg_decompress_struct) {}
/// All data is there from the start: libjpeg suspends where a file ends too early, as in Pillow.
unsafe extern "C-unwind" fn no_more(_: &mut jpeg::jpeg_decompress_struct) -> jpeg::boolean {
    0
}
unsafe extern "C-unwind" fn skip(d: &mut jpeg::jpeg_decompress_struct, n: std::os::raw::c_long) {
    let s = &mut *d.src;
    let n = usize::try_from(n).unwrap_or(0).min(s.bytes_in_buffer);
    s.next_input_byte = s.next_input_byte.add(n);
    s.bytes_in_buffer -= n;
}

unsafe fn decode_jpeg(data: &[u8], width: u32, height: u32, scans: u32, out: &mut [u8]) -> Res<()> {
    let mut err: jpeg::jpeg_error_mgr = zeroed();
    jpeg::jpeg_std_error(&mut err);
    err.error_exit = Some(error_exit);
    err.emit_message = Some(no_message);
    err.output_message = Some(no_output);
    let mut monitor = Monitor { progress: zeroed(), most: i64::from(scans), exceeded: false };
    monitor.progress.progress_monitor = Some(count_scans);
    let mut source: jpeg::jpeg_source_mgr = zeroed();
    source.next_input_byte = data.as_ptr();
    source.bytes_in_buffer = data.len();
    source.init_source = Some(nothing);
    source.fill_input_buffer = Some(no_more);
    source.skip_input_data = Some(skip);
    source.resync_to_restart = Some(jpeg::jpeg_resync_to_restart);
    source.term_source = Some(nothing);
    let mut d: Box<jpeg::jpeg_decompress_struct> = Box::new(zeroed());
    d.common.err = &mut err;
    let done = catch_unwind(AssertUnwindSafe(|| {
        jpeg::jpeg_CreateDecompress(&mut *d, jpeg::JPEG_LIB_VERSION, size_of::<jpeg::jpeg_decompress_struct>());
        d.src = &mut source;
        d.common.progress = (&mut monitor as *mut Monitor).cast();
        read_jpeg(&mut d, width, height, out)
    }));
    let result = match done {
        Ok(r) => r,
        Err(p) if !p.is::<Stopped>() => {
            jpeg::jpeg_destroy_decompress(&mut d);
            resume_unwind(p)
        }
        Err(_) if monitor.exceeded => Err(fail(Code::Image, format!("it has more than {scans} scans"))),
        Err(_) => Err(fail(Code::Image, message(&mut d.common))),
    };
    jpeg::jpeg_destroy_decompress(&mut d);
    result
}

unsafe fn read_jpeg(d: &mut jpeg::jpeg_decompress_struct, width: u32, height: u32, out: &mut [u8]) -> Res<()> {
    const SUSPENDED: i32 = 0;
    const TABLES_ONLY: i32 = 2;
    loop {
        match jpeg::jpeg_read_header(d, 0) {
            TABLES_ONLY => continue,
            SUSPENDED => return Err(too_early()),
            _ => break,
        }
    }
    if (d.image_width, d.image_height) != (width, height) {
        return Err(other_size(width, height, d.image_width, d.image_height));
    }
    let four = match d.num_components {
        1 | 3 => false,
        4 => true,
        n => return Err(fail(Code::Image, format!("it has {n} components"))),
    };
    d.out_color_space = if four { jpeg::J_COLOR_SPACE::JCS_CMYK } else { jpeg::J_COLOR_SPACE::JCS_RGB };
    if jpeg::jpeg_start_decompress(d) == 0 {
        return Err(too_early());
    }
    let mut inks = vec![0u8; if four { 4 * width as usize } else { 0 }];
    for row in out.chunks_exact_mut(3 * width as usize) {
        let mut at = if four { inks.as_mut_ptr() } else { row.as_mut_ptr() };
        if jpeg::jpeg_read_scanlines(d, &mut at, 1) != 1 {
            return Err(too_early());
        }
        for (px, i) in row.chunks_exact_mut(3).zip(inks.chunks_exact(4)) {
            // The inks of every JPEG are inverted, as Adobe writes them: i[3] is 255 − black.
            for c in 0..3 {
                px[c] = i[3] - over_255(u32::from(255 - i[c]) * u32::from(i[3]));
            }
        }
    }
    // Pillow accepts a file that ends after its last row.
    jpeg::jpeg_finish_decompress(d);
    Ok(())
}

/// x / 255 to the nearest, for products of two bytes: Pillow's MULDIV255.
fn over_255(x: u32) -> u8 {
    let x = x + 128;
    (((x >> 8) + x) >> 8) as u8
}

/// The message of libjpeg's last error.
unsafe fn message(c: &mut jpeg::jpeg_common_struct) -> String {
    const JMSG_LENGTH_MAX: usize = 200;
    type Format = unsafe extern "C-unwind" fn(*mut jpeg::jpeg_common_struct, *mut u8);
    let mut text = [0u8; JMSG_LENGTH_MAX];
    if let Some(f) = (*c.err).format_message {
        std::mem::transmute::<_, Format>(f)(c, text.as_mut_ptr());
    }
    let end = text.iter().position(|&b| b == 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..end]).into_owned()
}

fn too_early() -> Fail {
    fail(Code::Truncated, "the file ends before its last row")
}

fn other_size(width: u32, height: u32, w: u32, h: u32) -> Fail {
    fail(Code::Image, format!("its data is of {w} × {h} pixels and its header of {width} × {height}"))
}

/// A WebPAnimDecoder that is deleted.
struct Frames(*mut webp::WebPAnimDecoder);

impl Drop for Frames {
    fn drop(&mut self) {
        unsafe { webp::WebPAnimDecoderDelete(self.0) }
    }
}

unsafe fn decode_webp(data: &[u8], width: u32, height: u32, picks: &[u32], starts: &mut [i32], out: &mut [u8]) -> Res<()> {
    let mut features = MaybeUninit::uninit();
    if webp::WebPGetFeatures(data.as_ptr(), data.len(), features.as_mut_ptr()) != webp::VP8StatusCode::VP8_STATUS_OK {
        return Err(damaged());
    }
    let features = features.assume_init();
    if (features.width as u32, features.height as u32) != (width, height) {
        return Err(other_size(width, height, features.width as u32, features.height as u32));
    }
    let alpha = features.has_alpha != 0;
    if features.has_animation == 0 && !alpha && picks == [0] {
        starts[0] = 0;
        let end = webp::WebPDecodeRGBInto(data.as_ptr(), data.len(), out.as_mut_ptr(), out.len(), 3 * width as i32);
        return if end.is_null() { Err(damaged()) } else { Ok(()) };
    }
    let all = webp::WebPData { bytes: data.as_ptr(), size: data.len() };
    let frames = Frames(webp::WebPAnimDecoderNew(&all, std::ptr::null()));
    let mut info: webp::WebPAnimInfo = zeroed();
    if frames.0.is_null() || webp::WebPAnimDecoderGetInfo(frames.0, &mut info) == 0 {
        return Err(damaged());
    }
    if (info.canvas_width, info.canvas_height) != (width, height) {
        return Err(other_size(width, height, info.canvas_width, info.canvas_height));
    }
    let (mut at, mut start) = (0u32, 0i32);
    let one = 3 * width as usize * height as usize;
    for ((pick, begin), image) in picks.iter().zip(starts).zip(out.chunks_exact_mut(one)) {
        loop {
            let (mut canvas, mut end) = (std::ptr::null_mut(), 0i32);
            if webp::WebPAnimDecoderGetNext(frames.0, &mut canvas, &mut end) == 0 {
                return Err(fail(Code::Image, format!("its frame {at} is missing or damaged")));
            }
            let (frame, shown) = (at, start);
            (at, start) = (at + 1, end);
            if frame < *pick {
                continue;
            }
            *begin = shown;
            let canvas = std::slice::from_raw_parts(canvas, one / 3 * 4);
            for (to, from) in image.chunks_exact_mut(3).zip(canvas.chunks_exact(4)) {
                for c in 0..3 {
                    to[c] = if alpha { over_white(from[c], from[3]) } else { from[c] };
                }
            }
            break;
        }
    }
    Ok(())
}

/// A value with that alpha over white, as Pillow's paste blends.
fn over_white(v: u8, alpha: u8) -> u8 {
    over_255(255 * u32::from(255 - alpha) + u32::from(v) * u32::from(alpha))
}

fn damaged() -> Fail {
    fail(Code::Image, "its data is damaged or ends too early")
}
