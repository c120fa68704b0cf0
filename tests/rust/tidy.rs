//! Rules about the tree itself that no compiler checks: what may import what, where `unsafe` and the
//! outside crates live, that no file is left out, left open or too long.

mod imports;
mod source;

use imports::circles;
use source::{Source, names_in, root, sources, words};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The modules below `src`, each with those it may import from, beside `error` and `time`.
const LAYERS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("time", &[]),
    ("locks", &[]),
    ("format", &[]),
    ("config", &["format"]),
    ("files", &["format", "config"]),
    ("log", &["format", "config", "files"]),
    ("store", &["format", "config", "files", "log"]),
    ("care", &["format", "config", "files", "log", "store"]),
    ("columns", &["format", "config", "files", "log", "store", "care"]),
    ("py", &["format", "config", "files", "log", "store", "care", "columns"]),
];

/// Where a name of the language or of an outside crate may stand, as beginnings of paths.
const PLACES: &[(&str, &[&str])] = &[
    ("unsafe", &["src/files/map/mapped_file.rs", "src/py/store/fastcall.rs"]),
    ("from_be_bytes", &["src/format/bytes.rs"]),
    ("crc32fast", &["src/format/"]),
    ("sha2", &["src/format/"]),
    ("memmap2", &["src/files/"]),
    ("nix", &["src/files/"]),
    ("rustix", &["src/files/"]),
    ("pyo3", &["src/py/"]),
    ("pyo3_arrow", &["src/py/"]),
    ("regex", &["src/py/"]),
    ("arrow_array", &["src/columns/", "src/py/"]),
    ("arrow_buffer", &["src/columns/", "src/py/"]),
    ("arrow_schema", &["src/columns/", "src/py/"]),
    ("arrow_select", &["src/columns/"]),
    ("parking_lot", UNCOUNTED),
];

/// Files whose locks are not counted: a writer's, which wait for a condition, and those of iterators
/// and of an index file opened alone, which serve one caller at a time. All others come from
/// `src/locks.rs`.
const UNCOUNTED: &[&str] = &[
    "src/locks.rs",
    "src/files/map/prefault.rs",
    "src/store/write/background.rs",
    "src/store/write/group_commit.rs",
    "src/store/write/new_queues.rs",
    "src/py/files.rs",
    "src/py/index/mod.rs",
    "src/py/scan.rs",
    "src/py/store/message_scan.rs",
];

/// A longer file has a second responsibility in it.
const MAX_LINES: usize = 600;

fn rust() -> Vec<Source> {
    let found = sources("src", &["rs"]);
    assert!(found.iter().any(|s| s.path == "src/lib.rs"), "no source was found below {:?}", root());
    found
}

/// The module directly below `src` that a file belongs to.
fn module_of(path: &str) -> &str {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}

/// The modules that `code` reaches through `crate::`, each with the number of its line.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let line = code[..at].lines().count().max(1);
        let rest = &code[at + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut first = true;
            for part in list.split_inclusive(['{', '}', ',']) {
                let name = part.trim().split(|c: char| !(c == '_' || c.is_alphanumeric())).next();
                if depth == 0 && first {
                    found.extend(name.filter(|n| !n.is_empty()).map(|n| (line, n.to_owned())));
                }
                match part.chars().last() {
                    Some('{') => depth += 1,
                    Some('}') if depth == 0 => break,
                    Some('}') => depth -= 1,
                    _ => {}
                }
                first = depth == 0;
            }
        } else {
            let end = rest.find(|c: char| !(c == '_' || c.is_alphanumeric())).unwrap_or(rest.len());
            found.push((line, rest[..end].to_owned()));
        }
    }
    found
}

#[test]
fn a_module_imports_only_from_layers_below_it() {
    let layers: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let mut wrong = Vec::new();
    for file in rust().iter().filter(|s| s.path != "src/lib.rs") {
        let module = module_of(&file.path);
        let Some(below) = layers.get(module) else {
            wrong.push(format!("{}: module `{module}` has no place in LAYERS", file.path));
            continue;
        };
        for (line, name) in imports(&file.code()) {
            let shared = ["error", "time", "locks", "Error", "Result"].contains(&name.as_str());
            if name != module && !shared && !below.contains(&name.as_str()) {
                wrong.push(format!("{}:{line}: `{module}` imports from `{name}`", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn assert_no_circle(imports: &[imports::Import]) {
    if let Some(circle) = circles(imports).first() {
        let inside = |import: &&imports::Import| {
            circle.contains(&import.from) && circle.contains(&import.to)
        };
        let ties: Vec<_> = imports.iter().filter(inside).collect();
        panic!("{circle:?} import each other: {ties:#?}");
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let imports = imports::imports(&rust());
    assert!(imports.len() > 500, "only {} imports were found", imports.len());
    assert_no_circle(&imports);
}

#[test]
fn rooms_of_the_store_have_an_order() {
    let room = |file: &str| {
        let inside = file.strip_prefix("src/store/")?;
        let name = inside.split('/').next()?.trim_end_matches(".rs");
        (name != "mod").then(|| name.to_owned())
    };
    let between = |import: imports::Import| {
        let (from, to) = (room(&import.from)?, room(&import.to)?);
        (from != to).then_some(imports::Import { from, to, ..import })
    };
    let imports: Vec<_> = imports::imports(&rust()).into_iter().filter_map(between).collect();
    assert!(imports.len() > 50, "only {} imports were found", imports.len());
    assert_no_circle(&imports);
}

#[test]
fn care_imports_nothing_from_inside_a_sibling() {
    let room = |path: &str| -> Option<String> {
        let inside = path.strip_prefix("src/care/")?;
        Some(inside.split('/').next()?.trim_end_matches(".rs").to_owned())
    };
    let imports = imports::imports(&rust());
    let of_care = imports.iter().filter(|import| import.from.starts_with("src/care/"));
    let wrong: Vec<_> = of_care
        .filter(|import| {
            let inside = import.named.strip_prefix("care::").unwrap_or_default();
            inside.contains("::") && room(&import.from) != room(&import.to)
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn imports_are_found_in_every_form() {
    let code = "use crate::error::Result;\nuse crate::{\n    files::{run::Run, Storage},\n    log,\n    \
                store::Store as S,\n};\nfn f() { crate::care::verify() }";
    let names: Vec<_> = imports(code).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["error", "files", "log", "store", "care"]);
}

#[test]
fn unsafe_and_outside_crates_stay_in_their_places() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in rust() {
        // Unsafe code is as dangerous in a test; the other names are free there.
        let code = file.code_without_tests();
        let tests = file.code().split_off(code.len());
        let found = words(&code).chain(words(&tests).filter(|(_, word)| *word == "unsafe"));
        for (line, word) in found {
            let Some((name, places)) = PLACES.iter().find(|(name, _)| *name == word) else {
                continue;
            };
            seen.insert(*name);
            if !places.iter().any(|place| file.path.starts_with(place)) {
                wrong.push(format!("{}:{line}: `{name}` belongs in {places:?}", file.path));
            }
        }
    }
    for file in sources("tests", &["rs"]).iter().chain(&sources("benches", &["rs"])) {
        for (line, _) in words(&file.code()).filter(|(_, word)| *word == "unsafe") {
            wrong.push(format!("{}:{line}: `unsafe` in a test", file.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A rule about a name that stands nowhere at all would hold whatever the code says.
    for name in ["unsafe", "from_be_bytes", "crc32fast", "memmap2", "nix"] {
        assert!(seen.contains(name), "`{name}` was found nowhere");
    }
}

#[test]
fn objects_are_asked_for_by_one_function_that_refuses_locks() {
    let door = rust().into_iter().find(|file| file.path == "src/py/store/remote.rs").unwrap();
    let code = door.code_without_tests();
    let checks = "fn ask<T>(&self, ask: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> \
                  io::Result<T> {\n        locks::assert_none_held();";
    assert!(code.contains(checks), "`ask` begins without a check of the locks held");
    let count = |what: &str| code.matches(what).count();
    assert_eq!((count("objects.call_method"), count("self.ask(")), (2, 3), "calls beside `ask`");
    // No other code has the objects.
    for file in rust() {
        let has = file.code_without_tests().contains("for PyObjects");
        assert!(!has || file.path == door.path, "{}: another `Objects` of Python", file.path);
    }
}

/// Files outside `src/log/read` with a word of a walk over frames, each with the word. `Scanner::step` is
/// private, so nobody else steps over records.
const FRAMES: &[(&str, &str)] = &[
    // The carver searches files that are no log, from any byte on.
    ("src/care/salvage/carve.rs", "claimed_size"),
    // The heads of files, to find out where a file belongs.
    ("src/store/open/misplaced.rs", "claimed_size"),
];

#[test]
fn frames_are_stepped_over_by_the_reader_of_the_log_alone() {
    let is_walk = |word: &&str| ["FrameReader", "claimed_size", "read_large"].contains(word);
    let homes = ["src/log/read/", "src/format/"];
    let mut found = BTreeSet::new();
    for file in rust().iter().filter(|file| !homes.iter().any(|home| file.path.starts_with(home))) {
        let code = file.code_without_tests();
        let words = words(&code).map(|(_, word)| word).filter(is_walk);
        found.extend(words.map(|word| (file.path.clone(), word.to_owned())));
    }
    let named = FRAMES.iter().map(|(path, word)| ((*path).to_owned(), (*word).to_owned()));
    // A file that needs no exception any more must not keep it.
    assert_eq!(found, named.collect());
}

#[test]
fn every_source_file_is_part_of_the_build() {
    let mut wrong = Vec::new();
    for folder in ["src", "tests/rust"] {
        let files = sources(folder, &["rs"]);
        let texts: BTreeMap<_, _> = files.iter().map(|s| (s.path.as_str(), s.code())).collect();
        for path in
            texts.keys().filter(|path| !path.ends_with("/lib.rs") && !path.ends_with("/main.rs"))
        {
            let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
            let (parent, name) = module.rsplit_once('/').unwrap();
            let parents = [
                format!("{parent}.rs"),
                format!("{parent}/mod.rs"),
                format!("{parent}/lib.rs"),
                format!("{parent}/main.rs"),
            ];
            let declared = parents.iter().filter_map(|p| texts.get(p.as_str())).any(|code| {
                code.lines().any(|line| line.trim().ends_with(&format!("mod {name};")))
            });
            if !declared {
                wrong.push(format!("{path}: no `mod {name};` names it, so it is never compiled"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The most files and folders on one level of `src`, beside `mod.rs`, `lib.rs` and unit tests.
const MOST_ON_A_LEVEL: usize = 13;

#[test]
fn a_room_is_small_and_says_what_it_does() {
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for file in rust() {
        let (room, name) = file.path.rsplit_once('/').unwrap();
        if name == "mod.rs" && !file.text.starts_with("//! ") {
            wrong.push(format!("{}: says nothing of the room", file.path));
        }
        if !["mod.rs", "lib.rs", "tests.rs"].contains(&name) && !room.ends_with("/tests") {
            rooms.entry(room.to_owned()).or_default().insert(name.replace(".rs", ""));
        }
        if name == "mod.rs" {
            let (parent, room) = room.rsplit_once('/').unwrap();
            rooms.entry(parent.to_owned()).or_default().insert(room.to_owned());
        }
    }
    let full = rooms.iter().filter(|(_, names)| names.len() > MOST_ON_A_LEVEL);
    wrong.extend(full.map(|(room, names)| format!("{room}: {} names", names.len())));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_number_that_does_not_fit_has_no_fallback() {
    // The helpers of `width` say what they answer. `time` may import no other layer.
    let places = ["src/format/width.rs", "src/time.rs"];
    let mut wrong = Vec::new();
    for file in rust().iter().filter(|file| !places.contains(&file.path.as_str())) {
        let code = file.code_without_tests();
        for (at, _) in code.match_indices("::try_from(") {
            let mut depth = 0;
            let open = at + "::try_from".len();
            let end = code[open..].find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            });
            let rest = code[open + end.unwrap() + 1..].trim_start();
            if rest.starts_with(".unwrap_or") {
                let line = code[..at].lines().count();
                wrong.push(format!("{}:{line}: convert by `format::width`", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_layers_are_private() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let mut hidden = false;
    let mut named = 0;
    for line in lib.lines() {
        assert!(!line.starts_with("pub mod ") || hidden, "a door that is open to all: {line}");
        hidden = line == "#[doc(hidden)]";
        named += usize::from(line.starts_with("pub use "));
    }
    assert!(named > 5, "lib.rs re-exports a list");
}

/// Words of comments in `src`, outside those that are Python's docstrings.
const MOST_COMMENT_WORDS: usize = 44_000;

/// A comment of whole lines: its first line, counted from 1, its kind and its words.
struct Comment {
    line: usize,
    kind: &'static str,
    words: Vec<String>,
}

/// The comments of `text`, each run of lines of one kind and indentation as one.
fn comments(text: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let mut last = (0, "", 0);
    for (at, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let Some(kind) = ["///", "//!", "//"].into_iter().find(|kind| code.starts_with(kind))
        else {
            continue;
        };
        let words = code[kind.len()..].split_whitespace().map(str::to_owned);
        if (at, kind, indent) != last {
            found.push(Comment { line: at + 1, kind, words: Vec::new() });
        }
        last = (at + 1, kind, indent);
        found.last_mut().unwrap().words.extend(words);
    }
    found
}

/// The text of the stub, whose docstrings `src/py` repeats for run time.
fn stub() -> String {
    let text: String = sources("python/mqstore", &["pyi"]).into_iter().map(|s| s.text).collect();
    text.replace("\\\\", "\\").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn comments_are_short() {
    let stub = stub();
    let mut words: BTreeMap<String, usize> = BTreeMap::new();
    for file in rust() {
        for comment in comments(&file.text) {
            let is_docstring = file.path.starts_with("src/py/")
                && comment.kind == "///"
                && comment.words.len() > 1
                && stub.contains(&comment.words.join(" "));
            let count = comment.words.iter().filter(|w| w.contains(char::is_alphanumeric)).count();
            *words.entry(module_of(&file.path).to_owned()).or_default() +=
                if is_docstring { 0 } else { count };
        }
    }
    let all: usize = words.values().sum();
    assert!(
        all <= MOST_COMMENT_WORDS,
        "{all} words of comments in src, at most {MOST_COMMENT_WORDS}: drop what the code says \
         already; by layer: {words:?}"
    );
    assert!(all > 1000, "only {all} words of comments were found");
}

#[test]
fn a_comment_begins_with_its_point() {
    // A sentence that begins with one of these has to be decoded: name the actor, or the thing.
    let words = ["What", "Who", "Whoever", "Of"];
    let mut wrong = Vec::new();
    for folder in ["src", "tests", "benches", "fuzz", "examples"] {
        for file in sources(folder, &["rs"]) {
            for comment in comments(&file.text) {
                if comment.words.first().is_some_and(|first| words.contains(&first.as_str())) {
                    let text = comment.words.join(" ");
                    wrong.push(format!("{}:{}: {text}", file.path, comment.line));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_are_told_apart() {
    let text = "//! One\n//! two.\n\n/// Three.\nfn f() {\n    // four\n    //\n    // five\n}\n";
    let found: Vec<_> =
        comments(text).into_iter().map(|c| (c.line, c.kind, c.words.join(" "))).collect();
    assert_eq!(
        found,
        [
            (1, "//!", "One two.".to_owned()),
            (4, "///", "Three.".to_owned()),
            (6, "//", "four five".to_owned()),
        ]
    );
}

#[test]
fn no_marker_is_left_behind() {
    // Spelled in halves: this file is searched too.
    let markers = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("HA", "CK"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
        concat!("#[ig", "nore"),
        concat!("```ig", "nore"),
        concat!("breakpoint", "()"),
    ];
    let extensions = ["rs", "py", "pyi", "toml", "md", "yml", "java", "xml", "sh"];
    let mut wrong = Vec::new();
    let mut searched = 0;
    for folder in ["src", "python", "tests", "benches", "docs", "scripts", ".github"] {
        for file in sources(folder, &extensions) {
            searched += 1;
            for (at, line) in file.text.lines().enumerate() {
                for marker in markers.iter().filter(|marker| has_marker(line, marker)) {
                    wrong.push(format!("{}:{}: {marker}", file.path, at + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(searched > 20, "only {searched} files were searched");
}

/// Whether `line` has `marker` as a word of its own.
fn has_marker(line: &str, marker: &str) -> bool {
    line.match_indices(marker).any(|(at, _)| {
        let joins = |c: char| c == '_' || c.is_alphanumeric();
        let before = line[..at].chars().next_back();
        let after = line[at + marker.len()..].chars().next();
        let open = marker.ends_with(|c: char| !joins(c)) || marker.starts_with(|c: char| !joins(c));
        !before.is_some_and(joins) && (open || !after.is_some_and(joins))
    })
}

#[test]
fn a_marker_is_a_word_of_its_own() {
    assert!(has_marker(concat!("// TO", "DO: x"), concat!("TO", "DO")));
    assert!(has_marker(concat!("    dbg", "!(x)"), concat!("dbg", "!(")));
    assert!(!has_marker(concat!("TO", "DOS"), concat!("TO", "DO")));
    assert!(!has_marker(concat!("MY_XX", "X"), concat!("XX", "X")));
}

#[test]
fn no_file_is_too_long() {
    let mut wrong = Vec::new();
    for folder in ["src", "python", "tests", "benches", "scripts"] {
        for file in sources(folder, &["rs", "py", "java"]) {
            if file.lines() > MAX_LINES {
                wrong.push(format!("{}: {} lines, at most {MAX_LINES}", file.path, file.lines()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_golden_case_is_in_the_manifest_and_the_reverse() {
    let manifest = fs::read_to_string(root().join("tests/golden/manifest.toml")).unwrap();
    let (mut stores, mut index_files) = (BTreeSet::new(), BTreeSet::new());
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
            stores.extend(section.strip_prefix("cases.").and_then(|case| case.split('.').next()));
        } else if let ("index_files", Some((key, _))) = (section, line.split_once('=')) {
            index_files.insert(key.trim());
        }
    }
    let (folders, files) = names_in("tests/golden");
    assert!(files.contains("README.md"), "tests/golden says nothing of itself");
    let (_, puts) = names_in("tests/golden/indexfile");
    let puts: BTreeSet<_> = puts.iter().filter_map(|n| n.strip_suffix(".puts.jsonl")).collect();
    stores.insert("indexfile");
    assert_eq!(stores, folders.iter().map(String::as_str).collect(), "manifest; folders");
    assert_eq!(index_files, puts, "index files of the manifest; files");
    assert!(stores.len() > 1 && !index_files.is_empty(), "there is no golden case");
}

#[test]
fn the_stated_rust_version_is_the_one_that_is_tested() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let cargo = read("Cargo.toml");
    let version = cargo
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .expect("Cargo.toml states a rust-version");
    let workflow = read(".github/workflows/ci.yml");
    assert!(workflow.contains(&format!("\"{version}\"")), "ci.yml does not test Rust {version}");
}
