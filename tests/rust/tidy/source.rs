//! Reading the tree: which files there are, and their code without comments and text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the project.
pub(crate) struct Source {
    /// Its path below the root, with `/`.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
}

impl Source {
    /// The Rust code without comments and without what string and character literals hold; line
    /// breaks stay, so that line numbers do.
    pub(crate) fn code(&self) -> String {
        strip(&self.text)
    }

    /// [`Source::code`] up to the unit tests at the end of the file.
    pub(crate) fn code_without_tests(&self) -> String {
        let mut code = self.code();
        if let Some(at) = code.find("#[cfg(test)]\nmod ") {
            code.truncate(at);
        }
        code
    }

    /// How many lines it has.
    pub(crate) fn lines(&self) -> usize {
        self.text.lines().count()
    }
}

/// The folder of the project.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `folder` (a path below the root) with one of the `extensions`, by name.
///
/// Folders that builds make (`target`, caches, environments) and hidden ones are left out.
pub(crate) fn sources(folder: &str, extensions: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    walk(&root().join(folder), &mut |path| {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if extensions.contains(&extension) {
            found.push(path.to_owned());
        }
    });
    found.sort();
    found.into_iter().map(read).collect()
}

fn read(path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let below = path.strip_prefix(root()).unwrap();
    Source { path: below.to_str().unwrap().replace('\\', "/"), text }
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            let name = name.to_str().unwrap_or(".");
            if !name.starts_with('.') && name != "target" && name != "__pycache__" {
                walk(&path, visit);
            }
        } else {
            visit(&path);
        }
    }
}

/// The names of the folders and of the files directly in `folder`.
pub(crate) fn names_in(folder: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let (mut folders, mut files) = (BTreeSet::new(), BTreeSet::new());
    for entry in entries.map(Result::unwrap) {
        let kind = if entry.file_type().unwrap().is_dir() { &mut folders } else { &mut files };
        kind.insert(entry.file_name().into_string().unwrap());
    }
    (folders, files)
}

fn strip(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = match (at(i), at(i + 1)) {
            ('/', '/') => i + chars[i..].iter().take_while(|&&c| c != '\n').count(),
            ('/', '*') => after_block_comment(&chars, i),
            ('"', _) => after_string(&chars, i),
            ('r', '"' | '#') if !is_word(at(i.wrapping_sub(1))) || at(i.wrapping_sub(1)) == 'b' => {
                after_raw_string(&chars, i)
            }
            // A character, not a lifetime: a lifetime has no quote behind its first letter.
            ('\'', '\\') => i + 4 + chars.iter().skip(i + 3).take_while(|&&c| c != '\'').count(),
            ('\'', _) if at(i + 2) == '\'' => i + 3,
            _ => i,
        };
        if end == i {
            out.push(chars[i]);
            i += 1;
        } else {
            out.push(' ');
            out.extend(chars[i..end.min(chars.len())].iter().filter(|&&c| c == '\n'));
            i = end;
        }
    }
    out
}

fn after_block_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

fn after_string(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn after_raw_string(chars: &[char], start: usize) -> usize {
    let hashes = chars[start + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(start + 1 + hashes) != Some(&'"') {
        return start; // `r#type`: a name
    }
    let mut i = start + 2 + hashes;
    while i < chars.len() {
        let closed = chars[i] == '"' && chars[i + 1..].iter().take(hashes).all(|&c| c == '#');
        if closed && chars.len() - i > hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    i
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The words (names, keywords) of `code`, each with the number of its line.
pub(crate) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(at, line)| {
        line.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(move |word| (at + 1, word))
    })
}

#[test]
fn code_has_neither_comments_nor_text() {
    let text = "let a = \"unsafe \\\" x\"; // unsafe\n/* unsafe /* y */ z\n*/ let b = '\"'; \
                r#\"unsafe \" \"#; fn f<'a>(c: &'a u8) -> char { '\\'' } b\"q\" br\"w\" r#type";
    let code = strip(text);
    assert_eq!(code.lines().count(), text.lines().count());
    let left: Vec<_> = words(&code).map(|(_, word)| word).collect();
    assert_eq!(
        left.join(" "),
        "let a let b fn f a c a u8 char b b r type",
        "what is left of the code: {code}"
    );
}

#[test]
fn the_unit_tests_at_the_end_of_a_file_can_be_left_out() {
    let text = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n".to_owned();
    let source = Source { path: "x.rs".to_owned(), text };
    assert!(source.code().contains("fn g"));
    assert!(!source.code_without_tests().contains("fn g"));
    assert_eq!(source.lines(), 6);
}
