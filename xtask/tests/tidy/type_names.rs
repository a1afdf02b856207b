//! A type name that is visible outside its module means one thing in the memory manager.
//!
//! Two types of one name cannot be told apart in a reader's memory or in a search. A name that is private
//! everywhere may be defined again, and so may one whose definitions are in one file: these are alternatives, of
//! which `cfg` chooses.

use crate::floors::ROOMS;
use crate::project::{Source, crates};
use crate::ratchet::{Offence, check};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Ident, Item, Visibility};

/// A definition of a type, a trait or an alias.
struct Definition {
    path: String,
    line: usize,
    visible: bool,
}

type Definitions = BTreeMap<String, Vec<Definition>>;

fn add(found: &mut Definitions, path: &str, visible: bool, name: &Ident) {
    let line = name.span().start().line;
    found.entry(name.to_string()).or_default().push(Definition { path: path.to_owned(), line, visible });
}

fn collect(items: &[Item], path: &str, found: &mut Definitions) {
    for item in items {
        let (visibility, name) = match item {
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Union(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Mod(item) => {
                collect(item.content.as_ref().map_or(&[], |(_, items)| items), path, found);
                continue;
            }
            Item::Macro(item) if item.ident.is_none() => {
                collect_tokens(item.mac.tokens.clone(), path, found);
                continue;
            }
            _ => continue,
        };
        add(found, path, is_visible(visibility), name);
    }
}

fn is_visible(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Public(_) => true,
        Visibility::Restricted(restricted) => !restricted.path.is_ident("self"),
        Visibility::Inherited => false,
    }
}

/// The same for what a macro makes: a keyword and a name.
fn collect_tokens(tokens: TokenStream, path: &str, found: &mut Definitions) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match (token, tokens.get(at + 1)) {
            (TokenTree::Group(group), _) => collect_tokens(group.stream(), path, found),
            (TokenTree::Ident(keyword), Some(TokenTree::Ident(name)))
                if ["struct", "enum", "union", "trait", "type"].iter().any(|known| keyword == known) =>
            {
                // After `pub` or `pub(crate)`.
                let word =
                    |back: usize| at.checked_sub(back).map(|at| tokens[at].to_string()).unwrap_or_default();
                add(found, path, word(1) == "pub" || word(2) == "pub", name);
            }
            _ => {}
        }
    }
}

fn homonyms(sources: &[Source]) -> Vec<Offence> {
    let mut found = Definitions::new();
    for source in sources.iter().filter(|source| !source.test) {
        collect(&source.syntax.items, &source.path, &mut found);
    }
    let mut offences = Vec::new();
    for (name, definitions) in found {
        let files: BTreeSet<&str> = definitions.iter().map(|one| one.path.as_str()).collect();
        if files.len() == 1 || !definitions.iter().any(|one| one.visible) {
            continue;
        }
        let complaint = format!(
            "'{name}' is the name of {} types, of which one is visible outside its module",
            files.len()
        );
        offences.extend(definitions.iter().map(|one| Offence {
            path: one.path.clone(),
            line: one.line,
            name: name.clone(),
            complaint: complaint.clone(),
        }));
    }
    offences
}

#[test]
fn unique_type_names() {
    let sources = crates("crates/mm").into_iter().flat_map(|crate_| crate_.sources);
    let sources: Vec<Source> = sources.filter(|source| source.path.starts_with(ROOMS)).collect();
    check("unique-type-names", &homonyms(&sources));
}

#[test]
fn a_visible_name_has_one_definition() {
    let texts = [
        ("a/src/lib.rs", "mod one; mod two;"),
        (
            "a/src/one.rs",
            "pub(super) struct Place; enum Step {} #[cfg(a)] pub type Twin = A; #[cfg(not(a))] pub type Twin = B;",
        ),
        (
            "a/src/two.rs",
            "struct Place; enum Step {} flags! { /// Marks.\n pub struct Marks: u8 {} } trait Marks2 {} mod m { pub trait Marks {} }",
        ),
    ];
    let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    let found = homonyms(&crate::project::parse_crate("a/src/lib.rs", &texts).sources);
    let found: Vec<(&str, &str)> =
        found.iter().map(|offence| (offence.path.as_str(), offence.name.as_str())).collect();
    assert_eq!(found, [("a/src/one.rs", "Place"), ("a/src/two.rs", "Place")]);
}
