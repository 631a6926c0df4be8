//! `stoker man`: one page that has all commands, and what holds for all of them.

use crate::args::Typed;
use crate::print;
use clap::CommandFactory;
use std::process::ExitCode;

/// What stands in no help text of a command, in the language of man pages. Docs: README.md, docs/running.md.
const FOR_ALL: &str = r".SH ENVIRONMENT
.TP
STOKER_CACHE
Folder of the cache, as \-\-cache.
.TP
STOKER_RUNTIME_DIR, XDG_RUNTIME_DIR
Folder below which nodes have their control sockets; for root the first alone. By default /run/stoker, or stoker\-UID in the folder for temporary files.
.TP
STOKER_LOG_FORMAT
As \-\-log\-format: text or json.
.TP
STOKER_BEARER_TOKEN
What is shown to a web server.
.TP
NO_COLOR
No colours.
.PP
Stores are reached by the variables of their own tools: AWS_*, GOOGLE_* and STORAGE_EMULATOR_HOST, AZURE_*, HADOOP_*, KRB5*.
.SH FILES
.TP
/var/cache/stoker
The cache of root. Others have ~/.cache/stoker.
.TP
/run/stoker
Control sockets of root's nodes, and their logs.
.SH EXIT STATUS
0: done. 1: it failed; manifest diff, verify: something differs. 2: the command line is wrong, or what it names is; manifest diff, verify: nothing was compared.
3: load: not all files fitted; bench: the accelerators were not busy enough. 4: load: some files failed. 5: bench: a run without a verdict. 130: interrupted.
141: standard output was closed by whoever read it. observe: those of the observed command. mount.stoker has the exit codes of mount(8).
";

pub fn run() -> anyhow::Result<ExitCode> {
    let mut typed = Typed::command();
    typed.build();
    print::out(format_args!("{}", page(&typed, FOR_ALL)?))?;
    Ok(ExitCode::SUCCESS)
}

/// A command and those below it, each named as it is typed: it has no page of its own.
fn page(command: &clap::Command, behind: &str) -> anyhow::Result<String> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    let mut text = String::from_utf8(text)?.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n");
    text = text.replace(".SH EXTRA\n", ".SH EXAMPLES\n") + behind;
    for below in command.get_subcommands() {
        let name = below.get_display_name().unwrap_or(below.get_name());
        text = text.replace(&format!("{}(1)", name.replace('-', "\\-")), &name.replace('-', " "));
        if below.get_name() != "help" {
            text += &page(below, "")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_what_holds_for_all_commands_once_and_examples_under_their_name() {
        let page = page(&Typed::command(), FOR_ALL).expect("a page");
        assert!(page.contains(".SH EXAMPLES") && !page.contains("EXTRA"));
        assert_eq!(page.matches(".SH ENVIRONMENT").count(), 1);
    }

    #[test]
    fn each_exit_code_of_the_readme_is_on_the_page() {
        let table = include_str!("../../../README.md").split("## Exit codes").nth(1).expect("a table");
        let rows = table.lines().take_while(|line| !line.starts_with("## "));
        let codes: Vec<u8> = rows.filter_map(|row| row.split('|').nth(1)?.trim().parse().ok()).collect();
        assert!([0, 1, 2, 130, 141].iter().all(|code| codes.contains(code)), "{codes:?}");
        let said = FOR_ALL.split(".SH EXIT STATUS").nth(1).expect("a section");
        for code in codes {
            assert!(said.split_whitespace().any(|word| word == format!("{code}:")), "{code} is not on it");
        }
    }
}
