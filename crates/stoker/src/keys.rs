//! `stoker keys`: an authority for a cluster, and a key and a certificate for each of its members.
//!
//! Invariant: the key of the authority leaves this machine only if its user carries it; no key is printed.

use crate::args::Keys;
use crate::{place, show};
use anyhow::Context;
use block::{Error, Result, quoted};
use peer::{Members, Seat, certified_name};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;
use time::{Duration, OffsetDateTime};

/// Clocks of members may be behind that of this machine.
const CLOCKS_BEHIND: Duration = Duration::hours(1);

/// How long an authority lasts beside the certificates that it gives out.
const AUTHORITY_DAYS: i64 = 3650;

pub fn run(args: &Keys) -> anyhow::Result<ExitCode> {
    let seats = args.members.parse::<Members>()?.read()?;
    let out = place::absolute(&args.out)?;
    private_folder(&out)?;
    let authority = Authority::of(&out, OffsetDateTime::now_utc())?;
    let mut made = 0;
    for seat in &seats {
        let folder = out.join(folder_of(&seat.name));
        if folder.join("node.key").exists() && !args.renew {
            continue;
        }
        let (certificate, key) = authority.certify(seat, args.days)?;
        private_folder(&folder)?;
        write(&folder.join("ca.pem"), &authority.certificate)?;
        write(&folder.join("node.pem"), &certificate)?;
        write(&folder.join("node.key"), &key)?;
        made += 1;
    }
    let (of, days) = (show::count_of(seats.len() as u64, "member"), args.days);
    say!("keys of {made} of {of} in {}, good for {days} days", out.display())?;
    note!("bring each member its own folder, then mount with --identity FOLDER; keep ca.key to yourself");
    Ok(ExitCode::SUCCESS)
}

/// Whoever has it decides who is a member.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    now: OffsetDateTime,
}

impl Authority {
    /// The one whose key lies in a folder, or a new one that is put there.
    fn of(folder: &Path, now: OffsetDateTime) -> anyhow::Result<Authority> {
        let (pem, key) = (folder.join("ca.pem"), folder.join("ca.key"));
        let is_known = key.exists();
        let pair =
            match is_known {
                true => KeyPair::from_pem(
                    &std::fs::read_to_string(&key).with_context(|| format!("reading {}", key.display()))?,
                )
                .map_err(|_| Error::invalid("this file holds no key", key.display()).hint("remove it to begin anew"))?,
                false => KeyPair::generate()?,
            };
        // The same words each time, so that what a known key signs is of the authority that members know.
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "stoker cluster");
        (params.not_before, params.not_after) = (now - CLOCKS_BEHIND, now + Duration::days(AUTHORITY_DAYS));
        let certificate = match is_known {
            true => std::fs::read_to_string(&pem).with_context(|| format!("reading {}", pem.display()))?,
            false => {
                let certificate = params.self_signed(&pair)?.pem();
                write(&key, &pair.serialize_pem())?;
                write(&pem, &certificate)?;
                certificate
            }
        };
        Ok(Authority { certificate, issuer: Issuer::new(params, pair), now })
    }

    /// A certificate and a key for a member, as PEM.
    fn certify(&self, seat: &Seat, days: u32) -> anyhow::Result<(String, String)> {
        let mut params = CertificateParams::new(vec![certified_name(seat.id)])?;
        params.distinguished_name.push(DnType::CommonName, seat.name.as_str());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = self.now - CLOCKS_BEHIND;
        params.not_after = self.now + Duration::days(days.into());
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }
}

/// A member's name as that of a folder: it has no slash, but may be `..`.
fn folder_of(name: &str) -> String {
    if name.starts_with('.') { format!("_{name}") } else { name.to_owned() }
}

fn private_folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Error::io("cannot make a folder for keys", path.display(), &error))
}

/// Written under another name first, so that a member that reads it meanwhile reads one of both.
fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::io("cannot write", path.display(), &error).hint(format!("see whether {} can be written", quoted(path)))
    };
    let draft = path.with_added_extension("new");
    let _ = std::fs::remove_file(&draft);
    let made = File::options().write(true).create_new(true).mode(0o600).open(&draft);
    made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    std::fs::rename(&draft, path).map_err(failed)
}
