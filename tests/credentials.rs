//! Whose credentials a mount goes by, and when they are had: programs and servers that hand them out, as a command and its node meet
//! them.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::answers::Answers;
use support::content::{noise, same};
use support::{ACCESS, BUCKET, Bed, SECRET, eventually, finished, refused, text};

/// A program of a shell.
fn program(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("a file");
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("it can be run");
}

/// A mount of the bucket by whoever these variables make.
fn mounting(bed: &Bed, at: &str, home: &str, variables: &[(&str, &str)]) -> Command {
    fs::create_dir_all(bed.path(at)).expect("a folder");
    let mut command =
        bed.stoker(["mount", "--detach", "--fill", "off", "--region", "us-east-1", "--endpoint", bed.endpoint()]);
    command.arg(format!("s3://{BUCKET}")).arg(bed.path(at)).arg("--cache").arg(bed.path("cache"));
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY").env("HOME", bed.path(home));
    command.envs(variables.iter().copied());
    command
}

fn done(command: &mut Command) {
    let done = finished(command);
    assert!(done.status.success(), "{}", text(&done));
}

fn unmount(bed: &Bed, at: &str) {
    done(bed.stoker(["umount"]).arg(bed.path(at)));
}

/// Who has this in his home is handed keys by a program.
fn profile(bed: &Bed, home: &str, command: &str) {
    fs::create_dir_all(bed.path(home).join(".aws")).expect("folders");
    fs::write(bed.path(home).join(".aws/config"), format!("[profile p]\ncredential_process = {command}\n"))
        .expect("a file");
}

fn with_path(bed: &Bed, folder: &str) -> String {
    format!("{}:{}", bed.path(folder).display(), std::env::var("PATH").expect("a path"))
}

#[test]
fn a_program_that_hands_out_keys_runs_for_whoever_asks_and_with_nothing_of_who_started_its_node() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    bed.put("file", &noise(1_000, 1));
    let keys = [("AWS_ACCESS_KEY_ID", ACCESS), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_MARK", "of the node")];
    done(&mut mounting(&bed, "first", "home1", &keys));
    let seen = bed.path("seen");
    let script = format!(
        "env > {0}.new; mv {0}.new {0}\necho '{{\"Version\":1,\"AccessKeyId\":\"{ACCESS}\",\"SecretAccessKey\":\"{SECRET}\"}}'",
        seen.display()
    );
    program(&bed.path("own bin/vend keys"), &script);
    profile(&bed, "home2", "'vend keys' --for \"me and you\"");
    let path = with_path(&bed, "own bin");
    done(&mut mounting(&bed, "second", "home2", &[("AWS_PROFILE", "p"), ("AWS_OWN", "mine"), ("PATH", &path)]));
    same(&fs::read(bed.path("second/file")).expect("a read"), &noise(1_000, 1), &"file");
    let seen = fs::read_to_string(seen).expect("it ran");
    let has = |line: String| seen.lines().any(|seen| seen == line);
    assert!(has(format!("HOME={}", bed.path("home2").display())) && has("AWS_OWN=mine".into()), "{seen}");
    assert!(!seen.contains("AWS_MARK") && !seen.contains("AWS_ACCESS_KEY_ID") && !seen.contains(SECRET), "{seen}");
    unmount(&bed, "second");
    unmount(&bed, "first");
}

#[test]
fn what_a_program_says_that_hands_out_no_keys_is_in_no_error_and_no_log() {
    const PLANTED: &str = "PLANTED-s3cr3t";
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    bed.put("file", &noise(1_000, 1));
    let babbling = [
        (format!("echo '\"{PLANTED}\"'"), "is not understood"),
        (
            format!(
                "echo '{{\"Version\":1,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"s\",\"SessionToken\":[\"{PLANTED}\"]}}'"
            ),
            "is not understood",
        ),
        (format!("echo {PLANTED} >&2; echo forged ERROR >&2; exit 3"), "exit status: 3"),
    ];
    for (script, word) in babbling {
        program(&bed.path("vend"), &script);
        profile(&bed, "home", &format!("{} --password={PLANTED}", bed.path("vend").display()));
        let mut command = mounting(&bed, "mnt", "home", &[("AWS_PROFILE", "p")]);
        let done = finished(command.arg("--log").arg(bed.path("log")));
        refused(&done, &["profile p", word]);
        let log = fs::read_to_string(bed.path("log")).unwrap_or_default();
        assert!(!text(&done).contains(PLANTED) && !log.contains(PLANTED), "{}\n{log}", text(&done));
    }
}

#[test]
fn each_mount_of_azure_goes_by_the_account_that_its_own_command_is_logged_in_with() {
    const LISTED: &str = "<?xml version=\"1.0\"?><EnumerationResults><Blobs><Blob><Name>f</Name><Properties>\
        <Last-Modified>Wed, 25 Nov 2020 10:00:00 GMT</Last-Modified><Etag>0x1</Etag><Content-Length>3</Content-Length>\
        </Properties></Blob></Blobs><NextMarker/></EnumerationResults>";
    let Some(bed) = Bed::new() else { return };
    let server = Answers::start(|head| match head.contains("comp=list") {
        true => ("200 OK".into(), LISTED.into()),
        false => ("200 OK\r\netag: \"0x1\"".into(), "abc".into()),
    });
    // The account is the name of the folder that somebody logged in by: {"oid":"az1","exp":4070908800} and az2.
    let script = "case $AZURE_CONFIG_DIR in *az1) c=eyJvaWQiOiJhejEiLCJleHAiOjQwNzA5MDg4MDB9;; \
                  *) c=eyJvaWQiOiJhejIiLCJleHAiOjQwNzA5MDg4MDB9;; esac\necho \"{\\\"accessToken\\\":\\\"e30.$c.x\\\"}\"";
    program(&bed.path("bin/az"), script);
    let path = with_path(&bed, "bin");
    for at in ["az1", "az2"] {
        fs::create_dir_all(bed.path("logged-in").join(at)).expect("folders");
        fs::write(bed.path("logged-in").join(at).join("azureProfile.json"), "{}").expect("a file");
        fs::create_dir(bed.path(at)).expect("a folder");
        let mut command = bed.stoker(["mount", "--detach", "az://c", "--fill", "off", "--endpoint"]);
        command.arg(format!("http://{}/acc", server.address)).arg(bed.path(at)).arg("--cache").arg(bed.path("cache"));
        command.env("AZURE_CONFIG_DIR", bed.path("logged-in").join(at)).env("PATH", &path);
        done(&mut command);
        assert_eq!(fs::read(bed.path(at).join("f")).expect("a read"), b"abc");
    }
    let listed = |account: &str| {
        let by = format!("e30.{account}.x");
        server.asked().iter().any(|head| head.contains("comp=list") && head.contains(&by))
    };
    assert!(
        listed("eyJvaWQiOiJhejEiLCJleHAiOjQwNzA5MDg4MDB9") && listed("eyJvaWQiOiJhejIiLCJleHAiOjQwNzA5MDg4MDB9"),
        "{:?}",
        server.asked()
    );
    ["az1", "az2"].into_iter().for_each(|at| unmount(&bed, at));
}

/// Seconds since 1970, as AWS's servers write them.
fn moment(seconds_from_now: u64) -> String {
    let done = finished(Command::new("date").args([
        "-u",
        "-d",
        &format!("+{seconds_from_now} seconds"),
        "+%Y-%m-%dT%H:%M:%SZ",
    ]));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

#[test]
fn keys_of_a_container_are_renewed_under_a_mount_and_their_server_may_be_away_meanwhile() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    (0..400).for_each(|number| bed.put(&number.to_string(), &noise(1_000, number)));
    let is_away = bed.path("away");
    let flag = is_away.clone();
    let server = Answers::start(move |_| match flag.exists() {
        true => ("500 No".into(), "{}".into()),
        false => (
            "200 OK".into(),
            format!(
                "{{\"AccessKeyId\":\"{ACCESS}\",\"SecretAccessKey\":\"{SECRET}\",\"Token\":\"t\",\"Expiration\":\"{}\",\"RoleArn\":\"arn:aws:iam::1:role/r\"}}",
                moment(200)
            ),
        ),
    });
    let asks = || server.asked().iter().filter(|head| head.starts_with("GET /keys")).count();
    let url = format!("http://{}/keys", server.address);
    let of_container =
        [("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*url), ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "let me in")];
    done(&mut mounting(&bed, "mnt", "home", &of_container));
    assert!(
        server.asked().iter().all(|head| head.to_ascii_lowercase().contains("authorization: let me in")),
        "{:?}",
        server.asked()
    );
    let mut next = 0..400;
    let mut read = || {
        let number = next.next().expect("a file that was not read yet");
        same(&fs::read(bed.mounted(&number.to_string())).expect("a read"), &noise(1_000, number), &number);
    };
    let first = asks();
    // They end within five minutes, so that each request may have them renewed, and one in five seconds does.
    for is_absent in [false, true] {
        if is_absent {
            fs::write(&is_away, "").expect("a file");
        }
        (0..100).for_each(|_| read());
        let before = asks();
        std::thread::sleep(std::time::Duration::from_secs(6));
        (0..50).for_each(|_| read());
        eventually("they are asked for anew", || asks() > before);
        assert!(asks() < first + 50, "not by each request: {}", asks());
    }
    unmount(&bed, "mnt");
}

#[test]
fn keys_of_a_file_that_are_replaced_at_the_server_are_read_again_under_a_mount() {
    let Some(bed) = Bed::with(Some((ACCESS, SECRET))) else { return };
    (0..3).for_each(|number| bed.put(&format!("{number}/file"), &noise(1_000, number)));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let serve = |access: &str, secret: &str| {
        let mut settings = emulate::Settings::of(bed.path("data"));
        settings.bucket = Some(BUCKET.into());
        settings.listen = bed.endpoint().trim_start_matches("http://").parse().expect("an address");
        settings.keys = Some(emulate::Keys { access: access.into(), secret: secret.into() });
        runtime.block_on(emulate::Server::start(settings)).expect("it starts")
    };
    let write = |access: &str, secret: &str| {
        let text = format!("[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n");
        fs::create_dir_all(bed.path("home/.aws"))
            .and_then(|()| fs::write(bed.path("home/.aws/credentials"), text))
            .expect("a file");
    };
    let read =
        |number: u64| fs::read(bed.mounted(&format!("{number}/file"))).map(|found| found == noise(1_000, number));
    write(ACCESS, SECRET);
    done(&mut mounting(&bed, "mnt", "home", &[]));
    assert!(read(0).expect("a read"));
    bed.stop_server();
    let server = serve("AKIASECOND", SECRET);
    write("AKIASECOND", SECRET);
    assert!(read(1).expect("it is read by the other key"));
    runtime.block_on(server.stop());
    // Of the same key another secret, which the file says later than the server.
    let server = serve("AKIASECOND", "another secret");
    assert_eq!(read(2).expect_err("nobody has it yet").raw_os_error(), Some(libc::EACCES));
    write("AKIASECOND", "another secret");
    eventually("the file is read again", || read(2).is_ok_and(|is_same| is_same));
    unmount(&bed, "mnt");
    runtime.block_on(server.stop());
}
