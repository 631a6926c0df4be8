//! Histories: what can happen to the disk tier, drawn from one seed, on a disk that forgets (docs/histories.md).
//!
//! [`play`] tells whether everything held in the history of a seed. A failure names its step; [`shorten`] leaves out
//! what it does not need. Nothing here is part of the program.

mod chance;
mod forgetful;
mod oracle;
mod pages;
mod step;
mod truth;
mod weather;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use step::{Scene, Step};
use world::World;

/// What a history came to.
#[derive(Debug)]
pub struct Outcome {
    /// Blocks that readers got and that were compared.
    pub blocks: u64,
    pub steps: usize,
    /// What did not hold.
    pub failure: Option<String>,
    /// What happened, if it was asked for.
    pub story: Vec<String>,
}

/// The history of a seed.
pub fn play(seed: u64) -> Outcome {
    let (scene, steps) = step::draw(seed);
    perform(&scene, &steps, false)
}

/// The shortest history found that fails as the one of a seed does, in lines that people can read.
pub fn explain(seed: u64) -> Vec<String> {
    let (scene, steps) = step::draw(seed);
    let steps = shorten(&scene, steps);
    let outcome = perform(&scene, &steps, true);
    let failure = outcome.failure.map_or("everything holds".into(), |failure| format!("FAILED: {failure}"));
    let head = [format!("seed {seed}, {} steps that matter", steps.len()), scene.to_string()];
    head.into_iter().chain(outcome.story).chain([failure]).collect()
}

/// Leave out steps as long as it still fails.
fn shorten(scene: &Scene, mut steps: Vec<Step>) -> Vec<Step> {
    let failure = |steps: &[Step]| perform(scene, steps, false).failure.map(|failure| kind(&failure));
    let Some(wanted) = failure(&steps) else { return steps };
    let fails = |steps: &[Step]| failure(steps).as_ref() == Some(&wanted);
    loop {
        let before = steps.len();
        for at in (0..steps.len()).rev() {
            let mut fewer = steps.clone();
            fewer.remove(at);
            if fails(&fewer) {
                steps = fewer;
            }
        }
        if steps.len() == before {
            return steps;
        }
    }
}

/// What failed, without its numbers and names.
pub fn kind(failure: &str) -> String {
    let is_plain = |word: &&str| !word.contains(['/', '(']) && !word.contains(|letter: char| letter.is_ascii_digit());
    failure.split(' ').filter(is_plain).collect::<Vec<_>>().join(" ")
}

fn perform(scene: &Scene, steps: &[Step], is_recorded: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without input and output needs nothing");
    let mut world = World::new(scene, is_recorded);
    let live = async {
        world.start()?;
        for step in steps {
            world.step(step).await?;
        }
        world.epilogue().await
    };
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(live)));
    let failure = match ended {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(format!("it panicked: {}", text.unwrap_or_default()))
        }
    };
    let _inside = runtime.enter();
    world.tell_names();
    let (blocks, story) = (world.blocks, world.story.take().unwrap_or_default());
    drop(world);
    Outcome { blocks, steps: steps.len(), failure, story }
}

#[cfg(test)]
mod tests;
