//! How a bucket of S3 is reached: what was typed, with what AWS's own tools were told.

use super::set;
use crate::args::Reach;
use block::Result;
use store::Configured;

/// What AWS's tools were told beside what was typed.
pub fn configured(asked: &Reach) -> Result<Configured> {
    let needs = (asked.endpoint.is_none(), asked.region.is_none());
    store::configured(&set, asked.profile.as_deref(), needs)
}

/// Where the store is, a profile tells in any case, also where keys of the environment go before it.
pub fn reach(asked: &Reach) -> Result<Reach> {
    let profile = profile(asked);
    let Configured { endpoint, region } = configured(asked)?;
    let endpoint = asked.endpoint.clone().or_else(|| endpoint.map(|told| told.value));
    let region = asked.region.clone().or_else(|| region.map(|told| told.value));
    Ok(Reach { endpoint, region, profile, anonymous: asked.anonymous })
}

/// The profile whose credentials are meant, if one is named.
pub fn profile(asked: &Reach) -> Option<String> {
    store::named_profile(&set, asked.profile.as_deref())
}
