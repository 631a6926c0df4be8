//! Members that want the names of a set at about the same time: one lists it, whoever of them comes when, and the others take
//! what it found. The network takes its time by chance, and the clock moves only when nobody has anything to do.

use super::weather::{Chance, Weather};
use super::*;
use tokio::time::sleep;

const SET: u128 = 7;

/// How many members listed.
async fn play(seed: u64, members: usize) -> usize {
    let (twin, fixed, mut chance) = (Twin::default(), Arc::new(Fixed::default()), Chance::new(seed));
    let weather = Weather::new(twin.clone(), seed);
    weather.slow(chance.below(60));
    let (mut servers, mut starting) = (tokio::task::JoinSet::new(), tokio::task::JoinSet::new());
    for seat in seats(members) {
        let (sender, roster) = watch::channel(Arc::new(Roster::of(seat.id, seats(members))));
        let lines = Lines::new(roster, Arc::new(weather.at(seat.id)), PATIENCE, tokio::runtime::Handle::current());
        let inner = Arc::new(Inner::of(fixed.clone(), None));
        servers.spawn(serve(Box::new(twin.listen(&seat.address)), inner.clone(), lines.clone()));
        let (begins, takes) = (chance.below(200), chance.below(400));
        starting.spawn(async move {
            let say = |names| *inner.names.lock().expect("nobody panicked") = names;
            sleep(Duration::from_millis(begins)).await;
            say(Names { soon: Soon::Asks, ..Names::default() });
            let soon = |lists| if lists { Soon::Lists } else { Soon::Asks };
            let found = lines.names(SET, || 1, |lists| say(Names { soon: soon(lists), ..Names::default() })).await;
            if found.is_none() {
                sleep(Duration::from_millis(takes)).await;
            }
            say(Names { id: 1, bytes: 1, listed_ns: 1, ..Names::default() });
            drop(sender);
            found.is_none()
        });
    }
    let listed = starting.join_all().await.into_iter().filter(|listed| *listed).count();
    servers.abort_all();
    listed
}

#[test]
fn of_members_that_start_at_about_the_same_time_one_lists() {
    for seed in 0..200 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let listed = runtime.block_on(play(seed, 2 + seed as usize % 5));
        assert_eq!(listed, 1, "seed {seed}");
    }
}

impl Cluster {
    fn say(&self, member: usize, names: Names) {
        *self.inners[member].names.lock().expect("nobody panicked") = names;
    }

    /// Have a member find the names of the set; whether it listed them, and after how long it goes on.
    async fn find(&self, member: usize) -> (bool, Duration) {
        let began = tokio::time::Instant::now();
        self.say(member, Names { soon: Soon::Asks, ..Names::default() });
        let soon = |lists| if lists { Soon::Lists } else { Soon::Asks };
        let said = |lists| self.say(member, Names { soon: soon(lists), ..Names::default() });
        let found = self.lines[member].names(SET, || 1, said).await;
        let took = began.elapsed();
        sleep(Duration::from_secs(5)).await;
        self.say(member, Names { id: 1, bytes: 1, listed_ns: 1, ..Names::default() });
        (found.is_none(), took)
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_member_that_lists_and_gets_no_further_and_the_next_in_line_lists() {
    let cluster = Cluster::of(4, Fixed::default());
    cluster.say(0, Names { soon: Soon::Lists, keys: 7_000, ..Names::default() });
    let all = async { tokio::join!(cluster.find(1), cluster.find(2), cluster.find(3)) };
    let found = tokio::time::timeout(4 * PATIENCE, all).await.expect("nobody waits for ever");
    let found = [found.0, found.1, found.2];
    assert_eq!(found.iter().filter(|(listed, _)| *listed).count(), 1, "{found:?}");
    assert!(found.iter().all(|(_, took)| *took >= 2 * PATIENCE), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_lists_is_waited_for_as_long_as_it_gets_further() {
    let cluster = Cluster::of(2, Fixed::default());
    let listing = async {
        for keys in 0..100 {
            cluster.say(0, Names { soon: Soon::Lists, keys, ..Names::default() });
            sleep(PATIENCE).await;
        }
        cluster.say(0, Names { id: 1, bytes: 1, listed_ns: 1, ..Names::default() });
    };
    let ((), (listed, took)) = tokio::join!(listing, cluster.find(1));
    assert!(!listed && took >= 100 * PATIENCE, "after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn names_that_are_said_to_be_of_the_future_are_not_believed_and_hide_no_others() {
    let cluster = Cluster::of(3, Fixed::default());
    let names = |id, listed_ns| Names { id, bytes: 1, listed_ns, ..Names::default() };
    cluster.say(0, names(1, i64::MAX));
    assert_eq!(cluster.lines[2].names(SET, || 100, |_| ()).await, None);
    cluster.say(1, names(2, 100));
    let found = cluster.lines[2].names(SET, || 100, |_| ()).await;
    assert_eq!(found, Some((seats(3)[1].id, names(2, 100))));
}
