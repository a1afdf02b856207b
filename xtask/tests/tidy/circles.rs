//! The files of a crate use each other in one direction.
//!
//! A file uses another if its code or an import names something that the other defines. Names are looked up as the
//! compiler does it: through imports, and through re-exports to the file that has the definition. So neither `mod
//! x;` nor `pub use x::Y;` is a use by itself, and methods, which are called without a path, are not seen. Files
//! that reach each other are a circle: none of them can be read, tested or moved without all the others.
//!
//! What a module declares for its children does not count: `mod.rs` has the type that they implement together, and
//! takes from them the types of its fields. Half of the rooms are built so.

use crate::project::{Crate, crates};
use crate::ratchet::{Kind, Offence, check_listed};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, UseTree, Visibility};

/// A path of modules from the crate's root, or of names as code has it.
type Path = Vec<String>;

/// The names that a path has led through, with their modules.
type Seen = BTreeSet<Path>;

/// What a module declares.
#[derive(Default)]
struct Module {
    /// The file that it is in.
    file: String,
    children: BTreeSet<String>,
    items: BTreeSet<String>,
    /// Imported names and their paths.
    imports: BTreeMap<String, Path>,
    globs: Vec<Path>,
}

/// What a path leads to.
enum Target {
    Module(Path),
    /// Something that this file defines.
    Item(String),
}

/// The modules of a crate by their paths.
#[derive(Default)]
struct Modules(BTreeMap<Path, Module>);

impl Modules {
    fn of(crate_: &Crate) -> Modules {
        let mut modules = Modules::default();
        for source in crate_.sources.iter().filter(|source| !source.test) {
            modules.declare(source.module.clone(), &source.path, &source.syntax.items);
        }
        modules
    }

    fn declare(&mut self, at: Path, file: &str, items: &[Item]) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items {
            let name = match item {
                Item::Mod(item) => {
                    module.children.insert(item.ident.to_string());
                    if let Some((_, items)) = &item.content {
                        self.declare(child(&at, &item.ident.to_string()), file, items);
                    }
                    continue;
                }
                Item::Use(item) => {
                    for (name, path) in imports(item) {
                        match name {
                            Some(name) => drop(module.imports.insert(name, path)),
                            None => module.globs.push(path),
                        }
                    }
                    continue;
                }
                Item::Const(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Fn(item) => &item.sig.ident,
                Item::Static(item) => &item.ident,
                Item::Struct(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Type(item) => &item.ident,
                Item::Union(item) => &item.ident,
                Item::Macro(syn::ItemMacro { ident: Some(name), .. }) => name,
                _ => continue,
            };
            module.items.insert(name.to_string());
        }
        self.0.insert(at, module);
    }

    /// Returns what `path` leads to from the module at `from`, if that is in this crate.
    fn resolve(&self, from: &Path, path: &[String], seen: &mut Seen) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.clone(),
            "super" => parent(from)?,
            name => match self.lookup(from, name, seen)? {
                Target::Module(module) => module,
                item @ Target::Item(_) => return Some(item),
            },
        };
        while let Some((name, others)) = rest.split_first() {
            rest = others;
            at = match name.as_str() {
                "super" => parent(&at)?,
                "self" => at,
                name => match self.lookup(&at, name, seen) {
                    Some(Target::Module(module)) => module,
                    Some(item) => return Some(item),
                    // A macro has made it.
                    None => return Some(Target::Item(self.0.get(&at)?.file.clone())),
                },
            };
        }
        Some(Target::Module(at))
    }

    /// Returns what `name` is in the module at `at`.
    fn lookup(&self, at: &Path, name: &str, seen: &mut Seen) -> Option<Target> {
        let module = self.0.get(at)?;
        // An import can lead back to itself, as `use x::x` does for another crate's `x`.
        if !seen.insert(child(at, name)) {
            return None;
        }
        if module.items.contains(name) {
            return Some(Target::Item(module.file.clone()));
        }
        if module.children.contains(name) {
            return Some(Target::Module(child(at, name)));
        }
        if let Some(path) = module.imports.get(name) {
            return self.resolve(at, path, seen);
        }
        module.globs.iter().find_map(|glob| match self.resolve(at, glob, seen)? {
            Target::Module(module) => self.lookup(&module, name, seen),
            _ => None,
        })
    }
}

fn child(at: &Path, name: &str) -> Path {
    at.iter().cloned().chain([name.to_owned()]).collect()
}

fn parent(at: &Path) -> Option<Path> {
    at.split_last().map(|(_, above)| above.to_owned())
}

/// The names that `item` brings into scope, with their paths; `None` is all names of the path.
fn imports(item: &ItemUse) -> Vec<(Option<String>, Path)> {
    let mut found = Vec::new();
    // `use ::x` is another crate's.
    if item.leading_colon.is_none() {
        flatten(&item.tree, &mut Path::new(), &mut found);
    }
    found
}

fn flatten(tree: &UseTree, before: &mut Path, found: &mut Vec<(Option<String>, Path)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, found)),
        UseTree::Glob(_) => found.push((None, before.clone())),
        UseTree::Name(name) if name.ident == "self" => found.push((before.last().cloned(), before.clone())),
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            found.push((Some(name.clone()), child(before, &name)));
        }
        UseTree::Rename(rename) => {
            found.push((Some(rename.rename.to_string()), child(before, &rename.ident.to_string())));
        }
    }
}

/// What files use: by file and other file, the paths that name it.
type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Collects what the code of a file uses.
struct Visitor<'a> {
    modules: &'a Modules,
    at: Path,
    file: &'a str,
    uses: &'a mut Uses,
}

impl Visitor<'_> {
    fn path(&mut self, path: &[String]) {
        if let Some(Target::Item(other)) = self.modules.resolve(&self.at, path, &mut Seen::new())
            && other != self.file
        {
            let name = path.last().cloned().unwrap_or_default();
            self.uses.entry(self.file.to_owned()).or_default().entry(other).or_default().insert(name);
        }
    }

    /// Everything in a macro that may be a path.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Path::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.path(&std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => colons += 1,
                token => {
                    self.path(&std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = token {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.path(&path);
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.at.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            imports(item)
                .into_iter()
                .filter(|(name, _)| name.is_some())
                .for_each(|(_, path)| self.path(&path));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names: Path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.path(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// Returns what each file uses, but for what it has from modules that it is in.
fn uses(crate_: &Crate) -> Uses {
    let modules = Modules::of(crate_);
    let mut uses = Uses::new();
    for source in crate_.sources.iter().filter(|source| !source.test) {
        let mut visitor =
            Visitor { modules: &modules, at: source.module.clone(), file: &source.path, uses: &mut uses };
        visitor.visit_file(&source.syntax);
    }
    let modules: BTreeMap<&str, &Path> =
        crate_.sources.iter().map(|source| (source.path.as_str(), &source.module)).collect();
    for (file, others) in &mut uses {
        others.retain(|other, _| !modules[file.as_str()].starts_with(modules[other.as_str()]));
    }
    uses
}

/// All files that `from` uses, and those that they use, and so on.
fn reached(from: &str, uses: &Uses) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(file) = next.pop() {
        for other in uses.get(&file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(other.clone()) {
                next.push(other.clone());
            }
        }
    }
    reached
}

/// The circles of files: each at its first file.
fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|file| (file, reached(file, uses))).collect();
    let circle = |file: &String| -> BTreeSet<String> {
        let back = |other: &&String| reach.get(other).is_some_and(|reached| reached.contains(file));
        reach[file].iter().filter(back).cloned().collect()
    };
    uses.keys()
        .map(|file| (file, circle(file)))
        .filter(|(file, circle)| circle.first() == Some(*file))
        .map(|(_, circle)| circle)
        .collect()
}

fn offences(crate_: &Crate) -> Vec<Offence> {
    let uses = uses(crate_);
    let mut offences = Vec::new();
    for circle in circles(&uses) {
        for file in &circle {
            let others = uses[file].iter().filter(|(other, _)| circle.contains(*other));
            let others = others.map(|(other, names)| {
                format!("{} of {other}", names.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
            });
            let complaint = format!(
                "in a circle of {} files, uses {}",
                circle.len(),
                others.collect::<Vec<_>>().join("; ")
            );
            offences.push(Offence { path: file.clone(), line: 1, name: "circle".to_owned(), complaint });
        }
    }
    offences
}

#[test]
fn no_circles() {
    let mut offences: Vec<Offence> = crates("").iter().flat_map(offences).collect();
    // A file may be part of several crates.
    offences.sort_by(|one, other| one.path.cmp(&other.path));
    offences.dedup_by(|one, other| one.path == other.path);
    check_listed("no-circles", Kind::Places, &offences);
}

#[cfg(test)]
fn circles_of(texts: &[(&str, &str)]) -> Vec<Vec<String>> {
    let texts = texts.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
    let crate_ = crate::project::parse_crate("lib.rs", &texts);
    circles(&uses(&crate_)).into_iter().map(|circle| circle.into_iter().collect()).collect()
}

#[test]
fn imports_paths_and_macros_are_uses() {
    let circle = |one, two| circles_of(&[("lib.rs", "mod one; mod two;"), ("one.rs", one), ("two.rs", two)]);
    assert_eq!(
        circle("use crate::two::B; pub struct A;", "pub struct B; type C = super::one::A;"),
        [["one.rs", "two.rs"]]
    );
    assert_eq!(
        circle("use crate::two; fn a() { two::b() }", "pub fn b() { print!(\"{}\", crate::one::a()) }").len(),
        1
    );
    assert_eq!(
        circle("use crate::two::B;", "pub struct B; #[cfg(test)] mod tests { use crate::one::a; }").len(),
        0
    );
    assert_eq!(circle("use crate::two; pub fn a() {}", "use crate::one::a;").len(), 0);
    assert_eq!(circle("use two::B; use std::fmt::A;", "pub struct B; use one::A;").len(), 0);
}

#[test]
fn uses_lead_through_reexports_to_definitions() {
    let with = |child: &'static str| {
        circles_of(&[
            ("lib.rs", "mod room;"),
            ("room/mod.rs", "mod one; mod two; pub use one::*; pub use two::B; pub struct Own(A);"),
            ("room/one.rs", "pub struct A;"),
            ("room/two.rs", child),
        ])
    };
    assert_eq!(with("pub struct B(super::A);").len(), 0);
    // What a parent declares is there for its children.
    assert_eq!(with("use super::Own; pub struct B(Own);").len(), 0);
    let twins = [
        ("lib.rs", "mod one; mod two; pub use two::B;"),
        ("one.rs", "pub struct A(crate::B);"),
        ("two.rs", "use crate::one::A; pub struct B(A);"),
    ];
    assert_eq!(circles_of(&twins), [["one.rs", "two.rs"]]);
}
