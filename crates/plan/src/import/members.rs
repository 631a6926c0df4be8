//! Members of an object deep in a JSON text, one by one: of a list of half a gigabyte, one product at a time is held.
//!
//! It knows no provider. Invariant: what nobody asked for is skipped without being kept.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::wrong::{Result, Wrong};

/// What is done with a member: by its name, whether it is read at all; and then with what it is.
pub(super) trait Reader {
    fn is_wanted(&self, name: &str) -> bool;
    fn read(&mut self, name: &str, value: &Value) -> Result<()>;
}

/// All members of the object at `path` that are wanted; whether there is such an object.
pub(super) fn each(text: &str, path: &[&str], reader: &mut dyn Reader) -> Result<bool, Broken> {
    let (mut is_found, mut wrong) = (false, None);
    let down = Down { path, reader, is_found: &mut is_found, wrong: &mut wrong };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = down.deserialize(&mut json).and_then(|()| json.end());
    match (wrong, read) {
        (Some(wrong), _) => Err(Broken::Member(wrong)),
        (None, Ok(())) => Ok(is_found),
        (None, Err(error)) if error.is_data() => Ok(false),
        (None, Err(error)) => Err(Broken::Json(error)),
    }
}

/// Why a text was not read to its end.
pub(super) enum Broken {
    Json(serde_json::Error),
    Member(Wrong),
}

struct Down<'a> {
    path: &'a [&'a str],
    reader: &'a mut dyn Reader,
    is_found: &'a mut bool,
    wrong: &'a mut Option<Wrong>,
}

impl<'de> DeserializeSeed<'de> for Down<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Down<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<(), M::Error> {
        let Some((next, path)) = self.path.split_first() else {
            *self.is_found = true;
            while let Some(name) = map.next_key::<String>()? {
                if !self.reader.is_wanted(&name) {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                let value: Value = map.next_value()?;
                if let Err(wrong) = self.reader.read(&name, &value) {
                    *self.wrong = Some(wrong);
                    return Err(M::Error::custom("a member is refused"));
                }
            }
            return Ok(());
        };
        while let Some(name) = map.next_key::<String>()? {
            if name == *next {
                let (reader, is_found, wrong) = (&mut *self.reader, &mut *self.is_found, &mut *self.wrong);
                map.next_value_seed(Down { path, reader, is_found, wrong })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}
