//! The sites in a source file where a mutant can change it.

use anyhow::{Context as _, Result};
use proc_macro2::LineColumn;
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Stmt};

/// The kind of a change: cargo-mutants' name for it, or ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
pub enum Genre {
    /// A function returns a value and does nothing else.
    FnValue,
    /// A different binary operator.
    BinaryOperator,
    /// Without the unary operator.
    UnaryOperator,
    /// A match arm's guard is always true or false.
    MatchArmGuard,
    /// Without a match arm.
    MatchArm,
    /// A field of a struct has the base's value.
    StructField,
    /// Ours: without a call or an assignment.
    Statement,
    /// Ours: a condition, or a part of one, is always true or false.
    Condition,
}

/// How a site is changed: byte ranges of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// Return before a function's first statement.
    Return {
        /// Where.
        at: usize,
    },
    /// Replace an operator.
    Operator {
        /// The whole expression.
        whole: Range<usize>,
        /// The operator in it.
        operator: Range<usize>,
    },
    /// Keep the expression without its operator.
    Operand {
        /// The whole expression.
        whole: Range<usize>,
        /// The operand, which stays.
        operand: Range<usize>,
    },
    /// Replace an expression.
    Expression {
        /// The whole expression.
        whole: Range<usize>,
    },
    /// Let an arm never match.
    Arm {
        /// Its guard, or the empty range after its pattern.
        guard: Range<usize>,
    },
    /// Take the field from the base.
    Field {
        /// The value in the expression.
        value: Range<usize>,
        /// The base.
        base: Range<usize>,
        /// The field's name.
        name: String,
    },
    /// Remove a statement.
    Statement {
        /// The statement with its semicolon.
        whole: Range<usize>,
    },
}

/// A site of one mutant or several.
#[derive(Clone, Debug)]
pub struct Site {
    /// The kind of change at this site.
    pub genre: Genre,
    /// Line, from 1, and column, from 0.
    pub at: (usize, usize),
    /// How the site is changed.
    pub form: Form,
}

impl Site {
    /// What cargo-mutants identifies it by.
    pub fn key(&self) -> (Genre, (usize, usize)) {
        (self.genre, self.at)
    }
}

/// A file with its sites.
pub struct Source {
    /// Its text.
    pub text: String,
    /// Sites of cargo-mutants' list.
    pub sites: Vec<Site>,
    /// Our mutants: site, description, and replacement text.
    pub ours: Vec<(Site, String, String)>,
    lines: Vec<usize>,
    function: String,
}

impl Source {
    /// Read a file of the project.
    pub fn read(root: &Path, file: &str) -> Result<Source> {
        let text = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
        let tree = syn::parse_file(&text).with_context(|| file.to_owned())?;
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let (sites, ours, function) = (Vec::new(), Vec::new(), String::new());
        let mut source = Source { text, sites, ours, lines, function };
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

    fn site(&self, genre: Genre, at: &impl Spanned, form: Form) -> Site {
        let start = at.span().start();
        Site { genre, at: (start.line, start.column), form }
    }

    fn add(&mut self, genre: Genre, at: &impl Spanned, form: Form) {
        let site = self.site(genre, at, form);
        self.sites.push(site);
    }

    /// Add a mutant of ours.
    fn add_own(&mut self, genre: Genre, node: &impl Spanned, form: Form, what: &str, replacement: &str) {
        let site = self.site(genre, node, form);
        let range = self.range(node);
        let text = self.text[range].split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(90).collect();
        let described = format!("{what} `{text}` in {}", self.function);
        self.ours.push((site, described, replacement.to_owned()));
    }

    fn condition(&mut self, expr: &Expr, replacement: bool) {
        let form = Form::Expression { whole: self.range(expr) };
        let what = if replacement { "true for" } else { "false for" };
        self.add_own(Genre::Condition, expr, form, what, &replacement.to_string());
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

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let of = |name| attribute.path().is_ident(name);
        let syn::Meta::List(list) = &attribute.meta else { return of("test") };
        let text = list.tokens.to_string();
        of("cfg") && text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    })
}

/// Whether a condition binds a variable. Then it is not an expression by itself.
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
        if !is_test_only(&item.attrs) {
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
        if !is_test_only(&item.attrs) {
            self.body(&item.sig, &item.block, |source| visit::visit_item_fn(source, item));
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_only(&item.attrs) {
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
