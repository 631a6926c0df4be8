//! Members that die, hang, lie by accident, or see other members.

use super::*;

/// An object of many blocks and a member that doesn't own its first stripe.
fn asker(cluster: &Cluster, samples: &[Sample]) -> (usize, usize, Sample) {
    let sample = samples.last().expect("a large object").clone();
    let owner = cluster.owner(&sample.0);
    (owner, (owner + 1) % cluster.inners.len(), sample)
}

#[tokio::test(start_paused = true)]
async fn a_dead_owner_costs_no_reader_an_error_and_is_found_again() {
    let (fixed, samples) = objects();
    let mut cluster = Cluster::of(3, fixed);
    let (owner, asker, (object, content)) = asker(&cluster, &samples);
    let run = || Run::new(object.clone(), 0..16);
    let expected = &content[..16 * BLOCK as usize];
    assert!(read(&cluster.peers[asker], run()).await.expect("blocks") == expected);
    cluster.kill(owner);
    for _ in 0..20 {
        assert!(read(&cluster.peers[asker], run()).await.expect("blocks") == expected);
    }
    let seat = seats(3)[owner].id;
    assert!(!cluster.lines[asker].answers(seat));
    let served = cluster.figures[owner].served.get();
    cluster.servers[owner] = cluster.serve(owner);
    let back = async {
        while cluster.figures[owner].served.get() == served {
            assert!(read(&cluster.peers[asker], run()).await.expect("blocks") == expected);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), back).await.expect("it is asked again");
    assert!(cluster.lines[asker].answers(seat));
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_store_hangs_is_waited_for_and_one_that_is_silent_is_not() {
    let (fixed, samples) = objects();
    let cluster = Cluster::of(2, fixed);
    let (owner, asker, (object, content)) = asker(&cluster, &samples);
    *cluster.inners[owner].mood.lock().expect("nobody panicked") = Mood::Hung;
    let run = Run::new(object.clone(), 0..4);
    let reading = read(&cluster.peers[asker], run.clone());
    let waited = tokio::time::timeout(Duration::from_secs(60), reading).await;
    assert!(waited.is_err(), "it says that it lives, and the store is its business");
    assert!(cluster.lines[asker].answers(seats(2)[owner].id));
    // Somebody who takes the connection and then says nothing.
    let mut silent = cluster.twin.listen(&seats(2)[owner].address);
    cluster.servers[owner].abort();
    let swallowing = tokio::spawn(async move {
        let mut taken = Vec::new();
        loop {
            taken.push(silent.accept().await);
        }
    });
    let reading = read(&cluster.peers[asker], run);
    let got = tokio::time::timeout(Duration::from_millis(1_500), reading).await.expect("not for long").expect("blocks");
    assert!(got == content[..4 * BLOCK as usize]);
    swallowing.abort();
}

/// Answer each request of a connection: blocks up to one of which only half is sent, then nothing more.
async fn break_off(mut wire: Wire, fixed: Arc<Fixed>, (object, until): (Arc<Object>, u32), pause: Duration) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut greeting = [0; wire::GREETING];
    wire.read.read_exact(&mut greeting).await.expect("a greeting");
    let wire::Greeting { from, to } = wire::Greeting::decode(&greeting).expect("a member");
    wire.write.write_all(&wire::Greeting { from: to, to: from }.encode()).await.expect("said");
    let mut head = [0; wire::HEADER];
    while wire.read.read_exact(&mut head).await.is_ok() {
        let header = wire::Header::decode(&head, wire::REQUEST_BYTES_MAX).expect("a request");
        let mut payload = vec![0; header.length as usize];
        wire.read.read_exact(&mut payload).await.expect("all of it");
        if header.word != wire::Word::Fetch {
            let told = wire::frame(wire::Word::Told, header.request, Vec::new()).concat();
            wire.write.write_all(&told).await.expect("said");
            continue;
        }
        let blocks: Vec<_> = fixed.fetch(Run::new(object, 0..until + 1)).collect().await;
        let frames =
            blocks.into_iter().map(|block| wire::block_frame(header.request, &block.expect("a block")).concat());
        let mut frames: Vec<Vec<u8>> = frames.collect();
        let half = frames[until as usize].len() / 2;
        frames[until as usize].truncate(half);
        wire.write.write_all(&frames.concat()).await.expect("said");
        return tokio::time::sleep(pause).await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_answer_that_breaks_off_in_the_middle_of_a_block_the_rest_comes_from_elsewhere() {
    for pause in [0, 500] {
        let (fixed, samples) = objects();
        let mut cluster = Cluster::of(3, fixed);
        let (owner, asker, (object, content)) = asker(&cluster, &samples);
        cluster.kill(owner);
        let mut ending = cluster.twin.listen(&seats(3)[owner].address);
        let (fixed, what) = (cluster.inners[owner].fixed.clone(), (object.clone(), 8));
        let connections = tokio::spawn(async move {
            let mut all = tokio::task::JoinSet::new();
            loop {
                let wire = ending.accept().await.expect("a connection").await.expect("no handshake");
                all.spawn(break_off(wire, fixed.clone(), what.clone(), Duration::from_millis(pause)));
            }
        });
        let reading = read(&cluster.peers[asker], Run::new(object, 0..16));
        let got = tokio::time::timeout(Duration::from_secs(2), reading).await.expect("nobody waits").expect("blocks");
        assert!(got == content[..16 * BLOCK as usize]);
        assert_eq!((cluster.fetched(), cluster.inners[owner].fetched.load(Relaxed)), (8, 0), "the rest, and once");
        assert_eq!(cluster.figures[asker].broken.load(Relaxed), 1);
        connections.abort();
    }
}

/// Say nothing on a connection but that it lives.
async fn only_beat(mut wire: Wire) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut greeting = [0; wire::GREETING];
    wire.read.read_exact(&mut greeting).await.expect("a greeting");
    let wire::Greeting { from, to } = wire::Greeting::decode(&greeting).expect("a member");
    let mut said = wire::Greeting { from: to, to: from }.encode().to_vec();
    while wire.write.write_all(&said).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        said = wire::frame(wire::Word::Beat, 0, Vec::new()).concat();
    }
}

/// Have a member do nothing from now on but to say that it lives.
fn stop_all_but_beats(cluster: &mut Cluster, number: usize) -> tokio::task::JoinHandle<()> {
    cluster.kill(number);
    let mut beating = cluster.twin.listen(&seats(number + 1)[number].address);
    tokio::spawn(async move {
        let mut all = tokio::task::JoinSet::new();
        loop {
            all.spawn(only_beat(beating.accept().await.expect("a connection").await.expect("no handshake")));
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_member_that_only_says_that_it_lives_is_told_what_is_kept_for_no_longer_than_a_store_is_waited_for() {
    let (fixed, samples) = objects();
    let mut cluster = Cluster::of(2, fixed);
    let connections = stop_all_but_beats(&mut cluster, 0);
    let stripe = |(object, _): &Sample| Stripe::of(&Address { object: object.clone(), index: 0 });
    let stripes: Vec<_> = samples.iter().map(stripe).collect();
    let lines = &cluster.lines[1];
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(lines.answers(seats(2)[0].id), "it lives");
    let telling = lines.tell_kept(seats(2)[0].id, &stripes);
    tokio::time::timeout(2 * PATIENCE, telling).await.expect("others are told next");
    connections.abort();
}

#[tokio::test(start_paused = true)]
async fn a_member_of_which_a_store_hangs_is_asked_for_others_and_one_that_answers_nothing_is_not() {
    for only_beats in [false, true] {
        let (fixed, samples) = objects();
        let mut cluster = Cluster::of(2, fixed);
        let (owner, asker, (object, content)) = asker(&cluster, &samples);
        let connections = only_beats.then(|| stop_all_but_beats(&mut cluster, owner));
        *cluster.inners[owner].mood.lock().expect("nobody panicked") = Mood::Hung;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let got = read(&cluster.peers[asker], Run::new(object.clone(), 0..4)).await.expect("blocks");
        assert!(got == content[..4 * BLOCK as usize], "it comes from elsewhere");
        assert!(cluster.figures[asker].broken.load(Relaxed) > 0);
        assert_eq!(cluster.lines[asker].answers(seats(2)[owner].id), !only_beats);
        connections.inspect(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_only_says_that_it_lives_is_waited_for_no_longer_than_a_store() {
    let (fixed, samples) = objects();
    let cluster = Cluster::of(2, fixed);
    let (owner, asker, (object, content)) = asker(&cluster, &samples);
    *cluster.inners[owner].mood.lock().expect("nobody panicked") = Mood::Hung;
    let began = tokio::time::Instant::now();
    // More than a connection takes at a time: also who waits for a turn goes on.
    let reads = (0..4 * wire::REQUESTS_MAX + 8).map(|_| read(&cluster.peers[asker], Run::new(object.clone(), 0..4)));
    let reads = futures_util::future::join_all(reads);
    let all = tokio::time::timeout(3 * PATIENCE, reads).await.expect("it goes on elsewhere");
    assert!(all.into_iter().all(|got| got.expect("blocks") == content[..4 * BLOCK as usize]));
    assert!(began.elapsed() >= PATIENCE, "as patient as with a store");
    assert!(cluster.inners[asker].fetched.load(Relaxed) > 0, "by its own credentials");
}

/// Have one of them brought as a member would that has room for it.
async fn bring(cluster: &Cluster, number: usize, object: &Arc<Object>) -> Option<Result<Brought>> {
    cluster.owners[number].bring(&Address { object: object.clone(), index: 0 }, false, false).await
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_never_brings_what_it_is_to_is_waited_for_no_longer_than_a_store() {
    for only_beats in [false, true] {
        let mut fixed = Fixed::default();
        let samples = small(&mut fixed);
        let mut cluster = Cluster::of(2, fixed);
        let (object, _) = samples.iter().find(|(object, _)| cluster.owner(object) == 0).expect("about a half");
        *cluster.inners[0].mood.lock().expect("nobody panicked") = Mood::Hung;
        let connections = only_beats.then(|| stop_all_but_beats(&mut cluster, 0));
        tokio::time::sleep(Duration::from_secs(30)).await;
        let began = tokio::time::Instant::now();
        let brought = tokio::time::timeout(2 * PATIENCE, bring(&cluster, 1, object)).await.expect("a load goes on");
        assert!(brought.is_none(), "this one is to bring it");
        assert!(began.elapsed() >= PATIENCE, "as patient as with a store");
        connections.inspect(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_waited_for_as_long_as_it_brings_anything() {
    let mut fixed = Fixed::default();
    let samples = small(&mut fixed);
    let cluster = Cluster::of(2, fixed);
    let mut owned = samples.iter().filter(|(object, _)| cluster.owner(object) == 0).map(|(object, _)| object);
    let hung = owned.next().expect("about a half");
    let mood = |mood| *cluster.inners[0].mood.lock().expect("nobody panicked") = mood;
    mood(Mood::Hung);
    let mut bringing = std::pin::pin!(bring(&cluster, 1, hung));
    assert!(tokio::time::timeout(PATIENCE / 2, &mut bringing).await.is_err());
    mood(Mood::Well);
    for other in owned.take(8) {
        assert!(matches!(bring(&cluster, 1, other).await, Some(Ok(Brought::There { .. }))));
        assert!(tokio::time::timeout(PATIENCE / 2, &mut bringing).await.is_err(), "others were brought meanwhile");
    }
    assert!(tokio::time::timeout(2 * PATIENCE, &mut bringing).await.expect("nothing was any more").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_owner_hears_when_a_reader_comes_to_wait_for_what_was_asked_for_ahead() {
    let (fixed, samples) = objects();
    let cluster = Cluster::of(2, fixed);
    let (owner, asker, (object, _)) = asker(&cluster, &samples);
    *cluster.inners[owner].mood.lock().expect("nobody panicked") = Mood::Hung;
    let course = block::Course::begin(std::time::Instant::now, false);
    let mut blocks = cluster.peers[asker].fetch(Run { course: course.clone(), ..Run::new(object, 0..4) });
    let waiting = tokio::spawn(async move { blocks.next().await });
    let is_urgent = || cluster.inners[owner].course.lock().expect("nobody panicked").is_urgent();
    let until = |wanted| async move {
        while is_urgent() != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), until(false)).await.expect("it is asked for ahead");
    course.urge();
    tokio::time::timeout(Duration::from_secs(20), until(true)).await.expect("it hears so");
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_can_t_give_comes_by_the_asker_s_own_credentials() {
    for kind in [Kind::Denied, Kind::Missing, Kind::Full, Kind::Unavailable { retry_after: None }, Kind::Corrupt] {
        let (fixed, samples) = objects();
        let cluster = Cluster::of(2, fixed);
        let (owner, asker, (object, content)) = asker(&cluster, &samples);
        *cluster.inners[owner].mood.lock().expect("nobody panicked") = Mood::Failing(kind);
        let got = read(&cluster.peers[asker], Run::new(object, 0..4)).await.expect("blocks");
        assert!(got == content[..4 * BLOCK as usize], "{kind:?}");
        assert_eq!(cluster.figures[asker].around.load(Relaxed), 1);
        assert!(cluster.lines[asker].answers(seats(2)[owner].id), "a member that says no lives");
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_by_other_credentials_gets_nothing_of_what_others_fetched() {
    let (fixed, samples) = objects();
    let cluster = Cluster::of(2, fixed);
    let (owner, asker, (object, _)) = asker(&cluster, &samples);
    cluster.inners[owner].is_mine.store(false, Relaxed);
    *cluster.inners[asker].mood.lock().expect("nobody panicked") = Mood::Failing(Kind::Denied);
    let refused = read(&cluster.peers[asker], Run::new(object, 0..4)).await.expect_err("the store says no");
    assert_eq!((refused.kind, cluster.inners[owner].fetched.load(Relaxed)), (Kind::Denied, 0));
    assert_eq!(cluster.figures[asker].not_mine.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_is_no_failure_and_ends_at_the_owner_too() {
    let (fixed, samples) = objects();
    let cluster = Cluster::of(2, fixed);
    let (owner, asker, (object, content)) = asker(&cluster, &samples);
    *cluster.inners[owner].mood.lock().expect("nobody panicked") = Mood::Hung;
    for _ in 0..600 {
        let mut blocks = cluster.peers[asker].fetch(Run::new(object.clone(), 0..4));
        let waited = tokio::time::timeout(Duration::from_millis(1), blocks.next()).await;
        assert!(waited.is_err());
    }
    *cluster.inners[owner].mood.lock().expect("nobody panicked") = Mood::Well;
    // More than an owner answers at a time: those that were given up are not among them.
    let got = read(&cluster.peers[asker], Run::new(object, 0..4)).await.expect("blocks");
    assert!(got == content[..4 * BLOCK as usize]);
    assert_eq!(cluster.figures[asker].broken.load(Relaxed), 0);
    assert_eq!(cluster.figures[asker].around.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn members_with_other_views_get_the_right_bytes() {
    let (fixed, samples) = objects();
    let cluster = Cluster::of(4, fixed);
    for (number, roster) in cluster.rosters.iter().enumerate() {
        let seen = seats(4).into_iter().enumerate().filter(|(other, _)| *other == number || (other + number) % 3 != 0);
        roster.send_replace(Arc::new(Roster::of(seats(4)[number].id, seen.map(|(_, seat)| seat))));
    }
    for peers in &cluster.peers {
        read_all(peers, &samples).await;
    }
    // Each thinks of itself alone, or of everybody but itself.
    for (number, roster) in cluster.rosters.iter().enumerate() {
        let seen = seats(4).into_iter().enumerate().filter(|(other, _)| (*other == number) == (number % 2 == 0));
        roster.send_replace(Arc::new(Roster::of(seats(4)[number].id, seen.map(|(_, seat)| seat))));
    }
    for peers in &cluster.peers {
        read_all(peers, &samples).await;
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_who_talks_nonsense_is_hung_up_on() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (fixed, samples) = objects();
    let cluster = Cluster::of(2, fixed);
    let seat = seats(2)[0].clone();
    for nonsense in
        [b"GET / HTTP/1.1\r\nHost: a\r\n\r\nand more of it, and more".to_vec(), vec![0xff; 4096], vec![0; 64]]
    {
        let mut wire = cluster.twin.connect(&seat).await.expect("a connection");
        let _ = wire.write.write_all(&nonsense).await;
        let mut answer = Vec::new();
        let heard = tokio::time::timeout(Duration::from_secs(5), wire.read.read_to_end(&mut answer)).await;
        assert!(heard.is_ok() && answer.is_empty());
    }
    let greeting = wire::Greeting { from: 1, to: seat.id };
    for nonsense in [
        vec![0xff; 16],
        wire::frame(wire::Word::Block, 1, vec![1; 30]).concat(),
        wire::frame(wire::Word::Fetch, 1, vec![1; 30]).concat(),
    ] {
        let mut wire = cluster.twin.connect(&seat).await.expect("a connection");
        wire.write.write_all(&greeting.encode()).await.expect("said");
        wire.write.write_all(&nonsense).await.expect("said");
        let mut answer = Vec::new();
        let heard = tokio::time::timeout(Duration::from_secs(5), wire.read.read_to_end(&mut answer)).await;
        assert_eq!((heard.expect("in time").ok(), answer.len()), (Some(wire::GREETING), wire::GREETING));
    }
    read_all(&cluster.peers[1], &samples).await;
}

#[tokio::test(start_paused = true)]
async fn who_comes_to_wait_for_a_member_that_reads_nothing_waits_no_longer_than_for_a_store() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (here, mut far) = tokio::io::duplex(1 << 10);
    let living = tokio::spawn(async move {
        far.read_exact(&mut [0; wire::GREETING]).await.expect("a greeting");
        far.write_all(&wire::Greeting { from: 2, to: 1 }.encode()).await.expect("said");
        while far.write_all(&wire::frame(wire::Word::Beat, 0, Vec::new()).concat()).await.is_ok() {
            tokio::time::sleep(link::BEAT).await;
        }
    });
    let (runtime, greeting) = (tokio::runtime::Handle::current(), wire::Greeting { from: 1, to: 2 });
    let link = link::Link::begin(Wire::of(here), "n2", greeting, (&runtime, link::Came::default())).await;
    let (link, (object, _)) = (link.expect("it greets"), objects().1.last().expect("a large object").clone());
    let wish = wire::Wish { run: Run::new(object, 0..4), manner: Manner::default() };
    let mut answers = Vec::new();
    // Until there is room for no more.
    while let Ok(asked) = tokio::time::timeout(PATIENCE, link.ask(wire::Word::Fetch, &wish)).await {
        answers.push(asked.expect("it lives"));
    }
    let (course, mut answer) = (block::Course::begin(std::time::Instant::now, false), answers.remove(0));
    course.urge();
    let (mut slow, mut was_urgent) = (answer.slowness(), false);
    let next = owners::next(&mut answer, &mut slow, (&course, PATIENCE), &mut was_urgent);
    let next = tokio::time::timeout(3 * PATIENCE, next).await.expect("as long as for a store");
    assert!(next.expect("an answer").is_err_and(|lost| lost.is_nothing()));
    living.abort();
}
