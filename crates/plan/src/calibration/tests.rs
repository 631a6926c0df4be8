//! The ten cases, each a test of its own. Misfits that docs/planner.md explains are held as misfits: one that vanishes is news.

use super::*;

/// The figures of a case: its own measurement returns them, and the prediction reaches them.
fn holds(case: &str, is_observed: bool, figures: usize) -> Vec<Row> {
    let rows: Vec<Row> = all().rows.into_iter().filter(|row| row.case == case).collect();
    assert_eq!(rows.len(), figures, "{case}");
    for row in &rows {
        assert!(row.reaches(row.predicted), "{row:?}");
        if let Some(returned) = row.returned.filter(|_| is_observed) {
            assert!(row.is_near(returned), "{row:?}");
        }
    }
    rows
}

fn names(case: &str) -> Vec<Named> {
    let named: Vec<Named> = all().named.into_iter().filter(|named| named.case == case).collect();
    assert!(!named.is_empty());
    for named in &named {
        assert_eq!(named.predicted, named.published, "{named:?}");
    }
    named
}

fn left_out(rows: &[Row]) -> Vec<bool> {
    rows.iter().map(|row| row.reaches(row.left_out)).collect()
}

#[test]
fn cosmoflow_on_an_on_demand_file_system() {
    let rows = holds("nag-cosmoflow-beeond", true, 2);
    assert_eq!(left_out(&rows), [false, false], "a sweep alone promises more than the framework's reader took");
}

#[test]
fn cosmoflow_on_premium_blob() {
    assert_eq!(left_out(&holds("nag-cosmoflow-premium-blob", true, 2)), [true, true]);
}

#[test]
fn cosmoflow_on_hot_blob() {
    assert_eq!(left_out(&holds("nag-cosmoflow-hot-blob", true, 2)), [true, true]);
}

#[test]
fn the_copy_before_the_job() {
    assert_eq!(left_out(&holds("nag-staging", true, 1)), [true]);
}

#[test]
fn a_sweep_over_an_on_demand_file_system() {
    let rows = holds("nag-beeond-elbencho", true, 1);
    assert_eq!(left_out(&rows), [false], "what one framework reached says less than the disks give");
    names("nag-beeond-elbencho");
}

#[test]
fn attached_disks_by_their_limits() {
    holds("rescale-disks-resnet50", false, 2);
    names("rescale-disks-resnet50");
}

#[test]
fn thirty_two_accelerators_straight_from_objects() {
    holds("rescale-gcs-32p100", false, 1);
    names("rescale-gcs-32p100");
}

#[test]
fn two_data_nodes() {
    let rows = holds("rescale-hdfs-2-datanodes", true, 1);
    assert!(rows[0].is_near(rows[0].predicted.likely) && left_out(&rows) == [true]);
}

#[test]
fn four_data_nodes() {
    let rows = holds("rescale-hdfs-4-datanodes", true, 1);
    assert!(rows[0].is_near(rows[0].predicted.likely) && left_out(&rows) == [true]);
}

#[test]
fn a_bucket_that_throttles() {
    let named = names("rescale-s3-throttled");
    assert_eq!(named[0].left_out, "requests");
}

#[test]
fn the_document_has_the_figures_that_come_out() {
    let document = include_str!("../../../../docs/planner.md");
    assert!(document.contains(&all().markdown()), "docs/planner.md should have:\n{}", all().markdown());
}
