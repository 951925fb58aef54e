//! Determines the message content format that a template expects, from its syntax tree.
use minijinja::machinery::ast::{Call, CallArg, Expr, Macro, Stmt};
use std::collections::{HashMap, HashSet};

/// Maximum number of passes. More than one is needed because a name may be set after its use in the
/// text.
const PASSES: usize = 16;

/// True if the template loops over the content of a message: over message.content,
/// message['content'], or a variable set from it, where message is an item of messages or a loop
/// variable over it. Such a template expects a list of parts, any other one a text.
pub fn wants_parts(root: &Stmt) -> bool {
    let mut scan = Scan::default();
    scan.lists.insert("messages".into());
    for _ in 0..PASSES {
        let before = scan.size();
        scan.stmt(root);
        if scan.found || scan.size() == before {
            break;
        }
    }
    scan.found
}

#[derive(Default)]
struct Scan {
    lists: HashSet<String>,
    messages: HashSet<String>,
    contents: HashSet<String>,
    macros: HashMap<String, Vec<String>>,
    found: bool,
}

impl Scan {
    fn size(&self) -> usize {
        self.lists.len() + self.messages.len() + self.contents.len() + self.macros.len()
    }

    fn block(&mut self, body: &[Stmt]) {
        body.iter().for_each(|s| self.stmt(s));
    }

    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::Template(t) => self.block(&t.children),
            Stmt::ForLoop(f) => {
                self.found |= self.is_content(&f.iter);
                if self.is_list(&f.iter) {
                    self.messages.extend(name(&f.target));
                }
                self.expr(&f.iter);
                self.block(&f.body);
                self.block(&f.else_body);
            }
            Stmt::IfCond(c) => {
                self.expr(&c.expr);
                self.block(&c.true_body);
                self.block(&c.false_body);
            }
            Stmt::Set(s) => self.assign(&s.target, &s.expr),
            Stmt::WithBlock(w) => {
                w.assignments.iter().for_each(|(to, from)| self.assign(to, from));
                self.block(&w.body);
            }
            Stmt::SetBlock(b) => self.block(&b.body),
            Stmt::FilterBlock(b) => self.block(&b.body),
            Stmt::AutoEscape(b) => self.block(&b.body),
            Stmt::Block(b) => self.block(&b.body),
            Stmt::Macro(m) => self.declare(m),
            Stmt::CallBlock(c) => {
                self.call(&c.call);
                self.block(&c.macro_decl.body);
            }
            Stmt::EmitExpr(e) => self.expr(&e.expr),
            _ => {}
        }
    }

    fn assign(&mut self, to: &Expr, from: &Expr) {
        if self.is_list(from) {
            self.lists.extend(name(to));
        }
        if self.is_message(from) {
            self.messages.extend(name(to));
        }
        if self.is_content(from) {
            self.contents.extend(name(to));
        }
        self.expr(from);
    }

    fn declare(&mut self, m: &Macro) {
        self.macros.insert(m.name.to_string(), m.args.iter().filter_map(name).collect());
        self.block(&m.body);
    }

    /// Binds a macro's parameters to its callers' arguments: after render(message.content) the
    /// parameter is a content.
    fn call(&mut self, c: &Call) {
        let params = name(&c.expr).and_then(|n| self.macros.get(&n).cloned()).unwrap_or_default();
        for (i, arg) in c.args.iter().enumerate() {
            let (param, value) = match arg {
                CallArg::Pos(e) => (params.get(i).cloned(), e),
                CallArg::Kwarg(n, e) => (params.iter().find(|p| p == n).cloned(), e),
                CallArg::PosSplat(e) | CallArg::KwargSplat(e) => (None, e),
            };
            if self.is_list(value) {
                self.lists.extend(param.clone());
            }
            if self.is_message(value) {
                self.messages.extend(param.clone());
            }
            if self.is_content(value) {
                self.contents.extend(param);
            }
            self.expr(value);
        }
    }

    /// Finds the calls inside an expression.
    fn expr(&mut self, e: &Expr) {
        match e {
            Expr::Call(c) => {
                self.call(c);
                self.expr(&c.expr);
            }
            Expr::Filter(f) => f.expr.iter().for_each(|e| self.expr(e)),
            Expr::Test(t) => self.expr(&t.expr),
            Expr::GetAttr(g) => self.expr(&g.expr),
            Expr::GetItem(g) => self.expr(&g.expr),
            Expr::Slice(s) => self.expr(&s.expr),
            Expr::UnaryOp(u) => self.expr(&u.expr),
            Expr::BinOp(b) => {
                self.expr(&b.left);
                self.expr(&b.right);
            }
            Expr::Compare(c) => {
                self.expr(&c.expr);
                c.ops.iter().for_each(|o| self.expr(&o.expr));
            }
            Expr::IfExpr(i) => {
                self.expr(&i.test_expr);
                self.expr(&i.true_expr);
                i.false_expr.iter().for_each(|e| self.expr(e));
            }
            _ => {}
        }
    }

    fn is_list(&self, e: &Expr) -> bool {
        match e {
            Expr::Var(v) => self.lists.contains(v.id),
            Expr::Slice(s) => self.is_list(&s.expr),
            Expr::Filter(f) => f.expr.as_ref().is_some_and(|e| self.is_list(e)),
            Expr::IfExpr(i) => self.is_list(&i.true_expr) || i.false_expr.as_ref().is_some_and(|e| self.is_list(e)),
            _ => false,
        }
    }

    fn is_message(&self, e: &Expr) -> bool {
        match e {
            Expr::Var(v) => self.messages.contains(v.id),
            Expr::GetItem(g) => self.is_list(&g.expr),
            _ => false,
        }
    }

    fn is_content(&self, e: &Expr) -> bool {
        match e {
            Expr::Var(v) => self.contents.contains(v.id),
            Expr::GetAttr(g) => g.name == "content" && self.is_message(&g.expr),
            Expr::GetItem(g) => self.is_message(&g.expr) && text(&g.subscript_expr).as_deref() == Some("content"),
            Expr::Filter(f) => f.expr.as_ref().is_some_and(|e| self.is_content(e)),
            Expr::IfExpr(i) => self.is_content(&i.true_expr) || i.false_expr.as_ref().is_some_and(|e| self.is_content(e)),
            _ => false,
        }
    }
}

fn name(e: &Expr) -> Option<String> {
    match e {
        Expr::Var(v) => Some(v.id.to_string()),
        _ => None,
    }
}

fn text(e: &Expr) -> Option<String> {
    match e {
        Expr::Const(c) => c.value.as_str().map(str::to_string),
        _ => None,
    }
}
