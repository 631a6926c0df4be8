//! Who tells of members, and who of them this node is.

use super::*;
use crate::Roster;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// With nothing in the environment.
fn parsed(text: &str) -> Result<Members> {
    Members::parse(text, &|_| None)
}

fn read(text: &str) -> Result<Vec<Seat>> {
    hosts::parse(text, Path::new("hosts"))
}

#[test]
fn a_file_of_members_is_read_line_by_line() {
    let text = "# the cluster\n10.0.0.1\nn2:9000 weight=3 # larger\n\n[fd00::1]:80 name=three weight=0\nfd00::2\n";
    let told: Vec<_> =
        read(text).expect("members").into_iter().map(|seat| (seat.name, seat.address, seat.weight)).collect();
    let expected = [
        ("10.0.0.1:7865", "10.0.0.1:7865", 1),
        ("[fd00::2]:7865", "[fd00::2]:7865", 1),
        ("n2:9000", "n2:9000", 3),
        ("three", "[fd00::1]:80", 0),
    ];
    assert_eq!(told, expected.map(|(name, address, weight)| (name.into(), address.into(), weight)));
}

#[test]
fn a_wrong_line_is_named_with_what_to_write() {
    for (text, word) in [
        ("", "no member"),
        ("a\n-oProxyCommand=x", "hosts:2"),
        ("a;b", "no address"),
        ("a:0", "no address"),
        ("a weight=x", "no weight"),
        ("a weight=1000001", "no weight"),
        ("a name=b\nc name=b", "two members"),
        ("a name=b\na name=c", "b and c are at one address, a:7865"),
        ("node[1-4]", "is a list"),
        ("node[1-4]:80", "is a list"),
        ("a,b", "is a list"),
        ("a size=1", "`size=1`"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.to_string().contains(word) && !error.hint.is_empty(), "{text}: {error}");
    }
}

#[test]
fn what_tells_of_members_is_known_by_how_it_is_written() {
    for (text, is_path) in [("hosts", true), ("./dns:x", true), ("dns:stoker", false), ("file:///etc/hosts", false)] {
        let members = parsed(text).expect(text);
        assert_eq!(Members::is_path(text), is_path, "{text}");
        assert_eq!(matches!(members, Members::Dns(_)), text.starts_with("dns:"), "{text}");
    }
    for text in ["", "zookeeper://x", "file://x", "dns:a b", "dns://", "dns:_stoker._tcp.pool:80"] {
        let error = parsed(text).err().expect(text);
        assert!(error.what.contains("names no members") && error.hint.contains("dns:"), "{text}: {error}");
    }
}

/// Wait until so many members are told of.
async fn told(roster: &mut watch::Receiver<Arc<Roster>>, count: usize) {
    roster.wait_for(|roster| roster.seats().len() == count).await.expect("told");
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_seen_and_a_damaged_one_changes_nothing_and_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hosts");
    std::fs::write(&path, "a\nb\n").expect("written");
    let members = parsed(path.to_str().expect("a name")).expect("a file");
    let seats = members.read().await.expect("two");
    let mut watched = members.join(&seats[0], seats.clone()).await.expect("joined");
    assert_eq!(watched.roster.borrow_and_update().seats().len(), 2);
    std::fs::write(&path, "a b c\n").expect("written");
    let is_shown = |roster: &Arc<Roster>| roster.trouble().is_some_and(|text| text.contains("hosts:1"));
    watched.roster.wait_for(is_shown).await.expect("shown");
    assert_eq!(watched.roster.borrow_and_update().seats().len(), 2);
    std::fs::write(&path, "a\nb\nc\n").expect("written");
    told(&mut watched.roster, 3).await;
    assert_eq!(watched.roster.borrow().trouble(), None);
    watched.leave.leave().await;
}
