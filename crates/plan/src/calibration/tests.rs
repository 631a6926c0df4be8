//! The ten cases, each a test of its own: whether the likely value holds, and whether the range reaches. Misfits that
//! docs/planner.md explains are held as misfits: one that vanishes is news.

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

/// Whether the likely value lies within the tolerance: as predicted, and with the case left out.
fn by_point(rows: &[Row]) -> Vec<(bool, bool)> {
    rows.iter().map(|row| (row.holds(row.predicted), row.holds(row.left_out))).collect()
}

fn left_out(rows: &[Row]) -> Vec<bool> {
    rows.iter().map(|row| row.reaches(row.left_out)).collect()
}

#[test]
fn cosmoflow_on_an_on_demand_file_system() {
    let rows = holds("nag-cosmoflow-beeond", true, 2);
    assert_eq!(left_out(&rows), [false, false], "a sweep alone promises more than the framework's reader took");
    assert_eq!(by_point(&rows), [(false, false); 2], "a sweep and a framework lie on both sides of it");
}

#[test]
fn cosmoflow_on_premium_blob() {
    let rows = holds("nag-cosmoflow-premium-blob", true, 2);
    assert_eq!(left_out(&rows), [true, true]);
    assert_eq!(by_point(&rows), [(true, false); 2], "what hot Blob gave says too little of premium");
}

#[test]
fn cosmoflow_on_hot_blob() {
    let rows = holds("nag-cosmoflow-hot-blob", true, 2);
    assert_eq!(left_out(&rows), [true, true]);
    assert_eq!(by_point(&rows), [(true, false); 2], "what premium Blob gave says too much of hot");
}

#[test]
fn the_copy_before_the_job() {
    let rows = holds("nag-staging", true, 1);
    assert_eq!((left_out(&rows), by_point(&rows)), (vec![true], vec![(true, false)]), "a copy is not a mount");
}

#[test]
fn a_sweep_over_an_on_demand_file_system() {
    let rows = holds("nag-beeond-elbencho", true, 1);
    assert_eq!(left_out(&rows), [false], "what one framework reached says less than the disks give");
    assert_eq!(by_point(&rows), [(false, false)]);
    names("nag-beeond-elbencho");
}

#[test]
fn attached_disks_by_their_limits() {
    let rows = holds("rescale-disks-resnet50", false, 2);
    assert_eq!(by_point(&rows), [(true, false); 2], "clients over a network say little of a volume");
    names("rescale-disks-resnet50");
}

#[test]
fn thirty_two_accelerators_straight_from_objects() {
    let rows = holds("rescale-gcs-32p100", false, 1);
    assert_eq!(by_point(&rows), [(true, true)], "no limit was met: no more comes out than is asked for");
    names("rescale-gcs-32p100");
}

#[test]
fn two_data_nodes() {
    let rows = holds("rescale-hdfs-2-datanodes", true, 1);
    assert!(by_point(&rows) == [(true, true)] && left_out(&rows) == [true]);
}

#[test]
fn four_data_nodes() {
    let rows = holds("rescale-hdfs-4-datanodes", true, 1);
    assert!(by_point(&rows) == [(true, true)] && left_out(&rows) == [true]);
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

#[test]
fn a_range_that_reaches_is_no_point_that_holds() {
    let rows = all().rows;
    let of = |is: fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
    assert_eq!((of(|row| row.holds(row.predicted)), of(|row| row.reaches(row.predicted))), (10, 13));
    assert_eq!((of(|row| row.holds(row.left_out)), of(|row| row.reaches(row.left_out))), (3, 10));
    // 25,000 were published, 25,690 predicted: 2.8 % off. By its own measurement alone, 27,500: 10 % off.
    let two = rows.iter().find(|row| row.case == "rescale-hdfs-2-datanodes").unwrap();
    assert!((two.misfit(two.predicted) - 0.0276).abs() < 1e-3 && (two.returned.unwrap() - 27_500.0).abs() < 1.0);
}
