//! The loop of a training job: readers, batches, steps of nominal time, a barrier; and how busy it keeps accelerators.
