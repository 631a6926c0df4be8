//! What a job says that it will read is there in time, and what it says wrongly costs nothing but speed.

mod support;

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::content::{noise, same};
use support::{Bed, Daemon, eventually, finished, refused, refused_as_typed, text};

/// A mounted set of small files that nobody read, and no fill that could bring them.
fn mounted(files: usize, size: usize, more: &[&str]) -> Option<(Bed, Daemon, Vec<String>)> {
    let bed = Bed::new()?;
    let names: Vec<String> = (0..files).map(|number| format!("c{}/{number:04}", number % 3)).collect();
    for (number, name) in names.iter().enumerate() {
        bed.put(name, &noise(size, number as u64));
    }
    let mut names = names;
    names.sort_unstable();
    let daemon = bed.mount(&[&["--fill", "off"], more].concat());
    Some((bed, daemon, names))
}

fn order(bed: &Bed) -> Value {
    bed.status()["mounts"][0]["orders"][0].clone()
}

fn read(bed: &Bed, name: &str) {
    let got = fs::read(bed.mounted(name)).expect("a file");
    same(&got, &fs::read(bed.data(name)).expect("the same"), &name);
}

/// Say an order of files, which are given by standard input.
fn say(bed: &Bed, words: &[&str], lines: &[&str]) -> std::process::Output {
    let mut command = bed.stoker([&["hint", bed.mounted("").to_str().expect("a name")], words].concat());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(lines.join("\n").as_bytes()).expect("taken");
    drop(input);
    child.wait_with_output().expect("it ends")
}

#[test]
fn files_come_in_the_order_that_was_said_before_anybody_reads_them() {
    let Some((bed, _daemon, names)) = mounted(60, 50_000, &[]) else { return };
    let mut said: Vec<&str> = names.iter().map(String::as_str).collect();
    said.reverse();
    let done = say(&bed, &["--files", "-"], &said);
    assert!(done.status.success() && text(&done).contains("60 files"), "{}", text(&done));
    eventually("all of them came", || bed.status()["tiers"]["origin"]["bytes"] == 60 * 50_000);
    let requests = bed.requests();
    said.iter().for_each(|name| read(&bed, name));
    assert_eq!(bed.requests(), requests, "nobody waited for the store");
    eventually("all opens are counted", || order(&bed)["opened"] == 60);
    assert_eq!((&order(&bed)["left"], &order(&bed)["skipped"]), (&Value::from(0), &Value::from(0)));
    let shown = text(&finished(&mut bed.stoker(["status"])));
    assert!(shown.contains("order `order`: 60 opened, 0 to come"), "{shown}");
}

#[test]
fn what_does_not_fit_into_the_cache_is_asked_for_as_it_is_read_and_only_once() {
    // Nothing of it is kept: half a second of memory at most is ahead of the reader.
    let Some((bed, _daemon, names)) = mounted(100, 900_000, &["--cache-size", "1MB", "--memory", "64MiB"]) else {
        return;
    };
    let said: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(say(&bed, &["--files", "-"], &said).status.success());
    eventually("some came", || order(&bed)["ahead_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    std::thread::sleep(Duration::from_millis(300));
    let came = bed.status()["tiers"]["origin"]["bytes"].as_u64().expect("bytes");
    assert!(came < 40_000_000, "{came} of 90 MB, with memory of 64");
    said.iter().for_each(|name| read(&bed, name));
    let sent = bed.status()["tiers"]["origin"]["bytes"].as_u64().expect("bytes");
    assert!(sent <= 92_000_000, "{sent} instead of 90 MB");
}

#[test]
fn a_sampler_is_followed_from_epoch_to_epoch() {
    let Some((bed, _daemon, names)) = mounted(31, 2_000, &[]) else { return };
    let words = ["--rank", "1", "--world", "4", "--seed", "7", "--epoch", "3", "--epochs", "2", "--json"];
    let done = say(&bed, &words, &[]);
    let said: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!((&said["files"], &said["replaced"]), (&Value::from(8), &Value::from(false)), "{}", text(&done));
    let sampler = order::Sampler { seed: 7, rank: 1, world: 4, shuffle: true, drop_last: false };
    let dealt: Vec<u32> = [3, 4].iter().flat_map(|epoch| sampler.deal(*epoch, 31)).collect();
    let mut distinct = dealt.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let bytes = distinct.len() * 2_000;
    eventually("both epochs came", || bed.status()["tiers"]["origin"]["bytes"] == bytes);
    dealt.iter().for_each(|number| read(&bed, &names[*number as usize]));
    eventually("all opens are counted", || order(&bed)["opened"] == 16);
    assert_eq!(bed.status()["tiers"]["origin"]["bytes"], bytes);
    assert_eq!(order(&bed)["name"], "rank 1");
    let again = say(&bed, &words, &[]);
    assert_eq!(serde_json::from_slice::<Value>(&again.stdout).expect("JSON")["replaced"], true);
    assert!(text(&say(&bed, &["--forget", "--name", "rank 1"], &[])).contains("is forgotten"));
    assert!(text(&say(&bed, &["--forget", "--name", "rank 1"], &[])).contains("no order"));
}

#[test]
fn an_order_that_nobody_follows_rests_and_is_shown_as_such() {
    let Some((bed, _daemon, names)) = mounted(400, 2_000, &["--cache-size", "1MB"]) else { return };
    let said: Vec<&str> = names[..4].iter().map(String::as_str).collect();
    assert!(say(&bed, &["--files", "-"], &said).status.success());
    names[100..250].iter().for_each(|name| read(&bed, name));
    eventually("it rests", || order(&bed)["resting"] == true);
    assert!(text(&finished(&mut bed.stoker(["status"]))).contains("NOT FOLLOWED"));
    read(&bed, &names[0]);
    eventually("it is followed again", || order(&bed)["resting"] == false);
}

#[test]
fn an_order_that_can_t_be_meant_is_refused_with_what_to_say() {
    let Some((bed, _daemon, names)) = mounted(5, 100, &[]) else { return };
    refused_as_typed(&say(&bed, &["--rank", "4", "--world", "4"], &[]), &["no rank 4 of 4", "counted from 0"]);
    let alone = say(&bed, &["--rank", "4"], &[]);
    assert!(alone.status.code() == Some(2) && text(&alone).contains("--world"), "{}", text(&alone));
    refused_as_typed(&say(&bed, &["--numbers", "-"], &["1", "x"]), &["`x` is no number", "-:2"]);
    refused_as_typed(&say(&bed, &["--files", "-"], &[" "]), &["the order is empty"]);
    refused(&say(&bed, &["--files", "-"], &[&names[0], "nowhere"]), &["no file of the data set", "nowhere"]);
    refused_as_typed(&say(&bed, &["--numbers", "-"], &["0", "5"]), &["no file of number 5", "there are 5"]);
    refused(&say(&bed, &["--include", "*.jpg"], &[]), &["names no file"]);
    refused_as_typed(&say(&bed, &["--name", "a\tb"], &[]), &["no name of an order"]);
    assert!(say(&bed, &["--numbers", "-"], &["4", "0"]).status.success());
}

/// The real sampler, over as many files, and what we deal.
#[test]
fn what_is_dealt_is_what_pytorch_deals() {
    let script = "
import sys, torch
from torch.utils.data import DistributedSampler
for line in sys.stdin:
    seed, epoch, rank, world, shuffle, drop, count = map(int, line.split())
    sampler = DistributedSampler(range(count), world, rank, bool(shuffle), seed, bool(drop))
    sampler.set_epoch(epoch)
    print(*sampler)
";
    let mut python = Command::new("python3");
    python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = python.spawn().expect("python3 runs");
    let mut cases = Vec::new();
    for (count, world) in [(1, 1), (7, 8), (10, 3), (31, 4), (1_000, 7), (70_000, 3)] {
        for (seed, epoch, shuffle, drop_last) in [
            (0, 0, true, false),
            (7, 3, true, true),
            (1 << 40, 9, true, false),
            (1, 1, false, false),
            (1, 1, false, true),
        ] {
            for rank in [0, world - 1] {
                cases.push((order::Sampler { seed, rank, world, shuffle, drop_last }, epoch, count));
            }
        }
    }
    let line = |(sampler, epoch, count): &(order::Sampler, u64, u64)| {
        let order::Sampler { seed, rank, world, shuffle, drop_last } = sampler;
        format!("{seed} {epoch} {rank} {world} {} {} {count}\n", u8::from(*shuffle), u8::from(*drop_last))
    };
    let mut input = child.stdin.take().expect("piped");
    let asked: String = cases.iter().map(line).collect();
    // Without PyTorch it ends before it reads.
    let _ = input.write_all(asked.as_bytes());
    drop(input);
    let done = child.wait_with_output().expect("it ends");
    if text(&done).contains("No module named 'torch'") {
        eprintln!("SKIPPED: no python3 here has torch (apt install python3-torch)");
        return;
    }
    let dealt = String::from_utf8(done.stdout.clone()).expect("numbers");
    assert_eq!(dealt.lines().count(), cases.len(), "{}", String::from_utf8_lossy(&done.stderr));
    for ((sampler, epoch, count), dealt) in cases.iter().zip(dealt.lines()) {
        let dealt: Vec<u32> = dealt.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        assert!(sampler.deal(*epoch, *count) == dealt, "{sampler:?} in epoch {epoch} of {count}");
    }
}
