//! What is public in the memory manager is used outside of it.
//!
//! The compiler finds dead code only where it sees all users, so a `pub` without need hides it. This rule goes by
//! names: a `pub` item of `crates/mm` whose name is an identifier of no file outside `crates/mm/src` must be
//! `pub(crate)`, and `pub(super)` or private if no other room names it. Other crates, tests, benches and examples are
//! users; comments and the crate's unit tests are not. A type that the interface of a used item shows (a parameter, a
//! public field, an associated type) must be as visible as that item; so must types that a macro makes items of.
//! Methods of traits have no visibility of their own.

use crate::floors::{ROOMS, room_of};
use crate::functions::type_name;
use crate::project::{Source, Text, crates, files};
use crate::ratchet::{Kind, Offence, check_listed};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;
use syn::{Fields, FieldsNamed, FieldsUnnamed, Ident, ImplItem, Item, ItemImpl, Signature, Type, Visibility};

type Names = BTreeSet<String>;

/// The identifiers of `tokens`.
fn identifiers(tokens: TokenStream, found: &mut Names) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => identifiers(group.stream(), found),
            TokenTree::Ident(name) => drop(found.insert(name.to_string())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Where names are used.
#[derive(Default)]
struct Users {
    outside: Names,
    by_room: BTreeMap<String, Names>,
}

impl Users {
    fn add(&mut self, file: &Text) {
        let names = match file.path.strip_prefix(ROOMS) {
            Some(relative) => self.by_room.entry(room_of(relative)).or_default(),
            None => &mut self.outside,
        };
        identifiers(file.text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.path)), names);
    }

    fn outside(&self, item: &Public) -> bool {
        self.outside.contains(&item.name)
    }

    fn in_another_room(&self, item: &Public) -> bool {
        self.by_room.iter().any(|(room, names)| *room != item.room && names.contains(&item.name))
    }
}

/// A `pub` item.
struct Public {
    path: String,
    room: String,
    line: usize,
    /// The type that it is a method or constant of.
    of: Option<String>,
    name: String,
    /// Whether it is a type or a trait.
    type_: bool,
    /// Names in its interface.
    shows: Names,
}

/// Collects the public items of a file.
struct Collector<'a> {
    path: &'a str,
    room: String,
    items: Vec<Public>,
    /// Names in macros that make items.
    macros: Names,
    /// What types show by the blocks that implement something for them.
    blocks: Vec<(String, Names)>,
}

impl<'a> Collector<'a> {
    fn new(path: &'a str) -> Self {
        let room = room_of(path.strip_prefix(ROOMS).unwrap_or(path));
        Collector { path, room, items: Vec::new(), macros: Names::new(), blocks: Vec::new() }
    }

    fn item(&mut self, visibility: &Visibility, name: &Ident, of: Option<&str>, type_: bool, shows: Names) {
        if matches!(visibility, Visibility::Public(_)) {
            self.items.push(Public {
                path: self.path.to_owned(),
                room: self.room.clone(),
                line: name.span().start().line,
                of: of.map(str::to_owned),
                name: name.to_string(),
                type_,
                shows,
            });
        }
    }

    fn all(&mut self, items: &[Item]) {
        for item in items {
            let shows = |visit: &dyn Fn(&mut Interface)| interface(visit);
            match item {
                Item::Mod(item) => self.all(item.content.as_ref().map_or(&[], |(_, items)| items)),
                Item::Impl(item) => self.block(item),
                Item::Macro(item) => identifiers(item.mac.tokens.clone(), &mut self.macros),
                Item::Fn(item) => self.item(&item.vis, &item.sig.ident, None, false, of_signature(&item.sig)),
                Item::Const(item) => self.item(&item.vis, &item.ident, None, false, of_type(&item.ty)),
                Item::Static(item) => self.item(&item.vis, &item.ident, None, false, of_type(&item.ty)),
                Item::Struct(it) => {
                    self.item(&it.vis, &it.ident, None, true, shows(&|all| all.visit_item_struct(it)))
                }
                Item::Enum(it) => {
                    self.item(&it.vis, &it.ident, None, true, shows(&|all| all.visit_item_enum(it)))
                }
                Item::Union(it) => {
                    self.item(&it.vis, &it.ident, None, true, shows(&|all| all.visit_item_union(it)))
                }
                Item::Type(it) => {
                    self.item(&it.vis, &it.ident, None, true, shows(&|all| all.visit_item_type(it)))
                }
                Item::Trait(it) => {
                    self.item(&it.vis, &it.ident, None, true, shows(&|all| all.visit_item_trait(it)))
                }
                _ => {}
            }
        }
    }

    fn block(&mut self, block: &ItemImpl) {
        let of = type_name(&block.self_ty);
        let types = block.items.iter().filter(|item| matches!(item, ImplItem::Type(_)));
        let shows = interface(&|all| {
            all.visit_generics(&block.generics);
            types.clone().for_each(|item| all.visit_impl_item(item));
        });
        for item in &block.items {
            match item {
                ImplItem::Fn(item) => {
                    self.item(&item.vis, &item.sig.ident, Some(&of), false, of_signature(&item.sig))
                }
                ImplItem::Const(item) => {
                    self.item(&item.vis, &item.ident, Some(&of), false, of_type(&item.ty))
                }
                _ => {}
            }
        }
        self.blocks.push((of, shows));
    }
}

fn of_signature(signature: &Signature) -> Names {
    interface(&|all| all.visit_signature(signature))
}

fn of_type(type_: &Type) -> Names {
    interface(&|all| all.visit_type(type_))
}

/// Returns the names that users of what `visit` visits can see.
fn interface(visit: &dyn Fn(&mut Interface)) -> Names {
    let mut all = Interface(Names::new());
    visit(&mut all);
    all.0
}

/// Collects the names of an interface: all but those of private fields, bodies and attributes.
struct Interface(Names);

impl<'ast> Visit<'ast> for Interface {
    fn visit_ident(&mut self, name: &'ast Ident) {
        self.0.insert(name.to_string());
    }

    fn visit_block(&mut self, _: &'ast syn::Block) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.visit_generics(&item.generics);
        if let Fields::Named(FieldsNamed { named: fields, .. })
        | Fields::Unnamed(FieldsUnnamed { unnamed: fields, .. }) = &item.fields
        {
            let public = fields.iter().filter(|field| matches!(field.vis, Visibility::Public(_)));
            public.for_each(|field| self.visit_field(field));
        }
    }
}

/// Returns the public items of the memory manager that nothing outside of it uses. `files` are all that may use them.
fn unused(sources: &[Source], files: &[Text]) -> Vec<Offence> {
    let mut users = Users::default();
    files.iter().for_each(|file| users.add(file));
    let (mut items, mut blocks, mut shown) = (Vec::new(), Vec::new(), Names::new());
    for source in sources.iter().filter(|source| !source.test) {
        let mut collector = Collector::new(&source.path);
        collector.all(&source.syntax.items);
        items.extend(collector.items);
        blocks.extend(collector.blocks);
        shown.extend(collector.macros);
    }
    show(&mut shown, &items, &blocks, &users);
    let fine = |item: &Public| users.outside(item) || item.type_ && shown.contains(&item.name);
    let offence = |item: Public| {
        let (who, instead) = match users.in_another_room(&item) {
            true => ("no other crate", "pub(crate)"),
            false => ("no other room", "pub(super) or private"),
        };
        let complaint = format!("'{}' is public, and {who} names it: make it {instead}", item.name);
        let name = item.of.map_or(String::new(), |of| of + "::") + &item.name;
        Offence { path: item.path, line: item.line, name, complaint }
    };
    items.into_iter().filter(|item| !fine(item)).map(offence).collect()
}

/// Adds to `shown` what the interfaces of used items show, and those of types that are shown, and so on.
fn show(shown: &mut Names, items: &[Public], blocks: &[(String, Names)], users: &Users) {
    shown.extend(items.iter().filter(|item| item.type_ && users.outside(item)).map(|item| item.name.clone()));
    loop {
        let visible = |item: &&Public| match &item.of {
            Some(of) => users.outside(item) && shown.contains(of),
            None => users.outside(item) || item.type_ && shown.contains(&item.name),
        };
        let by_items = items.iter().filter(visible).map(|item| &item.shows);
        let by_blocks = blocks.iter().filter(|(of, _)| shown.contains(of)).map(|(_, shows)| shows);
        let more: Names =
            by_items.chain(by_blocks).flatten().filter(|name| !shown.contains(*name)).cloned().collect();
        if more.is_empty() {
            return;
        }
        shown.extend(more);
    }
}

#[test]
fn public_only_if_used_outside() {
    let sources = crates("crates/mm").into_iter().flat_map(|crate_| crate_.sources);
    let sources: Vec<Source> = sources.filter(|source| source.path.starts_with(ROOMS)).collect();
    check_listed("public-only-if-used-outside", Kind::Places, &unused(&sources, &files("", ".rs")));
}

#[cfg(test)]
const LRU: &str = "\
pub struct Vector { pub kind: Kind, secret: Secret }
pub enum Kind { A }
pub enum Secret { A }
impl Vector {
    pub fn mark(&self) -> Mark { Mark }
    pub fn idle(&self) {}
    pub(crate) fn inner(&self) {}
}
pub struct Mark;
pub fn own() { idle() }
pub fn by_rooms() {}
// used: Secret
";

#[test]
fn a_public_item_needs_a_user_in_another_crate() {
    let texts = [
        ("crates/mm/src/lib.rs", "mod lru; mod mm; pub use lru::Vector;"),
        ("crates/mm/src/lru.rs", LRU),
        ("crates/mm/src/mm.rs", "fn f() { crate::lru::by_rooms() }"),
        ("crates/lab/src/main.rs", "fn main(v: mm::Vector) { v.mark(); /* own */ }"),
    ];
    let texts = texts.map(|(path, text)| Text { path: path.to_owned(), text: text.to_owned() });
    let by_path = texts.iter().map(|file| (file.path.clone(), file.text.clone())).collect();
    let sources = crate::project::parse_crate("crates/mm/src/lib.rs", &by_path).sources;
    let found = unused(&sources, &texts);
    let found: Vec<(&str, bool)> = found
        .iter()
        .map(|offence| (offence.name.as_str(), offence.complaint.ends_with("pub(crate)")))
        .collect();
    assert_eq!(found, [("Secret", false), ("Vector::idle", false), ("own", false), ("by_rooms", true)]);
}
