//! Members that begin anew, or are away for long: what others keep is found again, whoever answers for it now.

use super::*;
use crate::Elders;

/// Tell who answers for what this member has, as nodes do when somebody came or went.
fn hand_over(cluster: &Cluster, number: usize, samples: &[Sample]) -> tokio::task::JoinHandle<()> {
    let (lines, inner) = (cluster.lines[number].clone(), cluster.inners[number].clone());
    let objects: Vec<_> = samples.iter().map(|(object, _)| object.clone()).collect();
    tokio::spawn(async move {
        loop {
            let member = lines.came_or_went().await;
            for object in &objects {
                let stripe = Stripe::of(&Address { object: object.clone(), index: 0 });
                let has = inner.kept.lock().expect("nobody panicked").contains(&object.id());
                if let Some(who) = lines.answers_for(&stripe, member).filter(|_| has) {
                    lines.tell_kept(who, &[stripe]).await;
                }
            }
        }
    })
}

/// Read all by members in turns, and tell how much left the store.
async fn epoch(cluster: &Cluster, readers: &[usize], samples: &[Sample]) -> u64 {
    let before = cluster.fetched();
    for (number, sample) in samples.iter().enumerate() {
        read_all(&cluster.peers[readers[number % readers.len()]], std::slice::from_ref(sample)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    cluster.fetched() - before
}

impl Cluster {
    /// A member ends, and begins with what lies on its disk and nothing else.
    fn restart(&mut self, number: usize) {
        self.kill(number);
        let (seat, inner) = (seats(number + 1)[number].clone(), self.inners[number].clone());
        let (sender, roster) = watch::channel(Arc::new(Roster::clone(&self.lines[number].roster())));
        let lines = Lines::new(roster, Arc::new(self.twin.clone()), PATIENCE, tokio::runtime::Handle::current());
        let own = own(inner.clone(), move |address, asker| inner.room(address, asker));
        let owners = Owners::over(own, lines.clone());
        self.peers[number] = Peers::over(Arc::new(owners.clone()), owners.clone());
        (self.owners[number], self.lines[number], self.rosters[number]) = (owners, lines, sender);
        self.servers[number] = self.serve(number);
        assert_eq!(self.lines[number].roster().me(), seat.id);
    }

    /// Nothing is there any more of the last member but its place in the list.
    fn lose_last(&mut self) {
        self.kill(self.servers.len() - 1);
        self.inners.pop();
        self.peers.pop();
        self.owners.pop();
        self.lines.pop();
        self.rosters.pop();
    }
}

#[tokio::test(start_paused = true)]
async fn who_returns_hears_what_others_keep_also_of_what_it_owns_for_somebody_who_is_away() {
    for returning in 0..3 {
        let mut fixed = Fixed::default();
        let samples = small(&mut fixed);
        // Room for a little more than all of it with those who are there, and little of it where the others keep the rest.
        let room = |number| Some(if number == returning { 10 } else { 48 });
        let mut cluster = Cluster::with_rooms(4, fixed, room);
        cluster.lose_last();
        let telling: Vec<_> = (0..3).map(|number| hand_over(&cluster, number, &samples)).collect();
        let mut fetched = Vec::new();
        while fetched.last() != Some(&0) {
            fetched.push(epoch(&cluster, &[0, 1, 2], &samples).await);
            assert!(fetched.len() < 9, "all of it is kept: {fetched:?}");
        }
        cluster.restart(returning);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(epoch(&cluster, &[0, 1, 2], &samples).await, 0, "{returning} has begun anew");
        for number in 0..3 {
            assert_eq!(bring_all(&cluster, number, &samples).await, (0, 100, 0), "as {number} would bring them");
        }
        telling.into_iter().for_each(|telling| telling.abort());
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_kept_in_the_stead_of_one_who_went_away_is_found_by_who_answers_for_it_now() {
    let mut fixed = Fixed::default();
    let samples = small(&mut fixed);
    let gone = 3;
    let mut cluster = Cluster::with_rooms(4, fixed, |number| Some(if number == gone { 10 } else { 32 }));
    let telling: Vec<_> = (0..4).map(|number| hand_over(&cluster, number, &samples)).collect();
    let left: Vec<usize> = (0..4).filter(|number| *number != gone).collect();
    let mut fetched = Vec::new();
    while fetched.last() != Some(&0) {
        fetched.push(epoch(&cluster, &left, &samples).await);
        assert!(fetched.len() < 9, "all of it is kept: {fetched:?}");
    }
    cluster.kill(gone);
    telling[gone].abort();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let lost = cluster.inners[gone].kept.lock().expect("nobody panicked").len() as u64;
    assert_eq!(epoch(&cluster, &left, &samples).await, lost, "nothing else leaves the store");
    telling.into_iter().for_each(|telling| telling.abort());
}

/// The member that it asks has what was read while this one was away, also where one is listed that never was there.
#[tokio::test(start_paused = true)]
async fn who_came_late_asks_who_answered_until_then() {
    for late in 0..3 {
        let mut fixed = Fixed::default();
        let samples = small(&mut fixed);
        let mut cluster = Cluster::with_room(4, fixed, Some(100));
        cluster.lose_last();
        cluster.kill(late);
        let readers: Vec<usize> = (0..3).filter(|number| *number != late).collect();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(epoch(&cluster, &readers, &samples).await, 100);
        cluster.restart(late);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(cluster.lines[late].came_late());
        let elders = Elders::over(Arc::new(Fixed::default()), cluster.lines[late].clone());
        let roster = cluster.lines[late].roster();
        let absent = seats(4)[3].id;
        let mut asked = 0;
        for (object, content) in &samples {
            let order = roster.order(&Stripe::of(&Address { object: object.clone(), index: 0 }));
            let first = order.into_iter().find(|id| *id != absent);
            if first == Some(roster.me()) {
                asked += 1;
                assert!(read(&elders, Run::new(object.clone(), 0..1)).await.expect("the store is empty") == *content);
            }
        }
        assert!(asked > 20, "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_stood_still_or_was_lost_asks_for_a_while_what_others_took_meanwhile() {
    let cluster = Cluster::of(3, Fixed::default());
    let [stopped, lost, neither] = [0, 1, 2].map(|number| cluster.lines[number].clone());
    let in_doubt = || [&stopped, &lost, &neither].map(Lines::came_late);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(in_doubt(), [false; 3], "who connects first had nothing to lose, nor has who connects once more");
    tokio::time::sleep(Duration::from_secs(30)).await;
    lost.knocks(seats(3)[2].id, true);
    assert_eq!(in_doubt(), [false, true, false]);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(in_doubt(), [false; 3], "and was told meanwhile");
    tokio::time::advance(Duration::from_millis(500)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(in_doubt(), [false; 3], "others wait as long");
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(in_doubt(), [true; 3], "the clock of all stood still");
}

/// Room comes free, for another member takes over some of what this one owns: what others keep in its stead comes from them.
#[tokio::test(start_paused = true)]
async fn who_has_room_again_asks_who_keeps_in_its_stead() {
    let mut fixed = Fixed::default();
    let samples = small(&mut fixed);
    let cluster = Cluster::with_rooms(3, fixed, |number| Some(if number == 0 { 10 } else { 60 }));
    let mut fetched = Vec::new();
    while fetched.last() != Some(&0) {
        fetched.push(epoch(&cluster, &[0, 1, 2], &samples).await);
        assert!(fetched.len() < 9, "all of it is kept: {fetched:?}");
    }
    assert!(!cluster.lines[0].came_late());
    let elders = Elders::over(Arc::new(Fixed::default()), cluster.lines[0].clone());
    let is_here = |object: &Object| cluster.inners[0].kept.lock().expect("nobody panicked").contains(&object.id());
    let elsewhere = samples.iter().filter(|(object, _)| cluster.owner(object) == 0 && !is_here(object));
    let mut asked = 0;
    for (object, content) in elsewhere {
        asked += 1;
        assert!(read(&elders, Run::new(object.clone(), 0..1)).await.expect("the store is empty") == *content);
    }
    assert!(asked > 10, "{asked}");
}

/// It has all that it had, and its age: only those who read around it know that it was away.
#[tokio::test(start_paused = true)]
async fn who_stood_still_for_a_while_hears_what_others_took_meanwhile() {
    for is_loaded in [false, true] {
        let mut fixed = Fixed::default();
        let samples = small(&mut fixed);
        let mut cluster = Cluster::with_room(3, fixed, Some(100));
        let telling: Vec<_> = (0..3).map(|number| hand_over(&cluster, number, &samples)).collect();
        cluster.kill(2);
        match is_loaded {
            true => assert_eq!(bring_all(&cluster, 0, &samples).await, (100, 0, 0)),
            false => assert_eq!(epoch(&cluster, &[0, 1], &samples).await, 100),
        }
        cluster.servers[2] = cluster.serve(2);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(epoch(&cluster, &[0, 1, 2], &samples).await, 0, "loaded: {is_loaded}");
        telling.into_iter().for_each(|telling| telling.abort());
    }
}

/// One member doesn't reach another one, and everybody else does.
#[tokio::test(start_paused = true)]
async fn who_is_asked_in_the_stead_of_a_member_that_answers_tells_it() {
    let mut fixed = Fixed::default();
    let samples = small(&mut fixed);
    let cluster = Cluster::with_room(3, fixed, Some(100));
    let roster = cluster.lines[0].roster();
    let lost = crate::link::Lost::Broken(Error::unavailable("no way", "n2"));
    for (object, _) in samples.iter().filter(|(object, _)| cluster.owner(object) == 2) {
        cluster.lines[0].contact(&roster, seats(3)[2].id).expect("a member").lost(&lost);
        read(&cluster.peers[0], Run::new(object.clone(), 0..1)).await.expect("bytes");
    }
    let by_others = cluster.inners[1].fetched.load(Relaxed);
    assert!(by_others > 5, "{by_others} were asked of the next in line");
    tokio::time::sleep(Duration::from_secs(12)).await;
    let before = cluster.fetched();
    for (object, _) in samples.iter().filter(|(object, _)| cluster.owner(object) == 2) {
        let stripe = Stripe::of(&Address { object: object.clone(), index: 0 });
        if roster.order(&stripe)[1] == seats(3)[1].id {
            read(&cluster.peers[2], Run::new(object.clone(), 0..1)).await.expect("bytes");
        }
    }
    assert_eq!(cluster.fetched(), before, "it has them from who was asked");
}
