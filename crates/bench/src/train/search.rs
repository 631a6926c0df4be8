//! The largest number of accelerators that passes: by doubling or halving from a guess, then by bisection.
//!
//! It measures nothing itself. Invariant: no number is tried twice, and the answer passed when it was tried.

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
}
