//! Several nodes that are one cache, as processes of their own on addresses of this machine.

mod support;

use std::fs;
use std::path::PathBuf;
use support::content::{compare, noise, same};
use support::{BUCKET, Bed, Daemon, LONG, drop_page_cache, eventually, signal};

/// Nodes on one bucket.
struct Pool {
    bed: Bed,
    hosts: PathBuf,
    daemons: Vec<Daemon>,
    more: Vec<String>,
    /// Folders with the keys of each member; none of nodes that speak unencrypted.
    keys: Vec<PathBuf>,
}

/// A port for each node, which nobody else has at the moment.
fn ports(count: usize) -> Vec<u16> {
    let sockets: Vec<_> =
        (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    sockets.iter().map(|socket| socket.local_addr().expect("bound").port()).collect()
}

impl Pool {
    /// Not mounted yet. `None` where nothing can be mounted.
    fn of(count: usize, more: &[&str]) -> Option<Pool> {
        let bed = Bed::new()?;
        let hosts = bed.path("hosts");
        let lines: Vec<String> =
            ports(count).iter().enumerate().map(|(n, port)| format!("127.0.0.1:{port} name=n{n}\n")).collect();
        fs::write(&hosts, lines.concat()).expect("written");
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        Some(Pool { bed, hosts, daemons: Vec::new(), more, keys: Vec::new() })
    }

    /// Mount the bucket on the next node.
    fn join(&mut self) {
        let number = self.daemons.len();
        self.daemons.push(self.mount(number));
    }

    /// The mount of a node, not run yet.
    fn mounting(&self, number: usize) -> std::process::Command {
        let (cache, name) = (self.bed.path(&format!("cache{number}")), format!("n{number}"));
        let mut words = vec!["--cache", cache.to_str().expect("a name"), "--listen", &name];
        match self.keys.get(number) {
            Some(folder) => words.extend(["--identity", folder.to_str().expect("a name")]),
            None => words.push("--plaintext"),
        }
        words.extend(["--members", self.hosts.to_str().expect("a name")]);
        words.extend(self.more.iter().map(String::as_str));
        let at = format!("m{number}");
        let _ = fs::create_dir(self.bed.path(&at));
        self.bed.mounting(&format!("s3://{BUCKET}"), &at, &words)
    }

    fn mount(&self, number: usize) -> Daemon {
        let at = format!("m{number}");
        Daemon::start(&mut self.mounting(number), &self.bed.path(&at), &self.bed.path(&format!("{at}.log")))
    }

    /// All of them, each of which knows that the others answer.
    fn start(&mut self, count: usize) {
        (0..count).for_each(|_| self.join());
        eventually("all members answer each other", || {
            let members =
                |status: &serde_json::Value| status["cluster"]["members"].as_array().cloned().unwrap_or_default();
            let nodes = self.bed.nodes();
            nodes.len() == count && nodes.iter().flat_map(members).all(|member| member["answering"] == true)
        });
    }

    /// Keys of all members, by an authority of their own.
    fn make_keys(&self, at: &str) -> Vec<PathBuf> {
        let out = self.bed.path(at);
        let made = support::finished(self.bed.stoker(["keys", "--members"]).arg(&self.hosts).arg("--out").arg(&out));
        assert!(made.status.success(), "{}", support::text(&made));
        (0..).map(|number| out.join(format!("n{number}"))).take_while(|folder| folder.exists()).collect()
    }

    fn at(&self, number: usize, name: &str) -> PathBuf {
        self.bed.path(&format!("m{number}")).join(name)
    }

    fn read_all(&self, number: usize) {
        compare(&self.bed.path(&format!("m{number}")), &self.bed.path("data"));
    }

    /// By all nodes at once.
    fn read_together(&self) {
        std::thread::scope(|scope| {
            for number in 0..self.daemons.len() {
                scope.spawn(move || self.read_all(number));
            }
        });
    }

    /// Bytes of objects that left the store so far, by its own count. The nodes say the same.
    fn sent(&self) -> u64 {
        let (nodes, sent) = (self.bed.nodes(), self.bed.sent());
        let said = |status: &serde_json::Value| status["tiers"]["origin"]["bytes"].as_u64().expect("a number");
        assert_eq!(nodes.iter().map(said).sum::<u64>(), sent, "{nodes:?}");
        sent
    }

    /// A figure of the cluster, summed over the nodes.
    fn sum(&self, figure: &str) -> u64 {
        let nodes = self.bed.nodes();
        nodes.iter().map(|status| status["cluster"][figure].as_u64().expect("a number")).sum()
    }
}

/// Bytes of a file that is in stripes of several owners.
const LARGE: usize = 300 << 20;

/// Files of every kind of size; their bytes in all.
fn set(bed: &Bed) -> u64 {
    let mut total = 0;
    for (number, size) in [1, 1_000, 100_000, 1 << 20, (1 << 20) + 1, 5_000_000, 40_000_000].into_iter().enumerate() {
        for copy in 0..4 {
            bed.put(&format!("f{copy}/{number}"), &noise(size, (number * 10 + copy) as u64));
            total += size as u64;
        }
    }
    total
}

#[test]
fn each_byte_leaves_the_store_once_for_all_nodes() {
    for together in [false, true] {
        let Some(mut pool) = Pool::of(3, &["--fill", "off"]) else { return };
        pool.bed.put("large", &noise(LARGE, 9));
        let total = set(&pool.bed) + LARGE as u64;
        pool.start(3);
        let read = || match together {
            true => pool.read_together(),
            false => (0..3).for_each(|number| pool.read_all(number)),
        };
        read();
        assert_eq!(pool.sent(), total, "{:?}", pool.bed.nodes());
        assert_eq!(pool.sum("around") + pool.sum("not_mine"), 0);
        let had = pool.sum("had_bytes");
        assert!(had == pool.sum("served_bytes") && had > total, "{had} of {total}");
        // There is room for all on each disk: nobody asks anybody any more.
        drop_page_cache();
        read();
        assert_eq!((pool.sent(), pool.sum("had_bytes")), (total, had));
    }
}

#[test]
fn a_load_brings_each_byte_to_its_owner_and_to_nobody_else() {
    let Some(mut pool) = Pool::of(3, &["--fill", "off"]) else { return };
    let total = set(&pool.bed);
    pool.bed.put("large", &noise(LARGE, 9));
    let total = total + LARGE as u64;
    pool.start(3);
    let part = support::finished(pool.bed.stoker(["load"]).arg(pool.at(2, "f1")));
    assert!(part.status.success() && support::text(&part).contains("7 files"), "{}", support::text(&part));
    for verify in [&[][..], &["--verify"]] {
        let done = support::finished(pool.bed.stoker(["load", "--json"]).arg(pool.at(1, "")).args(verify));
        let loaded: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert!(done.status.success() && loaded["files_unkept"] == 0, "{}", support::text(&done));
        assert_eq!(loaded["bytes_done"], total);
        assert_eq!((pool.sent(), pool.sum("had_bytes")), (total, 0), "{:?}", pool.bed.nodes());
    }
    let kept = |status: &serde_json::Value| status["limits"]["disk_used"].as_u64().expect("bytes");
    let each: Vec<u64> = pool.bed.nodes().iter().map(kept).collect();
    // Chance gives one more than another; of 18 stripes each has some.
    assert!(
        each.iter().all(|bytes| *bytes > total / 40) && each.iter().sum::<u64>() < total + total / 50,
        "{each:?} of {total}"
    );
    (0..3).for_each(|number| pool.read_all(number));
    assert_eq!(pool.sent(), total);
}

#[test]
fn a_load_of_more_than_fits_uses_all_room_and_says_what_was_not_kept() {
    let Some(mut pool) = Pool::of(3, &["--fill", "off", "--cache-size", "20MB"]) else { return };
    for number in 0..90 {
        pool.bed.put(&format!("f{number:02}"), &noise(1 << 20, number));
    }
    pool.start(3);
    let load = || {
        let done = support::finished(pool.bed.stoker(["load", "--json"]).arg(pool.at(0, "")));
        let loaded: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        (done.status.code(), loaded["files_unkept"].as_u64().expect("a number"))
    };
    load();
    // Until all have heard who has room.
    std::thread::sleep(std::time::Duration::from_secs(12));
    let (code, unkept) = load();
    assert!(code == Some(3) && (33..40).contains(&unkept), "{unkept} of 90 in room for 57: {code:?}");
}

#[test]
fn a_node_without_a_mount_keeps_its_part_for_the_others() {
    let Some(mut pool) = Pool::of(3, &["--fill", "off"]) else { return };
    let total = set(&pool.bed);
    let mut dedicated: Vec<_> = [1, 2]
        .map(|number| {
            let (cache, name) = (pool.bed.path(&format!("cache{number}")), format!("n{number}"));
            let mut command = pool.bed.stoker(["node", &format!("s3://{BUCKET}"), "--plaintext", "--listen", &name]);
            command.args(pool.bed.reach()).arg("--cache").arg(cache).arg("--members").arg(&pool.hosts);
            command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().expect("it starts")
        })
        .into();
    let serving = |status: &serde_json::Value| status["serving"][0]["objects"] == 28;
    eventually("both are there", || pool.bed.nodes().iter().filter(|status| serving(status)).count() == 2);
    pool.join();
    pool.read_all(0);
    assert_eq!(pool.sent(), total);
    let of_dedicated = || -> u64 {
        let nodes = pool.bed.nodes();
        let nodes = nodes.iter().filter(|status| serving(status));
        nodes.map(|status| status["tiers"]["origin"]["bytes"].as_u64().expect("bytes")).sum()
    };
    assert!(of_dedicated() > total / 6, "{} of {total}", of_dedicated());
    // They hold it while training nodes come and go.
    signal(pool.daemons[0].pid(), "TERM");
    assert!(pool.daemons[0].waited(LONG).is_some());
    fs::remove_dir_all(pool.bed.path("cache0")).expect("removed");
    let before = of_dedicated();
    pool.daemons[0] = pool.mount(0);
    pool.read_all(0);
    assert_eq!(of_dedicated(), before, "the store gave them nothing again");
    for node in &mut dedicated {
        signal(node.id(), "TERM");
        assert!(node.wait().expect("it ends").success());
    }
}

#[test]
fn a_node_that_is_killed_costs_no_reader_an_error_and_is_asked_again_when_it_is_back() {
    let Some(mut pool) = Pool::of(3, &["--fill", "off", "--cache-size", "60MB"]) else { return };
    set(&pool.bed);
    pool.start(3);
    pool.read_all(0);
    support::kill_for_good(pool.daemons[1].node());
    assert!(pool.daemons[1].waited(LONG).is_some());
    drop_page_cache();
    pool.read_all(0);
    pool.read_all(2);
    let status = pool.bed.nodes();
    let answers = |status: &serde_json::Value| status["cluster"]["members"][1]["answering"].clone();
    assert!(status.iter().any(|status| answers(status) == false), "{status:?}");
    let _ = std::process::Command::new("umount").arg("-l").arg(pool.bed.path("m1")).status();
    pool.daemons[1] = pool.mount(1);
    eventually("it is asked again", || {
        drop_page_cache();
        pool.read_all(0);
        pool.bed.nodes().iter().all(|status| answers(status) == true)
    });
    pool.read_all(1);
}

#[test]
fn a_member_list_that_can_t_be_meant_is_refused_with_what_to_write() {
    let Some(pool) = Pool::of(2, &[]) else { return };
    pool.bed.put("file", b"content");
    let hosts = pool.hosts.to_str().expect("a name");
    for (words, said) in [
        (&["--members", hosts, "--plaintext"][..], "several members are on this machine"),
        (&["--members", hosts, "--plaintext", "--listen", "n7"], "no member is this node"),
        (&["--members", hosts, "--listen", "n0"], "stoker keys"),
        (&["--members", "/nowhere", "--plaintext"], "cannot read the members"),
        (&["--plaintext"], "--members"),
    ] {
        let _ = fs::create_dir(pool.bed.path("m"));
        let done = support::finished(&mut pool.bed.mounting(&format!("s3://{BUCKET}"), "m", words));
        let text = support::text(&done);
        assert!(!done.status.success() && text.contains(said), "{words:?}: {text}");
    }
    same(&fs::read(pool.bed.data("file")).expect("a file"), b"content", &"nothing was touched");
    let _ = pool.at(0, "x");
}

/// Listings that the store was asked for.
fn lists(pool: &Pool) -> u64 {
    pool.bed.counters().of(emulate::Operation::List).requests
}

#[test]
fn a_set_is_listed_once_for_all_nodes_and_so_is_each_refresh() {
    let Some(mut pool) = Pool::of(4, &["--fill", "off"]) else { return };
    set(&pool.bed);
    // As often as one node asks.
    pool.join();
    let once = lists(&pool);
    assert!(once > 0);
    // The others at the same time.
    let mut commands: Vec<_> = (1..4).map(|number| pool.mounting(number)).collect();
    let started: Vec<_> = commands.iter_mut().map(|command| command.spawn().expect("it starts")).collect();
    let mounted = |pool: &Pool| {
        pool.bed.nodes().iter().filter(|node| node["mounts"].as_array().is_some_and(|all| all.len() == 1)).count()
    };
    eventually("all are mounted", || mounted(&pool) == 4);
    assert_eq!(lists(&pool), once, "the others took the names of the first");
    pool.bed.put("new", &noise(70_000, 99));
    pool.bed.put("f0/0", &noise(3_000, 98));
    let refreshed = support::finished(pool.bed.stoker(["refresh"]).arg(pool.bed.path("m2")));
    assert!(refreshed.status.success(), "{}", support::text(&refreshed));
    for number in 0..4 {
        eventually(&format!("node {number} has the new names"), || pool.at(number, "new").exists());
        pool.read_all(number);
    }
    assert!(lists(&pool) <= 2 * once, "{} where one listing takes {once}", lists(&pool));
    // Once more, by another one.
    pool.bed.put("newer", &noise(70_000, 97));
    assert!(support::finished(pool.bed.stoker(["refresh"]).arg(pool.bed.path("m0"))).status.success());
    for number in 0..4 {
        eventually(&format!("node {number} has the newest names"), || pool.at(number, "newer").exists());
    }
    assert!(lists(&pool) <= 3 * once, "{} where one listing takes {once}", lists(&pool));
    for mut child in started {
        signal(child.id(), "TERM");
        let _ = child.wait();
    }
}

#[test]
fn a_node_that_joins_costs_links_and_not_the_store() {
    let Some(mut pool) = Pool::of(5, &["--fill", "off"]) else { return };
    let total = set(&pool.bed);
    let all = fs::read_to_string(&pool.hosts).expect("the hosts");
    let four: String = all.lines().take(4).map(|line| format!("{line}\n")).collect();
    fs::write(&pool.hosts, &four).expect("written");
    pool.start(4);
    (0..4).for_each(|number| pool.read_all(number));
    assert_eq!(pool.sent(), total);
    std::thread::sleep(std::time::Duration::from_secs(4));
    fs::write(&pool.hosts, &all).expect("written");
    pool.join();
    let knows = |status: &serde_json::Value| status["cluster"]["members"].as_array().map(Vec::len) == Some(5);
    eventually("all know the fifth", || pool.bed.nodes().iter().all(knows));
    let is_fifth = |status: &serde_json::Value| status["cluster"]["members"][4]["me"] == true;
    let fifth = || pool.bed.nodes().into_iter().find(is_fifth).expect("it runs");
    eventually("it was told who keeps what it owns", || fifth()["cluster"]["placed"] != 0);
    pool.read_all(4);
    assert_eq!(pool.sent(), total, "what it owns now came from who owned it before");
    eventually("all of it lies on its disk", || fifth()["mounts"][0]["kept_files"] == 28);
    eventually("nobody keeps it in its stead", || fifth()["cluster"]["placed"] == 0);
    let had = pool.sum("had_bytes");
    pool.read_all(4);
    assert_eq!(pool.sum("had_bytes"), had, "nothing crosses the network again");
}

#[test]
fn a_set_that_fits_on_each_disk_is_filled_from_others_and_read_without_them() {
    let Some(mut pool) = Pool::of(3, &["--fill", "all"]) else { return };
    let total = set(&pool.bed);
    // Who begins to fill before another one has mounted the set asks the store for what that one owns: little, at this rate.
    pool.bed.set_bandwidth(4 << 20);
    pool.start(3);
    pool.bed.set_limits(&emulate::Limits::default());
    let kept = |status: &serde_json::Value| status["mounts"][0]["kept_files"] == 28;
    eventually("each disk has all of it", || pool.bed.nodes().iter().all(kept));
    let (sent, had) = (pool.sent(), pool.sum("had_bytes"));
    assert!(sent >= total && sent - total < total / 20, "{:?}", pool.bed.nodes());
    assert_eq!(sent + had, 3 * total, "each has the rest, some two thirds of it, from others");
    (0..3).for_each(|number| pool.read_all(number));
    assert_eq!((pool.sent(), pool.sum("had_bytes")), (sent, had));
    let served: u64 =
        pool.bed.nodes().iter().map(|status| status["mounts"][0]["opens_served"].as_u64().expect("opens")).sum();
    assert_eq!(served, 0, "the kernel reads each file by itself");
}

#[test]
fn members_with_keys_are_one_cache_and_a_stranger_is_told_nothing() {
    let Some(mut pool) = Pool::of(3, &["--fill", "off"]) else { return };
    let total = set(&pool.bed);
    pool.keys = pool.make_keys("keys");
    assert_eq!(pool.keys.len(), 3);
    pool.start(3);
    (0..3).for_each(|number| pool.read_all(number));
    assert_eq!(pool.sent(), total, "{:?}", pool.bed.nodes());
    assert!(pool.bed.nodes().iter().all(|status| status["cluster"]["encrypted"] == true));
    // One of them comes back with keys of somebody else.
    signal(pool.daemons[2].pid(), "TERM");
    assert!(pool.daemons[2].waited(LONG).is_some());
    let _ = fs::remove_dir_all(pool.bed.path("cache2"));
    pool.keys[2] = pool.make_keys("others")[2].clone();
    let served = pool.sum("served_bytes");
    pool.daemons[2] = pool.mount(2);
    pool.read_all(2);
    assert_eq!(pool.sum("served_bytes"), served, "nobody gave it anything");
    pool.read_all(0);
    // With the keys of another member it doesn't even start.
    signal(pool.daemons[2].pid(), "TERM");
    assert!(pool.daemons[2].waited(LONG).is_some());
    pool.keys[2] = pool.keys[1].clone();
    let refused = support::finished(&mut pool.mounting(2));
    assert!(support::text(&refused).contains("of another member"), "{}", support::text(&refused));
}

#[test]
fn a_member_lets_go_of_what_it_keeps_and_the_others_keep_theirs() {
    let Some(mut pool) = Pool::of(2, &["--fill", "off"]) else { return };
    let total = set(&pool.bed);
    pool.start(2);
    (0..2).for_each(|number| pool.read_all(number));
    let sent = pool.sent();
    assert_eq!(sent, total, "each byte left the store once");
    let kept = |number: usize| {
        let done = support::finished(pool.bed.stoker(["status", "--json"]).arg(pool.at(number, "f0")));
        let status: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        status["kept"]["kept_bytes"].as_u64().expect("a number")
    };
    let (here, there) = (kept(0), kept(1));
    let done = support::finished(pool.bed.stoker(["evict", "--json"]).arg(pool.at(0, "f0")));
    let evicted: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert!(here > 0 && evicted["bytes"] == here, "{evicted}, and {here} were kept");
    assert_eq!((kept(0), kept(1)), (0, there), "the other member keeps what it has");
    (0..2).for_each(|number| pool.read_all(number));
    assert!(pool.sent() - sent <= here, "no more left the store than was let go of");
}
