//! The client in Python and the data socket: each test runs a part of python/tests with the python3 at hand, which
//! needs nothing beside its own library.
//!
//! What is tested stands there; here it has the names by which docs/semantics.md calls it.

use std::path::Path;
use std::process::Command;

/// Run tests of a file by their names. Without python3 it is skipped, and said so.
fn python(tests: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("python3");
    command.args(["-X", "dev", "-W", "ignore::DeprecationWarning", "-m", "unittest", "-v"]).args(tests);
    command.current_dir(root.join("python/tests")).env("STOKER_BIN", env!("CARGO_BIN_EXE_stoker"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let done = match command.output() {
        Ok(done) => done,
        Err(error) => {
            eprintln!("SKIPPED: there is no python3 here: {error}");
            return;
        }
    };
    let said = String::from_utf8_lossy(&done.stderr);
    eprintln!("{said}");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn python_reads_batches_ranges_and_into_buffers_what_the_bucket_has() {
    python(&[
        "test_data.Reading.test_a_batch_is_what_the_bucket_has_in_the_order_of_the_question",
        "test_data.Reading.test_ranges_are_cut_at_the_end_and_a_buffer_is_filled",
        "test_data.Reading.test_a_path_is_that_of_a_local_file_with_the_same_bytes",
        "test_data.Reading.test_a_local_folder_is_read_where_it_lies",
        "test_data.Reading.test_a_refresh_shows_what_came",
    ]);
}

#[test]
fn python_reads_every_size_byte_by_byte_cold_and_warm() {
    python(&["test_data.Sizes"]);
}

#[test]
fn python_gets_what_is_not_kept_as_checked_copies_that_are_given_back() {
    python(&["test_data.Unkept"]);
}

#[test]
fn python_gets_failures_as_its_own_exceptions_beside_what_did_not_fail() {
    python(&[
        "test_data.Reading.test_failures_are_python_s_own_and_others_of_the_batch_come",
        "test_data.Reading.test_one_text_is_no_list_of_its_letters",
        "test_data.Reading.test_what_needs_a_library_comes_when_it_is_asked_for",
    ]);
}

#[test]
fn python_reads_in_forked_spawned_and_threaded_readers_without_mixing_answers() {
    python(&[
        "test_data.Reading.test_processes_of_each_kind_read_beside_a_client_that_was_used_before",
        "test_data.Reading.test_threads_share_a_client_and_no_answer_is_mixed_up",
        "test_data.Reading.test_what_is_pickled_is_short_and_finds_its_node_again",
    ]);
}

#[test]
fn python_leaks_no_descriptor_where_few_are_allowed_or_calls_are_interrupted() {
    python(&[
        "test_data.Reading.test_descriptors_are_the_same_number_after_as_before_also_where_few_are_allowed",
        "test_data.Reading.test_an_interrupt_amid_a_batch_leaves_nothing_that_the_next_could_take_for_its_own",
    ]);
}

#[test]
fn python_reads_on_when_its_node_is_killed_or_ended_under_it() {
    python(&[
        "test_data.Reading.test_a_node_that_is_killed_or_ended_under_its_reader_costs_no_error",
        "test_data.Reading.test_a_node_that_is_killed_amid_batches_costs_no_error",
    ]);
}

#[test]
fn python_starts_a_node_that_ends_with_its_last_reader() {
    python(&[
        "test_data.Reading.test_a_node_ends_with_its_last_reader",
        "test_data.Reading.test_the_cache_is_where_the_environment_says",
        "test_place.Alike",
        "test_place.Programs",
    ]);
}

#[test]
fn python_loads_and_says_orders_without_a_mount() {
    python(&[
        "test_data.Reading.test_what_is_loaded_is_lent_and_asked_of_no_store_again",
        "test_data.Reading.test_an_order_by_numbers_and_names_is_taken_and_shown",
    ]);
}

#[test]
fn python_s_orders_are_forgotten_with_the_processes_that_said_them() {
    python(&[
        "test_data.Reading.test_orders_are_forgotten_with_the_processes_that_said_them",
        "test_data.Reading.test_an_order_stays_while_somebody_opens_by_it_also_where_that_which_said_it_is_gone",
    ]);
}

#[test]
fn python_reads_a_file_in_parts_as_one_open_to_its_order() {
    python(&["test_data.Parts"]);
}

#[test]
fn python_goes_by_profiles_as_the_command_does() {
    python(&["test_place.Variables", "test_place.Profiles"]);
}

#[test]
fn python_s_doors_for_frameworks_give_the_same_bytes_and_numbers() {
    python(&["test_data.Trees", "test_data.Fsspec"]);
}

#[test]
fn the_data_socket_refuses_what_it_is_not_meant_for_and_serves_others_on() {
    python(&["test_socket.Hostile"]);
}

#[test]
fn the_data_socket_shows_a_mount_to_whom_its_mode_lets_and_to_nobody_else() {
    python(&["test_socket.Others"]);
}

/// Files of tests that are run elsewhere: by tests/order.rs and tests/programs.rs, and by `make frameworks`.
const ELSEWHERE: [&str; 4] = ["test_order", "test_torch", "test_fsspec", "test_frameworks"];

#[test]
fn no_test_of_the_client_is_left_out() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let said = std::fs::read_to_string(root.join("tests/python.rs")).unwrap();
    let said: Vec<&str> = said.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).collect();
    let is_said = |name: &str| said.iter().any(|line| line.contains(&format!("\"{name}\"")));
    let files = std::fs::read_dir(root.join("python/tests")).unwrap().map(|file| file.unwrap().path());
    let is_here = |file: &str| file.starts_with("test_") && !ELSEWHERE.contains(&file);
    let mut seen = 0;
    for path in files.filter(|path| is_here(&path.file_stem().unwrap().to_string_lossy())) {
        let (file, mut class) = (path.file_stem().unwrap().to_string_lossy().into_owned(), String::new());
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if let Some(rest) = line.strip_prefix("class ") {
                class = rest.split(['(', ':']).next().unwrap().to_owned();
            } else if let Some(rest) = line.strip_prefix("    def test_") {
                let test = format!("{file}.{class}.test_{}", rest.split('(').next().unwrap());
                assert!(is_said(&test) || is_said(&format!("{file}.{class}")), "{test} is run by nothing");
                seen += 1;
            }
        }
    }
    assert!(seen >= 40, "only {seen} were found");
}
