//! A plan for people: the offers, why the first is the first, what changes it, what can't be ranked.
//!
//! Invariant: nothing is shown that the JSON lacks.

use std::io::IsTerminal;

use ::plan::plan::{Offer, Plan};
use anyhow::Result;

use super::simulated::Row;
use crate::chart::{Chart, Column, Style, Table};
use crate::{place, print};

/// What can't be ranked is told in so many lines.
const UNRANKED_SHOWN: usize = 8;
/// And warnings of a sweep.
const WARNINGS_SHOWN: usize = 12;

pub fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    Style { colour: place::colour(terminal), unicode: place::unicode(), width: 120 }
}

pub fn one(plan: &Plan, top: usize) -> Result<()> {
    print::out(format_args!("\n{}", chart(plan, top).text(&style())))?;
    for line in warned(plan, top).into_iter().chain(lines(plan)) {
        say!("  {line}")?;
    }
    Ok(())
}

/// Each point of a sweep by its first offer.
pub fn sweep(plans: &[Plan]) -> Result<()> {
    let columns = POINT.map(Column::right).into_iter().chain(LAST.map(Column::left)).collect();
    let table = Table { columns, rows: plans.iter().map(point).collect() };
    let chart = Chart { title: "What to rent".into(), table, ..Chart::default() };
    print::out(format_args!("\n{}", chart.text(&style())))?;
    for line in of_points(plans) {
        say!("  {line}")?;
    }
    Ok(())
}

/// The columns of a point.
pub const POINT: [&str; 9] =
    ["accelerators", "data TB", "nodes", "AU %", "hours", "run $", "idle $", "storage $", "cache ratio"];
pub const LAST: [&str; 4] = ["first offer", "limit", "ties", "unranked"];

/// What is to be known of all points, each thing once.
pub fn of_points(plans: &[Plan]) -> Vec<String> {
    let mut lines =
        vec!["ties: offers that may be as cheap as the first; unranked: ways that can't be ranked".to_owned()];
    lines.extend(
        plans
            .iter()
            .filter_map(|plan| plan.oldest_price)
            .min()
            .map(|date| format!("oldest price of all offers: {date}")),
    );
    let of_offer = |plan: &'_ Plan| {
        let first = plan.offers.first();
        first.map_or(Vec::new(), |offer| {
            offer.warnings.iter().map(|warning| format!("{}: {warning}", offer.id)).collect::<Vec<_>>()
        })
    };
    let mut seen: Vec<(String, usize)> = Vec::new();
    for warning in plans.iter().flat_map(|plan| plan.warnings.iter().cloned().chain(of_offer(plan))) {
        match seen.iter_mut().find(|(known, _)| *known == warning) {
            Some((_, count)) => *count += 1,
            None => seen.push((warning, 1)),
        }
    }
    let all = plans.len();
    let told = seen.iter().take(WARNINGS_SHOWN).map(|(warning, count)| match *count == all {
        true => format!("warning: {warning}"),
        false => format!("warning, of {count} of {all}: {warning}"),
    });
    lines.extend(told);
    let more = seen.len().saturating_sub(WARNINGS_SHOWN);
    lines.extend((more > 0).then(|| format!("and {more} more warnings: --json has them all")));
    lines
}

/// A point of a sweep in figures.
pub fn point(plan: &Plan) -> Vec<String> {
    let demand = &plan.demand;
    let head = vec![demand.accelerators.to_string(), number(demand.dataset_bytes / 1e12)];
    let unranked = plan.unranked.len().to_string();
    let Some(offer) = plan.offers.first() else {
        let none = vec![String::new(); POINT.len() - head.len()];
        return [head, none, vec!["no offer".into(), String::new(), "0".into(), unranked]].concat();
    };
    let cells = vec![
        format!("{:.0}", offer.nodes),
        format!("{:.1}", offer.au_percent),
        number(offer.hours.likely),
        number(offer.total_usd.likely),
        number(offer.idle_usd),
        number(offer.storage_usd),
        format!("{:.2}", offer.cache_ratio),
        offer.id.clone(),
        limit(offer),
        plan.ties.len().to_string(),
        unranked,
    ];
    [head, cells].concat()
}

/// What the simulator says of the best offers at other sizes.
pub fn simulated(rows: &[Row]) -> Result<()> {
    let columns = vec![
        Column::right("accelerators"),
        Column::right("rank"),
        Column::left("offer"),
        Column::left("epoch"),
        Column::right("AU % planned"),
        Column::right("bound %"),
        Column::right("AU % simulated"),
    ];
    let table = Table { columns, rows: rows.iter().map(Row::cells).collect() };
    let note = "Simulated: what it has above its bound are the batches ahead, which flatter short epochs.".into();
    let chart = Chart { title: "The best offers, simulated".into(), table, note, ..Chart::default() };
    print::out(format_args!("\n{}", chart.text(&style())))
}

/// What keeps shown offers from being used as they are.
fn warned(plan: &Plan, top: usize) -> Vec<String> {
    let shown = plan.offers.iter().take(top.max(1));
    shown.flat_map(|offer| offer.warnings.iter().map(|warning| format!("{}: {warning}", offer.id))).collect()
}

fn chart(plan: &Plan, top: usize) -> Chart {
    let demand = &plan.demand;
    let right = ["AU %", "hours", "run $", "from", "to", "idle $", "storage $", "$/epoch"].map(Column::right);
    let columns = [Column::right("rank"), Column::left("offer")]
        .into_iter()
        .chain(right)
        .chain([Column::left("limit")])
        .collect();
    let subtitle = format!(
        "{} {} ask for {:.0} MB/s; {} TB, {:.0} epochs, {} hours if none waits; {} ways looked at.",
        demand.accelerators,
        demand.accelerator,
        plan.demand_mb_per_s,
        number(demand.dataset_bytes / 1e12),
        demand.epochs,
        number(plan.ideal_hours),
        plan.candidates,
    );
    Chart {
        title: "What to rent".into(),
        subtitle,
        table: Table { columns, rows: plan.offers.iter().take(top.max(1)).map(row).collect() },
        note:
            "= costs that overlap with those of the first: a tie. From and to: everything at its best and at its worst."
                .into(),
        ..Chart::default()
    }
}

fn row(offer: &Offer) -> Vec<String> {
    vec![
        format!("{}{}", if offer.is_tie { "=" } else { "" }, offer.rank),
        offer.id.clone(),
        format!("{:.1}", offer.au_percent),
        number(offer.hours.likely),
        number(offer.total_usd.likely),
        number(offer.total_usd.low),
        number(offer.total_usd.high),
        number(offer.idle_usd),
        number(offer.storage_usd),
        number(offer.usd_per_epoch),
        limit(offer),
    ]
}

/// What holds it back, and whether that was carried beyond what was measured.
pub fn limit(offer: &Offer) -> String {
    let extrapolated = if offer.extrapolated { ", extrapolated" } else { "" };
    format!("{}{extrapolated}", offer.binding_limit)
}

/// Why the first is the first, and what changes that.
pub fn answer(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(first) = plan.offers.first() {
        lines.extend(of_first(first));
        if let Some(next) =
            plan.offers.iter().find(|offer| offer.service != first.service || offer.method != first.method)
        {
            lines.push(format!(
                "(nodes x price + storage) / AU of the run: {:.2} $/h for the first, {:.2} for {}: it pays if and only if this falls",
                first.rule_usd_per_hour, next.rule_usd_per_hour, next.id
            ));
        }
        match plan.break_even.is_empty() {
            true => lines.push("break-even: no price of an accelerator makes another offer cheaper".into()),
            false => lines.extend(plan.break_even.iter().map(|even| {
                format!(
                    "break-even: at {:.3} $ an accelerator hour; below it {} is cheaper, above it {}",
                    even.usd_per_accelerator_hour, even.cheaper_below, even.cheaper_above
                )
            })),
        }
        lines.extend(
            plan.sensitivity
                .iter()
                .map(|row| format!("{}: {} to {} $", row.of, number(row.low_usd), number(row.high_usd))),
        );
        lines.push(format!("not beaten in both cost and time: {}", plan.pareto.join(", ")));
    } else {
        lines.push("nothing can be ranked".into());
    }
    lines
}

fn lines(plan: &Plan) -> Vec<String> {
    let mut lines = answer(plan);
    lines.extend(plan.oldest_price.map(|date| format!("oldest price of all offers: {date}")));
    lines.extend(plan.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.push(String::new());
    lines.extend(
        plan.unranked
            .iter()
            .take(UNRANKED_SHOWN)
            .map(|unranked| format!("can't be ranked: {}, because {}", unranked.id, unranked.reasons.join("; "))),
    );
    let more = plan.unranked.len().saturating_sub(UNRANKED_SHOWN);
    if more > 0 {
        lines.push(format!("and {more} more that can't be ranked: --json has them all"));
    }
    lines
}

fn of_first(first: &Offer) -> Vec<String> {
    let slack = first.limits.iter().take(4).map(|bound| format!("{} {:.2}", bound.limit, bound.of_demand));
    vec![
        format!(
            "first: {}: {} x {} in {}, {} MB/s a $/h, {} samples a $, the cheapest in {:.0} % of draws",
            first.id,
            first.nodes,
            first.node,
            first.region,
            number(first.mb_per_s_per_usd_hour),
            number(first.samples_per_usd),
            first.chance_of_best * 100.0
        ),
        format!(
            "its cost: busy {} $, idle {}, copy {}, capacity {}, requests {}, bytes {}, egress {}",
            number(first.busy_usd),
            number(first.idle_usd),
            number(first.staging_usd),
            number(first.capacity_usd),
            number(first.requests_usd),
            number(first.bytes_usd),
            number(first.egress_usd)
        ),
        format!(
            "its limit: {}, next {}; limits over demand: {}",
            first.binding_limit,
            first.next_limit,
            slack.collect::<Vec<_>>().join(", ")
        ),
        format!("reached of listed limits: {:.2} ({})", first.efficiency.share.likely, first.efficiency.why),
    ]
}

/// As many digits as matter.
pub fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value if value < 5e-5 => "0".to_owned(),
        value => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::plan::catalog::Catalog;
    use ::plan::catalog::shipped::SHIPPED;
    use ::plan::date::Date;
    use ::plan::demand::Demand;

    #[test]
    fn a_table_says_what_was_carried_on_and_what_cant_be_mounted() {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        let mut demand = Demand::new("V100", 32, 18.75, 16e6, 318_750.0);
        (demand.node, demand.accelerator_usd_hour) = (Some("azure.ND40rs_v2".into()), Some(3.30475));
        let mut plan = Plan::of(&catalog, &demand, Date::parse("2026-11-24").unwrap()).unwrap();
        let last = plan.offers.len();
        assert!(warned(&plan, last).iter().any(|line| line.contains("needs a mount of az://")));
        assert!(!chart(&plan, last).text(&style()).contains("extrapolated"));
        plan.offers[0].extrapolated = true;
        assert!(chart(&plan, last).text(&style()).contains(", extrapolated"));
        assert!(lines(&plan).iter().any(|line| line.starts_with("oldest price of all offers")));
    }
}
