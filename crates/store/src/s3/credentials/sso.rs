//! Credentials of whoever logged in by `aws sso login`: a token that the login left in a file, given for keys of a role.
//!
//! Both forms of profiles are understood: with `sso_session`, as `aws configure sso` writes them now, and with `sso_start_url`
//! alone. Invariant: the file is read anew each time, for a login replaces it; the token is in no error.

use super::super::wire::finds;
use super::profiles::{Profile, Profiles};
use crate::files::is_absent;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use percent_encoding::utf8_percent_encode;
use reqsign_aws_v4::Credential;
use reqsign_core::hash::hex_sha1;
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, Error, ProvideCredential, Result};
use serde::Deserialize;

/// Where a login leaves its token, below the home folder.
const TOKENS: &str = "~/.aws/sso/cache";

/// Another server than AWS's, as AWS's tools know it.
const ENDPOINT: &str = "AWS_ENDPOINT_URL_SSO";

/// Who is meant by a profile of this kind.
#[derive(Clone, Debug)]
pub struct Sso {
    profile: String,
    /// By what the file of the token is named: the name of the session, else the address of the login.
    named_by: String,
    region: String,
    account: String,
    role: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    access_token: String,
    expires_at: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    role_credentials: Keys,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Keys {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    /// Milliseconds since 1970.
    expiration: i64,
}

impl Sso {
    /// As a profile has it.
    pub fn of(profile: &Profile<'_>, files: &Profiles) -> Result<Sso> {
        let wrong = |what: &str| Error::config_invalid(format!("profile {}: {what}", profile.name));
        let own = |name: &str| profile.get(name).map(str::to_owned);
        let needed = |name: &str, value: Option<String>| value.ok_or_else(|| wrong(&format!("{name} is not set")));
        let (named_by, region) = match profile.get("sso_session") {
            None => (needed("sso_start_url", own("sso_start_url"))?, own("sso_region")),
            Some(session) => {
                let section = files.session(session);
                let section = section.ok_or_else(|| wrong(&format!("there is no section [sso-session {session}]")))?;
                (session.to_owned(), section.get("sso_region").map(str::to_owned).or_else(|| own("sso_region")))
            }
        };
        Ok(Sso {
            profile: profile.name.to_owned(),
            named_by,
            region: needed("sso_region", region)?,
            account: needed("sso_account_id", own("sso_account_id"))?,
            role: needed("sso_role_name", own("sso_role_name"))?,
        })
    }

    /// Whom its keys stand for.
    pub fn who(&self) -> String {
        format!("sso {} {}", self.account, self.role)
    }

    fn log_in(&self, what: &str) -> Error {
        Error::credential_invalid(format!("{what}: run `aws sso login --profile {}`", self.profile))
    }

    /// The token of the last login.
    async fn token(&self, context: &Context) -> Result<String> {
        let file = format!("{TOKENS}/{}.json", hex_sha1(self.named_by.as_bytes()));
        let path = context
            .expand_home_dir(&file)
            .ok_or_else(|| Error::config_invalid(format!("there is no home folder to find {file} in: set HOME")))?;
        let bytes = match context.file_read(&path).await {
            Err(error) if finds(&error, is_absent) => return Err(self.log_in("nobody has logged in")),
            read => read?,
        };
        let token: Token = serde_json::from_slice(&bytes)
            .map_err(|_| self.log_in(&format!("the token in {path} is not understood")))?;
        let ends = token.expires_at.replace("UTC", "Z").parse::<Timestamp>();
        match ends {
            Ok(ends) if ends > Timestamp::now() => Ok(token.access_token),
            _ => Err(self.log_in("the login has expired")),
        }
    }

    fn url(&self, context: &Context) -> String {
        let given = context.env_var(ENDPOINT).filter(|given| !given.is_empty());
        let suffix = if self.region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let host = given.unwrap_or_else(|| format!("https://portal.sso.{}.{suffix}", self.region));
        let encoded = |value| utf8_percent_encode(value, &super::super::endpoint::STRICT);
        let (role, account) = (encoded(&self.role), encoded(&self.account));
        format!("{}/federation/credentials?role_name={role}&account_id={account}", host.trim_end_matches('/'))
    }
}

impl ProvideCredential for Sso {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        let token = self.token(context).await?;
        let request = Request::builder().method(Method::GET).uri(self.url(context));
        let request = request.header("x-amz-sso_bearer_token", token).body(Bytes::new());
        let request =
            request.map_err(|_| Error::config_invalid(format!("{ENDPOINT} or the token makes no request")))?;
        let answer = context.http_send(request).await?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(self.log_in("the login is no longer taken")),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(Error::unexpected(format!("AWS's portal answered {status}")));
            }
            status => {
                let what = format!("the role {} of account {} is refused ({status})", self.role, self.account);
                return Err(Error::credential_invalid(what));
            }
        }
        let answer: Answer = serde_json::from_slice(answer.body())
            .map_err(|_| Error::unexpected("the answer of AWS's portal is not understood"))?;
        let Keys { access_key_id, secret_access_key, session_token, expiration } = answer.role_credentials;
        let ends = Timestamp::from_millisecond(expiration).ok();
        Ok(Some(Credential { access_key_id, secret_access_key, session_token: Some(session_token), expires_in: ends }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine;
    use super::*;
    use crate::retry::Chance;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::Arc;

    const CONFIG: &str = "[profile new]\nsso_session = ours\nsso_account_id = 123456789012\nsso_role_name = Read Only\n\
        [sso-session ours]\nsso_region = eu-west-1\nsso_start_url = https://ours.awsapps.com/start\n\
        [profile old]\nsso_start_url = https://ours.awsapps.com/start\nsso_region = eu-west-1\nsso_account_id = 1\nsso_role_name = r\n\
        [profile lost]\nsso_session = other\nsso_account_id = 1\nsso_role_name = r\n\
        [profile short]\nsso_session = ours\nsso_account_id = 1\n";

    fn meant(profile: &str) -> Result<Sso> {
        let files = Profiles::of(CONFIG, "").expect("profiles");
        Sso::of(&files.profile(profile).expect("a profile"), &files)
    }

    fn logged_in(home: &Path, by: &str, until: &str) {
        let cache = home.join(".aws/sso/cache");
        std::fs::create_dir_all(&cache).expect("made");
        let token = format!("{{\"accessToken\":\"t0ken\",\"expiresAt\":\"{until}\",\"region\":\"eu-west-1\"}}");
        std::fs::write(cache.join(format!("{by}.json")), token).expect("written");
    }

    /// A portal that answers once, and what it was asked.
    fn portal() -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a request");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a head");
                head.push(byte[0]);
            }
            let body = "{\"roleCredentials\":{\"accessKeyId\":\"AKIA\",\"secretAccessKey\":\"s\",\"sessionToken\":\"st\",\"expiration\":4102444800000}}";
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("answered");
            String::from_utf8(head).expect("text")
        });
        (url, asked)
    }

    async fn keys(profile: &str, home: &Path, url: &str) -> Result<Option<Credential>> {
        let set = [("HOME", home.to_string_lossy().into_owned()), (ENDPOINT, url.to_owned())];
        let set = set.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        let (context, _) = machine::context(&set, Arc::new(Chance::new(0)));
        meant(profile)?.provide_credential(&context).await
    }

    #[tokio::test]
    async fn a_login_of_a_session_is_given_for_keys_of_the_role() {
        let home = tempfile::tempdir().expect("a folder");
        // SHA-1 of "ours", and of the address of the login.
        for (profile, by, asked_for) in [
            ("new", hex_sha1(b"ours"), "role_name=Read%20Only&account_id=123456789012"),
            ("old", hex_sha1(b"https://ours.awsapps.com/start"), "role_name=r&account_id=1"),
        ] {
            logged_in(home.path(), &by, "2099-01-01T00:00:00Z");
            let (url, asked) = portal();
            let found = keys(profile, home.path(), &url).await.expect("keys").expect("keys");
            assert_eq!((found.access_key_id.as_str(), found.session_token.as_deref()), ("AKIA", Some("st")));
            assert_eq!(found.expires_in.map(Timestamp::as_second), Some(4_102_444_800));
            let asked = asked.join().expect("it was asked");
            assert!(asked.starts_with(&format!("GET /federation/credentials?{asked_for} ")), "{asked}");
            assert!(asked.contains("x-amz-sso_bearer_token: t0ken\r\n"), "{asked}");
        }
    }

    #[tokio::test]
    async fn a_login_that_is_missing_or_over_says_which_command_renews_it() {
        let home = tempfile::tempdir().expect("a folder");
        let nobody = "http://127.0.0.1:1";
        let absent = keys("new", home.path(), nobody).await.expect_err("nobody logged in").to_string();
        assert!(absent.contains("aws sso login --profile new"), "{absent}");
        for over in ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00UTC", "soon"] {
            logged_in(home.path(), &hex_sha1(b"ours"), over);
            let error = keys("new", home.path(), nobody).await.expect_err("it is over").to_string();
            assert!(error.contains("has expired: run `aws sso login --profile new`"), "{error}");
            assert!(!error.contains("t0ken"), "{error}");
        }
        let token = home.path().join(".aws/sso/cache").join(format!("{}.json", hex_sha1(b"ours")));
        let at = token.display().to_string();
        std::fs::write(&token, "{\"accessToken\":\"t0ken\",").expect("written");
        let broken = keys("new", home.path(), nobody).await.expect_err("half a token").to_string();
        assert!(broken.contains(&format!("{at} is not understood: run `aws sso login")), "{broken}");
        std::fs::remove_file(&token).and_then(|()| std::os::unix::fs::symlink(&token, &token)).expect("a circle");
        let looped = keys("new", home.path(), nobody).await.expect_err("it can't be read").to_string();
        std::fs::remove_file(&token).expect("removed");
        std::fs::File::create(&token).and_then(|file| file.set_len(2 << 20)).expect("a large file");
        let large = keys("new", home.path(), nobody).await.expect_err("it is too large").to_string();
        for (error, word) in [(looped, "symbolic links"), (large, "more than 1048576 bytes")] {
            assert!(error.contains(&at) && error.contains(word) && !error.contains("logged in"), "{error}");
        }
        for (profile, word) in [("lost", "[sso-session other]"), ("short", "sso_role_name is not set")] {
            let error = meant(profile).expect_err("half a profile").to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
