//! House rules of the folders: no file names another that names it back, however long the way
//! round, no folder holds more files than one takes in at a glance, `core`'s parts are apart, and a
//! written file gets its name in one place.
//!
//! What a file names is read off its `use` lines and paths; a name that a parent passes on
//! (`pub use`) counts as the file that it is from. A parent that names its child is no circle.
#![allow(
    clippy::unwrap_used,
    reason = "these functions are all tests; a panic is the report"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most files in one folder of a `src`.
const MOST_FILES: usize = 12;

/// The parts of `core`: what is in a sample, who makes it when, and what many jobs have in common.
const PARTS: [&str; 3] = ["preprocessing", "scheduling", "pool"];

/// Who gives a file that is complete its name: the drafts of `io`, and a crate that may not import it, for a
/// file that a compiler writes.
const NAMING: [&str; 2] = ["crates/gpu/src/twin/compile.rs", "crates/io/src/draft.rs"];

/// A module: its path from the crate's root, which is the empty one.
type Module = Vec<String>;

#[test]
fn no_file_names_one_that_names_it_back() {
    let mut broken = Vec::new();
    for source in sources() {
        let name =
            source.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let krate = Krate::read(&source);
        let circle = krate.circle();
        if let Some(circle) = circle {
            broken.push(format!("{name}: {}", circle.join(" → ")));
        }
    }
    assert!(broken.is_empty(), "circles among files:\n  {}", broken.join("\n  "));
}

#[test]
fn a_folder_is_taken_in_at_a_glance() {
    let mut broken = Vec::new();
    for source in sources() {
        for (folder, n_files) in folders(&source) {
            let path = folder.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            if n_files > MOST_FILES {
                broken.push(format!("{path} has {n_files} files"));
            }
        }
    }
    assert!(broken.is_empty(), "full folders:\n  {}", broken.join("\n  "));
}

#[test]
fn no_part_of_core_names_another() {
    let krate = Krate::read(&root().join("crates/core/src"));
    let part_of = |module: &Module| {
        PARTS.iter().find(|part| module.first().is_some_and(|first| first == *part))
    };
    for part in PARTS {
        assert!(krate.files.contains_key(&vec![part.to_owned()]), "core has no {part}");
    }
    let mut broken = Vec::new();
    for module in krate.files.keys().filter(|module| part_of(module).is_some()) {
        for named in krate.named_by(module) {
            if part_of(&named).is_some_and(|part| Some(part) != part_of(module)) {
                broken.push(format!("{} names {}", module.join("::"), named.join("::")));
            }
        }
    }
    assert!(broken.is_empty(), "arrows between core's parts:\n  {}", broken.join("\n  "));
}

#[test]
fn a_written_file_gets_its_name_in_one_place() {
    let calls = ["fs::rename", "hard_link", "linkat(", "renameat", ".persist("];
    let mut naming = Vec::new();
    for path in sources().iter().flat_map(|source| rust_files(source)) {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        let is_test = name.starts_with("tests/") || path.ends_with("tests.rs");
        let text = code(&fs::read_to_string(&path).unwrap());
        if !is_test && calls.iter().any(|call| text.contains(call)) {
            naming.push(name.to_owned());
        }
    }
    naming.sort();
    assert_eq!(naming, NAMING, "use `bothends_io::replace` and its like");
}

/// A crate's files, without their tests, and what they pass on.
struct Krate {
    files: BTreeMap<Module, String>,
    /// By module and name: the path that the name stands for there.
    passed_on: BTreeMap<(Module, String), String>,
}

impl Krate {
    fn read(source: &Path) -> Self {
        let mut files = BTreeMap::new();
        for path in rust_files(source) {
            let module = module_of(source, &path);
            if module.last().is_none_or(|last| last != "tests") {
                files.insert(module, code(&fs::read_to_string(&path).unwrap()));
            }
        }
        let mut passed_on = BTreeMap::new();
        for (module, text) in &files {
            for (is_public, tree) in uses(text) {
                for (path, name) in leaves("", &tree).into_iter().filter(|_| is_public) {
                    passed_on.insert((module.clone(), name), path);
                }
            }
        }
        Self { files, passed_on }
    }

    /// The file that a path leads to, from `module`.
    fn resolve(&self, module: &Module, path: &str, depth: u32) -> Module {
        let mut parts: Vec<&str> = path.split("::").collect();
        let mut at = match parts[0] {
            "crate" => Vec::new(),
            _ => module.clone(),
        };
        while matches!(parts.first(), Some(&("crate" | "self" | "super"))) {
            if parts.remove(0) == "super" {
                at.pop();
            }
        }
        while let Some(part) = parts.first() {
            let child: Module = at.iter().cloned().chain([(*part).to_owned()]).collect();
            if !self.files.contains_key(&child) {
                break;
            }
            at = child;
            parts.remove(0);
        }
        let name = parts.first().map(|part| (at.clone(), (*part).to_owned()));
        match name.and_then(|name| self.passed_on.get(&name)) {
            Some(path) if depth > 0 => {
                let path = [&[path.as_str()], &parts[1..]].concat().join("::");
                self.resolve(&at, &path, depth - 1)
            }
            Some(_) | None => at,
        }
    }

    /// The files that a file names, except for its children.
    fn named_by(&self, module: &Module) -> BTreeSet<Module> {
        let text = &self.files[module];
        let trees = uses(text).into_iter().flat_map(|(_, tree)| leaves("", &tree));
        let paths = trees.map(|(path, _)| path).chain(inline_paths(text));
        let ours = paths.filter(|path| {
            ["crate", "super", "self"].contains(&path.split("::").next().unwrap_or(""))
        });
        ours.map(|path| self.resolve(module, &path, 8))
            .filter(|to| !to.starts_with(module))
            .collect()
    }

    /// A circle, if there is one.
    fn circle(&self) -> Option<Vec<String>> {
        let edges: BTreeMap<&Module, BTreeSet<Module>> =
            self.files.keys().map(|module| (module, self.named_by(module))).collect();
        let mut done = BTreeSet::new();
        for start in self.files.keys() {
            let mut way = vec![start.clone()];
            if let Some(circle) = walk(&edges, &mut way, &mut done) {
                return Some(circle.iter().map(|module| module.join("::")).collect());
            }
        }
        None
    }
}

/// Goes on from the end of `way`; the circle that it closes, if it does.
fn walk(
    edges: &BTreeMap<&Module, BTreeSet<Module>>,
    way: &mut Vec<Module>,
    done: &mut BTreeSet<Module>,
) -> Option<Vec<Module>> {
    let here = way.last().unwrap().clone();
    if !done.contains(&here) {
        for next in edges.get(&here).into_iter().flatten() {
            if let Some(at) = way.iter().position(|module| module == next) {
                return Some(way[at..].iter().cloned().chain([next.clone()]).collect());
            }
            way.push(next.clone());
            let circle = walk(edges, way, done);
            way.pop();
            if circle.is_some() {
                return circle;
            }
        }
        done.insert(here);
    }
    None
}

/// The text without comments and without modules of tests.
fn code(text: &str) -> String {
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let is_test = ["#[cfg(test)]", "#[cfg(loom)]"].contains(&lines[at]);
        let opens = lines[at..].iter().take(4).position(|line| {
            line.trim_start_matches("pub ").starts_with("mod ") && line.ends_with('{')
        });
        match opens.filter(|_| is_test) {
            Some(opens) => {
                let body = &lines[at + opens..];
                at += opens + body.iter().position(|line| *line == "}").unwrap_or(0) + 1;
            }
            None => {
                kept.push(lines[at]);
                at += 1;
            }
        }
    }
    kept.join("\n")
}

/// The trees of the `use` lines, and whether they pass on what they name.
fn uses(text: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("use ") {
        let begun = before.rsplit('\n').next().unwrap_or("").trim();
        let is_line = begun.is_empty() || begun.starts_with("pub");
        match after.split_once(';') {
            Some((tree, behind)) if is_line => {
                let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
                found.push((begun.starts_with("pub"), tree));
                rest = behind;
            }
            Some(_) | None => rest = after,
        }
    }
    found
}

/// The paths of a `use` tree, each with the name that it gets.
fn leaves(prefix: &str, tree: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for item in items(tree) {
        if let Some((path, inner)) = item.split_once('{') {
            let inner = inner.trim_end().trim_end_matches('}');
            found.extend(leaves(&format!("{prefix}{path}"), inner));
        } else {
            let (path, name) = item.split_once(" as ").unwrap_or((item, item));
            let name = name.rsplit("::").next().unwrap_or(name);
            found.push((format!("{prefix}{path}"), name.to_owned()));
        }
    }
    found
}

/// The parts of a `use` tree between its outermost commas.
fn items(tree: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, letter) in tree.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(tree[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(tree[from..].trim());
    found.retain(|item| !item.is_empty());
    found
}

/// Paths in the code itself: `crate::a::B`, `super::c`.
fn inline_paths(text: &str) -> Vec<String> {
    let is_part =
        |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    text.split(|letter| !is_part(letter))
        .filter(|word| word.starts_with("crate::") || word.starts_with("super::"))
        .map(|word| word.trim_end_matches(':').to_owned())
        .collect()
}

fn module_of(source: &Path, path: &Path) -> Module {
    let relative = path.strip_prefix(source).unwrap().with_extension("");
    let parts = relative.iter().map(|part| part.to_str().unwrap().to_owned());
    let parts: Module = parts.collect();
    if parts == ["lib"] || parts == ["main"] { Vec::new() } else { parts }
}

/// The `src` folders of the crates, those of the tests and of the programs for devices included.
fn sources() -> Vec<PathBuf> {
    let below = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    let others = ["firmware-sim", "fuzz", "tests", "tests/long-link"];
    let mut found: Vec<_> = below("crates")
        .chain(below("firmware-sim/programs"))
        .chain(others.map(|folder| root().join(folder)))
        .map(|path| path.join("src"))
        .filter(|source| source.is_dir())
        .collect();
    found.sort();
    found
}

/// The folders below one, each with the number of its files of Rust.
fn folders(source: &Path) -> BTreeMap<PathBuf, usize> {
    let mut found = BTreeMap::new();
    for path in rust_files(source) {
        // A file of tests is exempt.
        if !path.ends_with("tests.rs") {
            *found.entry(path.parent().unwrap().to_owned()).or_default() += 1;
        }
    }
    found
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
