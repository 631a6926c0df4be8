//! A plan as a page that is complete in itself: pictures in SVG, tables, and the JSON that they are drawn from.
//!
//! It runs no script and refers to nothing outside. Invariant: whatever a catalogue or a user wrote is escaped; what the study
//! published only as pictures is labelled "shape only".

mod draw;

use std::fmt::Write as _;

use ::plan::catalog::Catalog;
use ::plan::nodes::{Nodes, of_provider};
use ::plan::plan::Plan;
use ::plan::study::{FILES_MB, Speed, Study, THREADS, Value};

use super::table::{self, number};
use super::{document, simulated::Row};
use draw::{Bars, Dot, Line, Part, escaped};

/// Offers in a picture, and of a point of a sweep in its tables.
const OFFERS: usize = 12;
/// Points of a sweep that are drawn; of the others, a row each. A sweep has 512, and each drawn takes 60 KB.
const POINTS: usize = 16;

const LOOK: &str = "\
:root { color-scheme: light dark; --ink: #1f2328; --faint: #59636e; --line: #d8dee4; --a: #e8590c; --b: #8b949e; --c: #2f6f9f; --d: #6a8f3c; --e: #a0569a; --back: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #f0f6fc; --faint: #9198a1; --line: #30363d; --a: #ff7b2e; --b: #7d8590; --c: #5aa5dc; --d: #9bc15a; --e: #c983c3; --back: #0d1117 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto; padding: 0 1rem; max-width: 64rem }
h2 { margin-top: 2.5rem; font-size: 1.15rem } p, .note { max-width: 46rem } ul { padding-left: 1.2rem; margin: 0 } .note { color: var(--faint) }
.scroll { overflow-x: auto } .tall { overflow: auto; max-height: 32rem } .tall th { position: sticky; top: 0; background: var(--back) } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
th { text-align: left; font-weight: 500; color: var(--faint) } th, td { border-bottom: 1px solid var(--line); padding: .2rem .9rem .2rem 0; white-space: nowrap }
td.n { text-align: right } svg { width: 100%; height: auto; min-width: 640px; max-width: 900px; display: block } svg text { fill: var(--ink); font-size: 12px } svg .faint { fill: var(--faint) }
svg .axis { stroke: var(--line) } .k0 { fill: var(--b) } .k1 { fill: var(--a) } .k2 { fill: var(--c) } .k3 { fill: var(--d) } .k4 { fill: var(--e) } .k5 { fill: var(--ink) }
svg .l { fill: none; stroke-width: 2 } .s0 { stroke: var(--b) } .s1 { stroke: var(--a) } .s2 { stroke: var(--c) } .s3 { stroke: var(--d) } .s4 { stroke: var(--e) } .s5 { stroke: var(--ink) }";

pub fn of(catalog: &Catalog, plans: &[Plan], simulated: &[Row]) -> String {
    let mut body = String::new();
    // A single plan is there as a whole; of a sweep, as much as a browser can open.
    let shown: Vec<Plan> = if plans.len() > 1 { plans.iter().enumerate().map(shortened).collect() } else { Vec::new() };
    let drawn = if shown.is_empty() { plans } else { &shown };
    if !shown.is_empty() {
        sweep(plans, &mut body);
    }
    for plan in drawn.iter().take(POINTS) {
        if !shown.is_empty() {
            let demand = &plan.demand;
            let title = format!("{} accelerators, {} TB", demand.accelerators, number(demand.dataset_bytes / 1e12));
            let _ = writeln!(body, "<h1>{}</h1>", escaped(&title));
        }
        of_plan(plan, &mut body);
    }
    second_opinion(simulated, &mut body);
    if let Some(plan) = plans.first()
        && let Some(nodes) = nodes_of(catalog, plan)
    {
        of_study(&Study::of(catalog, &nodes), &mut body);
    }
    let json = document::of(drawn, simulated)
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026");
    let policy =
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";
    format!(
        "<!doctype html>\n<html lang=\"en\" data-state=\"drawn\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Stoker plan</title>{policy}<style>{LOOK}</style></head>\n<body><h1>What to rent</h1>\n{body}<script id=\"plan\" type=\"application/json\">{json}</script>\n</body></html>\n"
    )
}

/// A point of a sweep with its first offers: those that are drawn with a dozen, the others with one.
fn shortened((index, plan): (usize, &Plan)) -> Plan {
    let most = if index < POINTS { OFFERS } else { 1 };
    let first = |ids: &[String]| ids.iter().take(most).cloned().collect::<Vec<_>>();
    Plan {
        offers: plan.offers.iter().take(most).cloned().collect(),
        unranked: plan.unranked.iter().take(most).cloned().collect(),
        pareto: first(&plan.pareto),
        ties: first(&plan.ties),
        demand: plan.demand.clone(),
        break_even: plan.break_even.clone(),
        sensitivity: plan.sensitivity.clone(),
        warnings: plan.warnings.clone(),
        not_modelled: plan.not_modelled.clone(),
        demand_mb_per_s: plan.demand_mb_per_s,
        ideal_hours: plan.ideal_hours,
        candidates: plan.candidates,
        oldest_price: plan.oldest_price,
    }
}

/// All points of a sweep, a row each.
fn sweep(plans: &[Plan], body: &mut String) {
    let names: Vec<&str> = table::POINT.into_iter().chain(table::LAST).collect();
    let note = format!(
        "Of each point its first offer. The first {POINTS} points follow with {OFFERS} offers each; --json has all offers of all points."
    );
    section(body, "All points", &note, &table(&names, plans.iter().map(table::point)));
    let lines = table::of_points(plans).iter().map(|line| format!("<li>{}</li>", escaped(line))).collect::<String>();
    section(body, "To be known of them", "", &format!("<ul>{lines}</ul>"));
}

/// The nodes of the provider of the first offer.
fn nodes_of<'a>(catalog: &'a Catalog, plan: &'a Plan) -> Option<Nodes<'a>> {
    let node = &plan.offers.first()?.node;
    let provider = &catalog.nodes.iter().find(|known| known.id == *node)?.provider;
    of_provider(catalog, provider, &plan.demand).ok()
}

fn of_plan(plan: &Plan, body: &mut String) {
    let demand = &plan.demand;
    let _ = writeln!(
        body,
        "<p>{} {} ask for {:.0} MB/s: {} TB, {:.0} epochs, {} hours if none ever waits. {} ways were looked at; the oldest price of all offers is of {}.</p>",
        demand.accelerators,
        escaped(&demand.accelerator),
        plan.demand_mb_per_s,
        number(demand.dataset_bytes / 1e12),
        demand.epochs,
        number(plan.ideal_hours),
        plan.candidates,
        plan.oldest_price.map_or("no known date".to_owned(), |date| date.to_string()),
    );
    for warning in &plan.warnings {
        let _ = writeln!(body, "<p class=\"note\">{}</p>", escaped(warning));
    }
    let shown = || plan.offers.iter().take(OFFERS);
    let bars = shown().map(|offer| {
        let parts = [offer.busy_usd, offer.idle_usd, offer.staging_usd, offer.storage_usd];
        let parts = parts.iter().enumerate().map(|(kind, usd)| Part { kind, value: *usd });
        (
            offer.id.clone(),
            parts.collect::<Vec<_>>(),
            format!("{} $, AU {:.0} %", number(offer.total_usd.likely), offer.au_percent),
        )
    });
    let legend = ["computing", "idle", "copying", "storage"];
    section(
        body,
        "Cost of the run",
        "Accelerators while they compute, wait and copy, and everything else.",
        &Bars { unit: "USD of the run", legend: &legend, bars: bars.collect() }.svg(),
    );
    let because = table::answer(plan).iter().map(|line| format!("<li>{}</li>", escaped(line))).collect::<String>();
    section(body, "Why the first is the first", "", &format!("<ul>{because}</ul>"));
    cost_against_time(plan, body);
    tables(plan, body);
}

fn cost_against_time(plan: &Plan, body: &mut String) {
    let dots = plan.offers.iter().map(|offer| Dot {
        x: offer.hours.likely,
        y: offer.total_usd.likely,
        is_front: plan.pareto.contains(&offer.id),
        label: offer.id.clone(),
    });
    section(
        body,
        "Cost against time",
        "Those on the line are not beaten in both.",
        &draw::dots(&dots.collect::<Vec<_>>(), "hours", "USD"),
    );
}

fn tables(plan: &Plan, body: &mut String) {
    let rows = plan.offers.iter().map(|offer| {
        vec![
            format!("{}{}", if offer.is_tie { "=" } else { "" }, offer.rank),
            offer.id.clone(),
            format!("{:.1}", offer.au_percent),
            number(offer.hours.likely),
            number(offer.total_usd.likely),
            format!("{} to {}", number(offer.total_usd.low), number(offer.total_usd.high)),
            number(offer.idle_usd),
            number(offer.storage_usd),
            number(offer.mb_per_s_per_usd_hour),
            number(offer.rule_usd_per_hour),
            table::limit(offer),
            offer.next_limit.clone(),
            offer.warnings.join("; "),
        ]
    });
    let names = [
        "rank",
        "offer",
        "AU %",
        "hours",
        "run $",
        "range",
        "idle $",
        "storage $",
        "MB/s a $/h",
        "(n P + C)/AU",
        "limit",
        "next",
        "but",
    ];
    section(body, "All offers", "= is a tie with the first: the ranges of their costs overlap.", &table(&names, rows));
    let rows = plan.unranked.iter().map(|unranked| vec![unranked.id.clone(), unranked.reasons.join("; ")]);
    section(body, "Can't be ranked", "", &table(&["what", "because"], rows));
}

/// What the simulator says of the best offers.
fn second_opinion(simulated: &[Row], body: &mut String) {
    if simulated.is_empty() {
        return;
    }
    let rows = simulated.iter().map(Row::cells);
    let names = ["accelerators", "rank", "offer", "epoch", "AU % planned", "bound %", "AU % simulated"];
    let note = "What is simulated above its bound are the batches ahead, which flatter short epochs.";
    section(body, "The best offers, simulated", note, &table(&names, rows));
}

fn section(body: &mut String, title: &str, note: &str, content: &str) {
    let note = if note.is_empty() { String::new() } else { format!("<p class=\"note\">{}</p>", escaped(note)) };
    // A table of many rows scrolls by itself.
    let tall = if content.matches("<tr>").count() > 20 { " tall" } else { "" };
    let _ = writeln!(body, "<h2>{}</h2>{note}<div class=\"scroll{}\">{content}</div>", escaped(title), tall);
}

/// Cells that begin with a digit are numbers.
fn table(names: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head: String = names.iter().map(|name| format!("<th>{}</th>", escaped(name))).collect();
    let cell = |cell: &String| {
        let is_number = cell.trim_start_matches('=').starts_with(|letter: char| letter.is_ascii_digit());
        let class = if is_number { " class=\"n\"" } else { "" };
        format!("<td{class}>{}</td>", escaped(cell))
    };
    let rows: String = rows.map(|row| format!("<tr>{}</tr>", row.iter().map(cell).collect::<String>())).collect();
    format!("<table><tr>{head}</tr>{rows}</table>")
}

fn of_study(study: &Study, body: &mut String) {
    let shape = format!("{} x {}, by listed limits: shape only.", study.nodes, study.node);
    let mut names: Vec<(&str, &str)> =
        study.speeds.iter().map(|speed| (speed.service.as_str(), speed.client.as_str())).collect();
    names.dedup();
    let most = THREADS[THREADS.len() - 1];
    // One line for each service: by the size of files with so many threads, or by threads over files of a size.
    let lines = |x: fn(&Speed) -> f64, y: fn(&Speed) -> f64, is: &dyn Fn(&Speed) -> bool| -> Vec<Line> {
        let line = |(service, client): &(&str, &str)| {
            let ours = |speed: &&Speed| speed.service == *service && speed.client == *client && is(speed);
            let points = study.speeds.iter().filter(ours).map(|speed| (x(speed), y(speed))).collect();
            Line { label: format!("{service}, {client}"), points }
        };
        names.iter().map(line).collect()
    };
    for threads in [THREADS[0], most] {
        let title = format!("Bandwidth by file size, {threads:.0} threads a node");
        let of = lines(|speed| speed.file_mb, |speed| speed.mb_per_s, &|speed| speed.threads_of_node == threads);
        section(body, &title, &shape, &draw::lines(&of, "MB a file", "MB/s"));
    }
    for file_mb in [FILES_MB[0], FILES_MB[4]] {
        let title = format!("Bandwidth by threads, files of {file_mb} MB");
        let of = lines(|speed| speed.threads_of_node, |speed| speed.mb_per_s, &|speed| speed.file_mb == file_mb);
        section(body, &title, &shape, &draw::lines(&of, "threads a node", "MB/s"));
    }
    for threads in [THREADS[0], most] {
        let title = format!("Latency by file size, {threads:.0} threads a node");
        let of = lines(|speed| speed.file_mb, |speed| speed.latency_ms, &|speed| speed.threads_of_node == threads);
        section(body, &title, &shape, &draw::lines(&of, "MB a file", "ms"));
    }
    values(study, &shape, body);
    listed(study, body);
}

/// What services cost at their best, and what they give for it.
fn values(study: &Study, shape: &str, body: &mut String) {
    let at = FILES_MB[4];
    let bars = |tb: f64, unit: &'static str, of: fn(&Value) -> f64| {
        let is = |value: &&Value| value.data_tb == tb && value.file_mb == at;
        let bar = |value: &Value| {
            (
                format!("{}, {}", value.service, value.client),
                vec![Part { kind: 1, value: of(value) }],
                number(of(value)),
            )
        };
        Bars { unit, legend: &[], bars: study.values.iter().filter(is).map(bar).collect() }.svg()
    };
    let files = format!("{shape} Files of {at} MB, at the request rate that the speed needs.");
    section(
        body,
        "Cost of a service at its best, 100 TB, USD an hour",
        &files,
        &bars(100.0, "USD an hour", |value| value.usd_per_hour),
    );
    section(
        body,
        "MB/s for 1 USD an hour, 100 TB",
        &files,
        &bars(100.0, "MB/s for 1 USD an hour", |value| value.mb_per_s_per_usd_hour),
    );
    section(
        body,
        "MB/s for 1 USD an hour, 10 TB",
        &files,
        &bars(10.0, "MB/s for 1 USD an hour", |value| value.mb_per_s_per_usd_hour),
    );
}

/// The limits of all services.
fn listed(study: &Study, body: &mut String) {
    let rows = study.limits.iter().map(|listed| {
        let grows = if listed.grows_per_tib > 0.0 { number(listed.grows_per_tib) } else { String::new() };
        vec![
            listed.service.clone(),
            listed.limit.to_owned(),
            format!("{:?}", listed.scope).to_lowercase(),
            number(listed.value),
            grows,
            listed.cap.map(number).unwrap_or_default(),
            format!("{:?}", listed.confidence).to_lowercase(),
            listed.source.clone(),
        ]
    });
    let names = ["service", "limit of", "for each", "value", "more a TiB", "cap", "confidence", "source"];
    section(body, "Limits of all services", "MB/s, requests a second, ms.", &table(&names, rows));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::plan::catalog::shipped::SHIPPED;
    use ::plan::date::Date;
    use ::plan::demand::Demand;

    #[test]
    fn a_page_has_all_pictures_and_nothing_of_what_was_typed_becomes_markup() {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        let mut demand = Demand::new("V100", 32, 18.75, 16e6, 318_750.0);
        (demand.node, demand.accelerator_usd_hour) = (Some("azure.ND40rs_v2".into()), Some(3.30475));
        let mut plan = Plan::of(&catalog, &demand, Date::parse("2026-11-24").unwrap()).unwrap();
        plan.demand.accelerator = "<script>alert(1)</script>".into();
        plan.offers[0].id = "</script><b>".into();
        plan.offers[0].extrapolated = true;
        let page = of(&catalog, &[plan], &[]);
        for title in [
            "Cost of the run",
            "Cost against time",
            "Bandwidth by file size",
            "Latency by file size",
            "100 TB",
            "10 TB",
            "Limits of all services",
        ] {
            assert!(page.contains(title), "{title}");
        }
        assert!(page.contains(", extrapolated</td>") && page.contains("needs a mount of az://"));
        assert!(page.contains("shape only") && page.matches("<svg").count() == 11);
        assert!(!page.contains("<script>alert") && !page.contains("<b>") && !page.contains("NaN"));
        assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (1, 1));
        assert!(page.starts_with("<!doctype html>") && !page.contains("http://") && !page.contains("https://"));
    }

    #[test]
    fn a_page_of_a_sweep_has_all_points_and_is_bounded() {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        let demand = Demand::new("V100", 32, 18.75, 16e6, 318_750.0);
        let plan = Plan::of(&catalog, &demand, Date::parse("2026-11-24").unwrap()).unwrap();
        let (few, many) = (vec![plan.clone(); 2], vec![plan; 512]);
        let (small, large) = (of(&catalog, &few, &[]), of(&catalog, &many, &[]));
        assert!(small.matches("<h1>32 accelerators, 5.10 TB</h1>").count() == 2 && small.contains("All points"));
        assert_eq!(large.matches("<h1>32 accelerators, 5.10 TB</h1>").count(), POINTS);
        assert!(large.matches("<tr>").count() > 512 && large.len() < 16 << 20, "{} bytes", large.len());
        // As the table of a terminal: what is to be known of all points.
        assert!(large.contains("oldest price of all offers") && large.contains("warning: "));
    }
}
