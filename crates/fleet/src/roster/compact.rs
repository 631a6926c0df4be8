//! Lists of hosts as Slurm writes them: `node[01-04,07]`, several of them behind commas, several brackets in a name.
//!
//! It doesn't judge names. Invariant: no list is written out that has more names than asked for.

/// Write a list out.
pub fn expand(list: &str, most: usize) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in parts(list)? {
        names.extend(of_part(part, most)?);
        if names.len() > most {
            return Err(too_many());
        }
    }
    Ok(names)
}

fn too_many() -> String {
    format!("there are more than {} hosts", super::HOSTS_MAX)
}

/// Cut at the commas outside of brackets.
fn parts(list: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut from, mut is_inside) = (Vec::new(), 0, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' if !is_inside => is_inside = true,
            ']' if is_inside => is_inside = false,
            '[' | ']' => return Err("a bracket too many in the list".into()),
            ',' if !is_inside => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err("a bracket of the list is not closed".into());
    }
    parts.push(&list[from..]);
    Ok(parts)
}

/// All names of one pattern.
fn of_part(part: &str, most: usize) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = part;
    while let Some((before, behind)) = rest.split_once('[') {
        let (inside, behind) = behind.split_once(']').ok_or("a bracket of the list is not closed")?;
        rest = behind;
        // An IPv6 address, which has no ranges.
        let endings = if inside.contains(':') { vec![format!("[{inside}]")] } else { numbers(inside, most)? };
        if names.len().saturating_mul(endings.len()) > most {
            return Err(too_many());
        }
        names = names.iter().flat_map(|name| endings.iter().map(move |end| format!("{name}{before}{end}"))).collect();
    }
    Ok(names.into_iter().map(|name| name + rest).collect())
}

/// `01-04,07`, as long as the first number of each range is written.
fn numbers(text: &str, most: usize) -> Result<Vec<String>, String> {
    let wrong = || format!("`[{}]` is no range: write it like [01-04,07]", crate::host::shown(text));
    let mut all = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
        let (from, to) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
        if from > to || first.len() > 10 {
            return Err(wrong());
        }
        if (to - from) as usize >= most.saturating_sub(all.len()) {
            return Err(too_many());
        }
        all.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_keep_their_zeros_and_brackets_multiply() {
        assert_eq!(expand("n[08-11,3]x", 9).expect("names"), ["n08x", "n09x", "n10x", "n11x", "n3x"]);
        assert_eq!(expand("r[1-2]n[1-2],z", 9).expect("names"), ["r1n1", "r1n2", "r2n1", "r2n2", "z"]);
        assert_eq!(expand("[::1]:4", 9).expect("names"), ["[::1]:4"]);
        for list in ["n[1-2", "n1]", "n[[1]]", "n[]", "n[a]", "n[1-]", "n[-1]", "n[2-1]", "n[1-2-3]", "n[99999999999]"]
        {
            assert!(expand(list, 9).is_err(), "{list}");
        }
        assert!(expand("n[1-4294967295]", 9).is_err() && expand("n[1-3][1-3][1-3]", 9).is_err());
    }

    proptest! {
        #[test]
        fn no_list_is_written_out_past_its_limit(text in "[-a0-9,\\[\\]]{0,40}") {
            if let Ok(names) = expand(&text, 50) {
                prop_assert!(names.len() <= 50);
            }
        }
    }
}
