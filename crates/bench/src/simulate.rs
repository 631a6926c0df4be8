//! The loop of a training job as a discrete-event simulation, for more accelerators than there are.
