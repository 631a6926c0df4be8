//! Who is let in, over sockets of this machine.

use super::*;
use crate::link::Link;
use crate::wire::Greeting;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// An authority that can be asked for keys of any member.
struct Authority(String, Issuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().expect("a key"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("signed").pem();
        Authority(certificate, Issuer::new(params, key))
    }

    /// A folder with the keys of a member; out of date if it is asked for.
    fn folder(&self, member: u128, is_expired: bool) -> TempDir {
        let mut params = CertificateParams::new(vec![certified_name(member)]).expect("a name");
        if is_expired {
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        put("ca.pem", &self.0);
        put("node.pem", &params.signed_by(&key, &self.1).expect("signed").pem());
        put("node.key", &key.serialize_pem());
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.path().join("node.key"), mode).expect("ours");
        folder
    }
}

/// What becomes of a connection of an asker to a member 1 with these keys: who it proved to be, or why not.
async fn meet(
    answers: &Tls,
    asks: &dyn Transport,
    meant: u128,
) -> std::result::Result<Box<dyn Fn(u128) -> bool + Send>, String> {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let seat =
        Seat { id: meant, name: "it".into(), address: socket.local_addr().expect("bound").to_string(), weight: 1 };
    let mut listener = answers.listener(socket);
    let answering = async { listener.accept().await?.await };
    let asking = async {
        let wire = asks.connect(&seat).await?;
        let greeting = Greeting { from: 2, to: meant };
        // TLS 1.3 tells an asker that it was refused when it reads.
        match Link::begin(wire, "it", greeting, (&tokio::runtime::Handle::current(), Default::default())).await {
            Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(explained(error)),
            _ => Ok(()),
        }
    };
    let (answered, asked) = tokio::join!(answering, asking);
    match (answered, asked) {
        (Ok(wire), Ok(())) => Ok(wire.is_member),
        (answered, asked) => Err(format!("{:?} {:?}", answered.err(), asked.err())),
    }
}

#[tokio::test]
async fn members_of_one_authority_know_each_other_and_nobody_else_is_let_in() {
    let (ours, other) = (Authority::new(), Authority::new());
    let load = |folder: &TempDir, member| Tls::load(folder.path(), member).expect("keys");
    let (one, two) = (ours.folder(1, false), ours.folder(2, false));
    let (one, two) = (load(&one, 1), load(&two, 2));
    let is_member = meet(&one, &two, 1).await.map_err(|error| panic!("{error}")).expect("both are members");
    assert!(is_member(2) && !is_member(1) && !is_member(3), "it is the one that its certificate is of");
    let refused = |met: std::result::Result<Box<dyn Fn(u128) -> bool + Send>, String>, word: &str| {
        let said = met.err().unwrap_or_default();
        assert!(said.contains(word), "{word}: {said}");
    };
    refused(meet(&one, &two, 7).await, "another member has this address");
    let foreign = other.folder(2, false);
    refused(meet(&one, &load(&foreign, 2), 1).await, "of another cluster");
    let late = ours.folder(2, true);
    refused(meet(&one, &load(&late, 2), 1).await, "renew the keys");
    let late = ours.folder(1, true);
    refused(meet(&load(&late, 1), &two, 1).await, "renew the keys");
    assert!(meet(&one, &crate::Tcp, 1).await.is_err(), "who doesn't encrypt hears nothing");
    assert!(greeted_in_plain_text(&two).await.contains("unencrypted"));
}

/// What an asker with keys is told of a member that has none, and hangs up.
async fn greeted_in_plain_text(asks: &Tls) -> String {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = socket.local_addr().expect("bound").to_string();
    let answering = async {
        let mut stream = socket.accept().await.expect("a connection").0;
        let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 36]).await;
    };
    let seat = Seat::new("it", address, 1);
    let (asked, ()) = tokio::join!(asks.connect(&seat), answering);
    asked.err().map(|error| error.to_string()).unwrap_or_default()
}

#[tokio::test]
async fn keys_that_are_renewed_count_without_a_restart() {
    let (ours, next) = (Authority::new(), Authority::new());
    let (one, two) = (ours.folder(1, false), ours.folder(2, false));
    let (first, second) = (Tls::load(one.path(), 1).expect("keys"), Tls::load(two.path(), 2).expect("keys"));
    assert!(meet(&first, &second, 1).await.is_ok());
    for (folder, member) in [(&one, 1), (&two, 2)] {
        let renewed = next.folder(member, false);
        for name in FILES {
            std::fs::rename(renewed.path().join(name), folder.path().join(name)).expect("put in its place");
        }
    }
    assert!(meet(&first, &second, 1).await.is_ok());
    std::fs::write(one.path().join("node.pem"), "damaged").expect("written");
    assert!(meet(&first, &second, 1).await.is_ok(), "what can't be read changes nothing");
}

#[test]
fn keys_that_can_t_be_meant_are_refused_with_what_to_do() {
    let folder = Authority::new().folder(1, false);
    let refused = |member| Tls::load(folder.path(), member).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused(2).contains("of another member"));
    let above = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(folder.path(), above.path().join("n0")).expect("a link");
    let parent = Tls::load(above.path(), 1).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(parent.contains("of all members") && parent.contains("/n0"), "{parent}");
    std::fs::write(folder.path().join("ca.pem"), Authority::new().0).expect("written");
    assert!(refused(1).contains("did not sign"), "{}", refused(1));
    let key = folder.path().join("node.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("ours");
    assert!(refused(1).contains("chmod 600"), "{}", refused(1));
    std::fs::remove_file(&key).expect("removed");
    assert!(refused(1).contains("stoker keys"), "{}", refused(1));
}
