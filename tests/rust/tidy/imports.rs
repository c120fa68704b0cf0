//! Which file of `src` takes names from which other one.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;

/// A module by the names on its path below the crate.
type Module = Vec<String>;

/// A name that a file takes from another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    /// The file that takes it.
    pub(crate) from: String,
    /// The file that defines it.
    pub(crate) to: String,
    /// The module that the import names, which may only hand the name on.
    pub(crate) named: String,
    /// The name.
    pub(crate) name: String,
}

/// Every import of one file of `src` from another one, tests left out.
pub(crate) fn imports(files: &[Source]) -> Vec<Import> {
    let files: Vec<_> = files.iter().filter(|file| !is_tests(&file.path)).collect();
    let by_module: BTreeMap<Module, &str> =
        files.iter().map(|file| (module_of(&file.path), file.path.as_str())).collect();
    let mut handed_on: BTreeMap<(Module, String), Module> = BTreeMap::new();
    let mut found = Vec::new();
    for file in &files {
        let own = module_of(&file.path);
        for (is_public, path) in paths_in(&file.code_without_tests()) {
            let Some((to, name)) = resolve(&own, &path, &by_module) else { continue };
            let below = to.len() > own.len() && to.starts_with(&own);
            if is_public && to != own {
                handed_on.insert((own.clone(), name.clone()), to.clone());
            }
            if !(is_public && below) {
                found.push((file.path.clone(), to, name));
            }
        }
    }
    let mut all = BTreeSet::new();
    for (from, named, name) in found {
        let mut to = named.clone();
        while let Some(next) = handed_on.get(&(to.clone(), name.clone())) {
            to.clone_from(next);
        }
        let to = by_module.get(&to).copied().unwrap_or_default().to_owned();
        if !to.is_empty() && to != from {
            all.insert(Import { from, to, named: named.join("::"), name });
        }
    }
    all.into_iter().collect()
}

/// The files that import each other in a circle, each circle in order.
pub(crate) fn circles(imports: &[Import]) -> Vec<Vec<String>> {
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for start in imports.iter().map(|import| import.from.as_str()) {
        let mut seen = BTreeSet::new();
        let mut open = vec![start];
        while let Some(file) = open.pop() {
            for next in imports.iter().filter(|import| import.from == file) {
                if seen.insert(next.to.as_str()) {
                    open.push(&next.to);
                }
            }
        }
        reached.insert(start, seen);
    }
    let mut circles = BTreeSet::new();
    for (file, seen) in &reached {
        let is_back = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(file));
        let circle: Vec<String> = seen.iter().filter(is_back).map(|&other| other.into()).collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn is_tests(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

fn module_of(path: &str) -> Module {
    let module = path.trim_start_matches("src/").trim_end_matches(".rs");
    let module = module.trim_end_matches("/mod").split('/').map(str::to_owned);
    module.filter(|name| name != "lib").collect()
}

/// The deepest module that a path names, and the name behind it.
fn resolve(own: &Module, path: &str, modules: &BTreeMap<Module, &str>) -> Option<(Module, String)> {
    let mut parts = path.split("::").map(str::trim).peekable();
    let mut at = match parts.next()? {
        "crate" => Vec::new(),
        "self" => own.clone(),
        "super" => own.split_last()?.1.to_vec(),
        _ => return None,
    };
    while parts.next_if_eq(&"super").is_some() {
        at.pop();
    }
    while let Some(part) = parts.peek() {
        let deeper = [at.as_slice(), &[(*part).to_owned()]].concat();
        if !modules.contains_key(&deeper) {
            break;
        }
        at = deeper;
        parts.next();
    }
    let name = parts.next().unwrap_or("self");
    Some((at, name.split(' ').next().unwrap_or(name).to_owned()))
}

/// The paths that begin with `crate`, `self` or `super`, and whether each is handed on to others.
fn paths_in(code: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        let used = statement.rfind("use ").filter(|at| {
            let before = statement[..*at].trim_end();
            before.is_empty() || before.ends_with(['}', ';', ']', ')']) || before.ends_with("pub")
        });
        let Some(at) = used.filter(|_| statement.ends_with(';')) else {
            rest.push_str(statement);
            continue;
        };
        let (before, tree) = statement.split_at(at);
        rest.push_str(before);
        let line = before.rsplit(['\n', ';']).next().unwrap_or_default();
        let is_public = line.trim_start().starts_with("pub");
        let tree = tree["use ".len()..].trim_end_matches(';');
        found.extend(expand(tree).into_iter().map(|path| (is_public, path)));
    }
    for start in ["crate::", "self::", "super::"] {
        for (at, _) in rest.match_indices(start) {
            let inside = rest[..at]
                .chars()
                .next_back()
                .is_some_and(|c| c == ':' || c == '_' || c.is_alphanumeric());
            let is_visibility = rest[..at].trim_end().ends_with("(in");
            if !inside && !is_visibility {
                let end = rest[at..].find(|c: char| !(c == ':' || c == '_' || c.is_alphanumeric()));
                let path = &rest[at..end.map_or(rest.len(), |end| at + end)];
                found.push((false, path.trim_end_matches(':').to_owned()));
            }
        }
    }
    found
}

/// The single paths of a tree such as `a::{b, c::{d, e}}`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, list)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or(tree).trim().to_owned()];
    };
    let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in list.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match parts.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => parts.push(String::new()),
        }
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expand(&format!("{before}{}", part.trim()))).collect()
}

#[test]
fn a_circle_is_found_through_names_that_are_handed_on() {
    let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file("src/a/mod.rs", "mod b;\nmod c;\npub use self::b::{B, Other as O};\n"),
        file("src/a/b.rs", "use crate::d::{self, D};\npub struct B;\n"),
        file("src/a/c.rs", "use super::B;\nfn c() { crate::d::f() }\n"),
        file("src/d.rs", "use crate::a::B; // use crate::a::c::C;\n"),
    ];
    let imports = imports(&files);
    let has = |from: &str, to: &str| imports.iter().any(|i| i.from == from && i.to == to);
    assert!(has("src/a/c.rs", "src/a/b.rs") && has("src/a/c.rs", "src/d.rs"), "{imports:?}");
    assert!(!has("src/d.rs", "src/a/c.rs") && !has("src/a/mod.rs", "src/a/b.rs"), "{imports:?}");
    assert_eq!(circles(&imports), [["src/a/b.rs", "src/d.rs"]]);
}
