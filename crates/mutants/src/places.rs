//! Places in a source file that can be changed.

use anyhow::{Context as _, Result};
use proc_macro2::LineColumn;
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Stmt};

/// What kind of change: as cargo-mutants names it, or ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
pub enum Genre {
    /// A function gives a value and does nothing.
    FnValue,
    /// Another binary operator.
    BinaryOperator,
    /// No unary operator.
    UnaryOperator,
    /// A match arm's guard is always true or false.
    MatchArmGuard,
    /// A match arm is gone.
    MatchArm,
    /// A field of a struct has the base's value.
    StructField,
    /// Ours: a call or an assignment is gone.
    Statement,
    /// Ours: a condition, or a part of one, is always true or false.
    Condition,
}

/// How a place is changed: byte ranges of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// Return in front of a function's first statement.
    Return {
        /// Where.
        at: usize,
    },
    /// One operator for another.
    Operator {
        /// The whole expression.
        whole: Range<usize>,
        /// The operator in it.
        operator: Range<usize>,
    },
    /// The expression without its operator.
    Operand {
        /// The whole expression.
        whole: Range<usize>,
        /// What stays.
        operand: Range<usize>,
    },
    /// Another expression.
    Expression {
        /// The whole expression.
        whole: Range<usize>,
    },
    /// An arm that never matches.
    Arm {
        /// Its guard, or nothing after its pattern.
        guard: Range<usize>,
    },
    /// The field of the base.
    Field {
        /// The value that is given.
        value: Range<usize>,
        /// The base.
        base: Range<usize>,
        /// The field's name.
        name: String,
    },
    /// No statement.
    Statement {
        /// With its semicolon.
        whole: Range<usize>,
    },
}

/// A place.
#[derive(Clone, Debug)]
pub struct Place {
    /// What kind of change is made here.
    pub genre: Genre,
    /// Line, from 1, and column, from 0.
    pub at: (usize, usize),
    /// How.
    pub form: Form,
}

impl Place {
    /// By what cargo-mutants names it.
    pub fn key(&self) -> (Genre, (usize, usize)) {
        (self.genre, self.at)
    }
}

/// A file with its places.
pub struct Source {
    /// Its text.
    pub text: String,
    /// Places of what cargo-mutants makes.
    pub places: Vec<Place>,
    /// Our mutants: place, description, and what comes there.
    pub own: Vec<(Place, String, String)>,
    lines: Vec<usize>,
    function: String,
}

impl Source {
    /// Read a file of the project.
    pub fn read(root: &Path, file: &str) -> Result<Source> {
        let text = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
        let tree = syn::parse_file(&text).with_context(|| file.to_owned())?;
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let (places, own, function) = (Vec::new(), Vec::new(), String::new());
        let mut source = Source { text, places, own, lines, function };
        source.visit_file(&tree);
        Ok(source)
    }

    fn offset(&self, at: LineColumn) -> usize {
        let line = self.lines[at.line - 1];
        let rest = &self.text[line..];
        line + rest.char_indices().nth(at.column).map_or(rest.len(), |(byte, _)| byte)
    }

    fn range(&self, node: &impl Spanned) -> Range<usize> {
        let span = node.span();
        self.offset(span.start())..self.offset(span.end())
    }

    fn place(&self, genre: Genre, at: &impl Spanned, form: Form) -> Place {
        let start = at.span().start();
        Place { genre, at: (start.line, start.column), form }
    }

    fn add(&mut self, genre: Genre, at: &impl Spanned, form: Form) {
        let place = self.place(genre, at, form);
        self.places.push(place);
    }

    /// One of ours.
    fn add_own(&mut self, genre: Genre, node: &impl Spanned, form: Form, what: &str, with: &str) {
        let place = self.place(genre, node, form);
        let range = self.range(node);
        let text = self.text[range].split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(90).collect();
        let described = format!("{what} `{text}` in {}", self.function);
        self.own.push((place, described, with.to_owned()));
    }

    fn condition(&mut self, expr: &Expr, with: bool) {
        let form = Form::Expression { whole: self.range(expr) };
        let what = if with { "true for" } else { "false for" };
        self.add_own(Genre::Condition, expr, form, what, &with.to_string());
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block, visit: impl FnOnce(&mut Source)) {
        if signature.constness.is_some() {
            return;
        }
        let outer = std::mem::replace(&mut self.function, signature.ident.to_string());
        if let Some(first) = block.stmts.first() {
            let at = self.range(first).start;
            self.add(Genre::FnValue, first, Form::Return { at });
        }
        visit(self);
        self.function = outer;
    }
}

fn of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let of = |name| attribute.path().is_ident(name);
        let syn::Meta::List(list) = &attribute.meta else { return of("test") };
        let text = list.tokens.to_string();
        of("cfg") && text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    })
}

/// Does a condition bind something? Then it cannot be an expression by itself.
fn binds(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            binds(&binary.left) || binds(&binary.right)
        }
        _ => false,
    }
}

fn is_chain(expr: &Expr) -> bool {
    matches!(expr, Expr::Binary(binary) if matches!(binary.op, BinOp::And(_) | BinOp::Or(_)))
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !of_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !of_tests(&item.attrs) {
            self.body(&item.sig, &item.block, |source| visit::visit_item_fn(source, item));
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !of_tests(&item.attrs) {
            self.body(&item.sig, &item.block, |source| visit::visit_impl_item_fn(source, item));
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block, |source| visit::visit_trait_item_fn(source, item));
        }
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt {
            let binary = matches!(expr, Expr::Binary(_));
            if binary || matches!(expr, Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) | Expr::Try(_))
            {
                let form = Form::Statement { whole: self.range(stmt) };
                self.add_own(Genre::Statement, stmt, form, "remove", "");
            }
        }
        visit::visit_stmt(self, stmt);
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        if !binds(&expr.cond) && !is_chain(&expr.cond) {
            self.condition(&expr.cond, true);
            self.condition(&expr.cond, false);
        }
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let neutral = match expr.op {
            BinOp::And(_) => Some(true),
            BinOp::Or(_) => Some(false),
            _ => None,
        };
        if let Some(neutral) = neutral {
            for part in [&*expr.left, &*expr.right] {
                let same = matches!(part, Expr::Binary(inner) if inner.op == expr.op);
                if !same && !binds(part) {
                    self.condition(part, neutral);
                }
            }
        }
        if neutral.is_none() || !(binds(&expr.left) || binds(&expr.right)) {
            let form = Form::Operator { whole: self.range(expr), operator: self.range(&expr.op) };
            self.add(Genre::BinaryOperator, &expr.op, form);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if !matches!(expr.op, syn::UnOp::Deref(_)) {
            let form = Form::Operand { whole: self.range(expr), operand: self.range(&*expr.expr) };
            self.add(Genre::UnaryOperator, &expr.op, form);
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let end = self.range(&arm.pat).end;
        let guard = arm.guard.as_ref().map(|guard| &*guard.1);
        if let Some(guard) = guard {
            let form = Form::Expression { whole: self.range(guard) };
            self.add(Genre::MatchArmGuard, guard, form);
        }
        let guard = guard.map_or(end..end, |guard| self.range(guard));
        self.add(Genre::MatchArm, arm, Form::Arm { guard });
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expr: &'ast syn::ExprStruct) {
        if let Some(base) = &expr.rest {
            let base = self.range(&**base);
            for field in expr.fields.iter().filter(|field| field.colon_token.is_some()) {
                let syn::Member::Named(name) = &field.member else { continue };
                let form = Form::Field {
                    value: self.range(&field.expr),
                    base: base.clone(),
                    name: name.to_string(),
                };
                self.add(Genre::StructField, field, form);
            }
        }
        visit::visit_expr_struct(self, expr);
    }
}
