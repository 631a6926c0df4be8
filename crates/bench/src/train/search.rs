//! The largest number of accelerators that passes: by growing strides from a guess, then by bisection.
//!
//! It measures nothing itself. Invariants: a search asks for no number twice; an answer that is settled was tried until two
//! tries agreed, as was the number after it.

use block::Result;

/// The largest number from 1 to `most` that passes, as far as more accelerators never pass where fewer don't; nothing
/// if one alone doesn't pass.
pub fn largest(guess: u64, most: u64, passes: &mut dyn FnMut(u64) -> Result<bool>) -> Result<Option<u64>> {
    let guess = guess.clamp(1, most);
    search(guess, guess.div_ceil(2), most, passes)
}

/// From a number away in strides that double, until one that passes lies below one that doesn't.
fn search(first: u64, mut stride: u64, most: u64, passes: &mut dyn FnMut(u64) -> Result<bool>) -> Result<Option<u64>> {
    let (mut good, mut bad, mut next) = (0, most + 1, first);
    while bad - good > 1 {
        if passes(next)? {
            good = next;
        } else {
            bad = next;
        }
        next = match (good, bad) {
            (0, bad) => bad.saturating_sub(stride).max(1),
            (good, bad) if bad == most + 1 => (good + stride).min(most),
            (good, bad) => good.midpoint(bad),
        };
        stride = stride.saturating_mul(2);
    }
    Ok((good > 0).then_some(good))
}

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

/// The answer of a search, after its own number and the next were tried until two tries agree. Where they contradict it,
/// it is sought further by such tries alone. `again` tries a number once more, and gives all tries of it.
pub fn settled(found: u64, most: u64, again: &mut dyn FnMut(u64) -> Result<Tries>) -> Result<Option<u64>> {
    search(found.max(1), 1, most, &mut |number| {
        loop {
            if let Some(says) = again(number)?.settled() {
                return Ok(says);
            }
        }
    })
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
        assert_eq!((found.unwrap(), tries), (Some(13), 5));
    }

    #[test]
    fn an_answer_is_settled_only_by_tries_of_it_and_of_the_next() {
        // 13 is the truth. One bad try brought the search to 11, one good one to 14, one bad one of a single to nothing.
        for (found, tried) in [(11, (12, false)), (14, (14, true)), (13, (13, true)), (0, (1, false)), (40, (40, true))]
        {
            let mut tries = std::collections::BTreeMap::<u64, Tries>::new();
            tries.entry(tried.0).or_default().add(tried.1);
            let answer = settled(found, 60, &mut |number| {
                let all = tries.entry(number).or_default();
                all.add(number <= 13);
                Ok(all.clone())
            });
            assert_eq!(answer.unwrap(), Some(13), "{found}: {tries:?}");
            assert!(tries[&13].0.len() >= 2 && tries[&14].0.len() >= 2, "{tries:?}");
        }
    }

    #[test]
    fn an_answer_that_holds_costs_no_tries_but_its_own_and_those_of_the_next() {
        let mut tries = std::collections::BTreeMap::<u64, Tries>::new();
        let answer = settled(13, 60, &mut |number| {
            let all = tries.entry(number).or_default();
            all.add(number <= 13);
            Ok(all.clone())
        });
        assert_eq!((answer.unwrap(), tries.into_keys().collect()), (Some(13), vec![13, 14]));
    }

    #[test]
    fn two_tries_that_agree_say_it() {
        let says = |all: &[bool]| Tries(all.to_vec()).settled();
        assert_eq!([says(&[]), says(&[true]), says(&[true, false])], [None; 3]);
        assert_eq!([says(&[true, true]), says(&[false, true, false])], [Some(true), Some(false)]);
    }
}
