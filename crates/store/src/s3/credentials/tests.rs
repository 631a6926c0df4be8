//! Which credentials are meant, on machines that are made up.

use super::super::sign::Signer;
use super::machine::Role;
use super::*;
use crate::files::Files;
use reqsign_core::StaticEnv;
use reqsign_core::time::Timestamp;
use std::time::Duration;

/// A machine with this configuration, and nobody to ask over the network.
fn machine(config: &str, variables: &[(&str, &str)]) -> (tempfile::TempDir, Context) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("config"), config).expect("a file");
    let files = [("AWS_CONFIG_FILE", path("config")), ("AWS_SHARED_CREDENTIALS_FILE", path("absent"))];
    let given = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let envs = files.map(|(name, value)| (name.to_string(), value)).into_iter().chain(given).collect();
    let context = Context::new().with_env(StaticEnv { home_dir: None, envs });
    (directory, context.with_file_read(Files::default()))
}

const CONFIG: &str = "[profile one]\naws_access_key_id = one\naws_secret_access_key = s\n\
    [profile half]\naws_access_key_id = half\n\
    [profile bare]\nregion = eu-west-1\n\
    [profile command]\ncredential_process = printf '{\"Version\":1,\"AccessKeyId\":\"made\",\"SecretAccessKey\":\"s\"}'\n\
    [profile asked]\ncredential_process = sh -c 'printf \"{\\\"Version\\\":1,\\\"AccessKeyId\\\":\\\"of $HOME $AWS_MARK\\\",\\\"SecretAccessKey\\\":\\\"s\\\"}\"'\n\
    [profile babbles]\ncredential_process = printf PLANTED\n\
    [profile typed]\ncredential_process = printf '{\"Version\":1,\"AccessKeyId\":\"a\",\"SecretAccessKey\":987654321987}'\n\
    [profile fails]\ncredential_process = sh -c 'echo PLANTED >&2; exit 3' PLANTED\n\
    [profile open]\ncredential_process = \"printf\n\
    [profile broken]\ncredential_process = /absent/program\n\
    [profile below]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = broken\n\
    [profile token]\nrole_arn = arn:aws:iam::123456789012:role/r\nweb_identity_token_file = /absent/token\n\
    [profile role]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = one\n\
    [profile typo]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = on\n\
    [profile hollow]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = bare\n\
    [profile round]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = trip\n\
    [profile trip]\nrole_arn = arn:aws:iam::123456789012:role/t\nsource_profile = round\n\
    [profile alone]\nrole_arn = arn:aws:iam::123456789012:role/r\n";

const ENVIRONMENT: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "env"), ("AWS_SECRET_ACCESS_KEY", "s")];

async fn found(profile: Option<&str>, variables: &[(&str, &str)]) -> Result<Found> {
    let (_directory, context) = machine(CONFIG, variables);
    let credentials = Credentials::Found { profile: profile.map(Into::into) };
    Ok(find(&credentials, "us-east-1", &context).await?.expect("somebody"))
}

async fn key(profile: Option<&str>, variables: &[(&str, &str)]) -> Option<String> {
    let (_directory, context) = machine(CONFIG, variables);
    let credentials = Credentials::Found { profile: profile.map(Into::into) };
    let found = find(&credentials, "us-east-1", &context).await.expect("a source").expect("somebody");
    found.source.provide_credential_dyn(&context).await.expect("keys").map(|found| found.access_key_id)
}

#[tokio::test]
async fn a_named_profile_goes_before_the_environment_and_the_environment_before_aws_profile() {
    let [id, secret] = ENVIRONMENT;
    let all = [id, secret, ("AWS_PROFILE", "one")];
    assert_eq!(key(None, &all).await.as_deref(), Some("env"));
    assert_eq!(key(Some("one"), &all).await.as_deref(), Some("one"));
    assert_eq!(key(None, &all[2..]).await.as_deref(), Some("one"));
    assert_eq!(key(None, &[("AWS_DEFAULT_PROFILE", "one")]).await.as_deref(), Some("one"));
    assert_eq!(key(Some("command"), &all).await.as_deref(), Some("made"));
}

#[tokio::test]
async fn a_source_that_was_named_and_fails_is_an_error_that_names_it() {
    let other = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/other")];
    for (profile, reason) in [
        ("mistyped", "there is no profile mistyped"),
        ("half", "profile half has half a key"),
        ("typo", "there is no profile on in"),
        ("hollow", "profile bare has no credentials"),
        ("round", "circle"),
        ("alone", "profile alone names a role but no source"),
        ("open", "a quote that does not end"),
    ] {
        let error = found(Some(profile), &other).await.err().expect(reason);
        assert!(error.to_string().contains(reason), "{error}");
        let error = found(None, &[("AWS_PROFILE", profile), other[0]]).await.err().expect(reason);
        assert!(error.to_string().contains(reason), "{error}");
    }
    for half in ENVIRONMENT {
        let error = found(None, &[half, ("AWS_PROFILE", "one")]).await.err().expect("half a key");
        assert!(error.to_string().contains("half a key"), "{error}");
    }
    let error = found(None, &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/token")]).await.err().expect("no role");
    assert!(error.to_string().contains("AWS_ROLE_ARN"), "{error}");
}

/// Why a request is not signed by a profile, on a machine where somebody else could sign it.
async fn refusal(profile: &str) -> block::Error {
    let [id, secret] = ENVIRONMENT;
    let (_directory, context) = machine(CONFIG, &[id, secret, ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/other")]);
    let credentials = Credentials::Found { profile: Some(profile.into()) };
    let signer = Signer::on(context, Role::default(), &credentials, "us-east-1");
    let (mut parts, ()) = http::Request::get("http://127.0.0.1:9/bucket/key").body(()).expect("a request").into_parts();
    let error = signer.sign(&mut parts, "us-east-1", &"bucket").await.expect_err("nobody may sign");
    assert!(parts.headers.is_empty(), "it was signed all the same: {:?}", parts.headers);
    error
}

#[tokio::test]
async fn a_source_that_was_named_and_fails_when_it_is_asked_is_an_error_and_nobody_else_signs() {
    for (profile, reason) in [
        ("broken", "/absent/program"),
        ("below", "AssumeRole"),
        ("token", "/absent/token"),
        ("fails", "sh failed (exit status: 3)"),
        ("babbles", "what printf says is not understood"),
        ("typed", "what printf says is not understood"),
    ] {
        let error = refusal(profile).await;
        assert!(!error.to_string().contains("PLANTED") && !error.to_string().contains("987654321987"), "{error}");
        assert_eq!(error.kind, block::Kind::Denied, "{error}");
        let named = format!("the credentials of profile {profile} can't be had");
        assert!(error.what.contains(&named) && error.what.contains(reason), "{error}");
    }
}

#[tokio::test]
async fn credentials_that_many_hear_have_run_out_are_renewed_once_for_all_of_them() {
    let keys = Credentials::Keys { id: "id".into(), secret: "secret".into(), token: Some("token".into()) };
    let signer = Signer::new(
        &super::super::Settings { credentials: keys, ..Default::default() },
        "us-east-1",
        Arc::new(Chance::new(0)),
    );
    let sign = async || {
        let request = http::Request::get("http://127.0.0.1:9/bucket/key").body(()).expect("a request");
        let signed = signer.sign(&mut request.into_parts().0, "us-east-1", &"bucket").await;
        signed.expect("a signature").expect("somebody")
    };
    let used = sign().await;
    assert!(Arc::ptr_eq(&used, &sign().await));
    assert!(signer.forget(&used, true) && signer.forget(&used, true), "the second is renewed, too");
    let fresh = sign().await;
    assert!(!Arc::ptr_eq(&used, &fresh));
    assert!(signer.forget(&used, true) && Arc::ptr_eq(&fresh, &sign().await), "a late word is not about fresh ones");
}

#[tokio::test]
async fn keys_that_a_server_refuses_are_read_again_where_they_may_be_others_and_once_in_a_while() {
    let (directory, context) = machine("", &[]);
    let path = directory.path().join("config");
    let write = |id: &str| {
        let text = format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = s\n");
        std::fs::write(&path, text).expect("a file");
    };
    write("one");
    let of_file = Signer::on(context, Role::default(), &Credentials::Found { profile: None }, "us-east-1");
    let used = of_file.lend(&"bucket").await.expect("a key").expect("somebody");
    write("two");
    assert!(!of_file.forget(&used, false), "nobody said that it is about them, and they are young");
    assert!(of_file.forget(&used, true));
    let fresh = of_file.lend(&"bucket").await.expect("a key").expect("somebody");
    assert_eq!([&*used.access_key_id, &*fresh.access_key_id], ["one", "two"]);
    assert!(!of_file.forget(&fresh, true), "they were read just now");
    let (_directory, context) = machine(CONFIG, &ENVIRONMENT);
    let fixed = Signer::on(context, Role::default(), &Credentials::Found { profile: None }, "us-east-1");
    let used = fixed.lend(&"bucket").await.expect("a key").expect("somebody");
    assert!(!fixed.forget(&used, true), "an environment stays as it is");
}

#[tokio::test]
async fn credentials_are_renewed_before_they_run_out_and_not_long_before() {
    // They may be renewed beside whoever asks.
    const LOOKS_FEW: u32 = 10;
    for (seconds, looks) in [(240, 1_000), (3600, LOOKS_FEW)] {
        let until = (Timestamp::now() + Duration::from_secs(seconds)).format_rfc3339_zulu();
        let made =
            format!("{{\"Version\":1,\"AccessKeyId\":\"made\",\"SecretAccessKey\":\"s\",\"Expiration\":\"{until}\"}}");
        let (_directory, context) = machine(&format!("[default]\ncredential_process = printf '{made}'\n"), &[]);
        let signer = Signer::on(context, Role::default(), &Credentials::Found { profile: None }, "us-east-1");
        let lend = async || signer.lend(&"bucket").await.expect("a key").expect("somebody");
        let (first, mut last) = (lend().await, lend().await);
        for _ in 0..looks {
            if Arc::ptr_eq(&first, &last) {
                tokio::time::sleep(Duration::from_millis(10)).await;
                last = lend().await;
            }
        }
        assert_eq!(Arc::ptr_eq(&first, &last), looks == LOOKS_FEW, "good for {seconds} s");
    }
}

#[tokio::test]
async fn a_program_is_split_as_a_shell_splits_it_and_has_the_variables_of_whoever_asks() {
    let variables = [("HOME", "/me"), ("AWS_MARK", "mine")];
    assert_eq!(key(Some("asked"), &variables).await.as_deref(), Some("of /me mine"));
    let directory = tempfile::tempdir().expect("a directory");
    let credentials = directory.path().join("credentials with space");
    let made = "{\"Version\":1,\"AccessKeyId\":\"told\",\"SecretAccessKey\":\"s\"}";
    std::fs::write(&credentials, made).expect("a file");
    let text = format!("[default]\ncredential_process = cat \"{}\"\n", credentials.display());
    std::fs::write(directory.path().join("file"), text).expect("a file");
    let file = directory.path().join("file").to_string_lossy().into_owned();
    let of_credentials = [("AWS_SHARED_CREDENTIALS_FILE", file.as_str())];
    assert_eq!(key(None, &of_credentials).await.as_deref(), Some("told"), "it may be named in either file");
}

#[test]
fn one_command_is_another_principal_in_another_environment() {
    let who = |variables: &[(&str, &str)]| {
        let envs = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let context = Context::new().with_env(StaticEnv { home_dir: None, envs });
        Process::of("vend --me", &context).expect("a command").who()
    };
    let me = who(&[("HOME", "/me"), ("PATH", "/bin")]);
    assert_eq!(me, who(&[("HOME", "/me"), ("PATH", "/usr/bin:/bin")]));
    assert_ne!(me, who(&[("HOME", "/other"), ("PATH", "/bin")]));
    assert_ne!(me, who(&[("HOME", "/me"), ("AWS_PROFILE", "other")]));
}

#[tokio::test]
async fn a_file_of_profiles_that_cant_be_read_is_an_error_and_makes_nobody_of_whoever_is_named_there() {
    let (directory, container) = (tempfile::tempdir().expect("a directory"), "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("a pipe");
    let long = "n".repeat(300);
    let [id, secret] = ENVIRONMENT;
    for path in [pipe.to_str().expect("a path"), directory.path().to_str().expect("a path"), &long] {
        let named = [("AWS_CONFIG_FILE", path), (container, "http://127.0.0.1:9")];
        let error = found(None, &named).await.err().expect("it can't be read");
        assert!(error.to_string().contains(path), "{error}");
        assert_eq!(key(None, &[named[0], id, secret]).await.as_deref(), Some("env"), "these keys are in no file");
    }
    assert_eq!(found(None, &[("AWS_CONFIG_FILE", "/dev/null"), (container, "x")]).await.expect("none").name, container);
}

#[tokio::test]
async fn a_role_is_assumed_by_the_keys_of_the_environment_where_its_profile_says_so() {
    let config = "[default]\nrole_arn = arn:aws:iam::123456789012:role/r\ncredential_source = Environment\n";
    let (_directory, context) = machine(config, &ENVIRONMENT);
    let profile = Credentials::Found { profile: Some("default".into()) };
    let found = find(&profile, "us-east-1", &context).await.expect("a source").expect("somebody");
    // Nobody can be asked here; it came to that because there are keys to sign the question with.
    let error = found.source.provide_credential_dyn(&context).await.expect_err("nobody answers");
    assert!(super::super::wire::causes(&error).contains("send"), "{error:?}");
}

#[tokio::test]
async fn a_principal_is_whom_the_credentials_stand_for() {
    let who = async |profile, variables: &[_]| found(profile, variables).await.expect("a source").who;
    let role = Some("role arn:aws:iam::123456789012:role/r".to_owned());
    assert_eq!(who(Some("role"), &[]).await, role);
    let token = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")];
    assert_eq!(who(None, &token).await, role, "one role is one principal, however it is assumed");
    assert_eq!(who(Some("one"), &[]).await, None, "keys stand for themselves");
    assert_eq!(who(None, &ENVIRONMENT).await, None);
}

#[tokio::test]
async fn what_names_nobody_is_left_to_the_container_and_the_machine() {
    let container = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials")];
    for (profile, variables, name, is_last_resort) in [
        (None, &container[..], container[0].0, false),
        (Some("bare"), &container[..], container[0].0, false),
        (None, &[][..], "this machine's role", true),
    ] {
        let found = found(profile, variables).await.expect("a source");
        assert_eq!((found.name.as_str(), found.is_last_resort), (name, is_last_resort));
    }
}

#[tokio::test]
async fn a_program_that_hands_out_keys_is_run_once_for_fifty_requests_at_once() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let (program, runs) = (folder.path().join("keys"), folder.path().join("runs"));
    let keys = r#"{"Version":1,"AccessKeyId":"a","SecretAccessKey":"s","SessionToken":"t","Expiration":"2099-01-01T00:00:00Z"}"#;
    let script = format!("#!/bin/sh\necho >> {}\n/bin/sleep 0.2\necho '{keys}'\n", runs.display());
    std::fs::write(&program, script).expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
    let (_files, context) = machine(&format!("[profile slow]\ncredential_process = {}\n", program.display()), &[]);
    let credentials = Credentials::Found { profile: Some("slow".into()) };
    let signer = Signer::on(context, Role::default(), &credentials, "us-east-1");
    let sign = async || {
        let (mut parts, ()) = http::Request::get("http://127.0.0.1:9/b/k").body(()).expect("a request").into_parts();
        signer.sign(&mut parts, "us-east-1", &"bucket").await.expect("a signature").expect("somebody")
    };
    for run in 1..3 {
        let all = futures_util::future::join_all((0..50).map(|_| sign())).await;
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])), "all of them by the same keys");
        assert_eq!(std::fs::read_to_string(&runs).expect("it ran").lines().count(), run);
        // Each of them hears that they ran out.
        if run == 1 {
            assert!(all.iter().all(|used| signer.forget(used, true)), "and is renewed");
        }
    }
}

#[test]
fn what_is_secret_is_not_shown() {
    let keys = Credentials::Keys { id: "id".into(), secret: "hush".into(), token: Some("hush".into()) };
    let shown = format!("{keys:?}");
    assert!(shown.contains("id") && !shown.contains("hush"), "{shown}");
}
