//! How long a function may be, and how many parameters it may have.

use crate::project::crates;
use crate::ratchet::{Kind, Offence, check_listed};
use std::sync::LazyLock;
use syn::visit::{self, Visit};
use syn::{Block, FnArg, ImplItemFn, ItemFn, ItemImpl, ItemTrait, Signature, TraitItemFn, Type};

/// Lines of a function between its braces.
const MAX_LINES: usize = 80;
/// Parameters of a function, without `self`.
const MAX_PARAMETERS: usize = 6;

/// A function of product code.
struct Function {
    /// Its name, after those of the type or the functions that it is in: `Zone::take`.
    name: String,
    line: usize,
    /// Lines between its braces, if it has a body.
    lines: usize,
    /// Its parameters without `self`, each member of a tuple for one. None where a trait prescribes them.
    parameters: Option<usize>,
}

/// Returns the functions of `syntax` that are not for tests alone.
fn functions(syntax: &syn::File) -> Vec<Function> {
    let mut visitor = Functions { found: Vec::new(), around: Vec::new(), prescribed: false };
    visitor.visit_file(syntax);
    visitor.found
}

struct Functions {
    found: Vec<Function>,
    /// The types and functions around the place that is visited.
    around: Vec<String>,
    /// Whether this is the implementation of a trait.
    prescribed: bool,
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
        let line = signature.ident.span().start().line;
        let parameters = (!self.prescribed).then(|| parameters(signature));
        self.found.push(Function { name, line, lines, parameters });
    }

    fn inside(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        let prescribed = std::mem::replace(&mut self.prescribed, false);
        self.around.push(name);
        visit(self);
        self.around.pop();
        self.prescribed = prescribed;
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        self.inside(type_name(&item.self_ty), |inside| {
            inside.prescribed = item.trait_.is_some();
            visit::visit_item_impl(inside, item);
        });
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

fn parameters(signature: &Signature) -> usize {
    let count = |parameter: &FnArg| match parameter {
        FnArg::Receiver(_) => 0,
        FnArg::Typed(typed) => members(&typed.ty),
    };
    signature.inputs.iter().map(count).sum()
}

/// How many parameters a type counts for.
fn members(type_: &Type) -> usize {
    match type_ {
        Type::Tuple(tuple) if !tuple.elems.is_empty() => tuple.elems.iter().map(members).sum(),
        Type::Reference(reference) => members(&reference.elem),
        Type::Paren(paren) => members(&paren.elem),
        _ => 1,
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

/// All functions of product code, with their files.
static FUNCTIONS: LazyLock<Vec<(String, Function)>> = LazyLock::new(|| {
    let mut sources: Vec<_> = crates("").into_iter().flat_map(|crate_| crate_.sources).collect();
    // A file may be part of several crates.
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    sources.dedup_by(|one, other| one.path == other.path);
    let product = sources.into_iter().filter(|source| !source.test);
    product
        .flat_map(|source| {
            functions(&source.syntax).into_iter().map(move |found| (source.path.clone(), found))
        })
        .collect()
});

/// Returns what `broken` complains of.
fn offences(broken: impl Fn(&Function) -> Option<String>) -> Vec<Offence> {
    let offence = |(path, function): &(String, Function)| {
        let complaint = broken(function)?;
        Some(Offence { path: path.clone(), line: function.line, name: function.name.clone(), complaint })
    };
    FUNCTIONS.iter().filter_map(offence).collect()
}

fn too_long(function: &Function) -> Option<String> {
    let lines = function.lines;
    (lines > MAX_LINES).then(|| format!("a body of {lines} lines, more than {MAX_LINES}"))
}

#[test]
fn function_length() {
    check_listed("function-length", Kind::Places, &offences(too_long));
}

fn too_many_parameters(function: &Function) -> Option<String> {
    let parameters = function.parameters?;
    (parameters > MAX_PARAMETERS).then(|| format!("{parameters} parameters, more than {MAX_PARAMETERS}"))
}

#[test]
fn few_parameters() {
    check_listed("few-parameters", Kind::Places, &offences(too_many_parameters));
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

#[test]
fn members_of_tuples_are_parameters() {
    let count = |text: &str| parameters(&syn::parse_str(text).unwrap());
    assert_eq!(count("fn f(&self, a: A, b: &mut B)"), 2);
    assert_eq!(count("fn f((a, b): (A, (B, C)), d: &(D, E), f: ())"), 6);
    let text = "impl T for A { fn f(a: A, b: A, c: A, d: A, e: A, f: A, g: A) { fn h(a: A) {} } }";
    let found = functions(&syn::parse_file(text).unwrap());
    let found: Vec<_> = found.iter().map(|found| found.parameters).collect();
    assert_eq!(found, [None, Some(1)]);
}
