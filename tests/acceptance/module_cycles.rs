//! No module of a crate depends on a sibling that depends on it, directly or through others.
//!
//! The graph is computed from the source. A module is a node among its siblings, with everything below it; an edge is a path
//! that begins with `crate`, `self`, `super` or the name of a child module. A path to a re-export leads to the module that
//! declares the item. A parent and its children may name each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

type ModulePath = Vec<String>;

/// The paths that a module names.
#[derive(Debug, Default)]
struct Module {
    named: Vec<ModulePath>,
    /// The paths of `pub use` and of `pub(..) use`.
    reexported: Vec<ModulePath>,
}

type Modules = BTreeMap<ModulePath, Module>;

/// The modules below a folder of source, but for tests.
fn modules(folder: &Path, path: &ModulePath, found: &mut Modules) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let stem = name.strip_suffix(".rs").unwrap_or(&name).to_owned();
        let is_root = ["lib", "main", "mod"].contains(&stem.as_str());
        let module = if is_root { path.clone() } else { [path.as_slice(), std::slice::from_ref(&stem)].concat() };
        if entry.file_type().unwrap().is_dir() {
            modules(&entry.path(), &module, found);
        } else if name.ends_with(".rs") && stem != "tests" {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            found.insert(module, module_of(&text));
        }
    }
}

fn module_of(text: &str) -> Module {
    let mut module = Module::default();
    collect(text.parse().unwrap(), &[], &mut module, false);
    module
}

/// Collects the paths of a stream. `prefix` is the path before a group of a `use`.
fn collect(stream: TokenStream, prefix: &[String], module: &mut Module, is_reexport: bool) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let is_ident = |at: usize, text: &str| matches!(tokens.get(at), Some(TokenTree::Ident(it)) if it == text);
    let is_punct = |at: usize, c: char| matches!(tokens.get(at), Some(TokenTree::Punct(it)) if it.as_char() == c);
    let (mut at, mut is_reexport) = (0, is_reexport);
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Punct(it) if it.as_char() == '#' && is_test_attribute(tokens.get(at + 1)) => {
                let is_end = |token: &TokenTree| match token {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    TokenTree::Punct(it) => it.as_char() == ';',
                    _ => false,
                };
                at += 2 + tokens[at + 2..].iter().position(is_end).unwrap_or(0);
            }
            TokenTree::Punct(it) if it.as_char() == ';' => is_reexport = false,
            TokenTree::Ident(it) if it == "use" => {
                let visibility = at.checked_sub(1).and_then(|before| tokens.get(before));
                let is_restricted =
                    matches!(visibility, Some(TokenTree::Group(_))) && is_ident(at.wrapping_sub(2), "pub");
                is_reexport = is_ident(at.wrapping_sub(1), "pub") || is_restricted;
            }
            TokenTree::Ident(first) => {
                let mut path = prefix.to_vec();
                path.push(first.to_string());
                while is_punct(at + 1, ':') && is_punct(at + 2, ':') {
                    match tokens.get(at + 3) {
                        Some(TokenTree::Ident(next)) => path.push(next.to_string()),
                        Some(TokenTree::Group(group)) => collect(group.stream(), &path, module, is_reexport),
                        _ => break,
                    }
                    at += 3;
                }
                if is_reexport {
                    module.reexported.push(path.clone());
                }
                module.named.push(path);
            }
            TokenTree::Group(group) => collect(group.stream(), &[], module, false),
            _ => {}
        }
        at += 1;
    }
}

fn is_test_attribute(token: Option<&TokenTree>) -> bool {
    token.is_some_and(|token| token.to_string().replace(' ', "") == "[cfg(test)]")
}

/// The path from the root of the crate, if it begins in the crate.
fn absolute(path: &[String], from: &[String], modules: &Modules) -> Option<ModulePath> {
    let mut base = from.to_vec();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        child if modules.contains_key(&[from, &[child.to_owned()]].concat()) => {}
        _ => return None,
    }
    Some([base.as_slice(), rest].concat())
}

/// The module that declares what a path from the root names.
fn declared_in(path: &[String], modules: &Modules, depth: usize) -> ModulePath {
    let module = (0..=path.len()).rev().map(|end| &path[..end]).find(|part| modules.contains_key(*part)).unwrap_or(&[]);
    let (Some(item), Some(found)) = (path.get(module.len()), modules.get(module)) else { return module.to_vec() };
    let reexports = found.reexported.iter().filter(|path| path.last() == Some(item) && path.len() > 1);
    let mut sources = reexports.filter_map(|path| absolute(path, module, modules));
    match sources.next() {
        Some(source) if depth < 8 => declared_in(&source, modules, depth + 1),
        _ => module.to_vec(),
    }
}

/// The cycles among sibling modules: the path of a cycle from a module back to itself, by names.
fn cycles(modules: &Modules) -> Vec<String> {
    let mut edges: BTreeMap<ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
    for (from, module) in modules {
        for path in module.named.iter().filter_map(|path| absolute(path, from, modules)) {
            let to = declared_in(&path, modules, 0);
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            // Otherwise one is the other's ancestor.
            if shared < from.len() && shared < to.len() {
                edges.entry(from[..=shared].to_vec()).or_default().insert(to[..=shared].to_vec());
            }
        }
    }
    let mut found = Vec::new();
    for start in edges.keys() {
        // Breadth first: the shortest way back, reported at its smallest member only.
        let mut ways = vec![vec![start]];
        let mut seen = BTreeSet::new();
        while let Some(way) = (!ways.is_empty()).then(|| ways.remove(0)) {
            for next in edges.get(way[way.len() - 1]).into_iter().flatten() {
                if next == start {
                    let names: Vec<String> = way.iter().chain([&start]).map(|module| module.join("::")).collect();
                    found.push(names.join(" -> "));
                    ways.clear();
                    break;
                }
                if next > start && seen.insert(next) {
                    ways.push([way.as_slice(), &[next]].concat());
                }
            }
        }
    }
    found
}

#[test]
fn no_module_depends_on_itself_through_a_sibling() {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(testkit::repository().join("crates")).unwrap() {
        let entry = entry.unwrap();
        let mut read = Modules::new();
        modules(&entry.path().join("src"), &Vec::new(), &mut read);
        assert!(!read.is_empty(), "{}", entry.path().display());
        found.extend(cycles(&read).into_iter().map(|cycle| format!("{}: {cycle}", entry.file_name().display())));
    }
    assert!(found.is_empty(), "modules that depend on each other:\n{}", found.join("\n"));
}

/// The control of the test above.
#[test]
fn a_cycle_is_found_in_every_spelling() {
    let modules_of = |sources: &[(&str, &str)]| -> Modules {
        let path = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        sources.iter().map(|(name, text)| (path(name), module_of(text))).collect()
    };
    let direct = [("", "mod a; mod b;"), ("a", "use crate::b::{self, B};"), ("b", "fn f() { vec![crate::a::A] }")];
    assert_eq!(cycles(&modules_of(&direct)), ["a -> b -> a"]);
    let through_the_root = [("", "pub use b::B; mod a; mod b;"), ("a", "use crate::B;"), ("b", "use super::a::A;")];
    assert_eq!(cycles(&modules_of(&through_the_root)), ["a -> b -> a"]);
    let below = [("m", "mod x; mod y;"), ("m::x", "use super::y::{Z, Y};"), ("m::y", "use crate::m::x::X;")];
    assert_eq!(cycles(&modules_of(&below)), ["m::x -> m::y -> m::x"]);
    let long = [("a", "use crate::b::B;"), ("b", "use crate::c::C;"), ("c", "type T = crate::a::A;")];
    assert_eq!(cycles(&modules_of(&long)), ["a -> b -> c -> a"]);
    let only_in_tests = [("a", "use crate::b::B;"), ("b", "struct B; #[cfg(test)] mod tests { use crate::a::A; }")];
    assert!(cycles(&modules_of(&only_in_tests)).is_empty());
    let parent_and_child = [("a", "mod c; use c::C; struct A;"), ("a::c", "use super::A;")];
    assert!(cycles(&modules_of(&parent_and_child)).is_empty());
}
