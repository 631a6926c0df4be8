//! A view of a folder that takes down what is asked of it.
//!
//! Layout: [`Mirror`] (the view, as a namespace to mount), [`Recorder`] (what was asked), [`stage`] (where the observed
//! command runs). What was seen is judged by `trace`.

mod mirror;
mod recorder;
pub mod stage;

pub use mirror::Mirror;
pub use recorder::Recorder;
