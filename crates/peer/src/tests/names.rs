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
            let found = lines.names(SET, |lists| say(Names { soon: soon(lists), ..Names::default() })).await;
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
