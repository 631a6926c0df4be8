//! Two workspaces have a lock each: that of `fuzz/` builds the same libraries as that of the rest.
//!
//! It asks no registry and reads no more of a lock than names, versions and what a package depends on.
//! Invariant: what is fuzzed is what is shipped.

use super::rules::dependencies;
use super::{File, Offence};

/// A package of a lock.
struct Locked<'a> {
    line: usize,
    name: &'a str,
    version: &'a str,
    /// Names, each with its version where several are locked.
    uses: Vec<&'a str>,
}

/// What `lock` has otherwise than `of_rest`, and what the manifests of our crates say that it doesn't know.
pub fn follows(lock: &File, of_rest: &File, manifests: &[File], out: &mut Vec<Offence>) {
    let rest = packages(of_rest);
    for package in packages(lock) {
        let known: Vec<&str> = rest.iter().filter(|rest| rest.name == package.name).map(|rest| rest.version).collect();
        if !known.is_empty() && !known.contains(&package.version) {
            let Locked { line, name, version, .. } = package;
            let what = format!("{name} {version}, where {} has {}", of_rest.path, known.join(" and "));
            let cure = format!("in fuzz/: cargo update -p {name}@{version} --precise {}", known[0]);
            out.push(Offence::new(&lock.path, line, &what, &cure));
        }
        let folder = package.name.strip_prefix("stoker-").map(|name| format!("crates/{name}/Cargo.toml"));
        let Some(manifest) = manifests.iter().find(|manifest| Some(&manifest.path) == folder.as_ref()) else {
            continue;
        };
        for (_, section, name) in dependencies(manifest) {
            let is_known = |known: &&str| *known == name || known.strip_prefix("stoker-") == Some(name);
            if section != "dev-dependencies" && !package.uses.iter().any(is_known) {
                let what = format!("{} uses {name}, of which this lock knows nothing", package.name);
                let cure = "in fuzz/: cargo update --workspace, and then the versions that the rest has";
                out.push(Offence::new(&lock.path, package.line, &what, cure));
            }
        }
    }
}

fn packages(lock: &File) -> Vec<Locked<'_>> {
    let mut found: Vec<Locked<'_>> = Vec::new();
    for (number, line) in lock.text.lines().enumerate() {
        let quoted = line.split('"').nth(1).unwrap_or_default();
        if line == "[[package]]" {
            found.push(Locked { line: number + 1, name: "", version: "", uses: Vec::new() });
        }
        let Some(package) = found.last_mut() else { continue };
        match line.split_once('"').map(|(before, _)| before) {
            Some("name = ") => package.name = quoted,
            Some("version = ") => package.version = quoted,
            Some(" ") => package.uses.extend(quoted.split(' ').next()),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn another_version_and_an_unknown_library_are_found() {
        let package = |name: &str, version: &str, uses: &str| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\ndependencies = [\n{uses}]\n\n")
        };
        let ours = package("stoker-a", "0.1.0", " \"stoker-b\",\n \"http 1.0.0\",\n");
        let rest = package("http", "1.0.0", "") + &package("http", "0.2.0", "") + &package("bytes", "1.1.0", "");
        let manifest = |used: &str| {
            let text =
                format!("[dependencies]\nb.workspace = true\n{used} = \"1\"\n\n[dev-dependencies]\ntempfile = \"3\"\n");
            file("crates/a/Cargo.toml", &text)
        };
        for (lock, used, found) in [
            (ours.clone() + &package("http", "0.2.0", ""), "http", None),
            (ours.clone() + &package("cc", "9.0.0", ""), "http", None),
            (ours.clone() + &package("bytes", "1.0.9", ""), "http", Some("bytes 1.0.9")),
            (ours, "bytes", Some("uses bytes")),
        ] {
            let mut out = Vec::new();
            let (lock, rest) = (file("fuzz/Cargo.lock", &lock), file("Cargo.lock", &rest));
            follows(&lock, &rest, &[manifest(used)], &mut out);
            let said: Vec<String> = out.into_iter().map(|offence| offence.0).collect();
            assert_eq!(said.len(), usize::from(found.is_some()), "{said:?}");
            assert!(found.is_none_or(|found| said[0].contains(found)), "{said:?}");
        }
    }
}
