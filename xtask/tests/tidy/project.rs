//! The project's files, and the module trees of its crates.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use syn::{Attribute, ImplItem, Item, ItemMod, Meta, MetaList};

/// The folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace").to_owned()
}

/// A file of the project.
pub struct Text {
    /// Its path below the root, with slashes.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// Returns all files below the folder `below` (the root: "") whose names end with `ending`, sorted by path. Folders
/// that are hidden or built by cargo are left out.
pub fn files(below: &str, ending: &str) -> Vec<Text> {
    let root = root();
    let mut paths = Vec::new();
    collect(&root.join(below), ending, &mut paths);
    let read = |path: PathBuf| Text {
        text: fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        path: shown(path.strip_prefix(&root).expect("below the root")),
    };
    paths.into_iter().map(read).collect()
}

fn collect(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(&path, ending, found);
        } else if path.is_file() && name.ends_with(ending) {
            found.push(path);
        }
    }
}

fn shown(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

/// A Rust file as part of a crate.
pub struct Source {
    /// Its path below the root.
    pub path: String,
    /// Its path of modules in the crate; empty for the crate's root.
    pub module: Vec<String>,
    /// Whether it is compiled for tests alone.
    pub test: bool,
    /// What it declares, but what is for tests alone.
    pub syntax: syn::File,
}

/// One program or library: a file that the compiler is started on, and all that it declares as modules.
pub struct Crate {
    /// The root comes first, each module after its parent.
    pub sources: Vec<Source>,
}

/// Returns the crates of all packages below the folder `below`: libraries, programs, build scripts, tests, benches and
/// examples.
pub fn crates(below: &str) -> Vec<Crate> {
    let texts: BTreeMap<String, String> =
        files("", ".rs").into_iter().map(|file| (file.path, file.text)).collect();
    let packages: Vec<String> = files(below, "Cargo.toml")
        .into_iter()
        .map(|file| file.path.strip_suffix("Cargo.toml").expect("found by its name").to_owned())
        .collect();
    texts
        .keys()
        .filter(|path| packages.iter().any(|package| is_crate_root(path, package)))
        .map(|path| parse_crate(path, &texts))
        .collect()
}

/// Whether cargo builds a crate from `path` by its place in the folder `package`, which is empty or ends with a slash.
fn is_crate_root(path: &str, package: &str) -> bool {
    let Some(inner) = path.strip_prefix(package) else {
        return false;
    };
    let parts: Vec<&str> = inner.split('/').collect();
    let names: &[&str] = parts.strip_suffix(&["main.rs"]).filter(|_| parts.len() > 2).unwrap_or(&parts);
    matches!(
        names,
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["plugin", "lib.rs"]
            | ["tests" | "benches" | "examples", _]
    )
}

/// Parses the crate whose root is the file `root` of `texts`.
pub fn parse_crate(root: &str, texts: &BTreeMap<String, String>) -> Crate {
    let mut crate_ = Crate { sources: Vec::new() };
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let test = root.split('/').any(|part| part == "tests");
    let place = Place { path: root.to_owned(), children: folder, module: Vec::new(), test };
    add(place, texts, &mut crate_.sources);
    crate_
}

/// Where a module is.
struct Place {
    path: String,
    /// The folder of the files of its children.
    children: String,
    module: Vec<String>,
    test: bool,
}

fn add(place: Place, texts: &BTreeMap<String, String>, sources: &mut Vec<Source>) {
    let Place { path, children, module, test } = place;
    let text = texts.get(&path).unwrap_or_else(|| panic!("{path}: a module without a file"));
    let mut syntax = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut below = Vec::new();
    declared(&syntax.items, &path, &Here { folder: children, module: &module, test }, texts, &mut below);
    remove_tests(&mut syntax.items);
    sources.push(Source { path, module, test, syntax });
    for place in below {
        add(place, texts, sources);
    }
}

/// The module, of a file or inline, that declares others.
struct Here<'a> {
    folder: String,
    module: &'a [String],
    test: bool,
}

/// Finds the files of the modules that `items` declare.
fn declared(
    items: &[Item],
    path: &str,
    here: &Here<'_>,
    texts: &BTreeMap<String, String>,
    found: &mut Vec<Place>,
) {
    for item in items {
        let Item::Mod(item) = item else { continue };
        let name = item.ident.to_string();
        let module: Vec<String> = here.module.iter().cloned().chain([name.clone()]).collect();
        let test = here.test || is_test(&item.attrs);
        let folder = join(&here.folder, &name);
        if let Some((_, items)) = &item.content {
            declared(items, path, &Here { folder, module: &module, test }, texts, found);
        } else if let Some(other) = path_attribute(item) {
            let own = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let path = join(own, &other);
            let children = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
            found.push(Place { path, children, module, test });
        } else {
            let beside = format!("{folder}.rs");
            let path = if texts.contains_key(&beside) { beside } else { format!("{folder}/mod.rs") };
            found.push(Place { path, children: folder, module, test });
        }
    }
}

/// Joins two paths; "a/b" and "../c" give "a/c".
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

fn path_attribute(item: &ItemMod) -> Option<String> {
    item.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Whether an item with these attributes is compiled for tests alone: `#[test]`, or a `cfg` that demands `test`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|predicate| demands_test(&predicate))
        }
        _ => false,
    })
}

fn demands_test(predicate: &Meta) -> bool {
    match predicate {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => members(list).iter().any(demands_test),
        Meta::List(list) if list.path.is_ident("any") => members(list).iter().all(demands_test),
        _ => false,
    }
}

/// Removes the items that are compiled for tests alone; inside functions they stay.
fn remove_tests(items: &mut Vec<Item>) {
    items.retain(|item| !is_test(attributes(item)));
    for item in items {
        match item {
            Item::Mod(ItemMod { content: Some((_, items)), .. }) => remove_tests(items),
            Item::Impl(item) => item.items.retain(|item| !is_test(attributes_in_impl(item))),
            _ => {}
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn attributes_in_impl(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        _ => &[],
    }
}

fn members(list: &MetaList) -> Vec<Meta> {
    let parser = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
    list.parse_args_with(parser).map(|found| found.into_iter().collect()).unwrap_or_default()
}

#[test]
fn modules_are_found_as_the_compiler_finds_them() {
    let texts = [
        ("a/src/lib.rs", "mod one;\n#[cfg(test)]\nmod tests;\nmod inline { mod deep; }\n"),
        ("a/src/one.rs", "mod two;\n#[path = \"../../b/src/shared.rs\"]\nmod shared;\n"),
        ("a/src/one/two.rs", ""),
        ("a/src/tests.rs", "mod cases;\n"),
        ("a/src/tests/cases.rs", ""),
        ("a/src/inline/deep/mod.rs", ""),
        ("a/b/src/shared.rs", ""),
        ("b/src/shared.rs", ""),
    ];
    let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    let found = parse_crate("a/src/lib.rs", &texts).sources;
    let found: Vec<(&str, String, bool)> =
        found.iter().map(|source| (source.path.as_str(), source.module.join("::"), source.test)).collect();
    let expected = [
        ("a/src/lib.rs", "", false),
        ("a/src/one.rs", "one", false),
        ("a/src/one/two.rs", "one::two", false),
        ("b/src/shared.rs", "one::shared", false),
        ("a/src/tests.rs", "tests", true),
        ("a/src/tests/cases.rs", "tests::cases", true),
        ("a/src/inline/deep/mod.rs", "inline::deep", false),
    ];
    assert_eq!(found, expected.map(|(path, module, test)| (path, module.to_owned(), test)));
}

#[test]
fn code_for_tests_alone_is_known_by_its_attributes() {
    let test = |text: &str| {
        let item: Item = syn::parse_str(text).unwrap();
        let Item::Fn(function) = item else { panic!("not a function") };
        is_test(&function.attrs)
    };
    assert!(test("#[test] fn f() {}"));
    assert!(test("#[cfg(test)] fn f() {}"));
    assert!(test("#[cfg(all(unix, test))] fn f() {}"));
    assert!(!test("#[cfg(any(test, feature = \"std\"))] fn f() {}"));
    assert!(!test("#[cfg(not(test))] fn f() {}"));
    assert!(!test("#[inline] fn f() {}"));
    let mut file =
        syn::parse_file("impl A { #[cfg(test)] fn f() {} fn g() {} } #[cfg(test)] use x;").unwrap();
    remove_tests(&mut file.items);
    let [Item::Impl(left)] = file.items.as_slice() else { panic!("the import is left") };
    assert_eq!(left.items.len(), 1);
}
