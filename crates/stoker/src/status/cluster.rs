//! The other nodes of a cluster, for people.

use crate::show::{self, bytes, count, count_of};
use client::messages::{Cluster, Serving};

/// The other nodes, and what went to and fro. Those that don't answer are named; of many others only how many there are.
pub fn text(cluster: &Cluster) -> String {
    let Cluster { members, encrypted, had_bytes, served_bytes, around, not_mine, broken, damaged, .. } = cluster;
    let me = members.iter().find(|member| member.me).map_or("none of them", |member| &*member.name);
    let mut out = format!(
        "  cluster {}, this one is {}; had {} from others, gave them {}{}\n",
        count_of(members.len() as u64, "member"),
        show::line(me),
        bytes(*had_bytes),
        bytes(*served_bytes),
        if *encrypted { "" } else { "; UNENCRYPTED" }
    );
    if let Some(trouble) = &cluster.members_trouble {
        out += &format!("    THE MEMBERS STAY AS THEY WERE: {}\n", show::parts(trouble, 6));
    }
    for member in members.iter().filter(|member| !member.answering) {
        let reason = member.reason.as_ref().map_or_else(String::new, |reason| format!(": {}", show::line(reason)));
        out += &format!("    {} ({}) DOES NOT ANSWER{reason}\n", show::line(&member.name), show::line(&member.address));
    }
    let odd = [
        (around, "asked of the store instead"),
        (not_mine, "refused to these credentials"),
        (broken, "broken off"),
        (damaged, "damaged on the way"),
    ];
    let odd: Vec<_> =
        odd.iter().filter(|(times, _)| **times > 0).map(|(times, what)| format!("{} {what}", count(**times))).collect();
    if !odd.is_empty() {
        out += &format!("    requests: {}\n", odd.join(", "));
    }
    out
}

/// A data set that is there without a mount.
pub fn serving(set: &Serving) -> String {
    let filled = match set.filling {
        true => format!("; filled {}, {}", count_of(set.filled_files, "file"), bytes(set.filled_bytes)),
        false => String::new(),
    };
    let (url, objects) = (show::line(&set.url), count_of(set.objects, "file"));
    format!("  {url} for other members: {objects}, {}{filled}\n", bytes(set.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::messages::Member;

    #[test]
    fn a_trouble_is_shown_in_lines_and_who_does_not_answer_with_the_reason() {
        let away = Member {
            name: "b".into(),
            address: "10.0.0.2:1".into(),
            reason: Some("refused".into()),
            ..Member::default()
        };
        let trouble = Some("cannot read\n  on:  /hosts\n  try: another".into());
        let shown = text(&Cluster { members: vec![away], members_trouble: trouble, ..Cluster::default() });
        assert!(shown.contains("AS THEY WERE: cannot read\n      on:  /hosts\n      try: another\n"), "{shown}");
        assert!(shown.contains("b (10.0.0.2:1) DOES NOT ANSWER: refused\n"), "{shown}");
    }
}
