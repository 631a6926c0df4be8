//! Step times and batches of the shipped workloads against the rows of MLPerf Storage v1.0.
//!
//! Nothing is simulated: what limited a row is not published, and a bandwidth out of its utilisation would only give that
//! back.

use super::published::question;

struct Row {
    workload: &'static str,
    accelerator: &'static str,
    accelerators: u64,
    au_percent: f64,
    samples_per_second: f64,
}

fn rows() -> Vec<Row> {
    let lines = include_str!("../mlperf-v1.0.tsv").lines().filter(|line| !line.starts_with('#'));
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let number = |index: usize| cells[index].parse::<f64>().unwrap();
        let (workload, accelerator, accelerators) = (cells[0], cells[1], number(3) as u64);
        Row { workload, accelerator, accelerators, au_percent: number(4), samples_per_second: number(5) }
    };
    lines.map(row).collect()
}

impl Row {
    /// Samples/s over utilisation x accelerators x batch / time of a step.
    fn identity(&self) -> f64 {
        let question = question(self.workload, self.accelerator, self.accelerators);
        let samples = (self.accelerators * question.workload.read.batch) as f64;
        self.samples_per_second * question.step_seconds / (self.au_percent / 100.0 * samples)
    }
}

#[test]
fn shipped_step_times_and_batches_fit_all_rows_of_mlperf_storage() {
    let mut table = String::from("| | rows | least | middle | most |\n| --- | --- | --- | --- | --- |\n");
    for group in rows().chunk_by(|one, next| (one.workload, one.accelerator) == (next.workload, next.accelerator)) {
        let mut ratios: Vec<f64> = group.iter().map(Row::identity).collect();
        ratios.sort_by(f64::total_cmp);
        let (count, half) = (ratios.len(), ratios.len() / 2);
        let middle = if count % 2 == 1 { ratios[half] } else { (ratios[half - 1] + ratios[half]) / 2.0 };
        let (least, most) = (ratios[0], ratios[count - 1]);
        let Row { workload, accelerator, .. } = group[0];
        // A step or a batch that is 3 % off shows here. Few samples/s are rounded to whole ones, which is 2.5 % of 20.
        assert!((0.97..=1.0).contains(&middle) && most < 1.01, "{workload}, {accelerator}: {ratios:?}");
        table += &format!("| {workload}, {accelerator} | {count} | {least:.3} | {middle:.3} | {most:.3} |\n");
    }
    let document = include_str!("../../../../../docs/simulation.md");
    assert!(document.contains(&table), "docs/simulation.md has another table than this one:\n\n{table}");
}
