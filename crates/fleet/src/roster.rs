//! Host files: those of Open MPI, MPICH, Slurm and PBS, and our own, which says how `ssh` and others reach a host.
//!
//! One grammar takes them all: hosts, then options as KEY=VALUE. What launchers say of slots is of no account here.
//! Invariants: a host stands in the result once, at its first place; what isn't understood is an error with its line,
//! never passed over.

mod compact;

use crate::failure::Wrong;
use crate::host::{Host, shown};
use std::collections::HashMap;

/// A file of more is none of hosts.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// More than the largest clusters that are started by ssh; each takes a process here while it is asked.
pub const HOSTS_MAX: usize = 4_096;

/// Words of launchers on processes, which don't say where a host is.
const PASSED_OVER: [&str; 7] = ["slots", "max-slots", "max_slots", "binding", "ifname", "cpu", "np"];

const GRAMMAR: &str = "HOST [user=U] [port=P] [address=WHERE_OTHERS_REACH_IT] [weight=N]";

/// The hosts of a file; `name` is how errors call it.
pub fn parse(bytes: &[u8], name: &str) -> Result<Vec<Host>, Wrong> {
    if bytes.len() > FILE_BYTES_MAX {
        let hint = format!("give one host a line, in at most {FILE_BYTES_MAX} bytes");
        return Err(Wrong::new("this is too long for a file of hosts", name, hint));
    }
    let (mut hosts, mut places): (Vec<Host>, HashMap<String, usize>) = (Vec::new(), HashMap::new());
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let at = format!("{name}:{}", number + 1);
        let wrong = |what: String| Wrong::new(what, &at, format!("write {GRAMMAR}"));
        let line = std::str::from_utf8(line).map_err(|_| wrong("this is no text".into()))?;
        let line = line.split('#').next().unwrap_or_default().trim();
        for host in of_line(line, HOSTS_MAX - hosts.len()).map_err(wrong)? {
            match places.get(&host.label()) {
                None => {
                    places.insert(host.label(), hosts.len());
                    hosts.push(host);
                }
                // PBS names a host once for each of its cores.
                Some(known) if hosts[*known] == host => {}
                Some(_) => return Err(wrong(format!("{} is named a second time, and otherwise", host.label()))),
            }
        }
    }
    match hosts.is_empty() {
        true => Err(Wrong::new("no host is named", name, format!("write one host a line: {GRAMMAR}"))),
        false => Ok(hosts),
    }
}

/// The hosts of one line: a name, or a list such as `node[01-04,07]`.
fn of_line(line: &str, most: usize) -> Result<Vec<Host>, String> {
    let mut words = line.split_ascii_whitespace();
    let Some(names) = words.next() else { return Ok(Vec::new()) };
    let names = compact::expand(names, most.saturating_add(HOSTS_MAX))?;
    let mut hosts = names.iter().map(|name| Host::named(without_count(name))).collect::<Result<Vec<_>, _>>()?;
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{}` is no option", shown(word)))?;
        if key == "address" && hosts.len() > 1 {
            return Err(format!("one address can't be that of {} hosts", hosts.len()));
        }
        for host in &mut hosts {
            if !host.set(key, value)? && !PASSED_OVER.contains(&key) {
                return Err(format!("there is no option `{}`", shown(key)));
            }
        }
    }
    if hosts.len() > most {
        return Err(format!("there are more than {HOSTS_MAX} hosts"));
    }
    Ok(hosts)
}

/// A name without the number of processes that MPICH writes behind it: `a:4`, `[::1]:4`.
fn without_count(name: &str) -> &str {
    let Some((host, count)) = name.rsplit_once(':') else { return name };
    let is_count = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    // Of several colons outside of brackets all are those of an address.
    let is_whole = !host.contains(':') || host.ends_with(']');
    if is_count && is_whole { host } else { name }
}

#[cfg(test)]
#[path = "../../../fuzz/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(text: &str) -> Vec<String> {
        parse(text.as_bytes(), "hosts").map(|hosts| hosts.iter().map(Host::label).collect()).unwrap_or_default()
    }

    fn refused(text: &str) -> Wrong {
        parse(text.as_bytes(), "hosts").expect_err(text)
    }

    #[test]
    fn files_of_launchers_are_understood() {
        assert_eq!(labels("# Open MPI\na slots=4 max-slots=8\n\n  b slots=2 max_slots=2 # two\r\n"), ["a", "b"]);
        assert_eq!(
            labels("a:4\nb:2 binding=user:0,1\n10.0.0.1:8 ifname=eth0\n[::1]:4\n"),
            ["a", "b", "10.0.0.1", "::1"]
        );
        assert_eq!(labels("node01\nnode02\n"), ["node01", "node02"]);
        assert_eq!(labels("node[01-03,07],gpu\n"), ["node01", "node02", "node03", "node07", "gpu"]);
        assert_eq!(labels("b\nb\na\nb\na\n"), ["b", "a"], "PBS: each once, in order");
        assert_eq!(labels("::1\nfe80::1%eth0\nme@a"), ["::1", "fe80::1%eth0", "a"]);
    }

    #[test]
    fn our_own_lines_say_how_a_host_is_reached() {
        let text = "a user=me port=2222 address=10.0.0.1 weight=2\nb[1-2] user=you\n";
        let hosts = parse(text.as_bytes(), "hosts").expect("hosts");
        let shown: Vec<_> =
            hosts.iter().map(|host| (host.name(), host.user(), host.port(), host.address(), host.weight())).collect();
        assert_eq!(
            shown,
            [
                ("a", Some("me"), Some(2222), "10.0.0.1", 2),
                ("b1", Some("you"), None, "b1", 1),
                ("b2", Some("you"), None, "b2", 1)
            ]
        );
    }

    #[test]
    fn what_is_not_understood_is_an_error_with_its_line() {
        for (text, line, what) in [
            ("a\n-oProxyCommand=touch\n", 2, "no host"),
            ("a\n\n-l root\n", 3, "no host"),
            ("a user=-oX\n", 1, "no user"),
            ("a;reboot\n", 1, "no host"),
            ("$(reboot)\n", 1, "no host"),
            ("a port=x\n", 1, "no port"),
            ("a colour=red\n", 1, "no option `colour`"),
            ("a b\n", 1, "`b` is no option"),
            ("a\na user=me\n", 2, "second time"),
            ("a[1-2] address=x\n", 1, "one address"),
            ("a[1-\n", 1, "bracket"),
            ("a[5-1]\n", 1, "range"),
            ("a[1-5000]\n", 1, "more than 4096"),
            ("a[1-4096]\nb\n", 2, "more than 4096"),
        ] {
            let wrong = refused(text);
            assert_eq!(wrong.on, format!("hosts:{line}"), "{text}");
            assert!(wrong.what.contains(what) && wrong.hint.contains("HOST [user=U]"), "{text}: {wrong}");
        }
        assert!(refused("# nobody\n").what.contains("no host is named"));
        assert!(refused(&"a\n".repeat(FILE_BYTES_MAX)).what.contains("too long"));
        assert!(parse(b"a\n\xff\n", "hosts").expect_err("no text").on.ends_with(":2"));
    }

    proptest! {
        #[test]
        fn nothing_in_a_file_becomes_an_option_or_a_word_of_a_shell(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            sound(&bytes)?;
        }

        #[test]
        fn nor_does_what_looks_like_hosts(text in "([-a-z0-9.:@%=$;'\\[\\], \n]|user=|port=|address=|\\[1-[0-9]{1,9}\\]){0,40}") {
            sound(text.as_bytes())?;
        }
    }

    #[test]
    fn what_fuzzing_kept_and_changes_of_it_are_borne() {
        corpus::each_is_borne("hosts", |bytes| sound(bytes).expect("names of hosts alone"));
    }

    fn sound(bytes: &[u8]) -> Result<(), TestCaseError> {
        for host in parse(bytes, "hosts").unwrap_or_default() {
            for word in [host.name(), host.user().unwrap_or("x"), host.address()] {
                prop_assert!(!word.is_empty() && !word.starts_with('-'), "{}", word);
                prop_assert!(
                    word.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-_:%".contains(letter)),
                    "{}",
                    word
                );
            }
        }
        Ok(())
    }
}
