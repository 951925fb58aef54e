//! Chat templates: compiled once, rendered many times, each render within its budget.
use crate::abi::*;
use crate::budget::{self, Over};
use crate::content;
use crate::environment::{environment, syntax, Raised};
use crate::program::Program;
use crate::strftime;
use minijinja::machinery::{eval, make_string_output, parse, tokenize, Token};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error as JinjaError, ErrorKind};
use serde_json::Value as Json;
use std::ffi::c_void;
use std::time::Duration;

const NAME: &str = "chat";

/// A compiled template. Rendering does not change it, so threads may share it.
pub struct Template {
    /// Borrows from src, so it must precede src here to be dropped first.
    program: Program<'static>,
    env: Box<Environment<'static>>,
    parts: bool,
    _src: Box<str>,
}

impl Template {
    pub fn new(src: &str, fuel: u64, own_stack: bool) -> Res<Template> {
        // Jinja2 converts every line end to \n
        let src = generation_tags(&src.replace("\r\n", "\n").replace('\r', "\n")).into_boxed_str();
        let env = Box::new(environment(fuel).map_err(|e| failure(&e))?);
        let compile = move || {
            // SAFETY: the box does not move, and the program that borrows the text is dropped
            // before it.
            let text: &'static str = unsafe { &*(&*src as *const str) };
            let syntax = syntax().map_err(|e| failure(&e))?;
            not_too_deep(text, &syntax)?;
            let root = parse(text, NAME, syntax).map_err(|e| failure(&e))?;
            Ok(Template { program: Program::new(NAME, text, &root), env, parts: content::wants_parts(&root), _src: src })
        };
        if own_stack {
            return on_stack(budget::STACK, compile);
        }
        compile()
    }

    pub fn render(&self, ctx: &[u8], b: &Budget) -> Res<String> {
        if !b.own_stack {
            return self.run(ctx, b, budget::MAX_VALUES);
        }
        match self.run(ctx, b, budget::MAX_VALUES_SMALL_STACK) {
            Err(_) if budget::too_many_values() => on_stack(budget::STACK, || self.run(ctx, b, budget::MAX_VALUES)),
            done => done,
        }
    }

    fn run(&self, ctx: &[u8], b: &Budget, values: u32) -> Res<String> {
        let ctx: Json = serde_json::from_slice(ctx).map_err(|e| fail(Code::Context, e.to_string()))?;
        if !ctx.is_object() {
            return Err(fail(Code::Context, "not an object"));
        }
        strftime::set_now(b.now);
        let root = to_value(ctx);
        budget::start(b.memory, b.time, values);
        // SAFETY: the state that eval borrows from self for 'static is dropped before this returns.
        let (env, program) = unsafe { (&*(&*self.env as *const Environment<'static>), &*(&self.program as *const Program<'static>)) };
        let mut text = String::new();
        let done = eval(env, &program.main, root, &program.blocks, &mut make_string_output(&mut text), AutoEscape::None).map(drop);
        let too_long = || fail(Code::Output, format!("the rendered text is over the limit of {} bytes", b.output));
        match done {
            Ok(()) if text.len() > b.output => Err(too_long()),
            Ok(()) => Ok(text),
            Err(e) => Err(match failure(&e) {
                f if f.code == Code::Memory && text.len() > b.output => too_long(),
                f => f,
            }),
        }
    }
}

/// The clock of a render (local seconds) and its limits.
pub struct Budget {
    pub now: i64,
    pub output: usize,
    pub memory: usize,
    pub time: Duration,
    pub own_stack: bool,
}

/// Maximum tokens of one tag, and maximum branches of all ifs: both nest the syntax tree without
/// brackets.
const MAX_TOKENS: usize = 5_000;
const MAX_ELIFS: usize = 1_000;

/// Refuses sources that would make the parser or the compiler recurse too deeply.
fn not_too_deep(src: &str, syntax: &SyntaxConfig) -> Res<()> {
    let (mut tokens, mut elifs) = (0, 0);
    for item in tokenize(src, false, syntax.clone()) {
        // the parser reports the error
        let Ok((token, span)) = item else { return Ok(()) };
        tokens += 1;
        match token {
            Token::VariableEnd | Token::BlockEnd => tokens = 0,
            Token::Ident("elif") => elifs += 1,
            _ => {}
        }
        if tokens > MAX_TOKENS || elifs > MAX_ELIFS {
            let what = if tokens > MAX_TOKENS { "a tag is longer than 5000 tokens" } else { "more than 1000 elifs" };
            return Err(Fail { code: Code::Template, line: span.start_line as u32, text: what.into() });
        }
    }
    Ok(())
}

/// transformers' {% generation %} marks assistant text; its body has its own scope, like that of {%
/// with %}.
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

/// Kind and detail, in Jinja2's wording if template users know it. Never the debug text: it quotes
/// the conversation.
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
        if let Some(o) = x.downcast_ref::<Over>() {
            let code = if *o == Over::Time { Code::Time } else { Code::Memory };
            return Fail { code, line: f.line, text: o.to_string() };
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

#[no_mangle]
pub unsafe extern "C" fn vapptext_template_new(src: *const u8, n: usize, fuel: u64, own_stack: bool, out: *mut *mut c_void, err: *mut Error) -> i32 {
    guard(err, || {
        give_handle(out, Template::new(text(src, n)?, fuel, own_stack)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn vapptext_template_free(t: *mut c_void) {
    drop_handle::<Template, _>(t)
}

/// True if the template expects message content as a list of parts.
#[no_mangle]
pub unsafe extern "C" fn vapptext_template_wants_parts(t: *const c_void) -> bool {
    borrow_handle::<Template, _>(t).is_ok_and(|t| t.parts)
}

#[repr(C)]
pub struct CBudget {
    now: i64,
    output: usize,
    memory: usize,
    millis: u64,
    own_stack: bool,
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
        let t = borrow_handle::<Template, _>(t)?;
        let b = borrow_handle::<CBudget, _>(budget)?;
        let time = Duration::from_millis(b.millis);
        let text = t.render(slice(ctx, n)?, &Budget { now: b.now, output: b.output, memory: b.memory, time, own_stack: b.own_stack })?;
        out.write(Buf::new(text.into_bytes()));
        Ok(())
    })
}
