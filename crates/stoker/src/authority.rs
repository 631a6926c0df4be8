//! Who decides which nodes are members of a cluster: it gives each a certificate and a key.
//!
//! In memory alone; where its parts are kept or sent is for those who ask.
//! Invariant: nothing here prints or writes a key.

use anyhow::Result;
use peer::{Seat, certified_name};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

/// Clocks of members may be behind that of this machine.
const CLOCKS_BEHIND: Duration = Duration::hours(1);

/// How long an authority lasts beside the certificates that it gives out.
const AUTHORITY_DAYS: i64 = 3650;

/// Whoever has it decides who is a member.
pub struct Authority {
    /// As PEM.
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
    now: OffsetDateTime,
}

/// By what a member is known, as PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// A new one, and its key as PEM.
    pub fn new(now: OffsetDateTime) -> Result<(Authority, String)> {
        let (params, pair) = (params(now), KeyPair::generate()?);
        let (certificate, key) = (params.self_signed(&pair)?.pem(), pair.serialize_pem());
        Ok((Authority { certificate, issuer: Issuer::new(params, pair), now }, key))
    }

    /// One that members know already.
    pub fn known(certificate: String, pair: KeyPair, now: OffsetDateTime) -> Authority {
        Authority { certificate, issuer: Issuer::new(params(now), pair), now }
    }

    /// A certificate and a key for a member.
    pub fn certify(&self, seat: &Seat, lasts: Duration) -> Result<Identity> {
        let mut params = CertificateParams::new(vec![certified_name(seat.id)])?;
        params.distinguished_name.push(DnType::CommonName, seat.name.as_str());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = (self.now - CLOCKS_BEHIND, self.now + lasts);
        let key = KeyPair::generate()?;
        Ok(Identity { certificate: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// The same words each time, so that what a known key signs is of the authority that members know.
fn params(now: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "stoker cluster");
    (params.not_before, params.not_after) = (now - CLOCKS_BEHIND, now + Duration::days(AUTHORITY_DAYS));
    params
}
