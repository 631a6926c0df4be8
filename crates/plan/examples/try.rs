fn main(){ println!("{}",stoker_plan::calibration::all().markdown());
 use stoker_plan::*;
 let c=catalog::Catalog::of(&catalog::shipped::SHIPPED).unwrap();
 let mut d=demand::Demand::new("V100",32,18.75,16e6,318750.0);
 d.epochs=48.0; d.node=Some("azure.ND40rs_v2".into());
 let t=std::time::Instant::now();
 let p=plan::Plan::of(&c,&d,date::Date::parse("2026-11-24").unwrap()).unwrap_or_else(|e|panic!("{e}"));
 println!("{} candidates {} offers {} unranked {:?}",p.candidates,p.offers.len(),p.unranked.len(),t.elapsed());
 for o in p.offers.iter().take(25){println!("{:60} au {:.1} [{:.0}..{:.0}] h {:.1} ${:.0} [{:.0}..{:.0}] idle {:.0} stor {:.1} P {:.2} {}|{}",o.id,o.au_percent,o.au_percent_low,o.au_percent_high,o.hours.likely,o.total_usd.likely,o.total_usd.low,o.total_usd.high,o.idle_usd,o.storage_usd,o.chance_of_best,o.binding_limit,o.next_limit);}
 println!("{:?}\n{:?}\n{:?}",p.pareto,p.break_even,p.sensitivity);
 for u in p.unranked.iter().filter(|u|u.id.starts_with("azure")).take(40){println!("{} {:?}",u.id,u.reasons);}
 println!("{:?}",p.warnings);
}
