//! Pages with and without charts, of reports that want to be markup.

use super::*;
use report::{Environment, Kind};

const EVIL: &str = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>";

/// A page as Node would build it, as far as it matters here.
const TEMPLATE: &str = "<p>before</p><script id=\"reports\" type=\"application/json\"></script><p>after</p>";

fn report() -> Report {
    Report {
        finished: true,
        settings: serde_json::json!({ EVIL: EVIL }),
        warnings: vec!["5 < 6 & 'so' on".into()],
        ..Report::begin(Kind::Simulated, "simulate", EVIL, Environment::default(), 0.0)
    }
}

fn made(template: &str) -> String {
    page(template, &[report()], &names(&[report()]), &compare(&[report()]))
}

/// What stands in the element of the reports.
fn carried(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("<script id=\"reports\" type=\"application/json\">").expect("the element");
    let (text, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn what_a_report_says_never_becomes_markup_and_comes_through_unchanged() {
    for template in [TEMPLATE, ""] {
        let page = made(template);
        for markup in ["<script>alert", "<img", "<!--"] {
            assert!(!page.contains(markup), "{markup} is in\n{page}");
        }
        let carried = carried(&page);
        assert_eq!(carried["reports"][0]["report"]["target"], EVIL);
        assert_eq!(carried["reports"][0]["report"]["settings"][EVIL], EVIL);
        assert_eq!(carried["reports"][0]["name"], EVIL);
    }
}

#[test]
fn reports_go_into_the_template_also_for_who_runs_no_scripts_and_nothing_else_changes() {
    let page = made(TEMPLATE);
    assert!(page.starts_with("<p>before</p><noscript>") && page.ends_with("</script><p>after</p>"), "{page}");
    assert!(page.contains("</noscript><script id=") && page.contains("<th>kind</th><td>simulated</td>"), "{page}");
}

#[test]
fn a_page_without_charts_says_so_and_has_every_figure() {
    let page = made("");
    assert!(page.contains("No charts") && page.contains("without Node"), "{page}");
    assert!(page.contains("<th>warnings.1</th><td>5 &lt; 6 &amp; &#39;so&#39; on</td>"), "{page}");
    assert!(page.contains("(simulated)"), "{page}");
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<link"), "{page}");
}

#[test]
fn one_report_has_no_comparison_and_two_have_one() {
    assert!(carried(&made(TEMPLATE))["comparison"].is_null());
    let two = [report(), report()];
    let page = page(TEMPLATE, &two, &names(&two), &compare(&two));
    assert!(carried(&page)["comparison"]["rows"].is_array());
    assert_ne!(carried(&page)["reports"][0]["name"], carried(&page)["reports"][1]["name"], "names tell them apart");
}

#[test]
fn the_page_of_this_build_is_whole_or_absent() {
    assert_eq!(has_charts(), PAGE.matches(SLOT).count() == 1);
    for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!PAGE.contains(outside), "the page asks for {outside}");
    }
}

#[test]
fn a_report_that_cannot_be_written_leaves_nothing_and_says_where() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("absent/report.html");
    let error = write(&[report()], &path).expect_err("no folder");
    assert!(error.to_string().contains("absent/report.html"), "{error}");
    let path = folder.path().join("report.html");
    write(&[report()], &path).expect("written");
    csv(&[report()], &folder.path().join("report.csv")).expect("written");
    let left: HashSet<_> =
        std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, HashSet::from(["report.html".into(), "report.csv".into()]));
}
