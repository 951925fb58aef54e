//! A compiled template with amended instructions where minijinja's differ from Python's or could
//! use unlimited memory. Some are replaced by a call of one of our filters. A check of the render's
//! budget follows every instruction that creates a value. The filters' names cannot be written in a
//! template.
use minijinja::machinery::{ast::Stmt, CodeGenerator, Instruction, Instructions};
use minijinja::value::Value;
use std::collections::BTreeMap;

/// No cache slot: filters are looked up by name.
const NO_SLOT: u8 = !0;

pub struct Program<'a> {
    pub main: Instructions<'a>,
    pub blocks: BTreeMap<&'a str, Instructions<'a>>,
}

impl<'a> Program<'a> {
    pub fn new(name: &'a str, source: &'a str, root: &Stmt<'a>) -> Program<'a> {
        let mut g = CodeGenerator::new(name, source);
        g.compile_stmt(root);
        let (main, blocks) = g.finish();
        Program { main: amended(name, source, &main), blocks: blocks.iter().map(|(k, b)| (*k, amended(name, source, b))).collect() }
    }
}

/// The maximum bytes of a text or items of a list in a constant.
const MAX_CONST: usize = 1 << 20;

fn size(v: &Value) -> usize {
    v.as_str().map(str::len).or_else(|| v.len()).unwrap_or(0)
}

fn filter<'a>(name: &'a str, args: u16) -> Instruction<'a> {
    Instruction::ApplyFilter(name, Some(args), NO_SLOT)
}

/// Emits the replacement of one instruction.
fn amend<'a>(i: &Instruction<'a>, out: &mut Vec<Instruction<'a>>) {
    use Instruction::*;
    match i {
        EmitRaw(s) => out.extend([LoadConst(Value::from(*s)), Emit]),
        StringConcat => out.push(filter("!concat", 2)),
        Mul => out.push(filter("!mul", 2)),
        Rem => out.push(filter("!rem", 2)),
        Lt => out.push(filter("!lt", 2)),
        Lte => out.push(filter("!le", 2)),
        Gt => out.push(filter("!gt", 2)),
        Gte => out.push(filter("!ge", 2)),
        PushLoop(_) => out.extend([filter("!iter", 1), i.clone()]),
        SetAttr(_) => out.extend([Swap, filter("!storable", 1), Swap, i.clone()]),
        BuildMap(_) | BuildList(_) | BuildTuple(_) | CallFunction(..) => out.extend([i.clone(), filter("!built", 1)]),
        Add => out.extend([filter("!summable", 2), UnpackList(2), Add, filter("!kept", 1)]),
        // constants folded by the compiler were never checked
        LoadConst(v) if size(v) > MAX_CONST => out.extend([i.clone(), filter("!toolarge", 1)]),
        Slice => out.extend([filter("!slice", 4), filter("!kept", 1)]),
        ApplyFilter(..) | CallMethod(..) | CallObject(_) | EndCapture => out.extend([i.clone(), filter("!kept", 1)]),
        _ => out.push(i.clone()),
    }
}

fn amended<'a>(name: &'a str, source: &'a str, old: &Instructions<'a>) -> Instructions<'a> {
    let mut parts: Vec<Vec<Instruction<'a>>> = Vec::new();
    let mut starts: Vec<u32> = vec![0];
    while let Some(i) = old.get(parts.len() as u32) {
        let mut part = Vec::with_capacity(2);
        amend(i, &mut part);
        starts.push(starts[parts.len()] + part.len() as u32);
        parts.push(part);
    }
    let mut new = Instructions::new(name, source);
    for (at, part) in parts.into_iter().enumerate() {
        for mut i in part {
            retarget(&mut i, &starts);
            match (old.get_span(at as u32), old.get_line(at as u32)) {
                (Some(span), _) => new.add_with_span(i, span),
                (_, Some(line)) => new.add_with_line(i, line.min(u16::MAX as usize) as u16),
                _ => new.add(i),
            };
        }
    }
    new
}

/// Adjusts the target of a jump.
fn retarget(i: &mut Instruction<'_>, starts: &[u32]) {
    use Instruction::*;
    match i {
        Iterate(to) | Jump(to) | JumpIfFalse(to) | JumpIfFalseOrPop(to) | JumpIfTrueOrPop(to) | BuildMacro(_, to, _) => {
            *to = starts.get(*to as usize).copied().unwrap_or(u32::MAX)
        }
        _ => {}
    }
}
