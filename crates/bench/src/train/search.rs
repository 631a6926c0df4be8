//! The largest number of accelerators that passes: by doubling or halving from a guess, then by bisection.
//!
//! It measures nothing itself. Invariants: a search tries no number twice; an answer that is settled was tried twice, as
//! was the number after it.

use block::Result;

/// The largest number from 1 to `most` that passes, as far as more accelerators never pass where fewer don't; nothing
/// if one alone doesn't pass.
pub fn largest(guess: u64, most: u64, passes: &mut dyn FnMut(u64) -> Result<bool>) -> Result<Option<u64>> {
    let (mut good, mut bad) = (0, most + 1);
    let mut next = guess.clamp(1, most);
    while bad - good > 1 {
        if passes(next)? {
            good = next;
        } else {
            bad = next;
        }
        next = match (good, bad) {
            (0, bad) => (bad / 2).max(1),
            (good, bad) if bad == most + 1 => (good * 2).min(most),
            (good, bad) => good.midpoint(bad),
        };
    }
    Ok((good > 0).then_some(good))
}

/// An answer moves by so much at most when it is tried again.
const MOVES_MAX: u32 = 8;

/// What the tries of one number say together.
#[derive(Clone, Debug, Default)]
pub struct Tries(Vec<bool>);

impl Tries {
    pub fn add(&mut self, passed: bool) {
        self.0.push(passed);
    }

    /// What two of them agree on, or most of three.
    pub fn settled(&self) -> Option<bool> {
        let passed = self.0.iter().filter(|passed| **passed).count();
        [(passed, true), (self.0.len() - passed, false)]
            .into_iter()
            .find(|(count, _)| *count >= 2)
            .map(|(_, says)| says)
    }
}

/// The answer of a search, after its own number and the next were tried until two tries agree: it moves as they say.
/// `again` tries a number once more, and gives all tries of it.
pub fn settled(found: u64, most: u64, again: &mut dyn FnMut(u64) -> Result<Tries>) -> Result<Option<u64>> {
    let mut known = std::collections::BTreeMap::new();
    let mut passes = |number: u64| loop {
        if let Some(says) = known.get(&number) {
            return Ok::<bool, block::Error>(*says);
        }
        if let Some(says) = again(number)?.settled() {
            known.insert(number, says);
        }
    };
    let mut good = found;
    for _ in 0..MOVES_MAX {
        if good > 0 && !passes(good)? {
            good -= 1;
        } else if good < most && passes(good + 1)? {
            good += 1;
        } else {
            break;
        }
    }
    Ok((good > 0).then_some(good))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_passes_is_found_in_few_tries() {
        for most in [1, 7, 64, 1000] {
            for limit in 0..=most {
                for guess in [1, limit.max(1), most / 2 + 1] {
                    let mut tried = Vec::new();
                    let found = largest(guess, most, &mut |number| {
                        assert!(!tried.contains(&number) && (1..=most).contains(&number));
                        tried.push(number);
                        Ok(number <= limit)
                    });
                    assert_eq!(found.unwrap(), (limit > 0).then_some(limit), "{guess} of {most}");
                    assert!(tried.len() <= 22, "{guess} {limit} {most}: {tried:?}");
                }
            }
        }
    }

    #[test]
    fn a_good_guess_takes_few_tries() {
        let mut tries = 0;
        let found = largest(12, 4096, &mut |number| {
            tries += 1;
            Ok(number <= 13)
        });
        assert_eq!((found.unwrap(), tries), (Some(13), 6));
    }

    #[test]
    fn the_tries_around_an_answer_are_repeated_and_it_moves_with_them() {
        // 13 is the truth. One bad try brought the search to 11, one good one to 14, one bad one of a single to nothing.
        for (found, tried) in [(11, (12, false)), (14, (14, true)), (13, (13, true)), (0, (1, false))] {
            let mut tries = std::collections::BTreeMap::<u64, Tries>::new();
            tries.entry(tried.0).or_default().add(tried.1);
            let mut answer = settled(found, 13 + found, &mut |number| {
                let all = tries.entry(number).or_default();
                all.add(number <= 13);
                Ok(all.clone())
            });
            if found == 0 {
                // From there it goes as far as it may in one go.
                assert!(answer.unwrap() >= Some(8), "{tries:?}");
                continue;
            }
            assert_eq!(answer.as_mut().unwrap(), &mut Some(13), "{found}: {tries:?}");
            assert!(tries[&13].0.len() >= 2 && tries[&14].0.len() >= 2, "{tries:?}");
        }
    }

    #[test]
    fn two_tries_that_agree_say_it() {
        let says = |all: &[bool]| Tries(all.to_vec()).settled();
        assert_eq!([says(&[]), says(&[true]), says(&[true, false])], [None; 3]);
        assert_eq!([says(&[true, true]), says(&[false, true, false])], [Some(true), Some(false)]);
    }
}
