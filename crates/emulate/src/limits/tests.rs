//! The arithmetic of limits, with plain numbers for time.

use super::*;

#[test]
fn a_line_carries_its_rate_and_no_more() {
    let mut meter = Meter::of_bytes(200_000_000);
    let mut last = 0;
    for _ in 0..1000 {
        last = meter.reserve(1_000_000, 0);
    }
    // 1 GB at 200 MB/s is five seconds, less the credit of an idle line.
    assert_eq!(last, 5 * SECOND - BANDWIDTH_CREDIT);
}

#[test]
fn an_idle_line_saves_only_a_small_burst() {
    let mut meter = Meter::of_bytes(1_000_000);
    meter.reserve(1_000_000, 0);
    let hour = 3600 * SECOND;
    assert_eq!(meter.reserve(1_000_000, hour), hour + SECOND - BANDWIDTH_CREDIT);
}

#[test]
fn a_late_timer_costs_no_bandwidth() {
    let mut meter = Meter::of_bytes(100_000_000);
    let mut now = 0;
    for _ in 0..10_000 {
        // Each piece takes 1 ms; each timer fires 2 ms late, which the credit covers.
        let due = meter.reserve(100_000, now);
        now = if due > now { due + 2_000_000 } else { now };
    }
    let seconds = now as f64 / SECOND as f64;
    assert!((seconds - 10.0).abs() < 0.02, "{seconds}");
}

#[test]
fn connections_that_take_turns_share_fairly() {
    let mut meter = Meter::of_bytes(1_000_000);
    let (mut ends, mut sent) = ([0i64; 3], [0u64; 3]);
    for _ in 0..300 {
        let first = (0..3).min_by_key(|index| ends[*index]).expect("three");
        ends[first] = meter.reserve(10_000, ends[first]);
        sent[first] += 10_000;
    }
    assert!(sent.iter().all(|bytes| bytes.abs_diff(1_000_000) <= 20_000), "{sent:?}");
}

#[test]
fn requests_above_the_rate_wait_or_are_refused() {
    let mut queue = Meter::of_requests(10);
    assert!(matches!(queue.admit(0, QUEUE_WAIT_MAX), Turn::At(due) if due <= 0), "the first goes at once");
    assert!(matches!(queue.admit(0, QUEUE_WAIT_MAX), Turn::At(due) if due > 99_000_000 && due <= SECOND / 10));
    let mut refuse = Meter::of_requests(100);
    let at_once = (0..1000).filter(|_| refuse.admit(0, Duration::ZERO) != Turn::Refused).count();
    assert_eq!(at_once, 10, "a tenth of a second's worth");
    let later = (0..1000).filter(|ms| refuse.admit(ms * 1_000_000, Duration::ZERO) != Turn::Refused).count();
    assert!((99..=101).contains(&later), "{later}");
}

#[test]
fn a_queue_is_bounded() {
    let mut meter = Meter::of_requests(1);
    let admitted = (0..1000).filter(|_| meter.admit(0, QUEUE_WAIT_MAX) != Turn::Refused).count();
    assert!((30..=32).contains(&admitted), "{admitted}");
}

#[test]
fn latencies_have_the_quantiles_that_were_asked_for() {
    let ms = Duration::from_millis;
    let near = |left: Duration, right: Duration| left.abs_diff(right) < Duration::from_micros(10);
    let lognormal: Latency = "20ms,p99=100ms".parse().unwrap();
    assert!(near(lognormal.quantile(0.5), ms(20)));
    assert!(near(lognormal.quantile(0.99), ms(100)));
    assert_eq!("lognormal(20ms,100ms)".parse::<Latency>().unwrap(), lognormal);
    assert_eq!("lognormal(20ms, p99=100ms)".parse::<Latency>().unwrap(), lognormal);
    assert_eq!("20ms".parse::<Latency>().unwrap().quantile(0.3), ms(20));
    assert!(near("uniform(10ms,30ms)".parse::<Latency>().unwrap().quantile(0.25), ms(15)));
    assert_eq!(Latency::None.quantile(0.9), Duration::ZERO);
}

#[test]
fn what_is_not_understood_is_answered_with_an_example() {
    for text in [
        "",
        "20",
        "20ms,p98=3s",
        "uniform(3ms)",
        "uniform(30ms,10ms)",
        "lognormal(20ms,1ms)",
        "lognormal(0ms,1ms)",
        "soon",
    ] {
        assert!(text.parse::<Latency>().unwrap_err().hint.contains("uniform(10ms,30ms)"), "{text}");
    }
    assert!("504".parse::<Throttle>().unwrap_err().hint.contains("queue"));
    let refuse = Throttle::Refuse { retry_after: Some(Duration::from_secs(1)) };
    assert_eq!("503,retry-after=1s".parse::<Throttle>().unwrap(), refuse);
}
