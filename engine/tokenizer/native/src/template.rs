//! Chat templates: compile once, render many times, each render within its budget.
use crate::abi::*;
use crate::content;
use crate::filters::{environment, Raised};
use crate::strftime;
use minijinja::value::Value;
use minijinja::{Environment, Error as JinjaError, ErrorKind};
use serde_json::Value as Json;
use std::ffi::c_void;
use std::io;

const NAME: &str = "chat";

/// A compiled template. Rendering does not change it: many threads may share one.
pub struct Template {
    src: String,
    fuel: u64,
    env: Environment<'static>,
    parts: bool,
}

impl Template {
    pub fn new(src: &str, fuel: u64) -> Res<Template> {
        // Jinja2 reads every line end as \n
        let src = generation_tags(&src.replace("\r\n", "\n").replace('\r', "\n"));
        let env = compiled(&src, fuel)?;
        Ok(Template { parts: content::wants_parts(&src), src, fuel, env })
    }

    pub fn render(&self, ctx: Json, b: &Budget) -> Res<Vec<u8>> {
        strftime::set_now(b.now);
        let mut out = Limited { buf: Vec::new(), max: b.output, over: false };
        let other;
        let env = match b.fuel {
            f if f == self.fuel => &self.env,
            // minijinja keeps the fuel in the environment: another amount needs another one
            f => {
                other = compiled(&self.src, f)?;
                &other
            }
        };
        let done = env.get_template(NAME).and_then(|t| t.render_captured_to(to_value(ctx), &mut out).map(drop));
        match done {
            Ok(()) => Ok(out.buf),
            Err(_) if out.over => Err(fail(Code::Output, format!("the rendered text is over the limit of {} bytes", b.output))),
            Err(e) => Err(failure(&e)),
        }
    }
}

/// What one render may use: the clock it sees (local seconds), steps, bytes of output.
pub struct Budget {
    pub now: i64,
    pub fuel: u64,
    pub output: usize,
}

fn compiled(src: &str, fuel: u64) -> Res<Environment<'static>> {
    let mut env = environment(fuel).map_err(|e| failure(&e))?;
    env.add_template_owned(NAME, src.to_string()).map_err(|e| failure(&e))?;
    Ok(env)
}

/// transformers' {% generation %} marks assistant text; it renders its body in a scope of its own, as {% with %} does.
fn generation_tags(src: &str) -> String {
    let mut out = String::with_capacity(src.len());
    let mut rest = src;
    while let Some(i) = rest.find("{%") {
        out.push_str(&rest[..i]);
        rest = &rest[i..];
        let Some(end) = rest.find("%}") else { break };
        let (tag, tail) = rest.split_at(end + 2);
        match tag[2..].trim_end_matches("%}").trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace()) {
            "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(tag),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

fn to_value(v: Json) -> Value {
    match v {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::from(i),
            (_, Some(u)) => Value::from(u),
            _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::from(s),
        Json::Array(a) => Value::from(a.into_iter().map(to_value).collect::<Vec<_>>()),
        Json::Object(o) => Value::from_pairs(o.into_iter().map(|(k, v)| (k, to_value(v)))),
    }
}

/// Kind and detail in Jinja2's words where templates' users know them. Never the debug text: it quotes the conversation.
fn message(e: &JinjaError) -> String {
    let detail = e.detail().unwrap_or("");
    if e.kind() == ErrorKind::UndefinedError {
        if let Some(name) = detail.strip_prefix('`').and_then(|d| d.split('`').next()) {
            return match name.rsplit_once('.') {
                None => format!("'{name}' is undefined"),
                Some((_, attr)) => format!("'dict object' has no attribute '{attr}'"),
            };
        }
    }
    match detail {
        "" => e.kind().to_string(),
        d => format!("{}: {d}", e.kind()),
    }
}

fn failure(e: &JinjaError) -> Fail {
    let mut f = Fail { code: Code::Template, line: 0, text: String::new() };
    let mut next: Option<&dyn std::error::Error> = Some(e);
    let mut parts: Vec<String> = Vec::new();
    while let Some(x) = next {
        if let Some(r) = x.downcast_ref::<Raised>() {
            return Fail { code: Code::Raised, line: f.line, text: r.0.clone() };
        }
        match x.downcast_ref::<JinjaError>() {
            Some(j) => {
                if j.kind() == ErrorKind::OutOfFuel {
                    f.code = Code::Fuel;
                }
                f.line = j.line().map_or(f.line, |l| l as u32);
                parts.push(message(j));
            }
            None => parts.push(x.to_string()),
        }
        next = x.source();
    }
    parts.dedup();
    f.text = parts.join(": ");
    f
}

/// Refuses to grow past a limit.
struct Limited {
    buf: Vec<u8>,
    max: usize,
    over: bool,
}

impl io::Write for Limited {
    fn write(&mut self, b: &[u8]) -> io::Result<usize> {
        if self.buf.len() + b.len() > self.max {
            self.over = true;
            return Err(io::Error::other("over the limit"));
        }
        self.buf.extend_from_slice(b);
        Ok(b.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_template_new(src: *const u8, n: usize, fuel: u64, out: *mut *mut c_void, err: *mut Error) -> i32 {
    guard(err, || {
        give(out, Template::new(text(src, n)?, fuel)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_template_free(t: *mut c_void) {
    taken::<Template, _>(t)
}

/// True if the template wants message content as a list of parts.
#[no_mangle]
pub unsafe extern "C" fn vapptext_template_wants_parts(t: *const c_void) -> bool {
    lent::<Template, _>(t).is_ok_and(|t| t.parts)
}

#[repr(C)]
pub struct CBudget {
    now: i64,
    fuel: u64,
    output: usize,
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_template_render(
    t: *const c_void,
    ctx: *const u8,
    n: usize,
    budget: *const CBudget,
    out: *mut Buf,
    err: *mut Error,
) -> i32 {
    guard(err, || {
        let t = lent::<Template, _>(t)?;
        let b = lent::<CBudget, _>(budget)?;
        let ctx: Json = serde_json::from_slice(slice(ctx, n)?).map_err(|e| fail(Code::Context, e.to_string()))?;
        if !ctx.is_object() {
            return Err(fail(Code::Context, "not an object"));
        }
        let text = t.render(ctx, &Budget { now: b.now, fuel: b.fuel, output: b.output })?;
        out.write(Buf::new(text));
        Ok(())
    })
}
