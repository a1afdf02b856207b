//! How long a function may be.

use crate::project::crates;
use crate::ratchet::{Kind, Offence, check_listed};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, ItemImpl, ItemTrait, Signature, TraitItemFn, Type};

/// Lines of a function between its braces.
const MAX_LINES: usize = 80;

/// A function of product code.
struct Function {
    /// Its name, after those of the type or the functions that it is in: `Zone::take`.
    name: String,
    line: usize,
    /// Lines between its braces, if it has a body.
    lines: usize,
}

/// Returns the functions of `syntax` that are not for tests alone.
fn functions(syntax: &syn::File) -> Vec<Function> {
    let mut visitor = Functions { found: Vec::new(), around: Vec::new() };
    visitor.visit_file(syntax);
    visitor.found
}

struct Functions {
    found: Vec<Function>,
    /// The types and functions around the place that is visited.
    around: Vec<String>,
}

impl Functions {
    fn add(&mut self, signature: &Signature, body: Option<&Block>) {
        let own = signature.ident.to_string();
        let name =
            self.around.iter().map(String::as_str).chain([own.as_str()]).collect::<Vec<_>>().join("::");
        let lines = body.map_or(0, |body| {
            let braces = body.brace_token.span;
            (braces.close().start().line - braces.open().start().line).saturating_sub(1)
        });
        self.found.push(Function { name, line: signature.ident.span().start().line, lines });
    }

    fn inside(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.around.push(name);
        visit(self);
        self.around.pop();
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        self.inside(type_name(&item.self_ty), |inside| visit::visit_item_impl(inside, item));
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.inside(item.ident.to_string(), |inside| visit::visit_item_trait(inside, item));
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add(&item.sig, Some(&item.block));
        self.inside(item.sig.ident.to_string(), |inside| visit::visit_item_fn(inside, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.add(&item.sig, Some(&item.block));
        self.inside(item.sig.ident.to_string(), |inside| visit::visit_impl_item_fn(inside, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.add(&item.sig, item.default.as_ref());
        self.inside(item.sig.ident.to_string(), |inside| visit::visit_trait_item_fn(inside, item));
    }
}

/// The last word of a type's path, without its parameters.
pub fn type_name(type_: &Type) -> String {
    match type_ {
        Type::Path(path) => path.path.segments.last().map_or_else(String::new, |last| last.ident.to_string()),
        Type::Reference(reference) => type_name(&reference.elem),
        _ => "_".to_owned(),
    }
}

/// Returns what `broken` complains of, for every function of product code.
fn offences(broken: impl Fn(&Function) -> Option<String>) -> Vec<Offence> {
    let mut seen = BTreeSet::new();
    let mut offences = Vec::new();
    for source in crates().into_iter().flat_map(|crate_| crate_.sources) {
        // A file may be part of several crates.
        if source.test || !seen.insert(source.path.clone()) {
            continue;
        }
        offences.extend(functions(&source.syntax).into_iter().filter_map(|function| {
            let complaint = broken(&function)?;
            Some(Offence { path: source.path.clone(), line: function.line, name: function.name, complaint })
        }));
    }
    offences
}

fn too_long(function: &Function) -> Option<String> {
    let lines = function.lines;
    (lines > MAX_LINES).then(|| format!("a body of {lines} lines, more than {MAX_LINES}"))
}

#[test]
fn function_length() {
    check_listed("function-length", Kind::Places, &offences(too_long));
}

#[test]
fn lines_between_the_braces_are_counted() {
    let body = "    g();\n".repeat(MAX_LINES);
    let text =
        format!("impl Zone {{ fn fits() {{\n{body}}}\n fn long() {{\n{body}    fn inner() {{}}\n}} }}");
    let found = functions(&syn::parse_file(&text).unwrap());
    let found: Vec<(&str, usize, bool)> =
        found.iter().map(|found| (found.name.as_str(), found.lines, too_long(found).is_some())).collect();
    let expected = [("Zone::fits", 80, false), ("Zone::long", 81, true), ("Zone::long::inner", 0, false)];
    assert_eq!(found, expected);
}
